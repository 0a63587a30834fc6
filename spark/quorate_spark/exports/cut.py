"""A consistent cut of one partition: exactly the rows of one copy at one counter, while it changes.

1. Note the copy's LWM, then read all its rows (`Scan`).  Rows are read chunk by chunk while updates
   go on, so some are newer than others: all updates up to the noted LWM are in them.
2. A counter c at which all copies told their digests is the cut (`watch_digests`).  It is above all
   that was read.
3. Read the copy's updates above the noted LWM up to c from its log, and apply them to the rows
   (`Changes`).  This is exact: per key the last update wins, and one that was in the rows already
   changes nothing.
4. The rows at c must have the digest that most copies told.  So a cut is proven row by row: a copy
   that is out-voted, or that was damaged behind its agent, makes none.
"""

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from types import TracebackType
from typing import Self

import msgspec

from quorate.facts.keyspace import FIRST_UNRESERVED, is_reserved
from quorate.protocol.copies.totals import rows_digest
from quorate.protocol.messages.replication import Update
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.read_copies import (
    StoredRow,
    copies_of,
    open_link,
    read_rows,
)
from quorate_spark.reading.read_updates import LogTooShort, read_updates
from quorate_spark.settings import Settings
from quorate_spark.work_folder import work_folder_named

SPOOL_BYTES_MAX = 32 * 1024 * 1024
"""More rows of a scan than this are kept in a temporary file."""
CHUNK_ROWS = 10_000
_MASK = (1 << 128) - 1

_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[StoredRow]).decode


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

    def add(self, rows: list[StoredRow]) -> None:
        """Keep a chunk of rows."""
        data = _encode(rows)
        with work_folder_named(self._folder):
            self._spool.write(len(data).to_bytes(8))
            self._spool.write(data)

    def chunks(self) -> Iterator[list[StoredRow]]:
        """Yield all rows, in order of key."""
        with work_folder_named(self._folder):
            self._spool.seek(0)
        while True:
            with work_folder_named(self._folder):
                head = self._spool.read(8)
                data = self._spool.read(int.from_bytes(head))
            if not head:
                return
            yield _decode_rows(data)


class Changes:
    """Updates, folded: the last row of each key.

    `flushed`: the counter of the last update that deleted every key; 0: there was none.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, StoredRow] = {}
        self.flushed = 0

    def add(self, update: Update) -> None:
        """Apply the next update."""
        for key, value, expires_at in update.operations:
            if key is None:
                self.flushed = update.counter
                self.rows = {key: row for key, row in self.rows.items() if is_reserved(key)}
            else:
                self.rows[key] = (key, update.counter, update.term, expires_at, value)

    def applied_to(self, chunks: Iterable[list[StoredRow]]) -> Iterator[list[StoredRow]]:
        """Yield the rows after the updates, in order of key; tombstones may be among them."""
        changed = self.rows
        keys = sorted(changed)
        at = 0
        for chunk in chunks:
            start, at = at, bisect_right(keys, chunk[-1][0]) if chunk else at
            if start == at and not self.flushed:
                yield chunk
                continue
            kept = [row for row in chunk if row[0] not in changed and self._is_left(row)]
            kept += [changed[key] for key in keys[start:at]]
            kept.sort(key=itemgetter(0))
            yield kept
        while at < len(keys):
            yield [changed[key] for key in keys[at : at + CHUNK_ROWS]]
            at += CHUNK_ROWS

    def _is_left(self, row: StoredRow) -> bool:
        """Return whether the row was not deleted with every key."""
        return row[1] > self.flushed or is_reserved(row[0])


class DigestWatched:
    """Yields rows that clients see, and adds up the digest of all, as an agent does."""

    def __init__(self, chunks: Iterable[list[StoredRow]]) -> None:
        self._chunks = chunks
        self._digest = 0

    def __iter__(self) -> Iterator[list[StoredRow]]:
        for chunk in self._chunks:
            live = [row for row in chunk if row[4] is not None]
            self._digest += rows_digest(live)
            if live and live[0][0] < FIRST_UNRESERVED:
                live = [row for row in live if not is_reserved(row[0])]
            yield live

    @property
    def digest(self) -> int:
        """The digest of the rows so far."""
        return self._digest & _MASK


def scan_copy(
    copy: CopySeen, zone: str, cluster: Cluster, settings: Settings, work_dir: str | None
) -> Scan:
    """Read all rows of a copy.  Raises Unreadable."""
    scan = Scan(_now(copy, zone, cluster, settings), work_dir)
    try:
        for rows in read_rows(scan.copy, zone, cluster, settings):
            scan.add(rows)
    except BaseException:
        scan.close()
        raise
    return scan


def read_changes(
    copy: CopySeen, upto: int, zone: str, cluster: Cluster, settings: Settings
) -> Changes:
    """Return the updates of a copy above its LWM of then, up to counter `upto`.

    Raises Unreadable if the log does not reach back so far, or the copy is another one.
    """
    changes = Changes()
    try:
        for updates, _ in read_updates(copy, copy.state.lwm, upto, zone, cluster, settings):
            for update in updates:
                changes.add(update)
    except LogTooShort as error:
        raise Unreadable(f"{error}: too much was written while its rows were read") from error
    return changes


def _now(copy: CopySeen, zone: str, cluster: Cluster, settings: Settings) -> CopySeen:
    """Return the copy as it is now."""
    partition = copy.state.partition
    with open_link(copy.address, cluster, settings) as link:
        for found in copies_of(link, copy.address, zone, partition):
            if found.state.partition == partition and found.state.adopted:
                return found
    raise Unreadable(f"partition {partition}: {copy.node} has no copy that may be read now")
