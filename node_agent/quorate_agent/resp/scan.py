"""SCAN cursors: how one number names a place among the keys of an agent.

A cursor is `partition << 48 | origin << 42 | stamp << 34 | token`.  The origin identifies the
process at which the scan began, the stamp the time, so that the scan goes on with the partitions
this agent had then.  A process that did not begin the scan cannot know them, and goes through all
partitions from the cursor on.  The stamp is never 0, so only cursor 0 starts a scan.  Token 0 is
the start of the partition; any other token is a 34-bit hash of the key after which to go on.

Rows come in key order and keys do not fit into a number, so the agent remembers the keys of recent
tokens.  If it does not know one (it was restarted, or too many scans came between), it looks for
the key in the first rows of the partition, and failing that starts the partition again.  So a key
that exists throughout is always returned; it may be returned twice, which SCAN allows.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

PLACE_BITS = 48
ORIGIN_BITS = 42
TOKEN_BITS = 34
ORIGINS = 1 << PLACE_BITS - ORIGIN_BITS
# Stamps count these steps of time; they wrap around after four and a half hours.
STAMP_S = 64
STAMPS = (1 << ORIGIN_BITS - TOKEN_BITS) - 1
# Partitions lost at most this long before a scan began are still returned: a client that scans one
# agent after the other may have been at the new primary before the hand-over.
OVERLAP_S = 600
# Scans whose place is certainly remembered.  With more at a time all still end, but keys repeat.
POSITIONS_MAX = 10_000
POSITIONS_BYTES_MAX = 16 * 1024 * 1024  # of their keys, which may be long
# Limits of one call's work, whatever COUNT says: rows looked at, live or not, bytes read for them,
# and partitions (mostly empty in a small zone).  An empty page need not be the last.
ROWS_MAX = 10_000
BYTES_MAX = 4 * 1024 * 1024
PARTITIONS_MAX = 256
# How far to look for a forgotten position.
SEARCH_ROWS_MAX = 10_000


class ScanChunk(NamedTuple):
    """Some rows of a partition, in key order.

    - `live`: the keys that clients may see
    - `looked_at`: the keys of all these rows
    - `last`: the last of those; None: there are no more rows
    - `read_bytes`: how much was read for this
    """

    live: list[bytes]
    looked_at: list[bytes]
    last: bytes | None
    read_bytes: int


ScanRows = Callable[[int, bytes | None, int, int], ScanChunk]
"""Looks at rows of a partition after a key: at most so many, and of about so many bytes."""


class Place(NamedTuple):
    """A cursor, taken apart."""

    partition: int
    origin: int
    stamp: int
    token: int = 0

    @property
    def cursor(self) -> int:
        """The number that the client gets."""
        high = self.partition << PLACE_BITS | self.origin << ORIGIN_BITS
        return high | self.stamp << TOKEN_BITS | self.token

    def start_of(self, partition: int) -> "Place":
        """Return the start of a partition in the same scan."""
        return self._replace(partition=partition, token=0)

    def begun_s(self, now_s: int) -> int:
        """Return when the scan began, at most STAMP_S too early."""
        steps = now_s // STAMP_S
        return (steps - (steps - self.stamp + 1) % STAMPS) * STAMP_S


def place_of(cursor: int, origin: int, now_s: int) -> Place:
    """Return the place that a cursor names; a scan that begins gets our `origin`.

    `now_s` is on a clock that never goes back."""
    stamp = cursor >> TOKEN_BITS & STAMPS
    token = cursor & (1 << TOKEN_BITS) - 1
    if not stamp:
        return Place(cursor >> PLACE_BITS, origin, now_s // STAMP_S % STAMPS + 1, token)
    return Place(cursor >> PLACE_BITS, cursor >> ORIGIN_BITS & ORIGINS - 1, stamp, token)


def origin_of(node: str, store: str, incarnation: int) -> int:
    """Return a number that differs from those of earlier processes over the store, and of most
    others."""
    return (crc32(f"{node}/{store}".encode()) + incarnation) % ORIGINS


class ScanPositions:
    """Keys of recent tokens.

    Tokens from which a scan has gone on are forgotten first: each scan needs only the one it will
    come back to, however many pages it had."""

    __slots__ = ("_bytes", "_keys")

    def __init__(self) -> None:
        self._bytes = 0  # of the keys
        self._keys: OrderedDict[tuple[int, int], tuple[bytes, int]] = OrderedDict()
        # With each key: how many scans were sent there and have not come back.

    def token(self, partition: int, key: bytes) -> int:
        """Return the token for the place behind `key`."""
        token = _token(key)
        while (known := self._keys.get((partition, token), (key, 0)))[0] != key:
            token = token % _TOKEN_MAX + 1  # another key has it, whose scans would return to it
        if (partition, token) not in self._keys:
            self._bytes += len(key)
        self._keys[partition, token] = key, known[1] + 1
        self._keys.move_to_end((partition, token))
        while len(self._keys) > POSITIONS_MAX or self._bytes > POSITIONS_BYTES_MAX:
            if len(self._keys) == 1:
                break  # without the newest one its scan would not get on
            _, (oldest, _) = self._keys.popitem(last=False)
            self._bytes -= len(oldest)
        return token

    def key(self, place: Place, rows: ScanRows) -> bytes | None:
        """Return the key behind which `place` is; None: the start of its partition."""
        if place.token == 0:
            return None
        known = self._keys.get((place.partition, place.token))
        if known is not None:
            key, coming = known
            self._keys[place.partition, place.token] = key, max(coming - 1, 0)
            if coming <= 1:
                self._keys.move_to_end((place.partition, place.token), last=False)
            return key
        # Pages end behind rows that are not live, too.
        keys = rows(place.partition, None, SEARCH_ROWS_MAX, BYTES_MAX).looked_at
        return next((key for key in keys if _token(key) == place.token), None)


def scan_page(
    place: Place,
    count: int,
    partitions: Sequence[int],
    rows: ScanRows,
    positions: ScanPositions,
    is_here: Callable[[int], bool] = lambda partition: True,
    bytes_max: int = BYTES_MAX,
) -> tuple[Place | None, list[bytes]]:
    """Return where to go on (None: the scan is over) and the live keys of at most `count` rows from
    `place` on, for which about `bytes_max` bytes are read at most.

    `partitions` is ascending; the page ends at one that is not here.
    """
    left, left_bytes = min(count, ROWS_MAX), min(bytes_max, BYTES_MAX)
    found: list[bytes] = []
    ahead = [partition for partition in partitions if partition >= place.partition]
    for visited, partition in enumerate(ahead):
        at = place if partition == place.partition else place.start_of(partition)
        if visited == PARTITIONS_MAX or not is_here(partition):
            return at, found
        after = positions.key(at, rows)
        while True:
            if left <= 0 or left_bytes <= 0:
                if after is None:
                    return place.start_of(partition), found
                token = positions.token(partition, after)
                return place._replace(partition=partition, token=token), found
            chunk = rows(partition, after, left, left_bytes)
            found += chunk.live
            left -= len(chunk.looked_at)
            left_bytes -= chunk.read_bytes
            after = chunk.last
            if after is None:
                break
    return None, found


_TOKEN_MAX = (1 << TOKEN_BITS) - 1


def _token(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") & _TOKEN_MAX or 1
