"""What clients that cache are told by a real agent and by a real Redis: two clients each.

One tracks, the other writes.  An agent tells a key at the latest when Redis does, and may tell one
twice; so what is compared after each step is which keys were told, not in how many pushes.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

import hiredis
import pytest

from quorate_differential.raw_replies import RawConnection

pytestmark = [pytest.mark.process, pytest.mark.needs("redis-server")]

STREAMS = 24
STEPS = 150
KEYS = (b"{t}a1", b"{t}a2", b"{t}b1", b"{t}c")
MODES: tuple[Sequence[bytes], ...] = (
    (),
    (b"NOLOOP",),
    (b"OPTIN",),
    (b"OPTOUT",),
    (b"OPTOUT", b"NOLOOP"),
    (b"BCAST",),
    (b"BCAST", b"NOLOOP", b"PREFIX", b"{t}a", b"PREFIX", b"{t}b"),
)


class _Side:
    """A client that tracks and one that does not, at one server."""

    def __init__(self, stack: ExitStack, port: int, mode: Sequence[bytes]) -> None:
        self._tracker, self._other = (
            stack.enter_context(RawConnection("127.0.0.1", port)) for _ in range(2)
        )
        self._other.ask([b"FLUSHALL"])
        self._tracker.ask([b"HELLO", b"3"])
        assert self._tracker.ask([b"CLIENT", b"TRACKING", b"ON", *mode]) == b"+OK\r\n"
        self._told: set[Any] = set()

    def step(self, is_trackers: bool, commands: Sequence[Sequence[bytes]]) -> tuple[Any, set[Any]]:
        """The replies of the one or the other, and which keys the tracker was told meanwhile."""
        asked = self._tracker if is_trackers else self._other
        replies = [self._ask(asked, words) for words in commands]
        # What was written has been told before anything that is asked afterwards is answered.
        self._ask(self._tracker, [b"PING"])
        told, self._told = self._told, set()
        return replies, told

    def _ask(self, connection: RawConnection, words: Sequence[bytes]) -> Any:
        frame = connection.ask(words)
        while isinstance(found := _decoded(frame), hiredis.PushNotification):
            assert found[0] == b"invalidate"
            self._told.update(found[1] if found[1] is not None else [None])
            frame = connection.read()
        return found


def _decoded(frame: bytes) -> Any:
    reader = hiredis.Reader(replyError=str)
    reader.feed(frame)
    return reader.gets()


def _step(random: Random, mode: Sequence[bytes]) -> tuple[bool, list[list[bytes]]]:
    """Who, and what: commands that belong together."""
    key, other = random.choice(KEYS), random.choice(KEYS)
    number = b"%d" % random.randint(0, 9)
    reads = [
        [b"GET", key],
        [b"MGET", key, other],
        [b"EXISTS", key],
        [b"TYPE", key],
        [b"STRLEN", key],
        [b"TTL", key],
        [b"HGETALL", key],
    ]
    writes = [
        [b"SET", key, number],
        [b"DEL", key],
        [b"INCR", key],
        [b"APPEND", key, number],
        [b"MSET", key, number, other, number],
        [b"GETDEL", key],
        [b"RENAME", key, other],
        [b"COPY", key, other, b"REPLACE"],
        [b"EXPIRE", key, b"1000"],
        [b"PERSIST", key],
    ]
    plain = [[b"PING"], [b"NOPE"], [b"CLIENT", b"GETNAME"], [b"GET"], [b"SET", key]]
    is_trackers = random.random() < 0.6
    commands: list[list[bytes]] = []
    if b"OPTIN" in mode and random.random() < 0.7:
        commands.append([b"CLIENT", b"CACHING", b"YES"])
    if b"OPTOUT" in mode and random.random() < 0.4:
        commands.append([b"CLIENT", b"CACHING", b"NO"])
    chosen = [random.choice(random.choice((reads, reads, writes, plain)))]
    if random.random() < 0.2:
        # What one leaves as it was is no write here, and what it writes and reads is told.
        inner = [[b"GET", KEYS[0]], [b"MGET", *KEYS[:2]], [b"SET", KEYS[3], number]]
        chosen = [[b"MULTI"], *random.sample(inner, 2), [b"EXEC"]]
    if random.random() < 0.02:
        chosen = [[b"FLUSHALL"]]
    return is_trackers, commands + chosen if is_trackers else chosen


@pytest.mark.parametrize("seed", range(STREAMS))
def test_a_client_is_told_of_the_keys_that_redis_tells_of(
    redis_port: int, agent_port: int, seed: int
) -> None:
    random = Random(seed)
    mode = MODES[seed % len(MODES)]
    with ExitStack() as stack:
        redis, agent = (_Side(stack, port, mode) for port in (redis_port, agent_port))
        done: list[Any] = []
        for _ in range(STEPS):
            step = _step(random, mode)
            done.append(step)

            assert agent.step(*step) == redis.step(*step), (mode, done[-6:])


@pytest.mark.parametrize("protocol", [b"2", b"3"])
@pytest.mark.parametrize("seed", range(3))
def test_with_redirect_the_other_connection_is_told_as_often_as_by_redis(
    redis_port: int, agent_port: int, seed: int, protocol: bytes
) -> None:
    """Whoever writes: no key twice."""
    random = Random(seed)
    with ExitStack() as stack:
        redis, agent = (
            _Redirecting(stack, port, protocol, random.random() < 0.5)
            for port in (redis_port, agent_port)
        )
        for _ in range(60):
            key, other = random.sample(KEYS, 2)
            read = random.choice(([b"GET", key], [b"MGET", key, other], [b"STRLEN", key]))
            write = random.choice(
                ([b"SET", key, b"1"], [b"DEL", key], [b"MSET", key, b"2", other, b"3"])
            )
            tracker_writes = random.random() < 0.6

            assert agent.step(read, write, tracker_writes) == redis.step(
                read, write, tracker_writes
            ), (read, write, tracker_writes)


class _Redirecting:
    """A client that tracks, one that is told for it, and one that does neither, at one server."""

    def __init__(self, stack: ExitStack, port: int, protocol: bytes, tracks_in_resp3: bool) -> None:
        self._tracker, self._listener, self._other = (
            stack.enter_context(RawConnection("127.0.0.1", port)) for _ in range(3)
        )
        self._other.ask([b"FLUSHALL"])
        number = _decoded(self._listener.ask([b"CLIENT", b"ID"]))
        if protocol == b"3":
            self._listener.ask([b"HELLO", b"3"])
        else:
            self._listener.ask([b"SUBSCRIBE", b"__redis__:invalidate"])
        if tracks_in_resp3:
            self._tracker.ask([b"HELLO", b"3"])
        redirect = [b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", b"%d" % number]
        assert self._tracker.ask(redirect) == b"+OK\r\n"

    def step(self, read: list[bytes], write: list[bytes], tracker_writes: bool) -> list[bytes]:
        """The keys that were told, each as often as it was."""
        self._tracker.ask(read)
        (self._tracker if tracker_writes else self._other).ask(write)
        self._other.ask([b"PING"])
        told: list[bytes] = []
        frame = self._listener.ask([b"PING"])
        while isinstance(found := _decoded(frame), list) and b"pong" not in found:
            told += found[-1]
            frame = self._listener.read()
        return sorted(told)
