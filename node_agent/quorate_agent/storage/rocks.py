"""The storage of a Persistent zone: one RocksDB database in the zone's folder.

    r partition generation key      -> header (counter, term, expires_at, flags), value
    n partition generation          -> live rows, bytes, digest (in the batch that changes them)
    l partition counter term        -> one encoded update (`rocks_log.py`)
    w number key, v number piece    -> long values, to which rows and updates refer
                                       (`long_values.py`)
    c name                          -> one record
    i                               -> the start that opened the database last (`database.py`)

All numbers are big-endian, so the engine's order is the core's.  Writes of the turn are kept in
overlays, in front of the database, until `commit` makes one WriteBatch of them.  A batch that finds
no room is dropped by dropping the overlays.
"""

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from rocksdict import WriteBatch

from quorate.protocol.copies.totals import DIGEST_BYTES, Totals
from quorate.protocol.storage import (
    COUNTER_MAX,
    ROW_HEAD,
    TOMBSTONE,
    PackedRows,
    Row,
    ScannedKeys,
    StorageFull,
    pack_rows,
)
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.storage.database import TABLES_OPEN, Database
from quorate_agent.storage.long_values import LONG_BYTES, LongValues
from quorate_agent.storage.recent_rows import ROW_BYTES_MAX, recent_rows
from quorate_agent.storage.rocks_log import RocksLog, partitions_with_logs
from quorate_agent.storage.stored_rows import (
    HEAD_BYTES,
    IN_FILE,
    KIND_AT,
    KINDS_TOLD,
    PLAIN_KINDS,
    after_prefix,
    keys_of,
    pack_reference,
    pack_row,
)

_SPACE: Final = Struct(">cHI")
_TOTALS: Final = Struct(">QQ16s")

_RECENT_DATA_MAX: Final = HEAD_BYTES + ROW_BYTES_MAX


Touched = TypeVar("Touched", "RocksSpace", RocksLog)


def _size(row: Row) -> int:
    return 0 if row.value is None else len(row.value)


