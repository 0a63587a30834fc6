"""What the rows of one copy add up to: how many, how large, and a digest that equal copies share.

The digest is a multiset hash: the sum, modulo 2^128, of a 128-bit hash of every live row (key,
counter, expiry, value).  It does not depend on the order in which rows came, changes with every
row that changes, and follows each write at the price of two hashes.  Tombstones do not count:
copies purge them at different times.  Source: docs/protocol.md, section 2.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from quorate.protocol.storage import Row

DIGEST_BYTES: Final = 16
CHANGED_MAX: Final = 1024
"""Keys whose change the digest has not counted yet."""
KEPT_BYTES_MAX: Final = 4096
"""A replaced value larger than this is counted at once instead of being kept."""
_MASK: Final = (1 << 128) - 1
_HEAD: Final = Struct("<QQI").pack


def row_digest(key: bytes, row: Row) -> int:
    """The share of one row; 0 for a tombstone."""
    value = row.value
    if value is None:
        return 0
    return xxh3_128_intdigest(_HEAD(row.counter, row.expires_at, len(key)) + key + value)


def key_bucket(key: bytes) -> int:
    """Which of the 256 ranges of the keys' hash a key is in."""
    return xxh3_64_intdigest(key) >> 56


def buckets_of(rows: Iterable[tuple[bytes, Row]], upto: int) -> dict[int, tuple[int, int]]:
    """(rows, digest) by bucket, of live rows with counter <= `upto`."""
    shares: dict[int, tuple[int, int]] = {}
    for key, row in rows:
        if row.value is None or row.counter > upto:
            continue
        bucket = key_bucket(key)
        count, digest = shares.get(bucket, (0, 0))
        shares[bucket] = (count + 1, (digest + row_digest(key, row)) & _MASK)
    return shares


class Totals:
    """Live rows; bytes of keys and values, tombstones included; digest of the live rows.

    The digest is brought up to date when it is asked for, or when many keys have changed: a key
    that is written often is hashed once.  `get`: the row a key has now.
    """

    __slots__ = ("_changed", "_digest", "_get", "bytes", "rows")

    def __init__(self, get: Callable[[bytes], Row | None]) -> None:
        self.rows = 0
        self.bytes = 0
        self._digest = 0
        self._get = get
        self._changed: dict[bytes, Row | None] = {}  # what the digest still counts of a key

    def replace(self, key: bytes, old: Row | None, row: Row | None) -> None:
        """`key` had the row `old` and has `row` by now; None: none."""
        if key not in self._changed:
            self._note(key, old)
        if old is not None:
            value = old.value
            if value is not None:
                self.rows -= 1
                self.bytes -= len(value)
        else:
            self.bytes += len(key)
        if row is not None:
            value = row.value
            if value is not None:
                self.rows += 1
                self.bytes += len(value)
        else:
            self.bytes -= len(key)

    def _note(self, key: bytes, old: Row | None) -> None:
        changed = self._changed
        if len(changed) >= CHANGED_MAX:
            self.digest()
        if old is not None and old.value is not None and len(old.value) > KEPT_BYTES_MAX:
            self._digest -= row_digest(key, old)
            changed[key] = None
        else:
            changed[key] = old

    def digest(self) -> int:
        """128 bits."""
        changed = self._changed
        if changed:
            get = self._get
            shares = [row_digest(key, row) for key in changed if (row := get(key)) is not None]
            lost = [row_digest(key, old) for key, old in changed.items() if old is not None]
            self._digest = (self._digest + sum(shares) - sum(lost)) & _MASK
            changed.clear()
        return self._digest

    def clear(self) -> None:
        """No row is left."""
        self.restore((0, 0, 0))

    def state(self) -> tuple[int, int, int]:
        """(rows, bytes, digest), to come back to."""
        return self.rows, self.bytes, self.digest()

    def restore(self, state: tuple[int, int, int]) -> None:
        """Come back to what `state` told."""
        self.rows, self.bytes, self._digest = state
        self._changed.clear()
