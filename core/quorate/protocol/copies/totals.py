"""Totals of the rows of one copy: their number, size and digest.

The digest is a multiset hash: the sum, modulo 2^128, of a 128-bit hash of every live row (key,
counter, expiry, value).  It does not depend on the order of the rows, changes with every row that
changes, and costs two hashes per write.  Where that is much compared with a write, the digest is
maintained only while it is requested, and the first request starts counting its rows.  Tombstones
do not count, because copies purge them at different times.  Source: docs/protocol.md, section 2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128, xxh3_128_intdigest

from quorate.protocol.storage import Row

DIGEST_BYTES: Final = 16
CHANGED_MAX: Final = 1024
"""At most this many changed keys wait to be counted in the digest."""
KEPT_BYTES_MAX: Final = 4096
"""A replaced value larger than this is counted at once instead of being kept."""
COPIED_BYTES_MAX: Final = 64 * 1024
"""A longer value is hashed in place: copying it costs ten times as much as the hash."""
_MASK: Final = (1 << 128) - 1
_HEAD: Final = Struct("<QQI").pack
_value_of = attrgetter("value")


def row_digest(key: bytes, row: Row) -> int:
    """Return one row's share of the digest; 0 for a tombstone."""
    value = row.value
    if value is None:
        return 0
    head = _HEAD(row.counter, row.expires_at, len(key)) + key
    if len(value) <= COPIED_BYTES_MAX:
        return xxh3_128_intdigest(head + value)
    digest = xxh3_128(head)
    digest.update(value)
    return digest.intdigest()


def rows_digest(rows: Iterable[tuple[bytes, int, int, int, bytes | None]]) -> int:
    """Return the digest of live rows (key, counter, term, expires_at, value), not yet reduced."""
    digest, head = xxh3_128_intdigest, _HEAD
    return sum([digest(head(c, e, len(k)) + k + v) for k, c, _, e, v in rows if v is not None])


def key_bucket(key: bytes) -> int:
    """Return which of the 256 ranges of the key hash a key is in."""
    return xxh3_64_intdigest(key) >> 56


def buckets_of(rows: Iterable[tuple[bytes, Row]], upto: int) -> dict[int, tuple[int, int]]:
    """Return bucket -> (rows, digest), of live rows with counter <= `upto`."""
    shares: dict[int, tuple[int, int]] = {}
    for key, row in rows:
        if row.value is None or row.counter > upto:
            continue
        bucket = key_bucket(key)
        count, digest = shares.get(bucket, (0, 0))
        shares[bucket] = (count + 1, (digest + row_digest(key, row)) & _MASK)
    return shares


class Totals:
    """Number of live rows; bytes of keys and values, tombstones included; digest of the live rows.

    The digest is updated when it is requested, or when many keys have changed, so that a key
    written often is hashed once.  `get` returns a key's present row.  `keys` returns all keys,
    where the digest is maintained only on demand; None: it is always maintained.
    """

    __slots__ = ("_changed", "_digest", "_get", "_keys", "_uncounted", "bytes", "rows")

    def __init__(
        self, get: Callable[[bytes], Row | None], keys: Callable[[], Iterable[bytes]] | None = None
    ) -> None:
        self.rows = 0
        self.bytes = 0
        self._digest = 0
        self._get = get
        self._keys = keys
        # Key -> the row that the digest still counts; None: it is not maintained.
        self._changed: dict[bytes, Row | None] | None = {} if keys is None else None
        self._uncounted: set[bytes] = set()

    def replace(self, key: bytes, old: Row | None, row: Row | None) -> None:
        """Note that `key` had the row `old` and has `row` now; None: no row."""
        changed = self._changed
        if changed is not None:
            self._note(changed, key, old)
            if len(changed) >= CHANGED_MAX:
                self._count_changed(changed)
        self._add(key, old, row)

    def _add(self, key: bytes, old: Row | None, row: Row | None) -> None:
        had = None if old is None else old.value
        has = None if row is None else row.value
        if had is not None and has is not None:  # as most writes do
            self.bytes += len(has) - len(had)
            return
        self.rows += (has is not None) - (had is not None)
        self.bytes += len(has or b"") - len(had or b"")
        self.bytes += len(key) * ((row is not None) - (old is not None))

    def replace_all(self, rows: Mapping[bytes, Row], olds: Sequence[Row | None]) -> None:
        """Like `replace`, for rows that were written together; `olds` are the rows before."""
        changed = self._changed
        if changed is None:
            try:
                had = sum(map(len, map(_value_of, olds)))
                has = sum(map(len, map(_value_of, rows.values())))
            except (AttributeError, TypeError):
                pass  # some key had no value or has none
            else:
                self.bytes += has - had
                return
        for (key, row), old in zip(rows.items(), olds, strict=True):
            self._add(key, old, row)
        if changed is not None:
            # All are noted before any is counted, because each already has its new row.
            for key, old in zip(rows, olds, strict=True):
                self._note(changed, key, old)
            if len(changed) >= CHANGED_MAX:
                self._count_changed(changed)

    def _note(self, changed: dict[bytes, Row | None], key: bytes, old: Row | None) -> None:
        if key in changed or key in self._uncounted:
            return
        if old is not None and old.value is not None and len(old.value) > KEPT_BYTES_MAX:
            self._digest -= row_digest(key, old)
            changed[key] = None
        else:
            changed[key] = old

    def _count_changed(self, changed: dict[bytes, Row | None]) -> None:
        get = self._get
        shares = [row_digest(key, row) for key in changed if (row := get(key)) is not None]
        lost = [row_digest(key, old) for key, old in changed.items() if old is not None]
        self._digest = (self._digest + sum(shares) - sum(lost)) & _MASK
        changed.clear()

    def count(self, rows_max: int) -> int:
        """Maintain the digest from now on; add up to `rows_max` uncounted rows to it.

        Returns how many were added.  Fewer than `rows_max` means that it is complete.
        """
        if self._changed is None and self._keys is not None:
            self._changed = {}
            self._digest = 0
            self._uncounted = set(self._keys())
        get, uncounted = self._get, self._uncounted
        found = min(rows_max, len(uncounted))
        for _ in range(found):
            key = uncounted.pop()
            row = get(key)
            if row is not None:
                self._digest += row_digest(key, row)
        return found

    def forget(self) -> None:
        """Stop maintaining the digest, where it is maintained on demand."""
        if self._keys is not None:
            self._changed = None
            self._uncounted = set()

    def digest(self) -> int:
        """Return the digest as an integer of 128 bits; counts all rows that are missing in it."""
        if self._changed is None or self._uncounted:
            while self.count(CHANGED_MAX) == CHANGED_MAX:
                pass
        if self._changed:
            self._count_changed(self._changed)
        return self._digest & _MASK

    def clear(self) -> None:
        """Set all totals to those of no rows."""
        self.restore((0, 0, 0))

    def state(self) -> tuple[int, int, int]:
        """Return (rows, bytes, digest), for `restore`."""
        return self.rows, self.bytes, self.digest()

    def restore(self, state: tuple[int, int, int]) -> None:
        """Go back to a `state`."""
        self.rows, self.bytes, self._digest = state
        self._uncounted = set()
        if self._changed is not None:
            self._changed.clear()
