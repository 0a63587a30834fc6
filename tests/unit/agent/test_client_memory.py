"""What clients make an agent hold is counted, and bounded for all of them together."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from quorate_agent.clients.memory import GIVEN_BACK_BYTES, WATCHED_BYTES, ClientMemory, budget
from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_agent.resp.reading import parser as parser_module
from quorate_agent.resp.tables.table import COMMANDS
from quorate_agent.resp.transaction import NOT_WATCHED, Transaction
from quorate_differential.kept_client import KeptClient
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import Agent, key_in

MIB = 1 << 20
CHUNK = 128 * 1024


def _agent(budget_bytes: int) -> Agent:
    agent = Agent(64 * MIB)
    agent.endpoint.memory = budget(0.5, 2 * budget_bytes, "a test")
    return agent


def _send(client: KeptClient, data: bytes) -> None:
    """As it comes from a socket: in pieces."""
    for at in range(0, len(data), CHUNK):
        client.connection.data_received(data[at : at + CHUNK])
        endpoint = client.connection.endpoint
        assert isinstance(endpoint, ZoneEndpoint)
        endpoint.settle()


def _half(size: int) -> bytes:
    """The first half of a SET."""
    whole = encode_command([b"SET", b"k", bytes(size)])
    return whole[: len(whole) // 2]


def _told(client: KeptClient) -> list[str]:
    return [str(each) for each in client.told()]


def test_a_large_command_above_the_budget_is_refused_by_name_and_its_connection_goes_on() -> None:
    agent = _agent(5 * MIB)
    memory = agent.endpoint.memory
    first, second = agent.writer(), agent.writer()
    _send(first, _half(4 * MIB))
    assert 4 * MIB <= memory.held < 5 * MIB

    _send(second, encode_command([b"SET", b"other", bytes(2 * MIB)]) + encode_command([b"PING"]))
    agent.turn()

    refused, pong = _told(second)
    assert refused == (
        "OOM clients hold 4 MiB of this agent's memory, a command of 2 MiB exceeds"
        " 5 MiB (--client-memory-share 0.5 of 10 MiB: a test): try again later"
    )
    assert pong == str(b"PONG")
    assert second.ask(b"EXISTS", b"other") == [0]
    assert memory.refused == 1


@pytest.mark.parametrize("ends", ["leaves", "finishes"])
def test_what_a_client_holds_is_free_again_when_it_is_answered_or_gone(ends: str) -> None:
    agent = _agent(5 * MIB)
    first, second = agent.writer(), agent.writer()
    whole = encode_command([b"SET", b"k", bytes(4 * MIB)])
    _send(first, whole[: 3 * MIB])
    if ends == "leaves":
        first.leave()
    else:
        _send(first, whole[3 * MIB :])
        agent.turn()
        assert first.told() == [b"OK"]

    _send(second, encode_command([b"SET", b"other", bytes(4 * MIB)]))
    agent.turn()

    assert second.told() == [b"OK"]
    agent.endpoint.memory.keep()
    assert agent.endpoint.memory.held == 0
    assert agent.endpoint.memory.refused == 0


def test_many_small_words_of_one_command_count_too() -> None:
    agent = _agent(2 * MIB)
    client = agent.writer()

    _send(
        client,
        encode_command([b"MSET", *[b"{k}%d" % n if n % 2 else bytes(9000) for n in range(1, 601)]]),
    )
    agent.turn()

    assert [each[:4] for each in _told(client)] == ["OOM "]
    assert client.ask(b"DBSIZE") == [0]


@pytest.mark.parametrize("length", [1, 2, 20])
def test_a_command_of_small_words_counts_what_they_take(length: int) -> None:
    """Each takes some fifty bytes beside its text; those of one byte are shared by all."""
    words = [b"DEL", *[b"%0*d" % (length, n % 10**length) for n in range(30_000)]]
    stream = encode_command(words)[:-3]
    agent = _agent(64 * MIB)
    client = agent.writer()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    _send(client, stream)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    agent.endpoint.memory.measure()

    taken = after - before
    assert taken <= agent.endpoint.memory.held
    if length > 1:
        assert agent.endpoint.memory.held <= 2 * taken


def test_what_waits_behind_an_earlier_command_counts_with_its_words() -> None:
    agent = _agent(64 * MIB)
    client = agent.writer()
    client.send((b"WAIT", b"1", b"0"))

    _send(client, encode_command([b"EXISTS", *[b"{k}%d" % n for n in range(30_000)]]))
    agent.endpoint.memory.measure()

    assert client.connection.backlog
    assert agent.endpoint.memory.held > 1.5 * MIB


def test_a_command_that_is_refused_ends_a_transaction_as_any_other_error() -> None:
    agent = _agent(1 * MIB)
    client = agent.writer()
    client.ask(b"MULTI")

    _send(client, encode_command([b"SET", b"k", bytes(2 * MIB)]))
    agent.turn()

    assert [each[:4] for each in _told(client)] == ["OOM "]
    assert str(client.ask(b"EXEC")[0]).startswith("EXECABORT")


@pytest.mark.parametrize("name", [b"WATCH", b"watch", b"Watch"])
@pytest.mark.parametrize("is_too_large", [False, True], ids=["no-memory", "too-large"])
def test_a_transaction_behind_a_watch_that_is_refused_for_its_size_is_not_executed(
    monkeypatch: pytest.MonkeyPatch, name: bytes, is_too_large: bool
) -> None:
    agent = _agent(MIB if is_too_large else 80_000)
    if is_too_large:
        monkeypatch.setattr(parser_module, "QUERY_BYTES_MAX", 50_000)
    client = agent.writer()
    keys = [b"{k}%d" % number + bytes(40) for number in range(1500)]
    change = ((b"MULTI",), (b"SET", b"k", b"new"), (b"EXEC",))

    stream = [[name, *keys], *map(list, change)]
    _send(client, b"".join(map(encode_command, stream)))
    agent.turn()

    refused, multi, queued, ended = _told(client)
    assert "command of" in refused
    assert multi == str(b"OK")
    assert queued == NOT_WATCHED[1:-2].decode()
    assert ended.startswith("EXECABORT")
    assert agent.writer().ask(b"GET", b"k") == [None]
    assert agent.execute(client, (b"SET", b"k", b"new")) == [b"OK"]


def test_a_transaction_of_small_commands_counts_what_they_take() -> None:
    """Each takes some fifty times as much as its text."""
    tracemalloc.start()
    queued = Transaction()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(10_000):
        queued.queue(COMMANDS[b"get"], [b"%s" % b"GET", b"%d" % number])
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert after - before <= queued.bytes <= 2 * (after - before)


def test_what_a_transaction_has_queued_counts() -> None:
    agent = _agent(5 * MIB)
    client = agent.writer()
    client.ask(b"MULTI")

    for _ in range(3):
        _send(client, encode_command([b"SET", b"k", bytes(MIB)]))
        agent.turn()

    agent.endpoint.memory.keep()
    assert 3 * MIB <= agent.endpoint.memory.held < 4 * MIB


def test_many_small_commands_that_transactions_have_queued_count() -> None:
    agent = _agent(2 * MIB)
    memory = agent.endpoint.memory
    clients = [agent.writer() for _ in range(3)]
    for client in clients:
        client.ask(b"MULTI")
        for _ in range(30):
            client.ask(b"SET", b"k", bytes(30_000))
            agent.turn()

    memory.keep()

    assert memory.closed == 1
    assert memory.held <= 2 * MIB
    assert memory.held == sum(
        each.connection.held_bytes() for each in clients if not each.socket.is_closing()
    )


def test_a_transaction_that_is_refused_keeps_none_of_its_commands() -> None:
    agent = _agent(2 * MIB)
    client = agent.writer()
    client.ask(b"MULTI")
    for words in ((b"SET", b"k", bytes(30_000)), (b"GET",), (b"SET", b"k", bytes(30_000))):
        client.ask(*words)

    assert client.connection.held_bytes() < 1000


@pytest.mark.parametrize("partitions", [(1,), (0, 1)], ids=["one partition", "over partitions"])
def test_what_a_transaction_executes_counts_while_it_waits(partitions: tuple[int, ...]) -> None:
    agent = _agent(2 * MIB)
    agent.lose_primary(1)
    client = agent.writer()
    client.ask(b"MULTI")
    for _ in range(15):
        for partition in partitions:
            client.ask(b"SET", key_in(partition), bytes(30_000))
            agent.turn()
    queued = client.connection.held_bytes()
    client.ask(b"EXEC")

    assert client.connection.state.transaction is None
    assert client.connection.held_bytes() >= 0.9 * queued
    agent.endpoint.memory.keep()
    assert agent.endpoint.memory.held == client.connection.held_bytes()


def test_what_a_connection_watches_counts() -> None:
    agent = _agent(2 * MIB)
    client = agent.writer()
    for number in range(15):
        client.ask(b"WATCH", b"{k}%d" % number + bytes(50_000))
        agent.turn()

    agent.endpoint.memory.keep()
    assert agent.endpoint.memory.held >= 15 * 50_000
    client.ask(b"UNWATCH")
    agent.endpoint.memory.keep()
    assert agent.endpoint.memory.held == 0


def test_what_is_to_be_watched_counts_though_its_primary_is_awaited() -> None:
    agent = _agent(2 * MIB)
    agent.lose_primary(1)
    client = agent.writer()
    keys = [b"{%b}%d" % (key_in(1), number) + bytes(50_000) for number in range(15)]
    client.ask(b"WATCH", *keys)
    agent.give(agent.me, [1])
    agent.tick()

    assert client.told() == [b"OK"]
    agent.endpoint.memory.keep()
    assert agent.endpoint.memory.held >= 15 * 50_000


def test_a_watched_key_takes_no_more_than_is_counted() -> None:
    agent = _agent(64 * MIB)
    client = agent.writer()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for at in range(0, 10_000, 100):
        client.ask(b"WATCH", *[b"{k}%d" % number for number in range(at, at + 100)])
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert after - before <= client.connection.watched_key_bytes() <= 2 * (after - before)


class _Unread:
    """A transport from which its client reads nothing."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted = True


