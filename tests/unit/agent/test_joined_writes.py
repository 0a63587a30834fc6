"""Writes of a pipeline that become one update, and those that may not."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.copies.copy import decode_update
from quorate.protocol.copies.role_state import FrozenFor
from quorate_agent.clients.connection import Slot
from quorate_agent.commands.pipeline.joined_writes import JOINED_BYTES_MAX
from quorate_agent.resp.tables.table import DISPATCH
from quorate_agent.resp.values.value import MARKER
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in

Words = tuple[bytes, ...]

A, B, C = b"{t}a", b"{t}b", b"{t}c"
HOME = key_partition(A, ZONE.partitions)
ELSEWHERE = next(
    b"%d" % number
    for number in range(100)
    if key_partition(b"%d" % number, ZONE.partitions) != HOME
)


def _updates(agent: Agent) -> int:
    return agent.replicas.copies[HOME].lwm


def _sent(agent: Agent, client: KeptClient, *commands: Words) -> tuple[list[object], int]:
    """The replies to these in one read, and how many updates it took."""
    before = _updates(agent)
    said = client.send(*commands)
    agent.turn()
    return said + client.told(), _updates(agent) - before


@pytest.fixture
def client(agent: Agent) -> KeptClient:
    return agent.writer()


def test_writes_that_follow_each_other_are_one_update(agent: Agent, client: KeptClient) -> None:
    client.ask(b"SET", C, b"9")
    agent.turn()
    client.told()

    said, updates = _sent(agent, client, (b"SET", A, b"1"), (b"INCR", C), (b"HSET", B, b"f", b"v"))

    assert said == [b"OK", 10, 1]
    assert updates == 1
    assert client.send((b"GET", A), (b"GET", C), (b"HGET", B, b"f")) == [b"1", b"10", b"v"]


@pytest.mark.parametrize(
    ("between", "reply", "updates"),
    [
        ((b"APPEND", A, b"2"), 2, 2),
        ((b"GET", A), b"1", 2),
        ((b"SETNX", B, b"2"), 0, 2),
        ((b"DEL", b"{t}absent"), 0, 2),
        ((b"APPEND", ELSEWHERE, b"2"), 1, 2),
        ((b"SET", C, b"2", b"EX", b"10"), b"OK", 2),
        ((b"MSET", C, b"2"), b"OK", 3),
        ((b"WAIT", b"0", b"0"), 0, 2),
        ((b"PING",), b"PONG", 2),
    ],
    ids=lambda value: value[0].decode() if isinstance(value, tuple) else "",
)
def test_what_stands_between_has_its_own_turn(
    agent: Agent, client: KeptClient, between: Words, reply: object, updates: int
) -> None:
    client.ask(b"SET", B, b"old")
    agent.turn()
    client.told()

    said, took = _sent(agent, client, (b"SET", A, b"1"), between, (b"SET", b"{t}d", b"4"))

    assert said == [b"OK", reply, b"OK"]
    assert took == updates


MANY = [b"{t}%d" % number for number in range(20)]


def _plain(keys: Sequence[bytes], value: bytes = b"v") -> list[Words]:
    return [(b"SET", key, value + key) for key in keys]


def test_many_plain_ones_are_one_update(agent: Agent, client: KeptClient) -> None:
    said, updates = _sent(agent, client, *_plain(MANY))

    assert said == [b"OK"] * len(MANY)
    assert updates == 1
    assert client.send(*[(b"GET", key) for key in MANY]) == [b"v" + key for key in MANY]


@pytest.mark.parametrize("count", [2, 16], ids=["one by one", "in one step"])
def test_the_last_of_a_key_is_written(agent: Agent, client: KeptClient, count: int) -> None:
    commands = [(b"SET", (A, B)[n % 2], b"%d" % n) for n in range(count)]

    said, updates = _sent(agent, client, (b"SET", A, b"x", b"EX", b"100"), *commands)

    assert (said, updates) == ([b"OK"] * (1 + count), 1)
    assert client.send((b"GET", A), (b"GET", B), (b"TTL", A)) == [
        b"%d" % (count - 2),
        b"%d" % (count - 1),
        -1,
    ]
    ((_, _, raw),) = agent.replicas.storage.log_read(HOME, 1, 9, 1 << 20)
    assert sorted(key for key, _, _ in decode_update(raw).operations if key) == [A, B]


def test_what_was_counted_before_is_overwritten(agent: Agent, client: KeptClient) -> None:
    said, updates = _sent(agent, client, (b"INCR", A), (b"SET", A, b"7"), (b"INCR", A))

    assert (said, updates) == ([1, b"OK", 8], 2)


@pytest.mark.parametrize(
    ("odd", "reply", "updates"),
    [
        ((b"SET", ELSEWHERE, b"2"), b"OK", 1),
        ((b"APPEND", ELSEWHERE, b"2"), 1, 2),
        ((b"SET", A, b"2", b"EX", b"10"), b"OK", 2),
        ((b"SET", A), "ERR", 2),
        ((b"SET", b"\0quorate\0{t}", b"1"), "ERR", 2),
        ((b"APPEND", b"{t}other", b"2"), 1, 2),
        ((b"PING",), b"PONG", 2),
    ],
    ids=lambda value: value[0].decode() if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("place", [3, 19], ids=["among", "behind"])
def test_one_that_is_not_alike_among_many(
    agent: Agent, client: KeptClient, odd: Words, reply: object, updates: int, place: int
) -> None:
    commands = _plain(MANY)
    commands.insert(place, odd)

    said, took = _sent(agent, client, *commands)

    told = said.pop(place)
    assert str(told).startswith(reply) if isinstance(reply, str) else told == reply
    assert said == [b"OK"] * len(MANY)
    assert took == updates


def test_plain_ones_of_several_partitions_are_one_update_of_each(
    agent: Agent, client: KeptClient
) -> None:
    keys = [key_in(n % 4, b"k%d" % n) for n in range(20)]

    assert client.send(*_plain(keys), (b"GET", keys[0])) == []
    for key in keys:
        assert agent.writer().ask(b"GET", key) == []  # it may yet be lost
    agent.turn()

    assert client.told() == [b"OK"] * 20 + [b"v" + keys[0]]
    assert [copy.lwm for copy in agent.replicas.copies.values()] == [1] * 4
    assert client.send(*[(b"GET", key) for key in keys]) == [b"v" + key for key in keys]


def test_each_is_told_what_became_of_its_own_partition(agent: Agent, client: KeptClient) -> None:
    keys = [key_in(n % 3, b"k%d" % n) for n in range(9)]
    client.send(*_plain(keys))

    agent.give(OTHER, [1])

    said = [str(each).partition(" ")[0] for each in client.told()]
    assert said == ["b'OK'", "UNKNOWN", "b'OK'"] * 3
    assert agent.endpoint._metrics.unknown._value.get() == 3


@pytest.mark.parametrize("shown", ["moved", "frozen", "lapsed", "locked"])
def test_what_comes_before_one_that_does_not_serve_is_executed(
    agent: Agent, client: KeptClient, shown: str
) -> None:
    keys = [key_in(partition) for partition in (0, 1, 2)]
    role = agent.replicas.roles[1]
    if shown == "moved":
        agent.give(OTHER, [1])
    elif shown == "frozen":
        role.frozen = FrozenFor("1", 0)
    elif shown == "lapsed":
        role.serving_until = 0
    else:
        role.locks[keys[1]] = b"transaction"

    client.send(*_plain(keys))
    agent.turn()

    copies = agent.replicas.copies
    written = [n for n in (0, 1, 2) if n in copies and copies[n].get(keys[n]) is not None]
    assert written == [0]
    assert client.told() == [b"OK"]
    assert len(agent.sent) == (shown == "moved")  # to the agent that has it now


def test_plain_ones_are_refused_while_there_is_no_room(agent: Agent, client: KeptClient) -> None:
    agent.is_full = True

    said, updates = _sent(agent, client, *_plain(MANY))

    assert [str(each)[:3] for each in said] == ["OOM"] * len(MANY)
    assert updates == 0


def test_wait_is_for_each_of_them(agent: Agent, client: KeptClient) -> None:
    keys = [key_in(partition) for partition in (2, 0, 2, 3, 0)]

    client.send(*_plain(keys))

    assert client.connection.written == 0b1101


def test_who_has_cached_an_expired_key_is_told_before_it_is_written(
    agent: Agent, client: KeptClient, pass_a_minute: Callable[[], None]
) -> None:
    agent.write(b"SET", A, b"1", b"EX", b"60")
    caching = agent.client()
    caching.ask(b"GET", A)
    pass_a_minute()

    client.send(*_plain(MANY), (b"SET", A, b"2"))
    agent.turn()

    assert [each for each in caching.told() if isinstance(each, list)] == [[b"invalidate", [A]]]
    assert client.told()[-1] == b"OK"


def test_strings_that_begin_like_a_packed_value_stay_what_they_are(
    agent: Agent, client: KeptClient
) -> None:
    odd = MARKER + b"is no list"

    _sent(agent, client, *_plain(MANY[:5]), (b"SET", A, odd), *_plain(MANY[5:]))

    assert client.send((b"GET", A), (b"GET", MANY[9])) == [odd, b"v" + MANY[9]]


def test_errors_stand_where_their_commands_do(agent: Agent, client: KeptClient) -> None:
    said, updates = _sent(
        agent,
        client,
        (b"SET", A, b"x"),
        (b"SET", b"\0quorate\0{t}", b"1"),
        (b"SET", B),
        (b"SET", C, b"1"),
        (b"INCR", A),
        (b"INCR", b"{t}d"),
    )

    assert [str(each).partition(" ")[0] for each in said] == [
        "b'OK'", "ERR", "ERR", "b'OK'", "ERR", "1",
    ]  # fmt: skip
    assert updates == 3


def test_long_values_go_alone(agent: Agent, client: KeptClient) -> None:
    long = bytes(JOINED_BYTES_MAX)

    said, updates = _sent(
        agent, client, *((b"SET", b"{t}%d" % n, long[: n * 30_000]) for n in range(5))
    )

    assert said == [b"OK"] * 5
    assert updates == 3  # 0, 30,000 and 60,000 bytes, which are enough; each of the others


def test_many_bytes_are_several_updates(agent: Agent, client: KeptClient) -> None:
    said, updates = _sent(agent, client, *_plain([b"{t}%02d" % n for n in range(40)], bytes(5_000)))

    assert said == [b"OK"] * 40
    assert updates == 4  # of 13 each, and one


@pytest.mark.parametrize("name", [b"SET", b"APPEND"])
@pytest.mark.parametrize("place", [0, 19])
def test_what_waits_is_counted_in_bytes(client: KeptClient, name: bytes, place: int) -> None:
    commands = [(name, b"{t}%02d" % n, b"v") for n in range(20)]
    commands[place] = (name, b"{t}long", bytes(10_000))
    client.send(*commands)

    connection = client.connection
    assert connection.has_room()
    replies = sum(len(each.reply) for each in connection.queue if isinstance(each, Slot))
    assert 10_000 + replies <= connection.held < 10_300


def test_long_keys_count_as_well(agent: Agent, client: KeptClient) -> None:
    commands = [(b"SET", b"{t}%d" % n + bytes(40_000), b"v") for n in range(3)]

    assert _sent(agent, client, *commands) == ([b"OK"] * 3, 2)


def test_what_needs_room_is_asked_for_it(agent: Agent, client: KeptClient) -> None:
    _sent(agent, client, (b"SET", A, b"1"))
    agent.is_full = True

    said, updates = _sent(agent, client, (b"EXPIRE", A, b"100"), (b"SET", B, b"2"))

    assert [str(each)[:3] for each in said] == ["1", "OOM"]
    assert updates == 1


def test_a_command_that_fails_takes_what_was_gathered_along(
    agent: Agent, client: KeptClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(view: object, args: object) -> bytes:
        raise MemoryError

    broken = dataclasses.replace(DISPATCH[b"APPEND"], handler=fail)
    monkeypatch.setitem(DISPATCH, b"APPEND", broken)
    with pytest.raises(MemoryError):
        client.send((b"SET", A, b"1"), (b"APPEND", B, b"2"))

    assert agent.writer().ask(b"GET", ELSEWHERE) == [None]
    agent.turn()
    assert _updates(agent) == 0


def test_each_unknown_outcome_is_counted(agent: Agent, client: KeptClient) -> None:
    client.send(*[(b"SET", b"{t}%d" % n, b"v") for n in range(10)])

    agent.give(OTHER, [HOME])

    assert agent.endpoint._metrics.unknown._value.get() == 10


def test_each_command_is_told_when_there_is_no_room() -> None:
    agent = Agent(memory_bytes=10_000)
    client = agent.writer()

    said, updates = _sent(agent, client, (b"SET", A, bytes(9_000)), (b"SET", B, bytes(9_000)))

    assert [str(each)[:3] for each in said] == ["OOM", "OOM"]
    assert updates == 0


def test_what_waited_is_joined_as_well(agent: Agent, client: KeptClient) -> None:
    agent.give(OTHER, [HOME])
    agent.up.discard(OTHER.node)
    commands = [(b"SET", b"{t}%d" % number, b"v") for number in range(5)]
    assert client.send(*commands) == []

    agent.give(agent.me, [HOME])
    before = _updates(agent)
    agent.turn()

    assert client.told() == [b"OK"] * 5
    assert _updates(agent) - before <= 2
