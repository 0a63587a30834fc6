"""The interface of a storage engine: rows in key order, an update log, small records, batches.

Reads see every write at once.  Writes become durable together at the next `commit` (where writes
are synced: when a `sync` that starts after the commit has returned).  Only `sync` blocks, and
`commit` if long values were not written ahead.

A *space* holds the rows of one copy.  It is identified by partition and generation, so that a full
copy can be filled beside the copy it replaces and take its place in one batch.
"""

from collections.abc import Collection, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

import msgspec

from quorate.facts.errors import QuorateError

COUNTER_MAX: Final = (1 << 63) - 1

ROW_OVERHEAD_BYTES: Final = 256
"""Memory that a row takes beside its key and value: two bytes headers, the row, its integers and
the dict entry."""

Operation = tuple[bytes | None, bytes | None, int]
"""(key, value, expires_at).  A value of None deletes the key; a key of None deletes every key that
was written below the update's counter."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """The stored form of one key.

    `value` None is a tombstone.  `expires_at` is in wall ms; 0 means never.  The garbage collector
    does not track this struct, because there are millions of rows.
    """

    counter: int
    term: int
    expires_at: int
    value: bytes | None


ROW_HEAD: Final = Struct(">QQQB")
"""The rest of a row beside key and value: counter, term, expires_at, and LIVE or TOMBSTONE."""
LIVE: Final = 0
TOMBSTONE: Final = 1


class PackedRows(NamedTuple):
    """Rows in key order, as columns.

    - `heads`: a ROW_HEAD of each row, one after the other
    - `values`: empty for a tombstone; no entries at all if values were not asked for
    - `whole`: there are no more rows in the range that was asked for
    """

    keys: list[bytes]
    heads: bytes
    values: list[bytes]
    whole: bool


class ScannedKeys(NamedTuple):
    """Keys of rows in key order, without the values.

    - `expiries`: of each key when its row expires, in wall ms; 0: never; GONE: it is a tombstone
    - `counters`: of each key the counter of its row
    - `read_bytes`: how much was read for this
    - `whole`: there are no more rows
    """

    keys: list[bytes]
    expiries: list[int]
    counters: list[int]
    read_bytes: int
    whole: bool


GONE: Final = -1


def scanned_keys(rows: Sequence[tuple[bytes, Row]], *, whole: bool) -> ScannedKeys:
    """Return the keys of these rows, whose values need no reading."""
    keys = [key for key, _ in rows]
    return ScannedKeys(
        keys,
        [GONE if row.value is None else row.expires_at for _, row in rows],
        [row.counter for _, row in rows],
        sum(map(len, keys)) + ROW_HEAD.size * len(keys),
        whole,
    )


def pack_rows(rows: Sequence[tuple[bytes, Row]], *, whole: bool, values: bool = True) -> PackedRows:
    """Return these rows as columns."""
    pack = ROW_HEAD.pack
    return PackedRows(
        [key for key, _ in rows],
        b"".join([pack(r.counter, r.term, r.expires_at, r.value is None) for _, r in rows]),
        [r.value or b"" for _, r in rows] if values else [],
        whole,
    )


class StorageFull(Exception):
    """The storage has no room: nothing of the batch was written.  Reads still work."""


class ZoneRefused(QuorateError):
    """This agent cannot open the zone now.  The message is a sentence with the reason and the way
    out.

    Stored data is untouched, and all other zones go on.
    """


class Space(Protocol):
    """The rows of one copy."""

    def get(self, key: bytes) -> Row | None:
        """Return the row of `key`, which may be a tombstone; None if there is none."""

    def put(self, key: bytes, row: Row) -> None:
        """Write a row into the turn's batch."""

    def put_all(self, rows: dict[bytes, Row]) -> None:
        """Write several rows into the turn's batch."""

    def drop(self, key: bytes) -> None:
        """Remove the row without leaving a tombstone."""

    def scan(self, after: bytes | None, rows_max: int, bytes_max: int) -> list[tuple[bytes, Row]]:
        """Return rows in key order with key > after; at least one if there is one."""

    def scan_keys(self, after: bytes | None, rows_max: int, bytes_max: int) -> ScannedKeys:
        """Return the keys of rows as `scan` does, and read no values that are stored apart.

        `bytes_max` bounds what is read, so values stored beside their keys count.
        """

    def scan_packed(
        self,
        first: bytes,
        before: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        values: bool = True,
    ) -> PackedRows:
        """Return rows as `scan` does, with first <= key < before, as columns.

        `before` None: to the end of the keys.  Without `values` they need not be read.
        """

    def row_count(self) -> int:
        """Return the exact number of live rows (without tombstones)."""

    def byte_count(self) -> int:
        """Return the approximate bytes of keys and values, tombstones included."""

    def digest(self) -> int:
        """Return the digest: 128 bits, equal for copies with equal live rows (copies/totals.py)."""

    def count_digest(self, rows_max: int) -> int:
        """Add up to `rows_max` uncounted rows to the digest, and return how many were added.

        For engines that maintain the digest only on demand: this starts it.  A result below
        `rows_max` means that the digest is complete.
        """

    def forget_digest(self) -> None:
        """Stop maintaining the digest, if the engine maintains it only on demand."""


