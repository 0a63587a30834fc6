"""The storage of an InMemory zone: one dict per space, with a bound on all of them.

Reading is `dict.get` itself.  With a bound, each write notes what it replaced until the next
commit, so that a batch that does not fit can be undone.
"""

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

from quorate.protocol.copies.totals import Totals
from quorate.protocol.storage import (
    COUNTER_MAX,
    ROW_HEAD,
    ROW_OVERHEAD_BYTES,
    PackedRows,
    Row,
    ScannedKeys,
    StorageFull,
    pack_rows,
    scanned_keys,
)
from quorate_agent.storage.key_order import KeyOrder

UNBOUNDED: Final = 1 << 62
LOG_OVERHEAD_BYTES: Final = 192
LOW_ROOM_DIVISOR: Final = 64
"""`full_reason` is set once a 64th or less is left: commands are refused before a batch is."""
FREED_AT_ONCE: Final = 10_000
"""Rows or updates that `free` drops at once: less than 5 ms."""

_Entry = tuple[int, int, bytes]
_Undo = Callable[[], object]


class MemorySpace:
    """Rows of one copy.  `get` is the dict's own method and outlives `drop_space`."""

    __slots__ = ("_order", "_replaced", "_rows", "_storage", "_totals", "get")

    def __init__(self, storage: "MemoryStorage") -> None:
        self._storage = storage
        self._rows: dict[bytes, Row] = {}
        self.get: Callable[[bytes], Row | None] = self._rows.get
        self._totals = Totals(self.get, self._keys)
        self._replaced = self._totals.replace
        # Made by a scan that goes on, and kept until one reaches its end.
        self._order: KeyOrder | None = None

    def _keys(self) -> Iterable[bytes]:
        return self._rows

    def put(self, key: bytes, row: Row) -> None:
        """Write a row; it is visible at once."""
        rows = self._rows
        old = rows.get(key)
        rows[key] = row
        self._replaced(key, old, row)
        if old is None and self._order is not None:
            self._note_added((key,))
        if self._storage.bounded:
            self._note_replaced(key, old, row)

    def put_all(self, rows: dict[bytes, Row]) -> None:
        """Write several rows; they are visible at once.

        Each step is one C call over all rows: their waits for memory overlap.
        """
        own = self._rows
        olds = list(map(own.get, rows))
        own.update(rows)
        self._totals.replace_all(rows, olds)
        if self._order is not None:
            self._note_added([key for key, old in zip(rows, olds, strict=True) if old is None])
        if self._storage.bounded:
            for (key, row), old in zip(rows.items(), olds, strict=True):
                self._note_replaced(key, old, row)

    def drop(self, key: bytes) -> None:
        """Remove the row for good."""
        old = self._rows.pop(key, None)
        if old is None:
            return
        self._totals.replace(key, old, None)
        if self._storage.bounded:
            self._note_replaced(key, old, None)

    def scan(self, after: bytes | None, rows_max: int, bytes_max: int) -> list[tuple[bytes, Row]]:
        """Return rows in key order with key > after; stops once `bytes_max` is reached."""
        first = b"" if after is None else after + b"\0"
        return self._scan(first, None, rows_max, bytes_max)[0]

    def scan_keys(self, after: bytes | None, rows_max: int, bytes_max: int) -> ScannedKeys:
        """Return keys in order, whose rows need no reading."""
        first = b"" if after is None else after + b"\0"
        found, whole = self._scan(first, None, rows_max, bytes_max, values=False)
        return scanned_keys(found, whole=whole)

    def scan_packed(
        self,
        first: bytes,
        before: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        values: bool = True,
    ) -> PackedRows:
        """Return rows with first <= key < before as columns."""
        found, whole = self._scan(first, before, rows_max, bytes_max, values=values)
        return pack_rows(found, whole=whole, values=values)

    def _scan(
        self,
        first: bytes,
        before: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        values: bool = True,
    ) -> tuple[list[tuple[bytes, Row]], bool]:
        """Return rows, and whether there are no more in the range.

        Without `values` a row counts as its key and head.
        """
        if before == first + b"\0":  # a range of one key
            only = self.get(first)
            return ([] if only is None else [(first, only)]), True
        order = self._order
        if order is None or not order.covers(first, before, len(self._rows)):
            order = KeyOrder(self._rows, first, before)
        keys = order.keys()
        found: list[tuple[bytes, Row]] = []
        size = 0
        at = bisect_left(keys, first)
        end = len(keys) if before is None else bisect_left(keys, before)
        for index in range(at, end):
            if found and (len(found) >= rows_max or size >= bytes_max):
                self._order = order
                return found, False
            key = keys[index]
            row = self._rows.get(key)
            if row is None:
                continue  # dropped since the keys were sorted
            found.append((key, row))
            size += len(key) + (len(row.value or b"") if values else ROW_HEAD.size)
        if order is self._order and order.ends_at(before):
            self._order = None
        return found, True

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
        """Maintain the digest from now on; add up to `rows_max` rows that it lacks, and return how
        many."""
        return self._totals.count(rows_max)

    def forget_digest(self) -> None:
        """Stop maintaining the digest."""
        self._totals.forget()

    def clear(self) -> None:
        """Remove all rows (MemoryStorage.drop_space)."""
        storage = self._storage
        if not self._rows:
            return
        if storage.bounded:
            rows = dict(self._rows)
            storage.row_bytes -= self._totals.bytes + len(rows) * ROW_OVERHEAD_BYTES
            storage.undo.append(lambda: self._restore(rows))
        self._rows.clear()
        self._totals.clear()
        self._order = None

    def free(self) -> None:
        """Drop all rows in steps (MemoryStorage.free)."""
        self.forget_digest()
        self._order = None
        rows = self._rows
        while rows:
            for _ in range(min(len(rows), FREED_AT_ONCE)):
                rows.popitem()
            _let_others_run()
        rows.clear()  # an emptied dict keeps its table

    def row_memory(self) -> int:
        """Return roughly the bytes of memory that the rows take."""
        return self._totals.bytes + len(self._rows) * ROW_OVERHEAD_BYTES

    def _note_added(self, keys: Collection[bytes]) -> None:
        if self._order is not None and not self._order.add(keys):
            self._order = None

    def _note_replaced(self, key: bytes, old: Row | None, row: Row | None) -> None:
        storage = self._storage
        storage.row_bytes += _row_bytes(key, row) - _row_bytes(key, old)
        storage.undo.append(lambda: self._put_back(key, old))

    def _put_back(self, key: bytes, old: Row | None) -> None:
        now = self._rows.pop(key, None)
        if old is not None:
            self._rows[key] = old
            self._note_added((key,))
        self._totals.replace(key, now, old)
        self._storage.row_bytes += _row_bytes(key, old) - _row_bytes(key, now)

    def _restore(self, rows: dict[bytes, Row]) -> None:
        self._rows.update(rows)  # in place: `get` is bound to this dict
        self._totals.replace_all(rows, [None] * len(rows))
        self._storage.row_bytes += sum(_row_bytes(key, row) for key, row in rows.items())
        self._order = None


