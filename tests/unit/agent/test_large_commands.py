"""Large commands are executed one after the other; what clients send otherwise passes them."""

from collections.abc import Callable

import pytest

from quorate_agent.clients.connection import QUEUE_BYTES_MAX, Slot
from quorate_agent.clients.turn_share import LARGE_BYTES
from quorate_agent.commands.large_commands import (
    PATIENCE_MS,
    TOGETHER_BYTES,
    LargeCommands,
)
from quorate_agent.resp.values import collection
from quorate_differential.kept_client import KeptClient
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import Agent

CHUNK = 128 * 1024
LARGE = bytes(TOGETHER_BYTES)


def _agent(large: LargeCommands | None = None) -> Agent:
    return Agent(256 << 20, large)


def _send(agent: Agent, client: KeptClient, *words: bytes) -> None:
    """A command in pieces, with the end of a turn behind each that is not made durable."""
    data = encode_command(list(words))
    for at in range(0, len(data), CHUNK):
        client.connection.data_received(data[at : at + CHUNK])
        agent.written()


def test_the_second_is_executed_when_the_first_is_acknowledged() -> None:
    agent = _agent()
    first, second, small = agent.writer(), agent.writer(), agent.writer()
    _send(agent, first, b"SET", b"a", LARGE)
    _send(agent, second, b"SET", b"b", LARGE)
    assert agent.writer().ask(b"EXISTS", b"b") == [0]
    assert small.ask(b"EXISTS", b"c") == [0]  # others pass

    agent.synced()
    assert first.told() == [b"OK"]
    assert second.told() == []
    agent.turn()

    assert second.told() == [b"OK"]
    assert not agent.endpoint._large


@pytest.mark.parametrize("words", [(b"GETDEL", b"b"), (b"GETEX", b"b")])
def test_what_only_reads_or_deletes_a_large_value_passes(words: tuple[bytes, ...]) -> None:
    agent = _agent()
    first, second = agent.writer(), agent.writer()
    _send(agent, second, b"SET", b"b", LARGE)
    agent.turn()
    assert second.told() == [b"OK"]
    _send(agent, first, b"SET", b"a", LARGE)

    _send(agent, second, *words)
    agent.synced()

    assert (first.told(), second.told()) == ([b"OK"], [LARGE])


def test_what_its_connection_sends_behind_it_keeps_its_order() -> None:
    agent = _agent()
    first, second = agent.writer(), agent.writer()
    _send(agent, first, b"SET", b"a", LARGE)
    _send(agent, second, b"SET", b"a", LARGE)
    _send(agent, second, b"APPEND", b"a", b"x")
    _send(agent, second, b"STRLEN", b"a")
    assert second.told() == []

    agent.turn()
    agent.turn()

    assert second.told() == [b"OK", len(LARGE) + 1, len(LARGE) + 1]


def test_a_pipeline_of_large_ones_comes_to_its_end() -> None:
    agent = _agent()
    client = agent.writer()

    for name in (b"a", b"b", b"c"):
        _send(agent, client, b"SET", name, LARGE)
    for _ in range(4):
        agent.turn()

    assert client.told() == [b"OK"] * 3
    assert client.connection.blocked == 0


def test_an_exec_of_large_ones_waits_like_each_of_them() -> None:
    agent = _agent()
    first, second, third = agent.writer(), agent.writer(), agent.writer()
    assert second.ask(b"MULTI") == [b"OK"]
    _send(agent, second, b"SET", b"b", LARGE)
    agent.turn()
    assert second.told() == [b"QUEUED"]
    _send(agent, first, b"SET", b"a", LARGE)
    _send(agent, second, b"EXEC")
    _send(agent, third, b"SET", b"c", LARGE)
    assert agent.writer().ask(b"EXISTS", b"b") == [0]

    agent.synced()
    agent.written()
    assert (first.told(), second.told(), third.told()) == ([b"OK"], [], [])
    assert agent.writer().ask(b"EXISTS", b"c") == [0]  # until the EXEC is acknowledged
    agent.turn()
    assert second.told() == [[b"OK"]]
    agent.turn()
    assert third.told() == [b"OK"]
    assert not agent.endpoint._large

    second.send((b"SET", b"small", b"x"), (b"MULTI",), (b"SET", b"d", b"y"), (b"EXEC",))
    agent.turn()
    assert second.told() == [b"OK", b"OK", b"QUEUED", [b"OK"]]