class RocksSpace:
    """Rows of one copy."""

    __slots__ = (
        "_count_recent", "_database", "_kept", "_less_recent", "_long", "_long_values", "_owned",
        "_prefix", "_recent", "_totals", "_touched", "_touched_spaces", "_very_long", "_written",
        "dropped", "overlay", "partition",
    )  # fmt: skip

    def __init__(self, storage: "RocksStorage", partition: int, generation: int) -> None:
        self._count_recent = recent_rows().count
        self._touched_spaces = storage.touched_spaces
        self._database = storage.database
        self._prefix = _SPACE.pack(b"r", partition, generation)
        self.partition = partition
        self._long_values = storage.long_values
        self._owned = storage.long_values.owned(self._prefix)
        # This turn's rows (None: dropped).  `dropped`: the database's rows no longer count.
        self.overlay: dict[bytes, Row | None] = {}
        self.dropped = False
        self._touched = False
        # A cache of rows as the database has them (None: it has none), of recently used keys: a
        # lookup in the engine costs as much as all other work on a row.  A row in both dicts is
        # newer in the first; when all zones have enough rows there, the first becomes the second.
        self._recent: dict[bytes, Row | None] = {}
        self._less_recent: dict[bytes, Row | None] = {}
        self._long: list[bytes] = []  # keys of the turn's rows that are too long for the cache
        self._very_long: dict[bytes, bytes] = {}  # values that `_long_values` was given
        self._totals = Totals(self.get)
        data = self._database.get(b"n" + self._prefix[1:])
        if data is not None:
            rows, size, digest = _TOTALS.unpack(data)
            self._totals.restore((rows, size, int.from_bytes(digest)))
        self._kept = self._written = self._totals.state()

    def get(self, key: bytes) -> Row | None:
        """Return the row of `key`, even a tombstone."""
        if key in self.overlay:
            return self.overlay[key]
        if self.dropped:
            return None
        if key in self._recent:
            return self._recent[key]
        if key in self._less_recent:
            row = self._less_recent[key]
        else:
            data = self._database.get(self._prefix + key)
            row = None if data is None else self._unpack(data)
        if row is None or _size(row) + len(key) <= ROW_BYTES_MAX:
            self._recent[key] = row
            self._count_recent(1)
        return row

    def put(self, key: bytes, row: Row) -> None:
        """Write a row into the turn's batch."""
        old = self.get(key)
        if not self._touched:
            self._touch()
        self.overlay[key] = row
        value = row.value
        if value is not None and len(value) > LONG_BYTES:
            self._take_long(key, row, value)
        self._totals.replace(key, old, row)

    def put_all(self, rows: dict[bytes, Row]) -> None:
        """Write several rows into the turn's batch."""
        olds = list(map(self.get, rows))
        if not self._touched:
            self._touch()
        self.overlay.update(rows)
        for key, row in rows.items():
            value = row.value
            if value is not None and len(value) > LONG_BYTES:
                self._take_long(key, row, value)
        self._totals.replace_all(rows, olds)

    def drop(self, key: bytes) -> None:
        """Remove the row for good."""
        old = self.get(key)
        if old is None:
            return
        if not self._touched:
            self._touch()
        self.overlay[key] = None
        self._totals.replace(key, old, None)

    def scan(self, after: bytes | None, rows_max: int, bytes_max: int) -> list[tuple[bytes, Row]]:
        """Return rows in key order with key > after; stops once `bytes_max` is reached."""
        first = b"" if after is None else after + b"\0"
        return self._scan(first, None, rows_max, bytes_max)[0]

    def _scan(
        self, first: bytes, before: bytes | None, rows_max: int, bytes_max: int
    ) -> tuple[list[tuple[bytes, Row]], bool]:
        """Return rows, and whether there are no more in the range."""
        found: list[tuple[bytes, Row]] = []
        if rows_max <= 0:
            return found, False
        size = 0
        for key, row in self._merged(first):
            if before is not None and key >= before:
                break
            if isinstance(row, bytes):
                row = self._unpack(row)
            found.append((key, row))
            size += len(key) + _size(row)
            if len(found) >= rows_max or size >= bytes_max:
                return found, False
        return found, True

    def scan_keys(self, after: bytes | None, rows_max: int, bytes_max: int) -> ScannedKeys:
        """Return keys in order; values in files are not read."""
        first = b"" if after is None else after + b"\0"
        return keys_of(self._merged(first), rows_max, bytes_max)

    def scan_packed(
        self,
        first: bytes,
        before: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        values: bool = True,
    ) -> PackedRows:
        """Return rows with first <= key < before as columns, most often just as they are stored."""
        if self.overlay or self.dropped:
            found, whole = self._scan(first, before, rows_max, bytes_max)
            return pack_rows(found, whole=whole, values=values)
        prefix = self._prefix
        end = after_prefix(prefix) if before is None else prefix + before
        full_keys: list[bytes] = []
        stored: list[bytes] = []
        size, whole = 0, True
        for full_key, data in self._database.items(prefix + first, end):
            full_keys.append(full_key)
            stored.append(data)
            size += len(full_key) + (len(data) if values else HEAD_BYTES)
            if size >= bytes_max or len(stored) >= rows_max:
                whole = False
                break
        heads = b"".join([data[:HEAD_BYTES] for data in stored])
        kinds = heads[KIND_AT::HEAD_BYTES]
        if kinds.translate(None, PLAIN_KINDS):
            if values:  # they are longer than what is stored here
                found, whole = self._scan(first, before, rows_max, bytes_max)
                return pack_rows(found, whole=whole)
            told = bytearray(heads)
            told[KIND_AT::HEAD_BYTES] = kinds.translate(KINDS_TOLD)
            heads = bytes(told)
        skip = len(prefix)
        return PackedRows(
            [full_key[skip:] for full_key in full_keys],
            heads,
            [data[HEAD_BYTES:] for data in stored] if values else [],
            whole,
        )

    def row_count(self) -> int:
        """Return the number of live rows."""
        return self._totals.rows

    def byte_count(self) -> int:
        """Return the bytes of keys and values, including tombstones."""
        return self._totals.bytes

    def digest(self) -> int:
        """Return the digest of the live rows."""
        return self._totals.digest()

    def count_digest(self, rows_max: int) -> int:
        """Return 0: every batch maintains the digest, because counting it would read the disk."""
        return 0

    def forget_digest(self) -> None:
        """Do nothing: the digest is always maintained."""

    def clear(self) -> None:
        """Remove all rows with the batch (RocksStorage.drop_space)."""
        if not self._touched:
            self._touch()
        self.overlay.clear()
        self.dropped = True
        self._totals.clear()
        self._recent.clear()
        self._less_recent.clear()

    def write_to(self, batch: WriteBatch) -> None:
        """Add to the batch what the turn wrote."""
        prefix, very_long = self._prefix, self._very_long
        if self.dropped:
            batch.delete_range(prefix, after_prefix(prefix))
        if self._owned:
            self._remove_long(batch)
        put = batch.put
        for key, row in self.overlay.items():
            if row is None:
                batch.delete(prefix + key)
                continue
            if very_long and row.value is not None and very_long.get(key) is row.value:
                data = pack_reference(row, self._long_values.refer(prefix + key, batch))
                put(prefix + key, data)
                self._long.append(key)
                continue
            data = pack_row(row)
            put(prefix + key, data)
            if len(data) + len(key) > _RECENT_DATA_MAX:
                self._long.append(key)
        rows, size, digest = totals = self._written = self._totals.state()
        if self.dropped and not rows and not size:
            batch.delete(b"n" + prefix[1:])
        elif totals != self._kept:
            data = _TOTALS.pack(rows, size, digest.to_bytes(DIGEST_BYTES))
            batch.put(b"n" + prefix[1:], data)

    def end_turn(self, committed: bool) -> None:
        """Take note that the batch is in the database, or was dropped."""
        if committed:
            self._kept = self._written
            self._remember()
        else:
            self._totals.restore(self._kept)
        self._long.clear()
        self._very_long.clear()
        self.overlay.clear()
        self.dropped = False
        self._touched = False

    def _remember(self) -> None:
        """Put the turn's rows, which are in the database now, into the cache."""
        recent = self._recent
        before = len(recent)
        recent.update(self.overlay)
        for key in self._long:
            recent.pop(key, None)
            self._less_recent.pop(key, None)
        self._count_recent(len(recent) - before)

    def age(self) -> None:
        """Forget cached rows that were not used for a while (`recent_rows.py`)."""
        self._less_recent = self._recent
        self._recent = {}

    def _touch(self) -> None:
        self._touched = True
        self._touched_spaces.append(self)

    def _unpack(self, data: bytes) -> Row:
        counter, term, expires_at, flags = ROW_HEAD.unpack_from(data)
        if not flags:
            return Row(counter, term, expires_at, data[HEAD_BYTES:])
        if flags & TOMBSTONE:
            return Row(counter, term, expires_at, None)
        values = self._long_values
        read = values.read if flags & IN_FILE else values.read_pieces
        return Row(counter, term, expires_at, read(data[HEAD_BYTES:]))

    def _take_long(self, key: bytes, row: Row, value: bytes) -> None:
        self._very_long[key] = value
        name = (self.partition, row.counter, row.term)
        self._long_values.take_row(self._prefix + key, name, value)

    def _remove_long(self, batch: WriteBatch) -> None:
        """Remove the long values of the rows that the turn replaces."""
        owned, prefix = self._owned, self._prefix
        if self.dropped:
            gone = list(owned)
        else:
            gone = [full_key for key in self.overlay if (full_key := prefix + key) in owned]
        self._long_values.remove(gone, owned, batch)

    def _merged(self, first: bytes) -> Iterator[tuple[bytes, Row | bytes]]:
        """Yield the turn's rows, and between them those of the database as they are stored."""
        overlay = self.overlay
        fresh = sorted(key for key in overlay if key >= first)
        at = 0
        if not self.dropped:
            prefix = self._prefix
            skip = len(prefix)
            for full_key, data in self._database.items(prefix + first, after_prefix(prefix)):
                key = full_key[skip:]
                while at < len(fresh) and fresh[at] < key:
                    row = overlay[fresh[at]]
                    if row is not None:
                        yield fresh[at], row
                    at += 1
                if key not in overlay:
                    yield key, data
        for key in fresh[at:]:
            row = overlay[key]
            if row is not None:
                yield key, row


