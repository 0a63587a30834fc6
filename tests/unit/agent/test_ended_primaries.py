"""What is said of who serves which slots while a primary's process has ended and there is no other
yet: nothing, for a moment."""

from typing import Any

import pytest

from quorate_agent.commands.zone.overview import TAKE_OVER_MS
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent

TABLES = [(b"CLUSTER", b"SLOTS"), (b"CLUSTER", b"SHARDS"), (b"CLUSTER", b"NODES")]


@pytest.fixture
def agent() -> Agent:
    """Of its four partitions, two are another agent's, whose process has ended."""
    agent = Agent()
    agent.give(OTHER, [1, 2])
    agent.up.discard("b")
    agent.endpoint.overview.peer_gone("b")
    return agent


def _primaries(slots: list[Any]) -> list[bytes]:
    return [primary[0] for _, _, primary in slots[0]]


@pytest.mark.parametrize("words", TABLES, ids=lambda words: words[1].decode())
def test_whoever_asks_waits_for_the_next_primary(agent: Agent, words: tuple[bytes, ...]) -> None:
    client = agent.writer()
    assert client.send(words, (b"PING",)) == []

    agent.give(agent.me, [1, 2])

    table, pong = client.told()
    assert table
    assert pong == b"PONG"


def test_the_table_names_the_next_primary(agent: Agent) -> None:
    client = agent.writer()
    assert client.ask(b"CLUSTER", b"SLOTS") == []

    agent.give(agent.me, [1, 2])

    assert _primaries(client.told()) == [b"a"]


def test_other_commands_do_not_wait(agent: Agent) -> None:
    assert agent.writer().ask(b"PING") == [b"PONG"]
    assert agent.writer().ask(b"CLUSTER", b"MYID") != []


def test_it_is_named_again_once_it_is_back(agent: Agent) -> None:
    client = agent.writer()
    assert client.ask(b"CLUSTER", b"SLOTS") == []

    agent.up.add("b")
    agent.turn()

    assert _primaries(client.told()) == [b"a", b"b", b"a"]


def test_nobody_waits_for_one_that_is_primary_of_nothing(agent: Agent) -> None:
    agent.give(agent.me, [1, 2])

    assert agent.writer().ask(b"CLUSTER", b"SLOTS") != []


def test_nobody_waits_for_one_that_is_only_out_of_reach(agent: Agent) -> None:
    agent.up.add("b")
    assert agent.writer().ask(b"CLUSTER", b"SLOTS") != []
    agent.up.discard("b")

    assert agent.writer().ask(b"CLUSTER", b"SLOTS") != []


def test_nobody_waits_long(agent: Agent) -> None:
    client: KeptClient = agent.writer()
    assert client.ask(b"CLUSTER", b"SLOTS") == []

    agent.clock.ahead_ms = TAKE_OVER_MS
    agent.turn()

    assert _primaries(client.told()) == [b"a", b"b", b"a"]
