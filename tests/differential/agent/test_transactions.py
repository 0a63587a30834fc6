"""Transactions of a real agent beside a real Redis: two clients each, the same steps to both."""

from contextlib import ExitStack
from random import Random

import pytest

from quorate_differential.raw_replies import RawConnection, encode_command

pytestmark = [pytest.mark.process, pytest.mark.needs("redis-server")]

STREAMS = 30
STEPS = 120
KEYS = (b"{t}1", b"{t}2", b"{t}3")


def _step(random: Random) -> list[bytes]:
    """A command, mostly one that is about transactions or meets the rows of others."""
    key, other = random.choice(KEYS), random.choice(KEYS)
    number = b"%d" % random.randint(0, 9)
    return random.choice(
        (
            *([b"MULTI"],) * 3,
            *([b"EXEC"],) * 4,
            [b"DISCARD"],
            *([b"WATCH", key, other],) * 2,
            [b"UNWATCH"],
            [b"SET", key, number],
            [b"SET", key, b"text"],
            [b"GET", key],
            [b"INCR", key],
            [b"APPEND", key, number],
            [b"DEL", key, other],
            [b"GETDEL", key],
            *([b"FLUSHALL"],) * 2,
            [b"SETNX", key, number],
            [b"MSET", key, number, other, b"x"],
            [b"MGET", *KEYS],
            [b"SET", key, number, b"PX", b"100000000"],
            [b"PERSIST", key],
            [b"EXISTS", *KEYS],
            [b"RPUSH", key, number],
            [b"LPOP", key],
            [b"LRANGE", key, b"0", b"-1"],
            [b"HINCRBY", key, b"f", b"1"],
            [b"HGETALL", key],
            [b"RENAME", key, other],
            [b"COPY", key, other, b"REPLACE"],
            [b"TYPE", key],
            [b"OBJECT", b"FREQ", key],
            [b"PING"],
            [b"ECHO", number],
            [b"HELLO", random.choice((b"2", b"3"))][: random.randint(1, 2)],
            [b"NOPE", key],
            [b"GET"],
            [b"WATCH"],
            [b"SET", key, number, b"WRONG"],
            [b"RESET"],
        )
    )


def _ask(connection: RawConnection, command: list[bytes]) -> bytes:
    reply = connection.ask(command)
    return b"hello" if b"proto" in reply else reply  # each server numbers its connections itself


@pytest.mark.parametrize("seed", range(STREAMS))
def test_two_clients_see_of_each_other_what_they_see_at_redis(
    redis_port: int, agent_port: int, seed: int
) -> None:
    random = Random(seed)
    with ExitStack() as stack:
        pairs = [
            [
                stack.enter_context(RawConnection("127.0.0.1", port))
                for port in (redis_port, agent_port)
            ]
            for _ in range(2)
        ]
        for connection in pairs[0]:
            connection.ask([b"FLUSHALL"])
        told: list[list[bytes]] = []
        inside = [False, False]
        for _ in range(STEPS):
            number = random.randrange(2)
            redis, agent = pairs[number]
            command = _step(random)
            if command == [b"FLUSHALL"] and inside[number]:
                continue  # an agent does not queue it
            told.append(command)

            assert _ask(agent, command) == _ask(redis, command), told[-12:]

            if command[0] in (b"MULTI", b"EXEC", b"DISCARD", b"RESET"):
                inside[number] = command[0] == b"MULTI"


def test_a_pipelined_transaction_is_one_answer_each(redis_port: int, agent_port: int) -> None:
    stream = b"".join(
        encode_command(command)
        for command in (
            [b"FLUSHALL"],
            [b"MULTI"],
            [b"INCR", b"{t}n"],
            [b"INCR", b"{t}n"],
            [b"SET", b"{t}s", b"x"],
            [b"INCR", b"{t}s"],
            [b"GET", b"{t}n"],
            [b"EXEC"],
            [b"GET", b"{t}n"],
            [b"MULTI"],
            [b"EXEC"],
            [b"MULTI"],
            [b"PING"],
            [b"EXEC"],
        )
    )
    received = []
    for port in (redis_port, agent_port):
        with RawConnection("127.0.0.1", port) as connection:
            received.append(connection.exchange(stream))

    assert received[1] == received[0]


def test_a_key_that_came_and_went_since_it_was_watched_has_changed(
    redis_port: int, agent_port: int
) -> None:
    told = []
    for port in (redis_port, agent_port):
        with (
            RawConnection("127.0.0.1", port) as one,
            RawConnection("127.0.0.1", port) as other,
        ):
            one.ask_all([[b"DEL", *KEYS], [b"WATCH", KEYS[0]]])
            other.ask_all([[b"SET", KEYS[0], b"x"], [b"DEL", KEYS[0]], [b"SET", KEYS[1], b"x"]])
            came = one.ask_all([[b"MULTI"], [b"GET", KEYS[0]], [b"EXEC"]])
            one.ask([b"WATCH", KEYS[0]])
            other.ask_all([[b"SET", KEYS[2], b"x"], [b"DEL", KEYS[2]]])
            never_there = one.ask_all([[b"MULTI"], [b"GET", KEYS[0]], [b"EXEC"]])
        told.append((came, never_there))

    assert told[1] == told[0]


@pytest.mark.parametrize("comes", [False, True])
def test_a_key_that_was_watched_as_absent_is_changed_by_a_flush_only_if_it_came(
    redis_port: int, agent_port: int, comes: bool
) -> None:
    told = []
    for port in (redis_port, agent_port):
        with (
            RawConnection("127.0.0.1", port) as one,
            RawConnection("127.0.0.1", port) as other,
        ):
            one.ask_all([[b"DEL", *KEYS], [b"WATCH", KEYS[0]]])
            other.ask_all([[b"SET", KEYS[0] if comes else KEYS[1], b"x"], [b"FLUSHALL"]])
            told.append(one.ask_all([[b"MULTI"], [b"PING"], [b"GET", KEYS[0]], [b"EXEC"]]))

    assert told[1] == told[0]
