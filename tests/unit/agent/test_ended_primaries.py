"""Whom clients are sent to while a primary's process has ended and there is no other yet."""

from itertools import count

import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.settings import DEFAULTS
from quorate_agent import overview
from quorate_agent.client import boot_ms
from quorate_lone_agent.agent import OTHER, Agent


def _primaries(agent: Agent) -> list[str]:
    view = agent.endpoint.overview.cluster()
    return [view.nodes[at].name for at in view.primaries]


@pytest.fixture
def agent() -> Agent:
    """Of its four partitions, two are another agent's, whose process has ended."""
    agent = Agent()
    agent.give(OTHER, [1, 2])
    assert _primaries(agent) == ["a", "b", "b", "a"]
    agent.up.discard("b")
    agent.endpoint.overview.peer_gone("b")
    return agent


def test_they_come_here_where_commands_wait(agent: Agent) -> None:
    assert _primaries(agent) == ["a", "a", "a", "a"]

    key = next(b"%d" % n for n in count() if key_partition(b"%d" % n, 4) == 1)
    assert agent.writer().ask(b"GET", key) == []
    assert not agent.sent


def test_it_is_named_again_once_it_is_back(agent: Agent) -> None:
    agent.up.add("b")

    assert _primaries(agent) == ["a", "b", "b", "a"]


def test_one_that_is_only_out_of_reach_is_named(agent: Agent) -> None:
    agent.up.add("b")
    assert _primaries(agent) == ["a", "b", "b", "a"]
    agent.up.discard("b")
    agent.endpoint.table_changed()

    assert _primaries(agent) == ["a", "b", "b", "a"]


def test_it_is_named_again_when_commands_wait_no_longer(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _primaries(agent) == ["a", "a", "a", "a"]

    monkeypatch.setattr(overview, "boot_ms", lambda: boot_ms() + DEFAULTS.park_bound_ms)

    assert _primaries(agent) == ["a", "b", "b", "a"]
