"""A consistent cut of one partition: exactly the rows of one copy at one counter, while it changes.

1. Note the copy's LWM, then read all its rows (`Scan`).  Rows are read chunk by chunk while updates
   go on, so some are newer than others: all updates up to the noted LWM are in them.
2. A counter c at which all copies told their digests is the cut (`watch_digests`); after a wait,
   one at which a majority told the same, this copy among it.  It is above all that was read.
3. Read the copy's updates above the noted LWM up to c from its log, and apply them to the rows
   (`Changes`).  This is exact: per key the last update wins, and one that was in the rows already
   changes nothing.
4. The rows at c must have the digest that most copies told.  So a cut is proven row by row: a copy
   that is out-voted, or that was damaged behind its agent, makes none.
"""

import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from quorate.facts.keyspace import FIRST_UNRESERVED, RESERVED, is_reserved
from quorate.protocol.messages.replication import Update
from quorate_spark.copies import CopySeen
from quorate_spark.exports.row_digests import columns_digest
from quorate_spark.reading.agent_link import AgentLink, Cluster, Unreadable
from quorate_spark.reading.read_columns import KeyRange, columns_from, read_columns
from quorate_spark.reading.read_copies import StoredRow, copies_of, open_link
from quorate_spark.reading.read_updates import read_updates
from quorate_spark.row_columns import BATCH_SCHEMA, RowColumns, are_reserved, joined
from quorate_spark.settings import Settings
from quorate_spark.work_folder import work_folder_named

SPOOL_BYTES_MAX = 32 * 1024 * 1024
"""More rows of a scan than this are kept in a temporary file."""
CHUNK_ROWS = 10_000
CHUNK_BYTES = 8 * 1024 * 1024
"""Rows that updates wrote are put together until they have so many bytes."""
ROW_OVERHEAD = 320
"""Bytes of memory that a folded update takes beside key and value, about."""
ABOVE_RESERVED = RESERVED[:-1] + bytes([RESERVED[-1] + 1])
"""The lowest key above all internal ones."""
_MASK = (1 << 128) - 1


