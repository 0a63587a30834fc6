"""A real agent beside a real Redis, socket against socket: the same random streams to both."""

import time
from random import Random

import pytest

from quorate.facts.keyspace import key_slot
from quorate_agent.resp.replies import bulk
from quorate_differential.byte_streams import random_stream
from quorate_differential.command_streams import random_command
from quorate_differential.exemptions import same_reply
from quorate_differential.raw_replies import RawConnection, encode_command
from quorate_differential.reply_types import taken_apart

pytestmark = [pytest.mark.process, pytest.mark.needs("redis-server")]

STREAMS = 10
STREAM_COMMANDS = 400
EXPIRY_S = 10.0
GARBAGE_STREAMS = 2_000


def _both(
    redis: RawConnection, agent: RawConnection, commands: list[list[bytes]]
) -> list[tuple[list[bytes], bytes, bytes]]:
    """Commands with the replies that differ, Redis' first."""
    theirs = redis.ask_all(commands)
    ours = agent.ask_all(commands)
    return [
        triple for triple in zip(commands, theirs, ours, strict=True) if not same_reply(*triple)
    ]


@pytest.mark.parametrize("seed", range(STREAMS))
def test_an_agent_answers_a_random_stream_as_redis(
    redis_port: int, agent_port: int, seed: int
) -> None:
    random = Random(1000 + seed)
    stream = [[b"HELLO", b"3" if seed % 2 else b"2"], [b"FLUSHALL"]]
    for _ in range(STREAM_COMMANDS):
        command = random_command(random)
        if command[0].upper() in (b"DBSIZE", b"CLUSTER"):
            stream.append([b"SCAN", b"0", b"COUNT", b"100000"])  # Redis drops what has expired
        stream.append(command)
    with (
        RawConnection("127.0.0.1", redis_port) as redis,
        RawConnection("127.0.0.1", agent_port) as agent,
    ):
        # In pieces of all sizes: alone, a few, and all that is left in one write.
        while stream:
            size = random.choice((1, 1, 2, 5, 50, len(stream)))
            piece, stream = stream[:size], stream[size:]

            assert _both(redis, agent, piece) == []


