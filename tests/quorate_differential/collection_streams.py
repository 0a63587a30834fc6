"""Random commands for hashes, sets and lists, on few fields, so that they meet."""

from collections.abc import Callable
from random import Random

from quorate_differential.number_texts import (
    FAR_INTEGERS,
    INTEGERS,
    NOT_INTEGERS,
    TEXTS,
    random_float,
)

NAMES = (b"f", b"g", b"1", b"2", b"-3", b"", b"\xff", b"\x00\r\n", b"n" * 70)

Words = list[bytes]


def random_collection_command(random: Random, key: bytes, kind: str = "any") -> Words:
    """A command on the hash, set or list at `key`, whatever it holds."""
    words = random.choice(MAKERS[kind])(random)
    return [words[0], key, *words[1:]]


def _name(random: Random) -> bytes:
    return random.choice(NAMES)


def _names(random: Random) -> Words:
    return random.choices(NAMES, k=random.choice((1, 1, 2, 3, 5)))


def _value(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.4:
        return random.choice(INTEGERS)
    if kind < 0.6:
        return random_float(random)
    return random.choice((*TEXTS, *NOT_INTEGERS))


def _pairs(random: Random) -> Words:
    return [word for name in _names(random) for word in (name, _value(random))]


def _index(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.8:
        return b"%d" % random.randint(-6, 6)
    return random.choice(FAR_INTEGERS if kind < 0.95 else NOT_INTEGERS)


def _scan(name: bytes) -> Callable[[Random], Words]:
    def make(random: Random) -> Words:
        words = [name, random.choice((b"0", b"0", b"0", b"x", b"", b"18446744073709551616"))]
        for _ in range(random.choice((0, 0, 1, 2))):
            words += random.choice(
                (
                    (b"MATCH", random.choice((b"*", b"f", b"[a-z]", b"?*"))),
                    (b"count", random.choice((b"0", b"x", b"1000", b"1000"))),
                    (b"TYPE", b"hash"),
                    (b"COUNT",),
                )
            )
        return words

    return make


def _pop(random: Random) -> Words:
    counts = ((), (), (), (b"0",), (b"1",), (b"2",), (b"50",), (b"-1",), (b"x",), (b"1", b"2"))
    return [random.choice((b"LPOP", b"RPOP")), *random.choice(counts)]


def _draw(random: Random) -> Words:
    """What members come is each server's own: a count of all is told, none, or one too many."""
    counts: tuple[tuple[bytes, ...], ...] = ((), (b"100",), (b"0",), (b"x",), (b"1", b"2"))
    if random.random() < 0.5:
        return [b"SPOP", *random.choice(((b"100",), *counts[2:], (b"-1",)))]
    return [b"SRANDMEMBER", *random.choice((*counts, (b"-9223372036854775808",)))]


Makers = tuple[Callable[[Random], Words], ...]

_HASH_MAKERS: Makers = (
    *(lambda random: [b"HSET", *_pairs(random)],) * 4,
    lambda random: [b"HMSET", *_pairs(random)],
    lambda random: [b"HSETNX", _name(random), _value(random)],
    *(lambda random: [b"HGET", _name(random)],) * 2,
    lambda random: [b"HMGET", *_names(random)],
    *(lambda random: [random.choice((b"HGETALL", b"HKEYS", b"HVALS", b"HLEN"))],) * 3,
    lambda random: [random.choice((b"HEXISTS", b"HSTRLEN")), _name(random)],
    *(lambda random: [b"HDEL", *_names(random)],) * 2,
    *(lambda random: [b"HINCRBY", _name(random), _value(random)],) * 2,
    *(lambda random: [b"HINCRBYFLOAT", _name(random), random_float(random)],) * 2,
    _scan(b"HSCAN"),
)
_SET_MAKERS: Makers = (
    *(lambda random: [b"SADD", *_names(random)],) * 4,
    *(lambda random: [b"SREM", *_names(random)],) * 3,
    lambda random: [b"SISMEMBER", _name(random)],
    lambda random: [b"SMISMEMBER", *_names(random)],
    *(lambda random: [random.choice((b"SMEMBERS", b"SCARD"))],) * 3,
    _scan(b"SSCAN"),
    _draw,
)
_LIST_MAKERS: Makers = (
    *(lambda random: [random.choice((b"LPUSH", b"RPUSH")), *_names(random)],) * 4,
    *(lambda random: [random.choice((b"LPUSHX", b"RPUSHX")), *_names(random)],) * 2,
    *(_pop,) * 3,
    *(lambda random: [b"LRANGE", _index(random), _index(random)],) * 3,
    lambda random: [b"LLEN"],
    lambda random: [b"LINDEX", _index(random)],
    *(lambda random: [b"LSET", _index(random), _name(random)],) * 2,
    *(lambda random: [b"LREM", _index(random), _name(random)],) * 2,
    *(lambda random: [b"LTRIM", _index(random), _index(random)],) * 2,
)
MAKERS: dict[str, Makers] = {
    "hash": _HASH_MAKERS,
    "set": _SET_MAKERS,
    "list": _LIST_MAKERS,
    "any": (*_HASH_MAKERS, *_SET_MAKERS, *_LIST_MAKERS),
}
