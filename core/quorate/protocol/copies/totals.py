"""What the rows of one copy add up to: how many, how large, and a digest that equal copies share.

The digest is a multiset hash: the sum, modulo 2^128, of a 128-bit hash of every live row (key,
counter, expiry, value).  It does not depend on the order in which rows came, changes with every
row that changes, and follows each write at the price of two hashes.  Where that is much beside a
write it is followed only while somebody asks, and its rows are counted when the first one does.
Tombstones do not count: copies purge them at different times.  Source: docs/protocol.md, section 2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128, xxh3_128_intdigest

from quorate.protocol.storage import Row

DIGEST_BYTES: Final = 16
CHANGED_MAX: Final = 1024
"""Keys whose change the digest has not counted yet."""
KEPT_BYTES_MAX: Final = 4096
"""A replaced value larger than this is counted at once instead of being kept."""
COPIED_BYTES_MAX: Final = 64 * 1024
"""A longer value is hashed where it is: new memory for it costs ten times as much as the hash."""
_MASK: Final = (1 << 128) - 1
_HEAD: Final = Struct("<QQI").pack
_value_of = attrgetter("value")


def row_digest(key: bytes, row: Row) -> int:
    """The share of one row; 0 for a tombstone."""
    value = row.value
    if value is None:
        return 0
    head = _HEAD(row.counter, row.expires_at, len(key)) + key
    if len(value) <= COPIED_BYTES_MAX:
        return xxh3_128_intdigest(head + value)
    digest = xxh3_128(head)
    digest.update(value)
    return digest.intdigest()


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
    that is written often is hashed once.  `get`: the row a key has now.  `keys`: all of them, where
    the digest is only followed while it is asked for; None: it is followed all the time.
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
        # What the digest still counts of a key; None: it is not followed.
        self._changed: dict[bytes, Row | None] | None = {} if keys is None else None
        self._uncounted: set[bytes] = set()

    def replace(self, key: bytes, old: Row | None, row: Row | None) -> None:
        """`key` had the row `old` and has `row` by now; None: none."""
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
        """As `replace` for some rows that were written together; `olds` are what their keys had."""
        changed = self._changed
        if changed is None:
            try:
                had = sum(map(len, map(_value_of, olds)))
                has = sum(map(len, map(_value_of, rows.values())))
            except (AttributeError, TypeError):
                pass  # not every key had a value and has one
            else:
                self.bytes += has - had
                return
        for (key, row), old in zip(rows.items(), olds, strict=True):
            self._add(key, old, row)
        if changed is not None:
            # All of them are noted before any is counted: each has its new row already.
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
        """Follow the digest from now on, and count at most so many of the rows that it lacks.  How
        many they were: fewer than `rows_max` when it lacks none."""
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
        """Nobody asks for the digest any more."""
        if self._keys is not None:
            self._changed = None
            self._uncounted = set()

    def digest(self) -> int:
        """128 bits."""
        if self._changed is None or self._uncounted:
            while self.count(CHANGED_MAX) == CHANGED_MAX:
                pass
        if self._changed:
            self._count_changed(self._changed)
        return self._digest & _MASK

    def clear(self) -> None:
        """No row is left."""
        self.restore((0, 0, 0))

    def state(self) -> tuple[int, int, int]:
        """(rows, bytes, digest), to come back to."""
        return self.rows, self.bytes, self.digest()

    def restore(self, state: tuple[int, int, int]) -> None:
        """Come back to what `state` told."""
        self.rows, self.bytes, self._digest = state
        self._uncounted = set()
        if self._changed is not None:
            self._changed.clear()