def _row_bytes(key: bytes, row: Row | None) -> int:
    if row is None:
        return 0
    return len(key) + len(row.value or b"") + ROW_OVERHEAD_BYTES


class _Log:
    """Updates of one partition as (counter, term, update), in that order.

    `_before[i]` is the number of bytes of all updates there ever were before the i-th of `entries`,
    as far as it has been added up.  So the bytes between two updates are known without visiting
    each.
    """

    __slots__ = ("_before", "_storage", "end", "entries")

    def __init__(self, storage: "MemoryStorage") -> None:
        self._storage = storage
        self.entries: list[_Entry] = []
        self._before = [0]
        self.end = 0  # bytes of all updates there ever were

    def index(self, counter: int, term: int) -> int:
        """Return where the update is, or would be."""
        return bisect_left(self.entries, (counter, term))

    def find(self, counter: int, term: int) -> _Entry | None:
        """Return one update; None if it is not there."""
        at = self.index(counter, term)
        if at < len(self.entries) and self.entries[at][:2] == (counter, term):
            return self.entries[at]
        return None

    def put(self, entry: _Entry) -> None:
        """Add or replace one update."""
        self.drop(entry[0], entry[1])
        at = self.index(entry[0], entry[1])
        self.entries.insert(at, entry)
        self._grow(at, _bytes_of(entry))

    def drop(self, counter: int, term: int) -> _Entry | None:
        """Remove and return one update."""
        at = self.index(counter, term)
        if at == len(self.entries) or self.entries[at][:2] != (counter, term):
            return None
        entry = self.entries.pop(at)
        self._grow(at, -_bytes_of(entry))
        return entry

    def bytes_of(self, first: int, last: int) -> int:
        """Return the bytes of the updates with first <= counter <= last."""
        end = self.index(last + 1, 0)
        before = self._add_up(end)
        return before[end] - before[min(self.index(first, 0), end)]

    def floor_for(self, bytes_max: int) -> int:
        """Return where to cut so that no more than `bytes_max` stay."""
        if self.end - self._before[0] <= bytes_max:
            return 0
        before = self._add_up(len(self.entries))
        return self.entries[bisect_left(before, self.end - bytes_max) - 1][0]

    def cut(self, upto: int) -> list[_Entry]:
        """Remove and return everything up to counter `upto`."""
        end = self.index(upto + 1, 0)
        entries = self.entries[:end]
        before = self._add_up(end)
        self._storage.log_total -= before[end] - before[0]
        del self.entries[:end], before[:end]
        return entries

    def free(self) -> None:
        """Drop all updates in steps (MemoryStorage.free)."""
        while self.entries:
            del self.entries[-FREED_AT_ONCE:]
            _let_others_run()

    def uncut(self, entries: list[_Entry]) -> None:
        """Put back in front what `cut` removed."""
        size = sum(map(_bytes_of, entries))
        self.entries[:0] = entries
        self._before = [self._before[0] - size]
        self._storage.log_total += size

    def _add_up(self, at: int) -> list[int]:
        """Return `_before`, filled at least up to index `at`."""
        before = self._before
        if len(before) <= at:
            sizes = map(_bytes_of, self.entries[len(before) - 1 :])
            before.extend(accumulate(sizes, initial=before.pop()))
        return before

    def _grow(self, at: int, size: int) -> None:
        """Move all updates from index `at` on by `size` bytes."""
        del self._before[at + 1 :]
        self.end += size
        self._storage.log_total += size


