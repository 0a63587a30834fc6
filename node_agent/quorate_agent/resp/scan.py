"""Where a SCAN stands: how a cursor, one number, names a place between the keys of an agent.

A cursor is `partition << 48 | token`.  Token 0 is the start of the partition, so cursor 0 starts a
scan; any other token is a 48-bit hash of the key after which to go on.  Rows come in key order and
keys are too long for a number, so the agent remembers the keys of recent tokens.  If it does not
know one (it was restarted, or too many scans came between), it looks for the key in the first rows
of the partition, and failing that starts the partition again.  So a key that is there throughout is
always returned; one may be returned twice, which SCAN allows.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b

ScanRows = Callable[[int, bytes | None, int], tuple[list[bytes], bytes | None]]

TOKEN_BITS = 48
# Scans whose place is known for certain.  More at the same time still end, but repeat keys.
POSITIONS_MAX = 10_000
# Limits of one call's work, whatever COUNT says: rows looked at, and partitions (most of which are
# empty in a small zone).  A page may be empty and yet not the last.
ROWS_MAX = 10_000
PARTITIONS_MAX = 256
# How far a forgotten position is looked for.
SEARCH_ROWS_MAX = 10_000


class ScanPositions:
    """Keys behind recent tokens, the least recently used forgotten first."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: OrderedDict[int, bytes] = OrderedDict()

    def cursor(self, partition: int, key: bytes) -> int:
        """The cursor of the place behind `key`."""
        cursor = partition << TOKEN_BITS | _token(key)
        known = self._keys.get(cursor)
        # Of two keys with one token the lower is kept: going on there repeats keys, skips none.
        self._keys[cursor] = key if known is None else min(key, known)
        self._keys.move_to_end(cursor)
        if len(self._keys) > POSITIONS_MAX:
            self._keys.popitem(last=False)
        return cursor

    def key(self, cursor: int, rows: ScanRows) -> bytes | None:
        """The key behind which `cursor` stands; None: the start of its partition."""
        token = cursor & (1 << TOKEN_BITS) - 1
        if token == 0:
            return None
        known = self._keys.get(cursor)
        if known is not None:
            self._keys.move_to_end(cursor)
            return known
        keys, _ = rows(cursor >> TOKEN_BITS, None, SEARCH_ROWS_MAX)
        return next((key for key in keys if _token(key) == token), None)


def scan_page(
    cursor: int, count: int, partitions: Sequence[int], rows: ScanRows, positions: ScanPositions
) -> tuple[int, list[bytes]]:
    """The next cursor (0: the scan is over) and the keys of about `count` rows from `cursor` on.

    `partitions` ascending.  One that came or went since the last page is taken or left as it is
    now: its keys are another agent's to return.
    """
    left = min(count, ROWS_MAX)
    found: list[bytes] = []
    start = cursor >> TOKEN_BITS
    ahead = [partition for partition in partitions if partition >= start]
    after = positions.key(cursor, rows) if ahead and ahead[0] == start else None
    for visited, partition in enumerate(ahead):
        if visited == PARTITIONS_MAX:
            return partition << TOKEN_BITS, found
        while True:
            if left <= 0:
                place = partition << TOKEN_BITS
                return (place if after is None else positions.cursor(partition, after)), found
            keys, last = rows(partition, after, left)
            found += keys
            left -= len(keys)
            after = last
            if last is None:
                break
            # Rows that are not live cost as much; how many were looked at is not told.
            left -= not keys
    return 0, found


def _token(key: bytes) -> int:
    digest = blake2b(key, digest_size=TOKEN_BITS // 8).digest()
    return int.from_bytes(digest, "big") or 1