class Scan:
    """All rows of a copy, as they were read; `copy` is the copy before that.

    All errors of its temporary file are WorkFolderFailed.
    """

    def __init__(self, copy: CopySeen, work_dir: str | None = None) -> None:
        self.copy = copy
        self._folder = work_dir or tempfile.gettempdir()
        self._spool = tempfile.SpooledTemporaryFile(SPOOL_BYTES_MAX, dir=work_dir)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the rows; idempotent."""
        with suppress(OSError):  # of a full disk, which was told by then
            self._spool.close()

    def add(self, rows: RowColumns) -> None:
        """Keep a chunk of rows."""
        data = rows.to_batch().serialize()
        with work_folder_named(self._folder):
            self._spool.write(len(data).to_bytes(8))
            self._spool.write(data)

    def chunks(self) -> Iterator[RowColumns]:
        """Yield all rows, in order of key."""
        with work_folder_named(self._folder):
            self._spool.seek(0)
        while True:
            with work_folder_named(self._folder):
                head = self._spool.read(8)
                data = self._spool.read(int.from_bytes(head))
            if not head:
                return
            yield RowColumns.of_batch(pa.ipc.read_record_batch(pa.py_buffer(data), BATCH_SCHEMA))


class TooManyUpdates(Unreadable):
    """Folded updates take more memory than they may."""


class Changes:
    """Updates, folded: the last row of each key.

    `flushed`: the counter of the last update that deleted every key; 0: there was none.
    `internal`: internal rows as they were read from the copy, which the base of an export lacks.
    `bytes_max`: of memory that the updates may take, about; None: as many as there are.
    """

    def __init__(self, internal: Iterable[StoredRow] = (), bytes_max: int | None = None) -> None:
        self.rows: dict[bytes, StoredRow] = {row[0]: row for row in internal}
        self.flushed = 0
        self._bytes_max = bytes_max
        self._bytes = sum(map(_memory_of, self.rows.values()))

    def add(self, update: Update) -> None:
        """Apply the next update.  Raises TooManyUpdates."""
        for key, value, expires_at in update.operations:
            if key is None:
                self.flushed = update.counter
                self.rows = {key: row for key, row in self.rows.items() if is_reserved(key)}
                self._bytes = sum(map(_memory_of, self.rows.values()))
            else:
                before = self.rows.get(key)
                row = (key, update.counter, update.term, expires_at, value)
                self._bytes += _memory_of(row) - (0 if before is None else _memory_of(before))
                self.rows[key] = row
        if self._bytes_max is not None and self._bytes > self._bytes_max:
            raise TooManyUpdates(
                f"{len(self.rows)} keys have changed since the base, which take {self._bytes} bytes"
                f" of memory; at most {self._bytes_max} are used"
            )

    def applied_to(self, chunks: Iterable[RowColumns]) -> Iterator[RowColumns]:
        """Yield the rows after the updates, in order of key; tombstones may be among them."""
        keys = sorted(self.rows)
        at = 0
        for chunk in chunks:
            start, at = at, bisect_right(keys, chunk.key(len(chunk) - 1))
            yield from self._applied(chunk, keys[start:at])
        yield from in_chunks(self.rows[key] for key in islice(keys, at, None))

    def _applied(self, chunk: RowColumns, keys: list[bytes]) -> Iterator[RowColumns]:
        """Yield the rows of a chunk with those of `keys`, which were changed."""
        if not keys and not self.flushed:
            yield chunk
            return
        gone = pc.is_in(chunk.keys, value_set=pa.array(keys, pa.binary()))
        left = ~gone.to_numpy(zero_copy_only=False)
        if self.flushed:
            left &= (chunk.counters > self.flushed) | are_reserved(chunk)
        kept, changed = chunk.where(left), [self.rows[key] for key in keys]
        if sum(len(row[4] or b"") for row in changed) > CHUNK_BYTES:
            yield from in_chunks(sorted([*kept.rows(), *changed], key=itemgetter(0)))
            return
        together = joined([kept, RowColumns.of_rows(changed, values=True)])
        yield together.at(pc.array_sort_indices(together.keys).to_numpy())


def _memory_of(row: StoredRow) -> int:
    return len(row[0]) + len(row[4] or b"") + ROW_OVERHEAD


def in_chunks(rows: Iterable[StoredRow]) -> Iterator[RowColumns]:
    """Yield rows as columns, with limits of rows and bytes for each chunk."""
    found, size = list[StoredRow](), 0
    for row in rows:
        found.append(row)
        size += len(row[4] or b"")
        if len(found) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield RowColumns.of_rows(found, values=True)
            found, size = [], 0
    if found:
        yield RowColumns.of_rows(found, values=True)


class DigestWatched:
    """Yields rows that clients see, and adds up the digest of all, as an agent does.

    `internal`: how many others there were so far.
    """

    def __init__(self, chunks: Iterable[RowColumns]) -> None:
        self.internal = 0
        self._chunks = chunks
        self._digest = 0

    def __iter__(self) -> Iterator[RowColumns]:
        for chunk in self._chunks:
            live = chunk.where(~chunk.tombstones) if chunk.tombstones.any() else chunk
            self._digest += columns_digest(live)
            if len(live) and live.key(0) < FIRST_UNRESERVED:
                seen = live.where(~are_reserved(live))
                self.internal += len(live) - len(seen)
                live = seen
            yield live

    @property
    def digest(self) -> int:
        """The digest of the rows so far."""
        return self._digest & _MASK


def scan_copy(
    copy: CopySeen,
    zone: str,
    cluster: Cluster,
    settings: Settings,
    work_dir: str | None,
    ended: threading.Event,
) -> Scan:
    """Read all rows of a copy, until `ended` is set.  Raises Unreadable."""
    with open_link(copy.address, cluster, settings) as link:
        scan = Scan(_now(link, copy, zone), work_dir)
        try:
            for rows in columns_from(link, scan.copy, zone, settings):
                scan.add(rows)
                _check_wanted(scan, ended)
        except BaseException:
            scan.close()
            raise
    return scan


def _check_wanted(scan: Scan, ended: threading.Event) -> None:
    if ended.is_set():
        raise Unreadable(f"partition {scan.copy.state.partition}: the export has ended")


def read_changes(
    changes: Changes,
    copy: CopySeen,
    after: int,
    upto: int,
    zone: str,
    cluster: Cluster,
    settings: Settings,
) -> None:
    """Add the updates of a copy above counter `after`, up to `upto`, to changes.

    Raises LogTooShort if the log does not reach back so far, Unreadable if the copy is another one,
    TooManyUpdates.
    """
    if after == upto:
        return
    for updates, _ in read_updates(copy, after, upto, zone, cluster, settings):
        for update in updates:
            changes.add(update)


def internal_rows(
    copy: CopySeen, zone: str, cluster: Cluster, settings: Settings
) -> list[StoredRow]:
    """Return the internal rows of a copy.  Raises Unreadable."""
    ranges = (KeyRange(RESERVED, ABOVE_RESERVED),)
    found = read_columns(copy, zone, cluster, settings, ranges)
    return [row for rows in found for row in rows.rows()]


def _now(link: AgentLink, copy: CopySeen, zone: str) -> CopySeen:
    """Return the copy as it is now."""
    partition = copy.state.partition
    for found in copies_of(link, copy.address, zone, partition):
        if found.state.partition == partition and found.state.adopted:
            return found
    raise Unreadable(f"partition {partition}: {copy.node} has no copy that may be read now")