class Storage(Protocol):
    """The storage of one zone on one agent."""

    def space(self, partition: int, generation: int) -> Space:
        """Return the rows of one copy; the same object for the same numbers."""

    def drop_space(self, partition: int, generation: int) -> None:
        """Remove all rows of a copy (with the batch)."""

    def log_put(self, partition: int, counter: int, term: int, update: bytes) -> None:
        """Keep one encoded update.  Two terms may hold the same counter until one update is
        undone."""

    def log_read(
        self, partition: int, first: int, last: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Return (counter, term, update) with first <= counter <= last, ordered by (counter, term).

        It ends early behind the counter with which the updates reach `bytes_max`: all updates of a
        counter are returned together, so the reader may go on with the next one.
        """

    def log_drop(self, partition: int, counter: int, term: int) -> None:
        """Remove one update that was undone."""

    def log_cut(self, partition: int, upto: int) -> None:
        """Remove all updates up to and including counter `upto`."""

    def log_bytes(self, partition: int, first: int = 0, last: int = COUNTER_MAX) -> int:
        """Return the approximate bytes of the updates with first <= counter <= last."""

    def log_floor(self, partition: int, bytes_max: int) -> int:
        """Return the counter up to which to cut the log so that at most `bytes_max` bytes stay.

        It is approximate and tends to cut too much. 0 means that there is nothing to cut.
        """

    def record_put(self, name: bytes, data: bytes) -> None:
        """Write one small named record (the state of a copy, a promise)."""

    def record_get(self, name: bytes) -> bytes | None:
        """Return one named record; None if there is none."""

    def record_drop(self, name: bytes) -> None:
        """Remove a named record."""

    def records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return all records whose name starts with `prefix`, in order of name."""

    def write_ahead(self) -> Collection[int]:
        """Continue to write the turn's long values before its batch, if the engine does so.

        Returns the partitions that still have unwritten values.  The caller may repeat this, with
        other work between, until there are none, or stop: `commit` writes the rest.  Values that
        were written ahead become visible and durable only with the batch.
        """

    def commit(
        self, waiting: Collection[int] = (), waiting_records: Collection[bytes] = ()
    ) -> None:
        """Write the turn's batch, except for the partitions in `waiting` and the named records.

        What is left out becomes part of a later batch.  On StorageFull nothing was written and the
        batch is gone, but what is left out stays.
        """

    def sync(self) -> None:
        """Make every committed batch durable.  Blocks; may be called from another thread."""

    def close(self) -> None:
        """Release the engine's files."""