def _stored(agent: Agent) -> None:
    """Large values under a and b, and a list that is one."""
    for name in (b"a", b"b"):
        _send(agent, agent.writer(), b"SET", name, LARGE)
        agent.turn()
    _send(agent, agent.writer(), b"RPUSH", b"list", LARGE)
    agent.turn()


@pytest.mark.parametrize(
    "words",
    [
        b"EXPIRE b 1000",
        b"APPEND b x",
        b"SETRANGE b 0 x",
        b"SETRANGE new 4000000 x",
        b"GETEX b EX 1000",
        b"RENAME {b}old b",
        b"COPY b {b}new",
        b"RPUSH list x",
    ],
    ids=lambda words: words.decode(),
)
@pytest.mark.parametrize("tracks", [False, True])
def test_a_small_command_that_writes_much_waits_as_a_large_one(words: bytes, tracks: bool) -> None:
    agent = _agent()
    _stored(agent)
    if words.startswith(b"RENAME"):
        agent.write(b"COPY", b"b", b"{b}old")
    first, small = agent.writer(), agent.writer()
    second = agent.client() if tracks else agent.writer()
    first.send((b"EXPIRE", b"a", b"1000"))
    assert agent.endpoint._large.running
    began = [role.copy.lwm for role in agent.replicas.roles.values()]

    second.send(tuple(words.split()))
    assert [role.copy.lwm for role in agent.replicas.roles.values()] == began
    assert small.ask(b"EXISTS", b"c") == [0]  # others pass
    second.send((b"PING",))  # it waits for the one before it
    assert second.told() == []
    agent.turn()

    assert first.told() == [1]
    agent.turn()
    assert len(second.told()) == 2
    assert not agent.endpoint._large
    assert second.connection.blocked == 0


def test_a_small_write_does_not_take_along_one_that_writes_much() -> None:
    agent = _agent()
    _stored(agent)
    first, second = agent.writer(), agent.writer()
    first.send((b"EXPIRE", b"a", b"1000"))

    second.send((b"INCR", b"{b}n"), (b"APPEND", b"b", b"x"))
    agent.synced()

    assert len(second.connection.backlog) == 1
    agent.turn()
    agent.turn()
    assert second.told() == [1, len(LARGE) + 1]


def test_a_pipeline_of_small_commands_that_write_much_comes_to_its_end_in_order() -> None:
    agent = _agent()
    _stored(agent)
    client = agent.writer()

    client.send(
        (b"INCR", b"{a}n"),
        (b"APPEND", b"a", b"1"),
        (b"APPEND", b"a", b"2"),
        (b"EXPIRE", b"b", b"1000"),
        (b"INCR", b"{a}n"),
        (b"GETRANGE", b"a", b"-2", b"-1"),
    )
    for _ in range(6):
        agent.turn()

    size = len(LARGE)
    assert client.told() == [1, size + 1, size + 2, 1, 2, b"12"]
    assert not agent.endpoint._large


@pytest.mark.parametrize("words", [b"EXPIRE b 1000", b"APPEND b x", b"RENAME b {b}new"])
@pytest.mark.parametrize("tracks", [False, True])
def test_an_exec_of_small_commands_that_write_much_waits_as_a_large_one(
    words: bytes, tracks: bool
) -> None:
    agent = _agent()
    _stored(agent)
    first, third = agent.writer(), agent.writer()
    second = agent.client() if tracks else agent.writer()
    first.send((b"EXPIRE", b"a", b"1000"))
    began = [role.copy.lwm for role in agent.replicas.roles.values()]

    said = second.send((b"MULTI",), tuple(words.split()), (b"EXEC",), (b"PING",))
    assert [role.copy.lwm for role in agent.replicas.roles.values()] == began
    assert said == [b"OK", b"QUEUED"]
    third.send((b"EXPIRE", b"list", b"1000"))
    agent.written()
    agent.synced()
    assert first.told() == [1]
    assert not second.connection.backlog
    assert third.connection.backlog  # until the EXEC is acknowledged
    for _ in range(2):
        agent.turn()

    assert len(second.told()) == 2
    assert third.told() == [1]
    assert not agent.endpoint._large
    assert second.connection.blocked == 0


