"""WAIT counts the copies that have all of what its connection has written, in every partition."""

import msgspec
import pytest

from quorate.protocol.copies.role_state import Peer
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, Agent, key_in

K0, K1 = key_in(0), key_in(1)
WAIT = (b"WAIT", b"1", b"60000")


@pytest.fixture
def client(agent: Agent) -> KeptClient:
    """Of an agent beside which another has a copy of each partition, with nothing in it."""
    replicas = agent.replicas
    replicas.record = msgspec.structs.replace(replicas.record, replicas=2)
    for role in agent.replicas.roles.values():
        peer = role.peers[OTHER.node] = Peer()
        peer.adopted = True
        peer.lwm = 0
    return agent.writer()


def _has(agent: Agent, *partitions: int) -> None:
    """The other agent has all of these partitions, and says so."""
    for partition in partitions:
        role = agent.replicas.roles[partition]
        role.peers[OTHER.node].lwm = role.copy.lwm
    agent.turn()


def _wrote(agent: Agent, client: KeptClient, *commands: tuple[bytes, ...]) -> None:
    client.send(*commands)
    agent.turn()
    client.told()


def _waited(agent: Agent, client: KeptClient, *words: bytes) -> list[object]:
    """The answer to a WAIT that has not to wait."""
    client.send(words)
    agent.turn()
    return client.told()


def test_the_partition_that_fewest_copies_have_counts(agent: Agent, client: KeptClient) -> None:
    _wrote(agent, client, (b"SET", K0, b"1"), (b"INCR", K1))
    assert client.ask(*WAIT) == []
    _has(agent, 1)
    assert client.told() == []
    _has(agent, 0)
    assert client.told() == [1]


@pytest.mark.parametrize(
    "commands",
    [
        [(b"SET", K0, b"1"), (b"SET", K1, b"1")],  # joined
        [(b"FLUSHALL",)],
        [(b"MULTI",), (b"SET", K0, b"1"), (b"SET", K1, b"1"), (b"EXEC",)],
    ],
    ids=["joined writes", "FLUSHALL", "a transaction over partitions"],
)
def test_each_partition_counts_of(
    commands: list[tuple[bytes, ...]], agent: Agent, client: KeptClient
) -> None:
    _wrote(agent, client, *commands)
    assert client.ask(*WAIT) == []
    _has(agent, 1, 2, 3)
    assert client.told() == []
    _has(agent, 0)
    assert client.told() == [1]


def test_what_others_write_meanwhile_does_not_count(agent: Agent, client: KeptClient) -> None:
    _wrote(agent, client, (b"SET", K0, b"1"))
    assert client.ask(*WAIT) == []
    had = agent.replicas.roles[0].copy.lwm
    agent.write(b"SET", K0, b"2")
    agent.replicas.roles[0].peers[OTHER.node].lwm = had
    agent.turn()
    assert client.told() == [1]


def test_a_number_is_told_when_the_time_is_over(agent: Agent, client: KeptClient) -> None:
    _wrote(agent, client, (b"SET", K0, b"1"), (b"SET", K1, b"1"))
    assert client.ask(*WAIT) == []
    _has(agent, 0)
    agent.tick(60_000)
    assert client.told() == [0]
    _has(agent, 1)
    assert _waited(agent, client, *WAIT) == [1]


def test_what_every_copy_has_is_not_looked_at_again(agent: Agent, client: KeptClient) -> None:
    _wrote(agent, client, (b"SET", K0, b"1"), (b"SET", K1, b"1"))
    _has(agent, 1)
    assert _waited(agent, client, b"WAIT", b"0", b"0") == [0]
    assert client.connection.written == 0b01
    _has(agent, 0)
    assert _waited(agent, client, *WAIT) == [1]
    assert client.connection.written == 0


def test_a_copy_that_is_not_there_is_not_counted_by_a_later_wait(
    agent: Agent, client: KeptClient
) -> None:
    agent.replicas.roles[0].peers.clear()  # after a reset, or before a newcomer is there
    _wrote(agent, client, (b"SET", K0, b"1"))
    for _ in range(2):
        assert client.ask(*WAIT) == []
        agent.tick(60_000)
        assert client.told() == [0]


def test_a_partition_that_has_moved_does_not_count_with_later_writes(
    agent: Agent, client: KeptClient
) -> None:
    _wrote(agent, client, (b"SET", K1, b"1"))
    agent.give(OTHER, [1])  # of one voter: acknowledged by nobody else
    for _ in range(2):
        assert client.ask(*WAIT) == []
        agent.tick(60_000)
        assert client.told() == [0]

    _wrote(agent, client, (b"SET", K0, b"1"))
    _has(agent, 0)

    assert _waited(agent, client, *WAIT) == [1]


def test_a_transaction_counts_where_it_writes(agent: Agent, client: KeptClient) -> None:
    _wrote(agent, client, (b"MULTI",), (b"SET", K0, b"1"), (b"GET", K1), (b"EXEC",))
    assert client.connection.written == 0b01


def test_for_ever_ends_when_one_of_the_primaries_goes(agent: Agent, client: KeptClient) -> None:
    _wrote(agent, client, (b"SET", K0, b"1"), (b"SET", K1, b"1"))
    assert client.ask(b"WAIT", b"1", b"0") == []
    agent.give(OTHER, [1])
    assert "UNBLOCKED" in str(client.told())
