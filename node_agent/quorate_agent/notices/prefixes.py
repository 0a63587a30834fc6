"""The prefixes that clients of one zone broadcast (CLIENT TRACKING BCAST)."""

from bisect import insort
from collections.abc import Iterable, Iterator

from quorate_agent.resp.commands.session.tracking import (
    ZONE_PREFIXES_BYTES_MAX,
    ZONE_PREFIXES_MAX,
)


class Prefixes:
    """Prefixes, and the ids of the connections that are told of keys that begin with them.

    A written key is looked up once for each length of a prefix, however many prefixes there are."""

    __slots__ = ("_byte_count", "_counts", "_ids", "_lengths")

    def __init__(self) -> None:
        self._ids: dict[bytes, dict[int, None]] = {}
        self._byte_count = 0
        self._counts: dict[int, int] = {}  # how many prefixes have this length
        self._lengths: list[int] = []  # these lengths, ascending

    def __len__(self) -> int:
        return len(self._ids)

    def has_room(self, prefixes: Iterable[bytes]) -> bool:
        """Return whether these may be added."""
        new = {*prefixes} - self._ids.keys()
        byte_count = self._byte_count + sum(map(len, new))
        is_many = len(self._ids) + len(new) > ZONE_PREFIXES_MAX
        return not new or not (is_many or byte_count > ZONE_PREFIXES_BYTES_MAX)

    def add(self, prefix: bytes, id: int) -> None:
        """Tell this connection of keys that begin with `prefix`."""
        if prefix not in self._ids:
            length = len(prefix)
            self._ids[prefix] = {}
            self._byte_count += length
            if length not in self._counts:
                insort(self._lengths, length)
            self._counts[length] = self._counts.get(length, 0) + 1
        self._ids[prefix][id] = None

    def remove(self, prefix: bytes, id: int) -> None:
        """Tell this connection no longer."""
        ids = self._ids[prefix]
        del ids[id]
        if ids:
            return
        length = len(prefix)
        del self._ids[prefix]
        self._byte_count -= length
        self._counts[length] -= 1
        if not self._counts[length]:
            del self._counts[length]
            self._lengths.remove(length)

    def of(self, key: bytes) -> Iterator[bytes]:
        """Yield the prefixes with which `key` begins."""
        for length in self._lengths:
            if length > len(key):
                return
            prefix = key[:length]
            if prefix in self._ids:
                yield prefix

    def told(self, prefix: bytes) -> Iterable[int]:
        """Return the connections that are told of this prefix."""
        return self._ids.get(prefix, ())

    def pairs(self) -> Iterator[tuple[bytes, int]]:
        """Yield each prefix with each of its connections."""
        for prefix, ids in self._ids.items():
            for id in ids:
                yield prefix, id
