"""A RocksDB database: opened, written, synced, and recovered after the disk was full.

The engine holds the GIL while it writes a batch and releases it in `flush_wal`: batches are written
unsynced on the event loop, and `sync` runs in a worker thread.

No room (disk, quota or file size limit): the failed batch is not in the database, and reads go on.
The engine does not write to a log that had an error, so the database is reopened once there is
room.  Any other error leaves unknown what is on disk: StorageBroken, and again at every later write
and sync.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from quorate.protocol.storage import StorageFull
from quorate_agent.folder.disk_room import DiskRoom, takes_file
from quorate_agent.folder.durable_file import write_durably
from quorate_agent.folder.identity import START_ANEW
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.log_records import stop_at_gaps

FORMAT_VERSION: Final = 3
FORMAT_WITHOUT_LONG_VALUES: Final = 1
"""Format of a database without long values (`long_values.py`), which earlier versions read.

In format 2 long values were in pieces, in the engine."""
FLUSH_BYTES: Final = 32 << 20
"""With less free space, a flush that the engine waits for may find no room."""
WRITE_BUFFER_BYTES: Final = 16 << 20
ALL_WRITE_BUFFERS_BYTES: Final = 64 << 20
EMPTY_BUFFER_BYTES: Final = 256 << 10
"""Bytes that the write buffer of a database takes before anything is written: mostly the filter.