def test_the_connections_that_hold_the_most_are_closed_until_the_budget_is_kept() -> None:
    agent = _agent(10 * MIB)
    memory = agent.endpoint.memory
    transports: list[Any] = []
    for size in (1, 6, 4, 5):
        client = agent.writer().connection
        transports.append(_Unread(size * MIB))
        client.transport = transports[-1]
        memory.watch(client)

    memory.keep()

    assert [each.aborted for each in transports] == [False, True, False, False]
    assert memory.held == 10 * MIB
    assert memory.closed == 1


def _reader(agent: Agent, size: int) -> Any:
    """The transport of a client that does not read so many bytes of replies."""
    transport: Any = _Unread(size)
    client = agent.writer().connection
    client.transport = transport
    agent.endpoint.memory.watch(client)
    return transport


def _queues(agent: Agent, client: KeptClient, whole: bytes) -> None:
    client.ask(b"MULTI")
    _send(client, whole)
    assert client.told() == [b"QUEUED"]


def _sends_half(agent: Agent, client: KeptClient, whole: bytes) -> None:
    _send(client, whole[: len(whole) // 2])


def _waits_for_its_turn(agent: Agent, client: KeptClient, whole: bytes) -> None:
    client.connection.pause_writing()
    _send(client, whole)
    assert len(client.connection.backlog) == 1


def _waits_for_the_disk(agent: Agent, client: KeptClient, whole: bytes) -> None:
    _send(client, whole)
    agent.written()
    assert client.connection.queue


@pytest.mark.parametrize("writes", [_sends_half, _waits_for_its_turn, _waits_for_the_disk, _queues])
def test_a_command_that_was_admitted_is_not_closed_for_replies_that_others_do_not_read(
    writes: Callable[[Agent, KeptClient, bytes], None],
) -> None:
    agent = _agent(10 * MIB)
    memory, writer = agent.endpoint.memory, agent.writer()
    writes(agent, writer, encode_command([b"SET", b"k", bytes(9 * MIB - 1000)]))
    transport: Any = _Unread(0)
    writer.connection.transport = transport
    readers = [_reader(agent, MIB) for _ in range(3)]

    memory.keep()

    assert not transport.aborted
    assert [each.aborted for each in readers].count(True) == 2
    assert memory.held <= 10 * MIB


def test_who_holds_little_is_not_counted() -> None:
    agent = _agent(MIB)
    client = agent.writer()

    client.connection.data_received(_half(WATCHED_BYTES // 2))
    agent.endpoint.memory.keep()

    assert agent.endpoint.memory.held == 0


def test_memory_is_given_back_once_much_of_it_was_let_go() -> None:
    memory = ClientMemory()
    agent = Agent()
    agent.endpoint.memory = memory
    client = agent.writer().connection
    transport: Any = _Unread(GIVEN_BACK_BYTES + MIB)
    client.transport = transport
    memory.watch(client)
    assert not memory.has_to_give_back()
    transport.size = 0
    memory.keep()

    assert memory.has_to_give_back()
    assert not memory.has_to_give_back()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            [b"SET", b"k", bytes(1_000_001)],
            "ERR string of 1000001 bytes: at most 1000000 may be sent",
        ),
        (
            [b"MSET", b"a", bytes(900_000), b"b", bytes(900_000)],
            "ERR command of more than 1500000 bytes",
        ),
    ],
    ids=["value", "command"],
)
def test_a_command_that_is_too_large_is_answered_behind_its_last_byte(
    monkeypatch: pytest.MonkeyPatch, words: list[bytes], error: str
) -> None:
    monkeypatch.setattr(parser_module, "BULK_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(parser_module, "QUERY_BYTES_MAX", 1_500_000)
    agent = Agent(64 * MIB)
    client = agent.writer()
    stream = encode_command([b"PING"]) + encode_command(words)

    _send(client, stream[:-1])
    assert _told(client) == [str(b"PONG")]
    assert client.connection.parser.reserved_bytes < CHUNK
    _send(client, stream[-1:] + encode_command([b"PING"]))

    assert _told(client) == [error, str(b"PONG")]


@pytest.mark.parametrize(
    "words",
    [[b"MGET", *[b"k"] * 5000], [b"HMGET", b"h", *[b"f"] * 5000]],
    ids=["strings", "fields"],
)
def test_a_value_named_thousands_of_times_is_not_answered_so_often(words: list[bytes]) -> None:
    agent = Agent(64 * MIB)
    agent.write(b"SET", b"k", bytes(100_000))
    agent.write(b"HSET", b"h", b"f", bytes(100_000))
    client = agent.writer()
    tracemalloc.start()
    try:
        _send(client, encode_command(words))
        agent.turn()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 400 * MIB
    (said,) = _told(client)
    assert said == "ERR the reply would take more than 256 MiB: ask for fewer values at a time"


def test_a_transaction_stops_where_its_answers_are_too_long() -> None:
    agent = Agent(64 * MIB)
    agent.write(b"SET", b"k", bytes(MIB))
    client = agent.writer()
    tracemalloc.start()
    try:
        said = agent.execute(client, *[(b"GET", b"k")] * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert str(said).startswith("ERR transaction of more than")
    assert peak < 85 * MIB
