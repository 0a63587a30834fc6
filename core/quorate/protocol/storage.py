"""What a copy needs of a storage engine: rows in key order, an update log, small records, batches.

Everything written is visible to reads at once and becomes durable together at the next `commit`
(and, where writes are synced, when `sync` has returned after it).  Nothing here blocks but `sync`,
and `commit` where long values were not written ahead.
A *space* is where the rows of one copy live: partition and generation, so that a full copy can be
filled beside the one it replaces and take its place in one batch.
"""

from collections.abc import Collection, Iterator
from typing import Final, Protocol

import msgspec

from quorate.facts.errors import QuorateError

COUNTER_MAX: Final = (1 << 63) - 1

ROW_OVERHEAD_BYTES: Final = 256
"""What a row takes in memory beside key and value: two bytes headers, the row, its integers, the
dict's entry."""

Operation = tuple[bytes | None, bytes | None, int]
"""(key, value, expires_at): value None deletes; key None deletes every key below the counter."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """The stored form of one key.  `value` None is a tombstone; `expires_at` wall ms, 0 never.

    A struct the garbage collector does not walk: there are millions of them.
    """

    counter: int
    term: int
    expires_at: int
    value: bytes | None


class StorageFull(Exception):
    """No room: nothing of the batch was written.  Reads go on."""


class ZoneRefused(QuorateError):
    """This agent cannot open the zone now: a sentence with the reason and the way out.  Nothing
    that is stored was touched, and every other zone goes on."""


class Space(Protocol):
    """Rows of one copy."""

    def get(self, key: bytes) -> Row | None:
        """The row of `key`, tombstones included."""

    def put(self, key: bytes, row: Row) -> None:
        """Write a row into the turn's batch."""

    def put_all(self, rows: dict[bytes, Row]) -> None:
        """Write some rows into the turn's batch."""

    def drop(self, key: bytes) -> None:
        """Remove the row for good (no tombstone)."""

    def scan(self, after: bytes | None, rows_max: int, bytes_max: int) -> list[tuple[bytes, Row]]:
        """Rows in key order with key > after; at least one when there is one."""

    def row_count(self) -> int:
        """Live rows (no tombstones), exact."""

    def byte_count(self) -> int:
        """Bytes of keys and values, tombstones included; approximate."""

    def digest(self) -> int:
        """128 bits that copies with equal live rows share (protocol.totals)."""

    def count_digest(self, rows_max: int) -> int:
        """Where the digest is only followed while it is asked for: follow it, and count at most so
        many rows that it lacks; how many they were.  Fewer than `rows_max`: it lacks none."""

    def forget_digest(self) -> None:
        """Nobody asks for the digest any more."""


class Storage(Protocol):
    """One zone's storage on one agent."""

    def space(self, partition: int, generation: int) -> Space:
        """The rows of one copy; the same object for the same numbers."""

    def drop_space(self, partition: int, generation: int) -> None:
        """Remove all rows of a copy (with the batch)."""

    def log_put(self, partition: int, counter: int, term: int, update: bytes) -> None:
        """Keep one encoded update.  Two terms may hold the same counter until one is undone."""

    def log_read(
        self, partition: int, first: int, last: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """(counter, term, update) with first <= counter <= last, in order of (counter, term)."""

    def log_drop(self, partition: int, counter: int, term: int) -> None:
        """Forget one update (it was undone)."""

    def log_cut(self, partition: int, upto: int) -> None:
        """Forget all updates up to and including counter `upto`."""

    def log_bytes(self, partition: int, first: int = 0, last: int = COUNTER_MAX) -> int:
        """Bytes of the updates kept with first <= counter <= last; approximate."""

    def log_floor(self, partition: int, bytes_max: int) -> int:
        """Up to which counter to cut so that no more than `bytes_max` bytes stay; 0: nothing to
        cut.  Approximate, rather too much."""

    def record_put(self, name: bytes, data: bytes) -> None:
        """Write one small named record (a copy's state, a promise)."""

    def record_get(self, name: bytes) -> bytes | None:
        """One named record."""

    def record_drop(self, name: bytes) -> None:
        """Remove a named record."""

    def records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All records whose name starts with `prefix`, in order of name."""

    def write_ahead(self) -> Collection[int]:
        """Go on writing the turn's long values before its batch, if the engine does so; the
        partitions that have values which are not written yet.  It may be called until there are
        none, with other work between, and need not be: `commit` writes what is left.  What was
        written ahead is seen, and lasts, with the batch only."""

    def commit(
        self, waiting: Collection[int] = (), waiting_records: Collection[bytes] = ()
    ) -> None:
        """Write the turn's batch, but for what it has of the partitions in `waiting` and for the
        records with these names: that is part of a later batch.  StorageFull: nothing was written,
        and the batch is gone; what waits stays."""

    def sync(self) -> None:
        """Make every committed batch durable.  May be called from another thread; blocks."""

    def close(self) -> None:
        """Release the engine's files."""
