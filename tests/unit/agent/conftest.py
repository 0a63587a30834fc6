"""What several tests of the agent start from."""

import pytest

from quorate_lone_agent.agent import Agent


@pytest.fixture
def agent() -> Agent:
    """One agent that is primary of everything, alone."""
    return Agent()