def _bytes_of(entry: _Entry) -> int:
    return len(entry[2]) + LOG_OVERHEAD_BYTES


def _let_others_run() -> None:
    """Give other threads the GIL."""
    time.sleep(0)


class MemoryStorage:
    """One InMemory zone on one agent.  `max_memory`: bytes of rows and log; 0: no bound."""

    def __init__(self, max_memory: int = 0) -> None:
        self._max_memory = max_memory
        self.bounded = max_memory > 0
        self.row_bytes = 0
        self.undo: list[_Undo] = []
        self._row_bytes_committed = 0
        self.log_total = 0
        self.folder: Path | None = None  # nothing is on disk
        self._spaces: dict[tuple[int, int], MemorySpace] = {}
        self._logs: dict[int, _Log] = {}
        self._records: dict[bytes, bytes] = {}
        self._record_names: list[bytes] = []

    # --- rows

    def space(self, partition: int, generation: int) -> MemorySpace:
        """Return the rows of one copy; the same object for the same numbers."""
        space = self._spaces.get((partition, generation))
        if space is None:
            space = self._spaces[partition, generation] = MemorySpace(self)
        return space

    def drop_space(self, partition: int, generation: int) -> None:
        """Remove all rows of a copy."""
        space = self._spaces.get((partition, generation))
        if space is not None:
            space.clear()

    # --- update log

    def log_put(self, partition: int, counter: int, term: int, update: bytes) -> None:
        """Keep one encoded update."""
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = _Log(self)
        if self.bounded:
            self._note_logged(log, counter, term)
        entries = log.entries
        if entries and counter <= entries[-1][0]:
            log.put((counter, term, update))
            return
        entries.append((counter, term, update))
        size = len(update) + LOG_OVERHEAD_BYTES
        log.end += size
        self.log_total += size

    def _note_logged(self, log: _Log, counter: int, term: int) -> None:
        old = log.find(counter, term)
        self.undo.append(lambda: log.drop(counter, term) if old is None else log.put(old))

    def log_read(
        self, partition: int, first: int, last: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Return updates with first <= counter <= last, in order of (counter, term)."""
        log = self._logs.get(partition)
        if log is None:
            return []
        end = log.index(last + 1, 0)
        size = 0
        start = log.index(first, 0)
        for at in range(start, end):
            is_next = at == start or log.entries[at][0] != log.entries[at - 1][0]
            if is_next and size >= bytes_max:
                return log.entries[start:at]
            size += len(log.entries[at][2])
        return log.entries[start:end]

    def log_drop(self, partition: int, counter: int, term: int) -> None:
        """Forget one update."""
        log = self._logs.get(partition)
        if log is None:
            return
        entry = log.drop(counter, term)
        if entry is not None and self.bounded:
            self.undo.append(lambda: log.put(entry))

    def log_cut(self, partition: int, upto: int) -> None:
        """Forget all updates up to and including counter `upto`."""
        log = self._logs.get(partition)
        if log is None:
            return
        cut = log.cut(upto)
        if cut and self.bounded:
            self.undo.append(lambda: log.uncut(cut))

    def log_bytes(self, partition: int, first: int = 0, last: int = COUNTER_MAX) -> int:
        """Return the bytes of the updates kept with first <= counter <= last."""
        log = self._logs.get(partition)
        return 0 if log is None else log.bytes_of(first, last)

    def log_floor(self, partition: int, bytes_max: int) -> int:
        """Return up to which counter to cut so that no more than `bytes_max` bytes stay."""
        log = self._logs.get(partition)
        return 0 if log is None else log.floor_for(bytes_max)

    # --- records

    def record_put(self, name: bytes, data: bytes) -> None:
        """Write one small named record."""
        old = self._records.get(name)
        if self.bounded:
            self.undo.append(lambda: self._record_set(name, old))
        self._record_set(name, data)

    def record_get(self, name: bytes) -> bytes | None:
        """Return one named record."""
        return self._records.get(name)

    def record_drop(self, name: bytes) -> None:
        """Remove a named record."""
        old = self._records.get(name)
        if self.bounded:
            self.undo.append(lambda: self._record_set(name, old))
        self._record_set(name, None)

    def records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return all records whose name starts with `prefix`, in order of name, as they are now."""
        names = self._record_names
        found: list[tuple[bytes, bytes]] = []
        for index in range(bisect_left(names, prefix), len(names)):
            name = names[index]
            if not name.startswith(prefix):
                break
            found.append((name, self._records[name]))
        return iter(found)

    # --- the batch

    def write_ahead(self) -> Collection[int]:
        """Return (): memory is written at once."""
        return ()

    def commit(
        self, waiting: Collection[int] = (), waiting_records: Collection[bytes] = ()
    ) -> None:
        """Keep what was written.  StorageFull: rows grew past the bound; all is undone."""
        if not self.bounded:
            if self._max_memory:
                self._begin_bound()
            return
        used = self.memory_used()
        if used > self._max_memory and self.row_bytes > self._row_bytes_committed:
            for undo in reversed(self.undo):
                undo()
            self.undo.clear()
            raise StorageFull(f"{used} bytes needed, maxMemory is {self._max_memory}")
        self.undo.clear()
        self._row_bytes_committed = self.row_bytes

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def free(self) -> None:
        """Drop all rows and updates of a deleted zone.  For a thread; others run meanwhile.

        Spaces and logs are reference cycles: the rows would stay until a garbage collection, which
        would free them in one long pause.
        """
        for space in self._spaces.values():
            space.free()
        for log in self._logs.values():
            log.free()

    # --- room

    def set_max_memory(self, max_memory: int) -> None:
        """Change the bound; 0: none.

        The first bound counts from the end of the next batch: what was written without one cannot
        be undone.
        """
        self._max_memory = max_memory
        if not max_memory:
            self.bounded = False
            self.undo.clear()

    def _begin_bound(self) -> None:
        self._count_rows()
        self._row_bytes_committed = self.row_bytes
        self.bounded = True

    def _count_rows(self) -> None:
        self.row_bytes = sum(space.row_memory() for space in self._spaces.values())

    @property
    def full_reason(self) -> str:
        """Why commands that need memory must be refused before they run; empty: they may run."""
        if not self.bounded or self.room() > self._max_memory // LOW_ROOM_DIVISOR:
            return ""
        return f"{self.memory_used()} bytes in use of maxMemory {self._max_memory}"

    @property
    def is_short(self) -> bool:
        """Always False: copies in memory take updates until no room is left, because promises need
        none."""
        return False

    def room(self) -> int:
        """Return the bytes that still fit."""
        return max(0, self._max_memory - self.memory_used()) if self.bounded else UNBOUNDED

    def memory_used(self) -> int:
        """Return roughly the bytes of memory in use, overheads included."""
        if not self.bounded:
            self._count_rows()
        return self.row_bytes + self.log_total

    def _record_set(self, name: bytes, data: bytes | None) -> None:
        known = name in self._records
        if data is not None:
            self._records[name] = data
            if not known:
                insort(self._record_names, name)
        elif known:
            del self._records[name]
            del self._record_names[bisect_left(self._record_names, name)]
