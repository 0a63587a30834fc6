"""KEYS lists every key of the agent that is there throughout, and leaves others their turns."""

import itertools

import pytest

from quorate.facts.keyspace import RESERVED
from quorate_agent.commands.zone import key_lists
from quorate_agent.commands.zone.key_lists import STEP_ROWS, STEP_S
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent, key_in

MANY = 6 * STEP_ROWS
CLUSTERDOWN = "CLUSTERDOWN"


@pytest.fixture
def agent() -> Agent:
    return Agent(memory_bytes=1 << 26)


@pytest.fixture
def slow(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with many keys in each partition on which one step takes a turn's share."""
    client = agent.writer()
    client.send(*[(b"SET", b"k%d" % number, b"v") for number in range(4 * MANY)])
    for _ in range(4 * MANY // 128):
        agent.turn()
    looks = itertools.count()
    monkeypatch.setattr(agent.endpoint._key_lists, "_clock", lambda: next(looks) * STEP_S)
    assert agent.writer().ask(b"DBSIZE") == [4 * MANY]
    return agent


def _listed(agent: Agent, client: KeptClient) -> list[bytes]:
    for _ in range(4 * MANY):
        if found := client.told():
            (keys,) = found
            assert isinstance(keys, list), keys
            return keys
        agent.endpoint.settle()
    raise AssertionError("never answered")


def test_keys_of_all_partitions_that_match_are_listed(agent: Agent) -> None:
    wanted = sorted(key_in(partition, b"a") for partition in range(4))
    for key in (*wanted, b"b", b"[a]"):
        agent.write(b"SET", key, b"v")
    client = agent.writer()
    client.ask(b"KEYS", b"a*")
    assert sorted(_listed(agent, client)) == wanted
    client.ask(b"KEYS", b"\\[a\\]")
    assert _listed(agent, client) == [b"[a]"]
    client.ask(b"KEYS", b"*")
    assert sorted(_listed(agent, client)) == sorted([*wanted, b"b", b"[a]"])
    agent.write(b"FLUSHDB")
    client.ask(b"KEYS", b"*")
    assert _listed(agent, client) == []


def test_what_has_expired_and_what_is_the_protocols_own_is_not_listed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.write(b"SET", b"stays", b"v")
    agent.write(b"SET", b"goes", b"v", b"EX", b"60")
    role = agent.replicas.primaries[0]
    assert role is not None
    role.write(((RESERVED + b"x", b"v", 0),))
    agent.turn()
    client = agent.writer()
    agent.clock.wall_ahead_ms = 61_000
    client.ask(b"KEYS", b"*")
    assert _listed(agent, client) == [b"stays"]


def test_a_long_list_leaves_others_their_turns(slow: Agent) -> None:
    client, other = slow.writer(), slow.writer()
    assert client.send((b"KEYS", b"*"), (b"SET", b"k1", b"new"), (b"PING",)) == []
    for _ in range(4):
        slow.endpoint.settle()
        assert other.ask(b"GET", b"k1") == [b"v"]  # what came behind KEYS waits for it
    assert client.told() == []
    for _ in range(4 * MANY // STEP_ROWS + 4):
        slow.turn()
    keys, *behind = client.told()
    assert sorted(keys) == sorted(b"k%d" % number for number in range(4 * MANY))
    assert behind == [b"OK", b"PONG"]


def test_lists_are_made_one_after_the_other(slow: Agent) -> None:
    clients = [slow.writer() for _ in range(3)]
    for number, client in enumerate(clients):
        client.ask(b"KEYS", b"k%d*" % (number + 1))
    order = []
    while len(order) < 3:
        slow.endpoint.settle()
        order += [number for number, client in enumerate(clients) if client.told()]
    assert order == [0, 1, 2]


def test_a_key_that_is_there_throughout_is_listed_once(slow: Agent) -> None:
    client = slow.writer()
    client.ask(b"KEYS", b"*")
    for number in range(0, 4 * MANY, 100):
        slow.write(b"DEL", b"k%d" % number)
        slow.write(b"SET", b"new%d" % number, b"v")
    keys = _listed(slow, client)
    stay = {b"k%d" % number for number in range(4 * MANY) if number % 100}
    assert len(keys) == len({*keys})
    assert stay <= {*keys}


@pytest.mark.parametrize("how", ["another's", "ours in another term", "its lease has ended"])
def test_a_list_whose_partition_is_lost_meanwhile_is_refused(slow: Agent, how: str) -> None:
    """Else it would lack keys without a word."""
    client = slow.writer()
    client.ask(b"KEYS", b"*")
    slow.endpoint.settle()
    assert client.told() == []
    if how == "another's":
        slow.give(OTHER, [3])
    elif how == "ours in another term":
        slow.give(OTHER, [3])
        slow.give(slow.me, [3])
    else:
        role = slow.replicas.primaries[3]
        assert role is not None
        role.serving_until = 0
    for _ in range(4 * MANY // STEP_ROWS + 4):
        slow.endpoint.settle()
    (said,) = client.told()
    assert str(said).startswith(CLUSTERDOWN)


def test_keys_waits_for_a_primary_that_cannot_serve_yet(agent: Agent) -> None:
    agent.write(b"SET", b"k", b"v")
    role = agent.replicas.primaries[2]
    assert role is not None
    until, role.serving_until = role.serving_until, 0
    client = agent.writer()
    client.ask(b"KEYS", b"*")
    agent.endpoint.settle()
    assert client.told() == []
    role.serving_until = until
    assert _listed(agent, client) == [b"k"]
    assert client.ask(b"PING") == [b"PONG"]  # nothing waits any more


def test_the_list_of_a_client_that_left_is_given_up(slow: Agent) -> None:
    client = slow.writer()
    client.ask(b"KEYS", b"*")
    assert slow.endpoint._key_lists
    client.leave()
    assert not slow.endpoint._key_lists


def test_a_list_of_too_many_bytes_is_refused(slow: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lists, "LIST_BYTES_MAX", 4 * MANY)
    client = slow.writer()
    client.ask(b"KEYS", b"*")
    for _ in range(4 * MANY // STEP_ROWS + 4):
        slow.endpoint.settle()
    (said,) = client.told()
    assert "use SCAN" in str(said)
    client.ask(b"KEYS", b"k1000*")
    assert _listed(slow, client)
