"""Hashes, sets and lists beside those of a real Redis: long streams on one key of each kind."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from quorate_agent.resp.session import Session
from quorate_differential.collection_streams import random_collection_command
from quorate_differential.exemptions import same_reply
from quorate_differential.local_endpoint import LocalEndpoint
from quorate_differential.number_texts import NOT_FLOATS, random_float
from quorate_differential.raw_replies import RawConnection

pytestmark = pytest.mark.needs("redis-server")

KINDS = ("hash", "set", "list")
STREAMS = 4
STREAM_COMMANDS = 600
SUMS = 3_000


@pytest.fixture
def redis(redis_port: int) -> Iterator[RawConnection]:
    """An empty Redis."""
    with RawConnection("127.0.0.1", redis_port) as connection:
        connection.ask([b"FLUSHALL"])
        yield connection


class Pair:
    """Redis and us, asked the same."""

    def __init__(self, redis: RawConnection, version: bytes = b"2") -> None:
        self._redis = redis
        self._endpoint = LocalEndpoint()
        self._session: Session = self._endpoint.connect()
        self.ask(b"HELLO", version)

    def ask(self, *words: bytes) -> bytes:
        """Our reply, once it is known to be that of Redis."""
        theirs = self._redis.ask(words)
        ours = self._endpoint.answer(self._session, list(words))
        assert same_reply(words, theirs, ours), f"{words}\n Redis: {theirs!r}\n    us: {ours!r}"
        return ours

    def ours(self, *words: bytes) -> bytes:
        """Our reply to what Redis is not asked."""
        return self._endpoint.answer(self._session, list(words))

    def compare(self, key: bytes) -> None:
        """All that `key` holds."""
        for words in (
            (b"TYPE", key),
            (b"PERSIST", key),
            (b"GET", key),
            (b"HGETALL", key),
            (b"SMEMBERS", key),
            (b"LRANGE", key, b"0", b"-1"),
        ):
            self.ask(*words)


@pytest.mark.parametrize("seed", range(STREAMS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_stream_on_one_collection_gets_the_replies_of_redis(
    redis: RawConnection, kind: str, seed: int
) -> None:
    random = Random(seed)
    pair = Pair(redis, b"3" if seed % 2 else b"2")
    for _ in range(STREAM_COMMANDS):
        if random.random() < 0.9:
            pair.ask(*random_collection_command(random, b"{k}", kind))
        else:
            pair.ask(*_about_keys(random))
        if random.random() < 0.1:
            pair.compare(b"{k}")


def _about_keys(random: Random) -> list[bytes]:
    key, other = random.choice(((b"{k}", b"{k}2"), (b"{k}2", b"{k}")))
    return list(
        random.choice(
            (
                (b"COPY", key, other, b"REPLACE"),
                (b"RENAME", key, other),
                (b"RENAMENX", key, other),
                (b"EXPIRE", key, b"10000000"),
                (b"TTL", key),
                (b"SET", key, b"text"),
                (b"APPEND", key, b"text"),
                (b"GETDEL", key),
                (b"SETNX", key, b"text"),
                (b"SET", key, b"text", b"GET", b"KEEPTTL"),
                (b"INCRBYFLOAT", key, b"1.5"),
                (b"SETRANGE", key, b"2", b"x"),
                (b"DEL", key),
                (b"OBJECT", b"ENCODING", key),
                (b"MGET", key, other),
                (b"SCAN", b"0", b"TYPE", random.choice((b"hash", b"set", b"list", b"string"))),
            )
        )
    )


@pytest.mark.parametrize(
    "words",
    [
        b"GET",
        b"GETDEL",
        b"GETEX",
        b"APPEND x",
        b"STRLEN",
        b"GETRANGE 0 -1",
        b"SETRANGE 0 x",
        b"INCR",
        b"INCRBYFLOAT 1",
        b"SET x GET",
        b"SETNX x",
        b"HSET f v",
        b"HGET f",
        b"HINCRBY f 1",
        b"HSCAN 0",
        b"HSCAN x",
        b"SADD m",
        b"SMISMEMBER m",
        b"SPOP",
        b"SSCAN 0 NOPE",
        b"LPUSH e",
        b"LPUSHX e",
        b"LPOP",
        b"RPOP 0",
        b"LSET 0 x",
        b"LINDEX x",
        b"LTRIM 0 -1",
        b"OBJECT",
        b"PERSIST",
        b"SET y",
        b"DEL",
    ],
)
def test_a_key_of_another_kind_is_refused_as_by_redis(redis: RawConnection, words: bytes) -> None:
    name, *rest = words.split()
    for maker in ((b"SET", b"text"), (b"HSET", b"f", b"v"), (b"SADD", b"m"), (b"RPUSH", b"e")):
        pair = Pair(redis)
        pair.ask(b"FLUSHALL")
        pair.ask(maker[0], b"k", *maker[1:])
        pair.ask(b"EXPIRE", b"k", b"10000000")

        pair.ask(name, b"k", *rest)
        pair.ask(b"TTL", b"k")
        pair.compare(b"k")


@pytest.mark.parametrize("name", [b"HSCAN", b"SSCAN"])
def test_a_large_collection_is_scanned_in_pages_that_have_all_of_it(
    redis: RawConnection, name: bytes
) -> None:
    pair = Pair(redis)
    for first in range(0, 5_000, 500):
        members = [b"member-%d" % number for number in range(first, first + 500)]
        if name == b"HSCAN":
            pair.ask(b"HSET", b"k", *[word for member in members for word in (member, member)])
        else:
            pair.ask(b"SADD", b"k", *members)
    remover, repeats = (b"HDEL", 2) if name == b"HSCAN" else (b"SREM", 1)
    cursor, found, pages = b"0", list[bytes](), 0
    while cursor != b"0" or not pages:
        _, _, cursor, _, *words = pair.ours(name, b"k", cursor, b"COUNT", b"10").split(b"\r\n")
        found += words[1::2]
        pages += 1
        pair.ours(remover, b"k", b"member-%d" % pages)

    assert pages > 3
    seen = Counter(found)
    assert {seen[b"member-%d" % number] for number in range(pages + 1, 5_000)} == {repeats}


def test_sums_of_numbers_with_a_fraction_are_those_of_redis(redis: RawConnection) -> None:
    random = Random(7)
    pair = Pair(redis)
    for _ in range(SUMS):
        if random.random() < 0.3:
            pair.ask(b"SET", b"n", random_float(random))
        pair.ask(b"INCRBYFLOAT", b"n", random_float(random))
    for text in NOT_FLOATS:
        pair.ask(b"INCRBYFLOAT", b"n", text)
        pair.ask(b"HINCRBYFLOAT", b"h", b"f", text)
