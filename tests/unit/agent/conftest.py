"""What several tests of the agent start from."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate_agent.storage.rocks import RocksStorage
from quorate_lone_agent.agent import Agent
from quorate_lone_agent.storage_engine import Engine


@pytest.fixture
def agent() -> Agent:
    """One agent that is primary of everything, alone."""
    return Agent()


@pytest.fixture(params=["memory", "memory with a bound", "rocks", "simulated"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine that keeps nothing yet."""
    engine = Engine(request.param, tmp_path)
    yield engine
    engine.close()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[RocksStorage]:
    """A zone on disk, in the folder `zone`, that keeps nothing yet."""
    opened = RocksStorage(tmp_path / "zone")
    yield opened
    opened.close()


@pytest.fixture
def pass_a_minute(agent: Agent) -> Callable[[], None]:
    """On the agent's wall clock."""

    def pass_it() -> None:
        agent.clock.wall_ahead_ms += 61_000

    return pass_it