Each database adds this to ALL_WRITE_BUFFERS_BYTES.  Otherwise many empty ones would fill that
bound, and every write would flush."""
ARENA_BLOCK_BYTES: Final = 64 << 10
BLOCK_CACHE_BYTES: Final = 96 << 20
TABLES_OPEN: Final = 246
_OWN_FILES: Final = 10
"""RocksDB reserves this many of `max_open_files` for itself; the others are for tables."""
PROBE_SECONDS: Final = 0.5
PROBE_SECONDS_MAX: Final = 30.0
"""The longest pause between attempts to reopen a database: each that finds no room doubles it."""
STALL_POLL_SECONDS: Final = 0.005
_STALLED: Final = "Write stall"
_NO_ROOM: Final = ("No space left", "Disk quota exceeded", "File too large")
_OPENED_BY: Final = b"i"
_SYNCING: Final = ("While fdatasync", "While fsync")
_STOPPED: Final = ("Writer has previous error", "Seen error")
_WAY_OUT: Final = f"Way out: {START_ANEW}"
_MAKE_ROOM: Final = "Way out: free some space on the disk, and start the agent again"


def _at_once() -> WriteOptions:
    options = WriteOptions()
    options.no_slowdown = True
    return options


_AT_ONCE: Final = _at_once()
_MAY_WAIT: Final = WriteOptions()


class _Shared:
    """Shared by all databases of the process: a block cache, and one bound on all write buffers.

    Reaching the bound causes a flush."""

    def __init__(self) -> None:
        self.cache = Cache(BLOCK_CACHE_BYTES)
        self.buffers = WriteBufferManager(ALL_WRITE_BUFFERS_BYTES, allow_stall=False)
        self._lock = threading.Lock()
        self._databases = 0

    def count(self, change: int) -> None:
        """Add `change` to the number of open databases."""
        with self._lock:
            self._databases += change
            empty = self._databases * EMPTY_BUFFER_BYTES
            self.buffers.set_buffer_size(ALL_WRITE_BUFFERS_BYTES + empty)


@cache
def _shared() -> _Shared:
    return _Shared()


def _options(tables: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    # A power loss leaves unsynced records incomplete, or pages of them empty.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_arena_block_size(ARENA_BLOCK_BYTES)
    options.set_write_buffer_manager(_shared().buffers)
    options.set_max_total_wal_size(4 * WRITE_BUFFER_BYTES)
    # A filter over the newest rows: most keys that are looked up are in older tables, or new.
    options.set_memtable_prefix_bloom_ratio(0.01)
    options.set_memtable_whole_key_filtering(True)
    options.set_max_background_jobs(2)
    options.set_max_open_files(tables + _OWN_FILES)
    options.set_level_compaction_dynamic_level_bytes(True)
    # The loop must not be slowed while compaction catches up after a load.
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(80)
    options.set_bytes_per_sync(1 << 20)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_manifest_preallocation_size(64 * 1024)
    table = BlockBasedOptions()
    table.set_block_cache(_shared().cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # Index and filter in pieces: a table's whole filter is larger than a shard of the cache; it
    # would never stay in it, and be read from the file at every lookup.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(4 * 1024)
    table.set_pin_top_level_index_and_filter(True)
    table.set_bloom_filter(10, False)
    table.set_block_size(4 * 1024)
    options.set_block_based_table_factory(table)
    return options


class OpenedBy(NamedTuple):
    """The start of an agent that opened a database last."""

    store: str
    incarnation: int


class Database:
    """One open database in `folder`; keeps `tables` tables open.  Single-threaded except for
    `sync`.

    It has all changes up to one, and none behind it, whatever a power loss left of the logs.  If
    damage of a log would leave fewer than `synced` of them, which an earlier process recorded as
    synced, it is refused, and the log stays as it is.  If a log was cut off or removed, it is
    opened: the caller compares `sequence`.

    `synced_sequence` is the engine's number of the last change that this process has synced, 0
    before the first sync: never more than what is on disk.  `opened_by` is the start of an agent
    that opened it last, as stored in the database: see `read_opened_by`.
    """

    def __init__(
        self,
        folder: Path,
        disk: DiskRoom | None = None,
        tables: int = TABLES_OPEN,
        synced: int = 0,
    ) -> None:
        self._folder = folder
        self._path = folder / "rocksdb"
        self._disk = disk or DiskRoom(folder)
        self._tables = tables
        self._lock = threading.Lock()  # held by sync, reopening and closing
        self._no_room = threading.Event()
        self._no_room_text = ""
        self._probed = float("-inf")
        self._pause_s = PROBE_SECONDS
        self._closed = False
        self._problem = ""  # the error that left unknown what is on disk
        self._format = FORMAT_WITHOUT_LONG_VALUES
        self.synced_sequence = 0
        self.opened_by: OpenedBy | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._check_format()
        marks = stop_at_gaps(self._path)
        try:
            self._check_synced(synced)
        except Exception as error:
            for mark in marks:  # what was taken for a gap may be whole, behind a length that is not
                mark.undo()
            raise DatabaseRefused(self._refusal(error)) from error
        try:
            self._db = Rdict(str(self._path), _options(tables))
        except Exception as error:
            raise DatabaseRefused(self._refusal(error)) from error
        _shared().count(1)
        try:
            self._write_format()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        """The folder of the engine's files."""
        return self._path

    @property
    def sequence(self) -> int:
        """The engine's number of the last change; each key that a batch changes counts one."""
        try:
            return int(self._db.latest_sequence_number())
        except Exception as error:  # it could not be reopened
            raise self._broken("read", error) from error

    def read_opened_by(self) -> OpenedBy | None:
        """Read which start opened the database last; None if none is recorded."""
        said = self.get(_OPENED_BY)
        self.opened_by = None if said is None else msgspec.json.decode(said, type=OpenedBy)
        return self.opened_by

    def set_opened_by(self, opened_by: OpenedBy) -> None:
        """Record who opened the database; durable with the next sync.  StorageFull: it is not
        recorded."""

        def batch() -> WriteBatch:
            made = WriteBatch(raw_mode=True)
            made.put(_OPENED_BY, msgspec.json.encode(opened_by))
            return made

        self.write(batch)
        self.opened_by = opened_by

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._broken("read", error) from error
        return value

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value) with start <= key < end, in order."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        at = self._db.iter(bounds)
        at.seek(start)
        while at.valid():
            yield at.key(), at.value()
            at.next()
        try:
            at.status()  # an iterator that meets damage just ends
        except Exception as error:
            raise self._broken("read", error) from error

    def write(self, batch: Callable[[], WriteBatch]) -> None:
        """Write a batch, unsynced; `batch` makes it, anew for each attempt.

        StorageFull: it is not in the database."""
        self.check_known()
        if self._no_room.is_set() and not self._reopen():
            raise StorageFull(self._no_room_text)
        waits = False
        while True:
            try:
                self._db.write(batch(), _MAY_WAIT if waits else _AT_ONCE)
            except Exception as error:
                if not waits and _STALLED in str(error):
                    waits = self._wait_for_flush(error)
                    continue
                if not _is_no_room(error):
                    raise self._broken("write", error) from error
                raise self._stopped(error) from error
            else:
                return

    def _wait_for_flush(self, error: Exception) -> bool:
        """Return whether the engine may block the write; if not, wait a moment here.

        It would block holding the GIL, and for ever if its flush finds no room.  In that case
        StorageFull.
        """
        if not self._db.property_int_value("rocksdb.is-write-stopped"):
            return True  # it only slows us down
        failed = self._db.property_int_value("rocksdb.background-errors")
        if failed or self._disk.look_again() <= min(FLUSH_BYTES, self._disk.reserve):
            raise self._stopped(error) from error
        time.sleep(STALL_POLL_SECONDS)
        return False

    def _stopped(self, error: Exception) -> StorageFull:
        self._probed = float("-inf")
        return self.without_room(f"{self._path}: {error}")

    def without_room(self, problem: str) -> StorageFull:
        """Take note that something found no room, until there is some; return the error, to be
        raised."""
        self._no_room_text = problem
        self._no_room.set()
        return StorageFull(problem)

    def sync(self) -> bool:
        """Make durable every batch written before the call.  Returns False if it is closed."""
        with self._lock:
            if self._closed:
                return False
            self.check_known()
            sequence = self.sequence  # read first: later writes may or may not be synced
            if not self._no_room.is_set():
                try:
                    self._db.flush_wal(True)
                except Exception as error:
                    # A batch may have found no room meanwhile; the loop is about to report that.
                    if not _is_of_stopped_log(error) or not self._no_room.wait(1.0):
                        raise self._broken("sync", error) from error
                else:
                    self._has_synced(sequence)
                    return True
            self._sync_log_files()
            self._has_synced(sequence)
            return True

    def _has_synced(self, sequence: int) -> None:
        self.check_known()  # a write may have failed meanwhile
        self.synced_sequence = sequence

    def check_known(self) -> None:
        """Raise StorageBroken if an error has left unknown what is on disk.

        A sync after a failed one may succeed without what failed, because Linux reports an error of
        a file's pages only once."""
        if self._problem:
            raise StorageBroken(self._problem)

    def broken(self, problem: str) -> StorageBroken:
        """Take note of an error that leaves unknown what is on disk; return it, to be raised."""
        self._problem = self._problem or problem
        return StorageBroken(problem)

    def close(self) -> None:
        """Sync once more and release the files (flushes what is in memory)."""
        if not self._closed and not self._problem:
            with suppress(StorageBroken):  # callers that need it wait for their own sync
                self.sync()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close_engine()
                _shared().count(-1)

    @property
    def full_reason(self) -> str:
        """Why there is no room, in words; empty if there is.  Reopens the database once there is
        room again."""
        if self._no_room.is_set() and not self._reopen():
            return self._no_room_text
        return f"{self._path}: {self._disk.words}" if self._disk.is_low else ""

    @property
    def is_short(self) -> bool:
        """Whether so little room is left that it is kept for promises and rows.

        Also while a batch has found none, although the disk shows some: a quota, or no inodes."""
        return self._no_room.is_set() or self._disk.is_short

    def room(self) -> int:
        """Return the bytes that may still be filled."""
        if self._no_room.is_set() or self._disk.is_low:
            return 0
        return self._disk.free - self._disk.reserve

    def memory_used(self) -> int:
        """Return the bytes of write buffers and table readers; 0 once it is closed."""
        if self._closed:
            return 0
        names = ("rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem")
        return sum(self._db.property_int_value(name) or 0 for name in names)

    def _reopen(self) -> bool:
        """Reopen the database if there is room; return whether it can be written again.

        An attempt reads all logs, twice if it fails, and the event loop waits for it.  So it is
        made only where a file of that size finds room, and again after ever longer pauses."""
        clock = self._disk.clock
        if clock.passed_s() - self._probed < self._pause_s:
            return False
        # Opening writes the content of the logs into a table, and begins a new log.
        needed = sum(file.stat().st_size for file in self._path.glob("*.log")) + (2 << 20)
        if self._disk.look_again() < needed:
            self._probed, self._pause_s = clock.passed_s(), PROBE_SECONDS  # looking is cheap
            return False
        is_open = takes_file(self._folder, needed) and self._open_anew()
        self._probed = clock.passed_s()  # from the end on: an attempt may take seconds
        self._pause_s = PROBE_SECONDS if is_open else min(2 * self._pause_s, PROBE_SECONDS_MAX)
        return is_open

    def _open_anew(self) -> bool:
        """Close the engine and open it; return whether there was room for that.

        Without room it is opened for reading."""
        with self._lock:
            if self._closed:
                return False
            sequence = self._db.latest_sequence_number()
            self._close_engine()
            try:
                self._db = Rdict(str(self._path), _options(self._tables))
            except Exception as error:
                if not _is_no_room(error):
                    raise self._broken("open", error) from error
                self._open_for_reading()
                return False
            if self._db.latest_sequence_number() != sequence:
                raise self.broken(
                    f"{self._path}: at sequence {self._db.latest_sequence_number()} after it was"
                    f" opened anew, was at {sequence}"
                )
            self._no_room.clear()
            return True

    def _open_for_reading(self) -> None:
        try:
            self._db = self._reader(_options(self._tables))
        except Exception as error:
            raise self._broken("open", error) from error

    def _reader(self, options: Options) -> Rdict:
        """Open the engine for reading, which changes no file of its."""
        return Rdict(str(self._path), options, access_type=AccessType.read_only(False))

    def _check_synced(self, synced: int) -> None:
        """Raise the engine's error if a damaged log leaves less than was synced."""
        if not synced or not (self._path / "CURRENT").exists():
            return
        reader = self._reader(_options(self._tables))
        found = reader.latest_sequence_number()
        reader.close()
        if found < synced:
            strict = _options(self._tables)
            strict.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
            self._reader(strict).close()

    def _close_engine(self) -> None:
        with suppress(Exception):  # no room to flush: the log files have everything
            self._db.close()
        with suppress(AttributeError):  # there is none if it could not be reopened
            del self._db

    def _sync_log_files(self) -> None:
        """Sync the engine's logs directly: the engine does not once a batch found no room."""
        for file in sorted(self._path.glob("*.log")):
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except FileNotFoundError:
                continue  # its content is in a table now, which the engine syncs
            try:
                os.fdatasync(descriptor)
            except OSError as error:
                raise self._broken("sync", error) from error
            finally:
                os.close(descriptor)

    def _check_format(self) -> None:
        file = self._folder / "format.json"
        try:
            text = file.read_text()
        except FileNotFoundError:
            return
        try:
            found = json.loads(text)["format"]
        except (ValueError, KeyError, TypeError):
            raise DatabaseRefused(f"{file}: not readable: {text[:60]!r}. {_WAY_OUT}") from None
        if found not in range(FORMAT_WITHOUT_LONG_VALUES, FORMAT_VERSION + 1):
            raise DatabaseRefused(
                f"{file}: format {found}, this version reads up to {FORMAT_VERSION}."
                f" Way out: start the version of the agent that wrote it"
            )
        self._format = found
        if not (self._path / "CURRENT").exists():
            raise DatabaseRefused(f"{self._path / 'CURRENT'}: missing. {_WAY_OUT}")

    def _write_format(self) -> None:
        """Record the format once the database exists; from then on a missing one is damage, not a
        new zone."""
        file = self._folder / "format.json"
        if file.exists():
            return
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise DatabaseRefused(self._refusal(error)) from error
        write_durably(file, json.dumps({"format": self._format}) + "\n")

    def use_value_files(self) -> None:
        """Record that values are in files of their own, before the first one is written.

        Earlier versions then refuse the database.  StorageFull: that cannot be recorded."""
        if self._format == FORMAT_VERSION:
            return
        file = self._folder / "format.json"
        try:
            write_durably(file, json.dumps({"format": FORMAT_VERSION}) + "\n")
        except OSError as error:
            problem = f"{file}: {error}"
            is_full = _is_no_room(error)
            raise (self.without_room(problem) if is_full else StorageFull(problem)) from error
        self._format = FORMAT_VERSION

    def _refusal(self, error: Exception) -> str:
        text = str(error)
        if _is_no_room(error):
            return (
                f"{self._path}: no room to open it ({text}). Way out: free some space on the disk"
            )
        if "Too many open files" in text:
            return (
                f"{self._path}: no file descriptor left to open it ({text}). Way out: start the"
                " agent with a higher limit (ulimit -n)"
            )
        if "lock file" in text or "lock hold" in text:
            return f"{self._path}/LOCK: held by another process ({text}). Way out: stop that one"
        return f"{self._path}: cannot be opened ({text}). {_WAY_OUT}"

    def _broken(self, verb: str, error: Exception) -> StorageBroken:
        if self._closed:  # that says nothing of what is on disk
            return StorageBroken(f"{self._path}: cannot {verb}: it is closed")
        way_out = _MAKE_ROOM if _is_no_room(error) else _WAY_OUT
        return self.broken(f"{self._path}: cannot {verb}: {error}. {way_out}")


def _is_no_room(error: Exception) -> bool:
    return any(text in str(error) for text in _NO_ROOM)


def _is_of_stopped_log(error: Exception) -> bool:
    """Return whether a sync found a log that is no longer written, because a batch found no room.

    If the disk refused the sync itself, for whatever reason, a second one proves nothing."""
    said = str(error)
    if any(text in said for text in _SYNCING):
        return False
    return _is_no_room(error) or any(text in said for text in _STOPPED)