@pytest.mark.parametrize(
    "transaction",
    [b"SET b x", b"DEL b", b"GET small", b"EXPIRE small 9", b"INCR n", b"GET b|SETNX b x"],
    ids=lambda words: words.decode(),
)
def test_an_exec_that_writes_little_passes_others(transaction: bytes) -> None:
    agent = _agent()
    _stored(agent)
    agent.write(b"SET", b"small", b"x")
    first, second = agent.writer(), agent.writer()
    first.send((b"EXPIRE", b"a", b"1000"))

    queued = [tuple(words.split()) for words in transaction.split(b"|")]
    said = second.send((b"MULTI",), *queued, (b"EXEC",))

    assert not second.connection.backlog
    agent.turn()
    assert len(said + second.told()) == len(queued) + 2


def test_an_exec_counts_a_value_once_however_many_commands_change_it() -> None:
    agent = _agent()
    agent.write(b"SET", b"k", bytes(LARGE_BYTES // 4))
    first, second = agent.writer(), agent.writer()
    _send(agent, first, b"SET", b"a", LARGE)

    second.send((b"MULTI",), *[(b"APPEND", b"k", b"x")] * 5, (b"EXEC",))

    assert not second.connection.backlog


def test_an_exec_over_several_partitions_waits_and_then_holds_up_nobody() -> None:
    agent = _agent()
    _stored(agent)
    first, second, third = agent.writer(), agent.writer(), agent.writer()
    first.send((b"EXPIRE", b"a", b"1000"))

    said = second.send((b"MULTI",), *[(b"EXPIRE", key, b"99") for key in (b"a", b"b")], (b"EXEC",))
    assert said == [b"OK", b"QUEUED", b"QUEUED"]
    assert second.connection.backlog
    third.send((b"EXPIRE", b"list", b"1000"))
    for _ in range(4):
        agent.turn()

    assert (first.told(), second.told(), third.told()) == ([1], [[1, 1]], [1])
    assert not agent.endpoint._large


def test_a_refused_exec_waits_for_nothing() -> None:
    agent = _agent()
    _stored(agent)
    first, second = agent.writer(), agent.writer()
    first.send((b"EXPIRE", b"a", b"1000"))

    said = second.send((b"MULTI",), (b"EXPIRE", b"b", b"1000"), (b"NONSENSE",), (b"EXEC",))

    assert not second.connection.backlog
    assert len(said) == 4


def test_a_value_is_made_anew_only_when_the_turn_of_its_command_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = _agent()
    _stored(agent)
    made: list[list[bytes]] = []
    pack = collection.pack_elements

    def noted(elements: list[bytes]) -> bytes:
        made.append(elements)
        return pack(elements)

    monkeypatch.setattr(collection, "pack_elements", noted)
    first, small = agent.writer(), agent.writer()
    waiting = [agent.writer() for _ in range(3)]
    first.send((b"EXPIRE", b"a", b"1000"))

    for client in waiting:
        client.send((b"RPUSH", b"list", b"x"))
    small.send((b"RPUSH", b"other", b"x"))
    assert len(made) == 1
    for _ in range(4):
        agent.turn()

    assert len(made) == 4
    assert [client.told() for client in waiting] == [[2], [3], [4]]
    assert not agent.endpoint._large


def test_what_a_command_that_had_to_wait_has_gathered_is_never_read() -> None:
    agent = _agent(LargeCommands(lambda: False))
    first, second, small = agent.writer(), agent.writer(), agent.writer()
    _send(agent, first, b"RPUSH", b"list", LARGE)
    agent.turn()

    second.send((b"RPUSH", b"list", b"x"))
    assert second.connection.backlog
    assert small.ask(b"LLEN", b"list") == [1]
    assert small.ask(b"LINDEX", b"list", b"-1") == [LARGE]
    small.send((b"SET", b"list", b"x"))
    agent.turn()
    agent.clock.ahead_ms = PATIENCE_MS
    agent.turn()

    assert "WRONGTYPE" in str(second.told())


def test_small_enough_ones_go_together() -> None:
    agent = _agent()
    clients = [agent.writer() for _ in range(4)]
    for number, client in enumerate(clients):
        _send(agent, client, b"SET", b"%d" % number, bytes(LARGE_BYTES - 100))

    agent.synced()

    assert [client.told() for client in clients] == [[b"OK"]] * 4


@pytest.mark.parametrize("gone", [0, 1])
def test_a_client_that_leaves_holds_up_nobody(gone: int) -> None:
    agent = _agent()
    clients = [agent.writer() for _ in range(3)]
    for number, client in enumerate(clients):
        _send(agent, client, b"SET", b"%d" % number, LARGE)

    clients[gone].leave()
    for _ in range(3):
        agent.turn()

    assert clients[2].told() == [b"OK"]
    assert not agent.endpoint._large


def test_it_waits_for_other_agents_for_a_while() -> None:
    agent = _agent(LargeCommands(lambda: False))
    first, second = agent.writer(), agent.writer()
    _send(agent, first, b"SET", b"a", LARGE)
    _send(agent, second, b"SET", b"b", LARGE)
    agent.turn()
    assert (first.told(), second.told()) == ([b"OK"], [])
    assert agent.endpoint.has_waiting  # so that time passes for it

    agent.clock.ahead_ms = PATIENCE_MS
    agent.turn()
    agent.turn()

    assert second.told() == [b"OK"]


def test_a_zone_waits_for_other_agents_and_no_other_zone_with_it() -> None:
    waiting, other = _agent(LargeCommands(lambda: False)), _agent(LargeCommands())
    first, second, beside = waiting.writer(), waiting.writer(), other.writer()
    _send(waiting, first, b"SET", b"a", LARGE)
    _send(waiting, second, b"SET", b"b", LARGE)
    _send(other, beside, b"SET", b"b", LARGE)
    for agent in (waiting, other):
        agent.turn()
        agent.turn()
    assert (first.told(), second.told(), beside.told()) == ([b"OK"], [], [b"OK"])

    waiting.clock.ahead_ms = PATIENCE_MS
    waiting.turn()

    assert second.told() == [b"OK"]
    assert not waiting.endpoint._large


def _reads_nothing(agent: Agent, client: KeptClient) -> Callable[[], None]:
    client.connection.pause_writing()
    _send(agent, client, b"SET", b"late", LARGE)
    return client.connection.resume_writing


def _waits_for_copies(agent: Agent, client: KeptClient) -> Callable[[], None]:
    """The connection is no longer blocked, until the command before the large one blocks it."""
    wait = (b"WAIT", b"1", b"0")
    client.send((b"SET", b"k", b"v"))
    agent.turn()
    client.send(wait, wait)
    _send(agent, client, b"SET", b"late", LARGE)
    _end_wait(agent, client)
    return lambda: _end_wait(agent, client)


def _end_wait(agent: Agent, client: KeptClient) -> None:
    slot = client.connection.queue[0]
    assert isinstance(slot, Slot)
    agent.endpoint.answers.fulfil(client.connection, slot, b":1\r\n")
    agent.written()


def _has_no_room(agent: Agent, client: KeptClient) -> Callable[[], None]:
    """Its replies wait for a write that is not acknowledged."""
    agent.write(b"SET", b"long", bytes(QUEUE_BYTES_MAX))
    client.send((b"SET", b"k", b"v"), (b"GET", b"long"))
    _send(agent, client, b"SET", b"late", LARGE)
    return agent.synced


@pytest.mark.parametrize("kind", [_reads_nothing, _waits_for_copies, _has_no_room])
def test_whoever_cannot_execute_it_yet_holds_up_nobody(
    kind: Callable[[Agent, KeptClient], Callable[[], None]],
) -> None:
    agent = _agent()
    cannot, innocent = agent.writer(), agent.writer()
    goes_on = kind(agent, cannot)

    _send(agent, innocent, b"SET", b"innocent", LARGE)
    agent.written()

    assert not innocent.connection.backlog
    assert cannot.connection.backlog
    agent.synced()
    assert innocent.told() == [b"OK"]
    goes_on()
    for _ in range(3):
        agent.turn()
    assert agent.writer().ask(b"EXISTS", b"late") == [1]
    assert not agent.endpoint._large
    assert cannot.connection.blocked == 0


def test_one_that_is_said_goodbye_to_while_it_waits_is_blocked_by_nothing() -> None:
    agent = _agent()
    first, second = agent.writer(), agent.writer()
    _send(agent, first, b"SET", b"a", LARGE)
    _send(agent, second, b"SET", b"b", LARGE)
    assert second.connection.blocked == 1

    second.connection.say_goodbye()

    assert second.connection.blocked == 0
    agent.turn()
    assert not agent.endpoint._large
