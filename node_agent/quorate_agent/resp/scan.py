"""Where a SCAN stands: how a cursor, one number, names a place between the keys of an agent.

A cursor is `partition << 48 | origin << 42 | stamp << 34 | token`.  The origin tells at which
process the scan began, the stamp when, so that it goes on with what was this agent's then; a
process that did not begin it cannot know that, and goes through all partitions from there on.  The
stamp is never 0, so only cursor 0 starts a scan.  Token 0 is the start of the partition; any other
token is a 34-bit hash of the key after which to go on.

Rows come in key order and keys are too long for a number, so the agent remembers the keys of recent
tokens.  If it does not know one (it was restarted, or too many scans came between), it looks for
the key in the first rows of the partition, and failing that starts the partition again.  So a key
that is there throughout is always returned; one may be returned twice, which SCAN allows.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

ScanRows = Callable[[int, bytes | None, int], tuple[list[bytes], bytes | None]]

PLACE_BITS = 48
ORIGIN_BITS = 42
TOKEN_BITS = 34
ORIGINS = 1 << PLACE_BITS - ORIGIN_BITS
# Stamps count these steps of time; they begin anew after four and a half hours.
STAMP_S = 64
STAMPS = (1 << ORIGIN_BITS - TOKEN_BITS) - 1
# What was lost so long before a scan began is still returned: who scans one agent after the other
# may have been at the new primary before the hand-over.
OVERLAP_S = 600
# Scans whose place is known for certain.  More at the same time still end, but repeat keys.
POSITIONS_MAX = 10_000
# Limits of one call's work, whatever COUNT says: rows looked at, and partitions (most of which are
# empty in a small zone).  A page may be empty and yet not the last.
ROWS_MAX = 10_000
PARTITIONS_MAX = 256
# How far a forgotten position is looked for.
SEARCH_ROWS_MAX = 10_000


class Place(NamedTuple):
    """A cursor, taken apart."""

    partition: int
    origin: int
    stamp: int
    token: int = 0

    @property
    def cursor(self) -> int:
        """As a client knows it."""
        high = self.partition << PLACE_BITS | self.origin << ORIGIN_BITS
        return high | self.stamp << TOKEN_BITS | self.token

    def start_of(self, partition: int) -> "Place":
        """The start of a partition, in the same scan."""
        return self._replace(partition=partition, token=0)

    def begun_s(self, now_s: int) -> int:
        """When the scan began, or at most STAMP_S before."""
        steps = now_s // STAMP_S
        return (steps - (steps - self.stamp + 1) % STAMPS) * STAMP_S


def place_of(cursor: int, origin: int, now_s: int) -> Place:
    """What a cursor names; a scan that begins gets our `origin`.  `now_s` on a clock that never
    goes back."""
    stamp = cursor >> TOKEN_BITS & STAMPS
    token = cursor & (1 << TOKEN_BITS) - 1
    if not stamp:
        return Place(cursor >> PLACE_BITS, origin, now_s // STAMP_S % STAMPS + 1, token)
    return Place(cursor >> PLACE_BITS, cursor >> ORIGIN_BITS & ORIGINS - 1, stamp, token)


def origin_of(node: str, store: str, incarnation: int) -> int:
    """What tells a process from those before it over its store, and most others from it."""
    return (crc32(f"{node}/{store}".encode()) + incarnation) % ORIGINS


class ScanPositions:
    """Keys behind recent tokens.  Those where a scan has gone on are forgotten first: each scan
    has one that it will come back to, however many pages it had."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[int, int], tuple[bytes, int]] = OrderedDict()
        # With each key: how many scans were sent there and have not come back.

    def token(self, partition: int, key: bytes) -> int:
        """What stands for the place behind `key`."""
        token = _token(key)
        while (known := self._keys.get((partition, token), (key, 0)))[0] != key:
            token = token % _TOKEN_MAX + 1  # another key's, whose scans would come back to it
        self._keys[partition, token] = key, known[1] + 1
        self._keys.move_to_end((partition, token))
        if len(self._keys) > POSITIONS_MAX:
            self._keys.popitem(last=False)
        return token

    def key(self, place: Place, rows: ScanRows) -> bytes | None:
        """The key behind which `place` is; None: the start of its partition."""
        if place.token == 0:
            return None
        known = self._keys.get((place.partition, place.token))
        if known is not None:
            key, coming = known
            self._keys[place.partition, place.token] = key, max(coming - 1, 0)
            if coming <= 1:
                self._keys.move_to_end((place.partition, place.token), last=False)
            return key
        keys, _ = rows(place.partition, None, SEARCH_ROWS_MAX)
        return next((key for key in keys if _token(key) == place.token), None)


def scan_page(
    place: Place,
    count: int,
    partitions: Sequence[int],
    rows: ScanRows,
    positions: ScanPositions,
    is_here: Callable[[int], bool] = lambda partition: True,
) -> tuple[Place | None, list[bytes]]:
    """Where to go on (None: the scan is over) and the keys of about `count` rows from `place` on.

    `partitions` ascending; at one that is not here the page ends.
    """
    left = min(count, ROWS_MAX)
    found: list[bytes] = []
    ahead = [partition for partition in partitions if partition >= place.partition]
    for visited, partition in enumerate(ahead):
        at = place if partition == place.partition else place.start_of(partition)
        if visited == PARTITIONS_MAX or not is_here(partition):
            return at, found
        after = positions.key(at, rows)
        while True:
            if left <= 0:
                if after is None:
                    return place.start_of(partition), found
                token = positions.token(partition, after)
                return place._replace(partition=partition, token=token), found
            keys, last = rows(partition, after, left)
            found += keys
            left -= len(keys)
            after = last
            if last is None:
                break
            # Rows that are not live cost as much; how many were looked at is not told.
            left -= not keys
    return None, found


_TOKEN_MAX = (1 << TOKEN_BITS) - 1


def _token(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") & _TOKEN_MAX or 1
