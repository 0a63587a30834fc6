"""Clients that wait for what no longer comes are answered, and are not read for ever meanwhile."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from quorate.facts.keyspace import key_partition
from quorate_agent.clients.connection import (
    LONG_BYTES,
    QUEUE_BYTES_MAX,
    QUEUE_MAX,
    WAITED_MS_MAX,
    ClientConnection,
    Slot,
)
from quorate_agent.clients.turn_share import CUT_BYTES_PER_TURN
from quorate_agent.commands import endpoint
from quorate_differential.kept_client import KeptClient
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import OTHER, Agent, key_in

BIG = b"x" * 1_000_000


def test_a_read_of_a_half_closed_client_that_waited_for_a_lost_write_is_answered(
    agent: Agent,
) -> None:
    agent.endpoint.forwards.is_leaving = True  # MOVED is the answer elsewhere
    client = agent.writer()
    client.send((b"SET", b"k", b"1"), (b"GET", b"k"))
    client.connection.eof_received()  # `printf ... | nc`: it sends no more, and reads on
    agent.give(OTHER, range(4))
    for _ in range(3):
        agent.tick()
    told = client.told()
    assert len(told) == 2, told
    assert client.socket.closed


NOBODY = "CLUSTERDOWN Hash slot not served"


def test_what_was_parked_when_its_client_closed_its_side_is_not_executed(agent: Agent) -> None:
    """A library's time is over: it closes the connection and asks the next primary, which others
    write to from then on."""
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, 0
    client = agent.writer()
    client.send((b"SET", b"k", b"late"), (b"SET", b"k", b"later"))
    client.connection.eof_received()
    role.serving_until = until  # in the same turn
    agent.endpoint.settle()
    assert [str(each) for each in client.told()] == [NOBODY] * 2
    assert client.socket.closed
    agent.turn()
    assert agent.writer().ask(b"GET", b"k") == [None]


def test_a_command_that_read_and_may_write_yet_is_not_executed_again_for_one_that_is_gone(
    agent: Agent,
) -> None:
    """SETNX behind somebody's write that was never acknowledged: to be tried again, as a read is,
    it would take a lock for nobody."""
    agent.writer().ask(b"SET", b"k", b"1")
    agent.written()
    client = agent.writer()
    assert client.ask(b"SETNX", b"k", b"late") == []
    client.connection.eof_received()
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    agent.replicas.give_up(role.take_clients())  # as when its lease has ended for long
    agent.written()
    assert [str(each) for each in client.told()] == [NOBODY]
    assert client.socket.closed


def test_what_is_behind_a_parked_read_is_not_executed_for_one_that_is_gone(agent: Agent) -> None:
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, 0
    client = agent.writer()
    client.send((b"GET", b"k"), (b"SET", b"k", b"late"))
    client.connection.eof_received()
    role.serving_until = until
    agent.turn()
    assert [str(each) for each in client.told()] == ["None", NOBODY]
    assert client.socket.closed


def test_a_half_closed_client_waits_for_a_transaction_in_a_healthy_cluster(agent: Agent) -> None:
    low, high = key_in(0), key_in(1)
    other = agent.writer()
    other.send((b"MULTI",), (b"SET", low, b"1"), (b"SET", high, b"1"), (b"EXEC",))
    agent.written()
    client = agent.writer()
    client.send((b"SET", low, b"2"), (b"SET", key_in(3), b"x"), (b"GET", low))
    assert client.connection.blocked
    client.connection.eof_received()
    for _ in range(6):
        agent.turn()
    assert client.told() == [b"OK", b"OK", b"2"]
    assert client.socket.closed


def test_a_read_that_is_given_up_does_not_wait_as_long_once_more(agent: Agent) -> None:
    agent.writer().ask(b"SET", b"k", b"1")
    agent.written()
    client = agent.writer()
    assert client.ask(b"GET", b"k") == []
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    role.serving_until = 0
    agent.clock.ahead_ms = 5_001
    agent.replicas.give_up(role.take_clients())  # as when its lease has ended for long
    agent.endpoint.settle()
    assert [str(each) for each in client.told()] == [NOBODY]


def test_what_waited_behind_another_command_for_long_is_not_executed_for_one_that_is_gone(
    agent: Agent,
) -> None:
    client = agent.writer()
    client.send((b"WAIT", b"1", b"0"), (b"SET", b"k", b"late"))
    client.connection.eof_received()
    (waiting,) = client.connection.queue
    assert isinstance(waiting, Slot)
    agent.clock.ahead_ms = 60_000
    agent.endpoint.answers.fulfil(client.connection, waiting, b":0\r\n")
    agent.turn()
    assert [str(each) for each in client.told()] == ["0", NOBODY]


def test_the_end_of_a_client_is_seen_whose_socket_is_not_read_at_present(agent: Agent) -> None:
    """A pipeline of more commands than are taken in at once; the first is parked."""
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, 0

    async def end_behind_its_commands() -> None:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here:
            transport, client = await loop.create_connection(
                lambda: ClientConnection(agent.endpoint), sock=there
            )
            here.sendall(encode_command([b"SET", b"k", b"late"]) * (endpoint.QUANTUM + 2))
            while not client.blocked:
                await asyncio.sleep(0)
                agent.endpoint.settle()
            assert client.paused
        role.serving_until = until
        agent.endpoint.settle()
        assert transport.is_closing()
        await asyncio.sleep(0)

    asyncio.run(end_behind_its_commands())
    agent.turn()
    assert agent.writer().ask(b"GET", b"k") == [None]


def test_one_that_sends_nonsense_behind_its_commands_is_still_there(agent: Agent) -> None:
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    until, role.serving_until = role.serving_until, 0
    client = agent.writer()
    client.connection.data_received(encode_command([b"SET", b"k", b"1"]) + b"*nonsense\r\n")
    agent.endpoint.settle()
    role.serving_until = until
    agent.turn()
    assert client.told()[0] == b"OK"


def test_what_had_waited_for_long_when_its_client_closed_its_side_is_not_executed(
    agent: Agent,
) -> None:
    """And what is behind it neither: half a transaction would be worse."""
    client = agent.writer()
    client.send((b"WAIT", b"1", b"0"), (b"MULTI",), (b"SET", b"k", b"late"))
    soon = agent.writer()
    agent.clock.ahead_ms = WAITED_MS_MAX + 100
    client.send((b"EXEC",), (b"SET", b"k", b"later"))
    soon.send((b"WAIT", b"1", b"0"))
    soon.send((b"SET", b"{k}2", b"new"))
    for each in (client, soon):
        each.connection.eof_received()
        assert not each.socket.closed
        (waiting,) = each.connection.queue
        assert isinstance(waiting, Slot)
        agent.endpoint.answers.fulfil(each.connection, waiting, b":0\r\n")
    agent.turn()
    assert [str(each) for each in client.told()] == ["0"] + [NOBODY] * 4
    assert soon.told() == [0, b"OK"]
    assert client.socket.closed
    assert agent.writer().ask(b"MGET", b"k", b"{k}2") == [[None, b"new"]]


def test_one_that_says_quit_is_answered_before(agent: Agent) -> None:
    agent.endpoint.forwards.is_leaving = True
    client = agent.writer()
    client.send((b"SET", b"k", b"1"), (b"GET", b"k"), (b"QUIT",))
    agent.give(OTHER, range(4))
    agent.tick(10_000)
    told = client.told()
    assert len(told) == 3, told
    assert client.socket.closed


def _waiting(agent: Agent, bound_ms: bytes) -> KeptClient:
    """Who has written, and waits for a copy of it while the primary becomes another."""
    client = agent.writer()
    client.ask(b"SET", b"k", b"1")
    agent.turn()
    assert client.told() == [b"OK"]
    assert client.ask(b"WAIT", b"1", bound_ms) == []
    agent.give(OTHER, range(4))
    return client


def test_a_wait_for_ever_ends_when_the_primary_goes(agent: Agent) -> None:
    client = _waiting(agent, b"0")
    for _ in range(5):
        agent.tick(10_000)
    assert "UNBLOCKED" in str(client.told()[0])


def test_a_wait_with_a_bound_is_answered_with_a_number_also_then(agent: Agent) -> None:
    client = _waiting(agent, b"10000")
    agent.clock.ahead_ms = 10_000
    agent.tick()
    (count,) = client.told()
    assert isinstance(count, int)


@pytest.mark.parametrize("words", [(b"SET", b"k", b"1"), (b"GET", b"big")])
def test_a_connection_whose_replies_wait_is_not_read_for_ever(words: tuple[bytes, ...]) -> None:
    agent = Agent(1 << 30)
    agent.write(b"SET", b"big", b"x" * 100_000)
    client = agent.writer()
    client.ask(b"SET", b"k", b"0")
    part = encode_command(words) * 10
    for _ in range(QUEUE_MAX + 1):  # the SETs of a turn share a place in the queue
        if client.connection.paused:
            break
        client.connection.data_received(part)
        agent.written()  # nothing is durable: a disk stands still
    assert client.connection.paused


def _behind_a_write(agent: Agent, reads: int) -> KeptClient:
    """Who waits for a write, and has read so many long values since; nothing is durable yet: a
    disk stands still."""
    agent.write(b"SET", b"big", BIG)
    client = agent.writer()
    client.ask(b"SET", b"k", b"0")
    for _ in range(reads):
        client.connection.data_received(encode_command((b"GET", b"big")))
        agent.written()
    return client


def test_replies_that_wait_for_a_write_are_bounded_in_bytes() -> None:
    agent = Agent(1 << 30)
    client = _behind_a_write(agent, 100)
    assert QUEUE_BYTES_MAX <= _kept(client) <= QUEUE_BYTES_MAX + 2 * len(BIG)

    told: list[object] = []
    for _ in range(20):
        agent.turn()
        told += client.told()

    sent = len(told) - 1
    assert told == [b"OK", *[BIG] * sent]
    assert not client.connection.held
    assert not client.connection.paused
    assert client.ask(b"PING") == [b"PONG"]


def test_writes_that_wait_are_bounded_in_bytes_too() -> None:
    agent = Agent(1 << 30)
    client = agent.writer()
    for _ in range(100):
        if not client.connection.paused:
            client.connection.data_received(encode_command((b"SET", b"k", BIG)))
        agent.written()
    assert QUEUE_BYTES_MAX <= _kept(client) <= QUEUE_BYTES_MAX + 2 * len(BIG)


def test_writes_of_a_pipeline_that_share_an_update_are_bounded_in_bytes_too() -> None:
    agent = Agent(1 << 30)
    client = agent.writer()
    commands = [(b"SET", b"{a}%d" % number, bytes(2000)) for number in range(30)]
    sent = 0
    for _ in range(1000):
        if client.connection.paused:
            break
        client.connection.data_received(b"".join(map(encode_command, commands)))
        sent += 60_000
        agent.written()
    assert 0.9 * QUEUE_BYTES_MAX <= sent <= 1.2 * QUEUE_BYTES_MAX


def test_what_waited_and_what_waited_for_it_leave_in_one_write(agent: Agent) -> None:
    client = agent.writer()
    client.ask(b"SET", b"k", b"0")
    agent.turn()
    assert client.told() == [b"OK"]
    assert client.send((b"WAIT", b"1", b"1000"), (b"GET", b"k")) == []
    agent.clock.ahead_ms = 1000

    agent.synced()

    assert len(client.socket.written) == 1
    assert client.told() == [0, b"0"]


def test_commands_that_are_cut_in_the_turn_that_answers_the_queue_are_executed() -> None:
    agent = Agent(1 << 30)
    client, other = _behind_a_write(agent, 17), agent.writer()
    assert not client.connection.has_room()
    # Of what is cut into commands in this turn nothing is left, and a long read waits as it is.
    other.connection.data_received(encode_command((b"SET", b"o", bytes(CUT_BYTES_PER_TURN))))
    client.connection.data_received(encode_command((b"SET", b"k2", bytes(LONG_BYTES))))
    assert client.connection.unread

    agent.synced()  # the write is acknowledged, and what waits is cut, in the same turn
    for _ in range(5):
        agent.turn()

    assert client.told() == [b"OK", *[BIG] * 17, b"OK"]
    assert client.ask(b"PING") == [b"PONG"]


def test_what_waits_is_counted_once() -> None:
    """A connection that sends one command after the other, without waiting for answers."""
    agent = Agent(1 << 30)
    client = _behind_a_write(agent, 0)
    counted = 0

    class Words(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            nonlocal counted
            counted += 1
            return super().__iter__()

    for number in range(100):
        client.connection.data_received(encode_command((b"SET", b"k%d" % number, b"1")))
        place = client.connection.queue[-1]
        assert isinstance(place, Slot)
        place.args = Words(place.args)
    assert counted <= 100


def _kept(client: KeptClient) -> int:
    """Bytes of commands and replies that the connection keeps."""
    connection = client.connection
    waiting = [args for _, args in connection.backlog]
    replies = 0
    for place in connection.queue:
        if isinstance(place, Slot):
            waiting.append(place.args)
        else:
            replies += len(place)
    return replies + len(connection.unread) + sum(len(word) for args in waiting for word in args)
