"""Commands that come in one read: what one of them changes counts for the next."""

from itertools import count

import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.copies.role_state import FrozenFor
from quorate_agent.clients.connection import ClientConnection
from quorate_agent.resp.replies import UNKNOWN_OUTCOME
from quorate_differential.kept_client import KeptClient
from quorate_differential.kept_socket import KeptSocket
from quorate_lone_agent.agent import OTHER, ZONE, Agent

A, B = b"{t}a", b"{t}b"
HOME = key_partition(A, ZONE.partitions)
ELSEWHERE = next(
    b"%d" % number for number in count() if key_partition(b"%d" % number, ZONE.partitions) != HOME
)


@pytest.fixture
def client(agent: Agent) -> KeptClient:
    """Its A is 1."""
    client = agent.writer()
    client.ask(b"SET", A, b"1")
    agent.turn()
    assert client.told() == [b"OK"]
    return client


@pytest.mark.parametrize("key", [A, B])
def test_a_read_behind_a_write_is_not_answered_while_that_may_be_lost(
    agent: Agent, client: KeptClient, key: bytes
) -> None:
    agent.up.discard(OTHER.node)
    assert client.send((b"SET", A, b"2"), (b"SET", B, b"2"), (b"GET", key)) == []

    agent.give(OTHER, [HOME])

    unknown = UNKNOWN_OUTCOME[1:-2].decode()
    assert [str(each) for each in client.told()] == [unknown, unknown]


@pytest.mark.parametrize(
    ("between", "reply"),
    [
        ((b"WATCH", ELSEWHERE), b"OK"),
        ((b"GET", ELSEWHERE), None),
        ((b"EXISTS", A, B), 1),
        ((b"CLIENT", b"ID"), 2),
        ((b"DBSIZE",), 1),
    ],
    ids=lambda value: value[0].decode() if isinstance(value, tuple) else "",
)
def test_reads_of_one_key_agree_whatever_stands_between(
    agent: Agent, client: KeptClient, between: tuple[bytes, ...], reply: object
) -> None:
    said = client.send((b"GET", A), between, (b"GET", A))
    agent.turn()

    first, middle, last = said + client.told()
    assert (first, last) == (b"1", b"1")
    assert middle == reply or between[0] == b"CLIENT"


def test_a_copy_that_may_be_read_is_not_taken_for_the_next_key(
    agent: Agent, client: KeptClient
) -> None:
    client.ask(b"READONLY")
    role = agent.replicas.primaries[key_partition(ELSEWHERE, ZONE.partitions)]
    assert role is not None
    role.frozen = FrozenFor("m-1", 0)

    assert client.send((b"GET", A), (b"GET", ELSEWHERE), (b"GET", A)) == [b"1", None, b"1"]


def test_the_lock_of_a_transaction_holds_for_every_command(
    agent: Agent, client: KeptClient
) -> None:
    role = agent.replicas.primaries[HOME]
    assert role is not None
    role.locks[B] = b"transaction"

    said = client.send((b"GET", A), (b"SET", B, b"2"), (b"SET", A, b"2"))
    agent.turn()

    assert said + client.told() == [b"1"]
    assert client.connection.blocked


def test_what_was_put_back_is_executed_in_its_order(agent: Agent, client: KeptClient) -> None:
    wait = (b"WAIT", b"1", b"100000")
    said = client.send(
        wait, (b"SET", A, b"2"), wait, (b"SET", A, b"3"), (b"SET", A, b"4"), (b"GET", A)
    )
    for _ in range(2):
        for slot in [each for each in client.connection.queue if not isinstance(each, bytes)]:
            if slot.wait is not None:
                slot.deadline_ms = 1
        agent.turn()
    agent.turn()

    assert said + client.told() == [0, b"OK", 0, b"OK", b"OK", b"4"]


def test_a_backlog_is_taken_as_far_as_it_came_together(agent: Agent) -> None:
    connection = ClientConnection(agent.endpoint)
    connection.connection_made(KeptSocket())
    connection.backlog.extend([(5, [b"1"]), (5, [b"2"]), (5, [b"3"]), (6, [b"4"])])

    assert connection.take_backlog(2) == (5, [[b"2"], [b"1"]])
    assert connection.take_backlog(9) == (5, [[b"3"]])
    assert connection.take_backlog(9) == (6, [[b"4"]])
