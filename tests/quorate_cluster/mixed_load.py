"""Commands as applications send them: keys and values of many lengths, in all slots.

Keys have 8 to 48 bytes, uniformly distributed.  Values have 50 to 1,000 bytes, log-normally
distributed with a median of 200.  A stream names each key (of a hash: each field) once in its first
half and once in its second, in random order and with other values, so a pipeline cut from it hardly
ever names a key twice.  The same `Share` always gives the same keys.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from quorate.facts.keyspace import key_slot
from quorate_cluster.processes import HOST
from quorate_cluster.routing import ports_of_slots
from quorate_differential.raw_replies import RawConnection, encode_command

KEY_BYTES = (8, 48)
VALUE_BYTES = (50, 1000)
VALUE_BYTES_MEDIAN = 200
_VALUE_SPREAD = 0.8
_FILLED_AT_ONCE = 100

STRINGS = 100_000
COUNTERS = 50_000
TAGGED = 10_000
"""Groups of three keys with one hash tag."""
PROFILES = 5_000
PROFILE_FIELDS = 10
HASHES = 1_000
HASH_FIELDS = 100
HASH_VALUE_BYTES = 200

COMMANDS_MAX = 60_000
"""Commands of one half of a stream, over all shares."""

LOADS: Mapping[str, Mapping[str, float]] = {
    "GET": {"GET": 1},
    "80 % GET, 20 % SET": {"GET": 0.8, "SET": 0.2},
    "SET": {"SET": 1},
    "INCR": {"INCR": 1},
    "80 % HGET, 20 % HSET": {"long HGET": 0.8, "long HSET": 0.2},
    "mixed": {
        "GET": 0.45, "SET": 0.2, "DEL": 0.03, "EXISTS": 0.02, "EXPIRE": 0.03,
        "INCR": 0.07, "MGET": 0.05, "HGET": 0.1, "HSET": 0.05,
    },
}  # fmt: skip
"""Load -> kind of command -> its part of all commands."""

_SPACES = {
    "GET": "strings", "SET": "strings", "DEL": "strings", "EXISTS": "strings", "EXPIRE": "strings",
    "INCR": "counters", "MGET": "tagged", "HGET": "fields", "HSET": "fields",
    "long HGET": "long_fields", "long HSET": "long_fields",
}  # fmt: skip
_WRITES = frozenset({"SET", "DEL", "EXPIRE", "INCR", "HSET", "long HSET"})


@dataclass(frozen=True)
class Sent:
    """One command as it is sent."""

    slot: int
    stream: bytes
    writes: bool


@dataclass(frozen=True)
class Share:
    """The part `number` of `parts` equal parts of all keys: one client process has one part."""

    number: int = 0
    parts: int = 1
    scale: float = 1.0
    """Of all keys, so many are used: below 1 where a test is to be quick."""

    @cached_property
    def strings(self) -> Sequence[bytes]:
        return self._keys("string", STRINGS)

    @cached_property
    def counters(self) -> Sequence[bytes]:
        return self._keys("counter", COUNTERS)

    @cached_property
    def tagged(self) -> Sequence[Sequence[bytes]]:
        """Groups of keys that share a slot."""
        names = self._keys("tag", TAGGED, most=40)
        return [[b"{%b}:%b" % (name, part) for part in (b"a", b"bb", b"ccc")] for name in names]

    @cached_property
    def fields(self) -> Sequence[tuple[bytes, bytes]]:
        """(key, field) of all fields of the hashes with values as strings have them."""
        return self._fields("profile", PROFILES, PROFILE_FIELDS)

    @cached_property
    def long_fields(self) -> Sequence[tuple[bytes, bytes]]:
        """(key, field) of all fields of the hashes with many fields of one length."""
        return self._fields("hash", HASHES, HASH_FIELDS)

    def filling(self, *loads: str) -> Iterator[Sent]:
        """The commands that write everything that the loads read."""
        chosen = self._random("filling")
        values = _Values(chosen)
        spaces = {_SPACES[kind] for load in loads for kind in LOADS[load]}
        if "strings" in spaces:
            for key in self.strings:
                yield _sent("SET", key, [b"SET", key, next(values)])
        if "counters" in spaces:
            for key in self.counters:
                yield _sent("SET", key, [b"SET", key, b"%d" % chosen.randrange(1 << 20)])
        if "tagged" in spaces:
            for group in self.tagged:
                for key in group:
                    yield _sent("SET", key, [b"SET", key, next(values)])
        for space in spaces & {"fields", "long_fields"}:
            words: dict[bytes, list[bytes]] = {}
            for key, field in getattr(self, space):
                size = HASH_VALUE_BYTES if space == "long_fields" else None
                words.setdefault(key, []).extend((field, values.take(size)))
            for key, pairs in words.items():
                yield _sent("HSET", key, [b"HSET", key, *pairs])

    def commands(self, load: str) -> list[Sent]:
        """The stream of a load, to be sent from its beginning or any other place, and again."""
        chosen = self._random(load)
        values = _Values(chosen)
        kinds = LOADS[load]
        parts: dict[str, float] = {}
        for kind, part in kinds.items():
            parts[_SPACES[kind]] = parts.get(_SPACES[kind], 0) + part
        most = min(len(getattr(self, space)) / part for space, part in parts.items())
        count = min(COMMANDS_MAX * self.scale / self.parts, most)
        found: list[Sent] = []
        for _ in range(2):
            half: list[Sent] = []
            left: dict[str, Iterator[Any]] = {}
            for space in parts:
                items = getattr(self, space)
                left[space] = iter(chosen.sample(items, len(items)))
            for kind, part in kinds.items():
                chosen_items = islice(left[_SPACES[kind]], int(count * part))
                half += [_command(kind, item, values) for item in chosen_items]
            chosen.shuffle(half)
            found += half
        return found

    def _random(self, purpose: str) -> random.Random:
        return random.Random(f"{purpose} {self.number}/{self.parts}")

    def _keys(self, kind: str, count: int, most: int = KEY_BYTES[1]) -> list[bytes]:
        chosen = self._random(kind)
        letters = "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz0123456789_-:", k=1 << 16))
        keys: dict[bytes, None] = {}
        for number in range(int(count * self.scale / self.parts)):
            # The number makes keys differ, also those of other kinds and shares.
            head = f"{kind[0]}{self.number:x}{number:05x}:"
            size = chosen.randint(max(KEY_BYTES[0], len(head)), most)
            at = chosen.randrange(len(letters) - most)
            keys[(head + letters[at : at + size - len(head)]).encode()] = None
        return list(keys)

    def _fields(self, kind: str, count: int, fields: int) -> list[tuple[bytes, bytes]]:
        names = [b"field-%d" % (number * number) for number in range(fields)]
        return [(key, name) for key in self._keys(kind, count) for name in names]


def value_bytes(chosen: random.Random) -> int:
    """Draw the length of a value."""
    least, most = VALUE_BYTES
    drawn = int(chosen.lognormvariate(math.log(VALUE_BYTES_MEDIAN), _VALUE_SPREAD))
    return min(max(drawn, least), most)


class _Values:
    """Values of many lengths, cut out of random bytes."""

    def __init__(self, chosen: random.Random) -> None:
        self._bytes = chosen.randbytes(1 << 16)
        self._chosen = chosen

    def __next__(self) -> bytes:
        return self.take(None)

    def take(self, size: int | None) -> bytes:
        """A value of `size` bytes, or of a random number of bytes."""
        if size is None:
            size = value_bytes(self._chosen)
        at = self._chosen.randrange(len(self._bytes) - size)
        return self._bytes[at : at + size]


def _command(kind: str, item: Any, values: _Values) -> Sent:
    """A command of this kind on a key, a group of keys or a (key, field)."""
    match kind:
        case "SET":
            return _sent("SET", item, [b"SET", item, next(values)])
        case "EXPIRE":
            return _sent("EXPIRE", item, [b"EXPIRE", item, b"1000"])
        case "MGET":
            return _sent("MGET", item[0], [b"MGET", *item])
        case "HGET" | "long HGET":
            return _sent(kind, item[0], [b"HGET", *item])
        case "HSET":
            return _sent(kind, item[0], [b"HSET", *item, next(values)])
        case "long HSET":
            return _sent(kind, item[0], [b"HSET", *item, values.take(HASH_VALUE_BYTES)])
        case _:
            return _sent(kind, item, [kind.encode(), item])


def _sent(kind: str, key: bytes, words: list[bytes]) -> Sent:
    return Sent(key_slot(key), encode_command(words), kind in _WRITES)


def fill(port: int, shares: Iterable[Share], loads: Sequence[str]) -> None:
    """Write everything that the loads read, each key through its primary.

    `port` is any of the cluster's."""
    ports = ports_of_slots(port)
    with ExitStack() as stack:
        connections = {
            each: stack.enter_context(RawConnection(HOST, each, 60)) for each in set(ports)
        }
        waiting: dict[int, list[bytes]] = {each: [] for each in connections}

        def send(its: int) -> None:
            connections[its].send(b"".join(waiting[its]))
            for _ in waiting[its]:
                if (reply := connections[its].read()).startswith(b"-"):
                    raise RuntimeError(f"filling: {reply!r}")
            waiting[its].clear()

        for share in shares:
            for sent in share.filling(*loads):
                its = ports[sent.slot]
                waiting[its].append(sent.stream)
                if len(waiting[its]) == _FILLED_AT_ONCE:
                    send(its)
        for its in connections:
            send(its)