class RocksStorage:
    """One Persistent zone on one agent.  `path` is the zone's folder, created if it is missing.
    `synced`: see `Database`.

    DatabaseRefused: its content cannot be used.  Any call may raise StorageBroken; a
    `commit` or `sync` that did will do so again."""

    def __init__(
        self,
        path: Path | str,
        *,
        disk: DiskRoom | None = None,
        tables: int = TABLES_OPEN,
        synced: int = 0,
    ) -> None:
        self.folder: Path | None = Path(path)
        self.database = Database(Path(path), disk, tables, synced)
        try:
            self.long_values = LongValues(self.database)
        except BaseException:
            self.database.close()
            raise
        self.touched_spaces: list[RocksSpace] = []
        self.touched_logs: list[RocksLog] = []
        self._spaces: dict[tuple[int, int], RocksSpace] = {}
        self._logs: dict[int, RocksLog] = {}
        self._records: dict[bytes, bytes | None] = {}
        recent_rows().add_zone(self)

    def check_readable(self) -> None:
        """Read all records and totals, which the copies need at once; StorageBroken if one is
        unreadable."""
        for kind in (b"c", b"n"):
            for _ in self.database.items(kind, after_prefix(kind)):
                pass

    def measure_logs(self) -> None:
        """Read all logs for their sizes; otherwise the first use of each does."""
        for partition in partitions_with_logs(self.database):
            self._log(partition)

    # --- rows

    def space(self, partition: int, generation: int) -> RocksSpace:
        """Return the rows of one copy; the same object for the same numbers."""
        space = self._spaces.get((partition, generation))
        if space is None:
            space = self._spaces[partition, generation] = RocksSpace(self, partition, generation)
        return space

    def age_recent(self) -> None:
        """Forget cached rows that were not used for a while (`recent_rows.py`)."""
        for space in self._spaces.values():
            space.age()

    def drop_space(self, partition: int, generation: int) -> None:
        """Remove all rows of a copy (with the batch)."""
        self.space(partition, generation).clear()

    # --- update log

    def log_put(self, partition: int, counter: int, term: int, update: bytes) -> None:
        """Keep one encoded update."""
        self._log(partition).put(counter, term, update)

    def log_read(
        self, partition: int, first: int, last: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Return updates with first <= counter <= last, in order of (counter, term)."""
        return self._log(partition).read(first, last, bytes_max)

    def log_drop(self, partition: int, counter: int, term: int) -> None:
        """Forget one update."""
        self._log(partition).drop(counter, term)

    def log_cut(self, partition: int, upto: int) -> None:
        """Forget all updates up to and including counter `upto`."""
        self._log(partition).cut(upto)

    def log_bytes(self, partition: int, first: int = 0, last: int = COUNTER_MAX) -> int:
        """Return the bytes of the updates kept with first <= counter <= last, approximately.

        Updates of a segment count as equally long, and undone updates count too."""
        return self._log(partition).bytes_of(first, last)

    def log_floor(self, partition: int, bytes_max: int) -> int:
        """Return up to which counter to cut so that no more than `bytes_max` bytes stay.

        It is the end of a segment, because the sizes of single updates are not kept."""
        return self._log(partition).floor_for(bytes_max)

    @property
    def log_total(self) -> int:
        """The bytes of all updates kept, approximately."""
        return sum(log.bytes for log in self._logs.values())

    def _log(self, partition: int) -> RocksLog:
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = RocksLog(
                self.database, self.long_values, partition, self.touched_logs
            )
        return log

    # --- records

    def record_put(self, name: bytes, data: bytes) -> None:
        """Write one small named record."""
        self._records[name] = data

    def record_get(self, name: bytes) -> bytes | None:
        """Return one named record."""
        if name in self._records:
            return self._records[name]
        return self.database.get(b"c" + name)

    def record_drop(self, name: bytes) -> None:
        """Remove a named record."""
        self._records[name] = None

    def records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return all records whose name starts with `prefix`, in order of name, as they are now."""
        start = b"c" + prefix
        found: dict[bytes, bytes | None] = {
            name[1:]: data for name, data in self.database.items(start, after_prefix(start))
        }
        found |= {name: data for name, data in self._records.items() if name.startswith(prefix)}
        return iter([(name, data) for name, data in sorted(found.items()) if data is not None])

    # --- the batch

    def write_in(self, threads: Executor, written: Callable[[], object]) -> None:
        """Write long values in one of `threads` from now on, when `write_ahead` is called.

        The thread calls `written` when some are done."""
        self.long_values.write_in(threads, written)

    def write_ahead(self) -> Collection[int]:
        """Start writing the turn's long values; return the partitions that still lack some."""
        return self.long_values.write_ahead() if self.long_values.in_turn else ()

    def commit(
        self, waiting: Collection[int] = (), waiting_records: Collection[bytes] = ()
    ) -> None:
        """Write the turn's batch (unsynced) without what waits.  StorageFull: nothing was written;
        the batch is dropped."""
        self.database.check_known()  # the batch that failed cannot be made again
        turn = _Turn(
            self._take(self.touched_spaces, waiting),
            self._take(self.touched_logs, waiting),
            {
                name: self._records.pop(name)
                for name in list(self._records)
                if name not in waiting_records
            },
        )
        if not any(turn):
            return
        try:
            if self.long_values.in_turn:
                self.long_values.write_rest(waiting)
            self.database.write(lambda: self._batch(turn))
        except StorageFull:
            self._end_turn(turn, waiting, committed=False)
            raise
        self._end_turn(turn, waiting, committed=True)

    def _take(self, touched: list[Touched], waiting: Collection[int]) -> list[Touched]:
        """Remove and return those that do not wait."""
        if not waiting:
            taken = touched.copy()
            touched.clear()
            return taken
        taken = [each for each in touched if each.partition not in waiting]
        touched[:] = [each for each in touched if each.partition in waiting]
        return taken

    def _batch(self, turn: "_Turn") -> WriteBatch:
        """Return what the turn wrote as a batch, which the engine consumes."""
        batch = WriteBatch(raw_mode=True)
        self.long_values.begin_batch()
        for space in turn.spaces:
            space.write_to(batch)
        for log in turn.logs:
            log.write_to(batch)
        self.long_values.write_to(batch)
        for name, data in turn.records.items():
            if data is None:
                batch.delete(b"c" + name)
            else:
                batch.put(b"c" + name, data)
        return batch

    def sync(self) -> None:
        """Make every committed batch durable.  From any thread; blocks."""
        files = self.long_values.files
        unused = files.take_unused()
        if self.database.sync():
            files.remove(unused)
        else:
            for number in unused:
                files.unused(number)

    def close(self) -> None:
        """Release the database's files; what was not committed is lost."""
        self.long_values.close()
        self.database.close()

    # --- room

    @property
    def full_reason(self) -> str:
        """Why commands that need room must be refused before they run; empty: they may run."""
        return self.database.full_reason

    @property
    def is_short(self) -> bool:
        """Whether copies must take no more updates, so that promises and rows find room."""
        return self.database.is_short

    def room(self) -> int:
        """Return the bytes of disk that may still be filled."""
        return self.database.room()

    def memory_used(self) -> int:
        """Return roughly the bytes of memory that the engine holds for this zone."""
        return self.database.memory_used()

    def _end_turn(self, turn: "_Turn", waiting: Collection[int], *, committed: bool) -> None:
        self.long_values.end_batch(committed, waiting)
        for space in turn.spaces:
            space.end_turn(committed)
        for log in turn.logs:
            log.end_turn(committed)


class _Turn(NamedTuple):
    """The parts of a batch."""

    spaces: list[RocksSpace]
    logs: list[RocksLog]
    records: dict[bytes, bytes | None]