def test_an_agent_logs_every_command_as_slow_if_it_is_told_to(
    redis_port: int, agent_port: int
) -> None:
    log_all = [b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"]
    log_none = [b"CONFIG", b"SET", b"slowlog-log-slower-than", b"-1"]
    alone = [
        [b"ECHO", b"x" * 300],
        [b"SET", b"{a}1", b"v"],
        [b"GET", b"{a}1"],
        [b"MSET", *(b"{a}%d" % (number // 2) for number in range(40))],
        [b"CLIENT", b"SETNAME", b"me"],
        [b"APPEND", b"{a}1"],  # too few words
        [b"NONSENSE"],
        [b"HGET", b"{a}1", b"f"],  # a string
        [b"SLOWLOG", b"LEN"],
    ]
    pipeline = [
        *[[b"SET", b"{a}%d" % number, b"w"] for number in range(5)],
        *[[b"GET", b"{a}%d" % number] for number in range(5)],
        *[[b"INCR", b"{b}%d" % number] for number in range(5)],
    ]
    logged = []
    for port in (redis_port, agent_port):
        with RawConnection("127.0.0.1", port) as connection:
            connection.ask_all([[b"FLUSHALL"], log_none, [b"SLOWLOG", b"RESET"], log_all])
            for command in alone:
                connection.ask(command)
            connection.ask_all(pipeline)
            entries = taken_apart(connection.ask([b"SLOWLOG", b"GET", b"-1"])).parts
            connection.ask(log_none)
        logged.append([(each.parts[3], each.parts[5].leaf) for each in entries])
        numbers = [int(each.parts[0].leaf[1:]) for each in entries]
        assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
        for entry in entries:
            assert [part.kind for part in entry.parts] == [b":", b":", b":", b"*", b"$", b"$"]
            assert entry.parts[4].leaf.split(b"\r\n")[1].startswith(b"127.0.0.1:")

    assert logged[1] == logged[0]
    assert len(logged[0]) == 1 + len(alone) - 2 + len(pipeline)  # the first told it to log


def test_an_agent_forgets_what_has_expired_as_redis_does(redis_port: int, agent_port: int) -> None:
    keys = [b"{e}%d" % index for index in range(10)]
    with (
        RawConnection("127.0.0.1", redis_port) as redis,
        RawConnection("127.0.0.1", agent_port) as agent,
    ):
        setters = [[b"SET", key, b"5", b"PX", b"2"] for key in keys]
        assert _both(redis, agent, [[b"FLUSHALL"], *setters]) == []
        deadline = time.monotonic() + EXPIRY_S
        asked = [b"EXISTS", *keys]
        while redis.ask(asked) != b":0\r\n" or agent.ask(asked) != b":0\r\n":
            assert time.monotonic() < deadline

        looks = [
            [b"SCAN", b"0", b"COUNT", b"1000"],
            [b"INCR", keys[0]],
            [b"TTL", keys[0]],
            [b"APPEND", keys[1], b"x"],
            [b"SETNX", keys[2], b"x"],
            [b"SET", keys[3], b"x", b"KEEPTTL", b"GET"],
            [b"TTL", keys[3]],
            [b"MGET", *keys],
        ]
        assert _both(redis, agent, looks) == []

        # Both count an expired key until they have removed it: Redis when it is looked at, an
        # agent's primary by an update of its own, soon.
        counts = [[b"DBSIZE"], [b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % key_slot(keys[0])]]
        while _both(redis, agent, counts):
            assert time.monotonic() < deadline


def test_an_agent_looks_past_thousands_of_deleted_keys_as_redis_does(
    redis_port: int, agent_port: int
) -> None:
    keys = [b"{d}%04d" % index for index in range(3_000)]
    last = keys[-1]
    looks = [
        [b"RANDOMKEY"],
        [b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % key_slot(last)],
        [b"DBSIZE"],
    ]
    with (
        RawConnection("127.0.0.1", redis_port) as redis,
        RawConnection("127.0.0.1", agent_port) as agent,
    ):
        sets = [[b"SET", key, b"v"] for key in keys]
        assert _both(redis, agent, [[b"FLUSHALL"], *sets, *looks[1:]]) == []
        assert _both(redis, agent, [[b"DEL", *keys[:-1]], *looks]) == []
        for connection in (redis, agent):
            found, cursor = list[bytes](), b"0"
            while True:
                page = taken_apart(connection.ask([b"SCAN", cursor, b"COUNT", b"10"])).parts
                cursor = page[0].leaf.split(b"\r\n")[1]
                found += [part.leaf for part in page[1].parts]
                if cursor == b"0":
                    break
            assert found == [bulk(last)]
        assert _both(redis, agent, [[b"DEL", last], *looks]) == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"*1\r\n4\r\nPING\r\n",
        b"*x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$536870913\r\n",
        b"ping 'a\r\n",
        b"%1\r\n$1\r\na\r\n$1\r\nb\r\n" + b"x" * 70_000,
        encode_command([b"QUIT"]) + encode_command([b"PING"]),
    ],
    ids=lambda garbage: repr(garbage[:20]),
)
def test_an_agent_ends_a_connection_as_redis_does(
    redis_port: int, agent_port: int, garbage: bytes
) -> None:
    # What was asked before is answered before, also what an agent has to make durable first.
    stream = encode_command([b"SET", b"k", b"v"]) + encode_command([b"GET", b"k"]) + garbage
    received = []
    for port in (redis_port, agent_port):
        with RawConnection("127.0.0.1", port) as connection:
            received.append(connection.exchange(stream, half_close=False))

    assert received[1] == received[0]


def test_other_clients_are_served_while_thousands_send_garbage(agent_port: int) -> None:
    random = Random(3)
    with RawConnection("127.0.0.1", agent_port) as steady:
        for number in range(GARBAGE_STREAMS):
            with RawConnection("127.0.0.1", agent_port) as hostile:
                hostile.send(random_stream(random))
            if number % 50 == 0:
                value = b"%d" % number

                assert steady.ask([b"SET", b"steady", value]) == b"+OK\r\n"
                assert steady.ask([b"GET", b"steady"]) == bulk(value)
