"""A disk that loses at a crash what was not synced: the core's Storage over dictionaries."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeVar

from quorate.facts.zone import ZoneRecord
from quorate.protocol.copies.totals import row_digest
from quorate.protocol.storage import (
    COUNTER_MAX,
    PackedRows,
    Row,
    ScannedKeys,
    StorageFull,
    ZoneRefused,
    pack_rows,
    scanned_keys,
)

K = TypeVar("K")
V = TypeVar("V")


def _put(table: dict[K, V], key: K, value: V | None) -> None:
    """Write one value, or remove it."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


class _RowChange(NamedTuple):
    """A row of a space is written, or is gone: None."""

    of: int
    space: tuple[int, int]
    key: bytes
    row: Row | None
    old: Row | None


class _LogChange(NamedTuple):
    """An update of a partition's log is written, or is gone: None."""

    of: int
    name: tuple[int, int]
    update: bytes | None
    old: bytes | None


class _RecordChange(NamedTuple):
    """The record of this name is written, or is gone: None."""

    of: bytes
    data: bytes | None
    old: bytes | None


_Change = _RowChange | _LogChange | _RecordChange
"""One change of the batch: of a partition, or of a record with this name; `old` is undone to."""


class Image:
    """What one zone has on one disk: rows per space, log per partition, records."""

    def __init__(self) -> None:
        self.spaces: dict[tuple[int, int], dict[bytes, Row]] = {}
        self.logs: dict[int, dict[tuple[int, int], bytes]] = {}
        self.records: dict[bytes, bytes] = {}

    def copy(self) -> "Image":
        """An independent image."""
        other = Image()
        other.spaces = {name: dict(rows) for name, rows in self.spaces.items()}
        other.logs = {partition: dict(log) for partition, log in self.logs.items()}
        other.records = dict(self.records)
        return other

    def take(self, change: _Change) -> None:
        """Write what a change writes."""
        if isinstance(change, _RowChange):
            _put(self.spaces.setdefault(change.space, {}), change.key, change.row)
        elif isinstance(change, _LogChange):
            _put(self.logs.setdefault(change.of, {}), change.name, change.update)
        else:
            _put(self.records, change.of, change.data)


class SimSpace:
    """Rows of one copy."""

    def __init__(self, storage: "SimStorage", name: tuple[int, int]) -> None:
        self._storage = storage
        self._name = name
        self._rows = storage.live.spaces.setdefault(name, {})
        self.get: Callable[[bytes], Row | None] = self._rows.get

    def put(self, key: bytes, row: Row) -> None:
        """Write a row."""
        self._storage.do_row(self._name, key, row)

    def put_all(self, rows: dict[bytes, Row]) -> None:
        """Write some rows."""
        for key, row in rows.items():
            self.put(key, row)

    def drop(self, key: bytes) -> None:
        """Remove a row for good."""
        self._storage.do_row(self._name, key, None)

    def scan(self, after: bytes | None, rows_max: int, bytes_max: int) -> list[tuple[bytes, Row]]:
        """Rows in key order with key > after."""
        keys = sorted(self._rows)
        found: list[tuple[bytes, Row]] = []
        size = 0
        for key in keys[0 if after is None else bisect_right(keys, after) :]:
            if len(found) >= rows_max or size >= bytes_max:
                break
            row = self._rows[key]
            found.append((key, row))
            size += len(key) + len(row.value or b"")
        return found

    def scan_keys(self, after: bytes | None, rows_max: int, bytes_max: int) -> ScannedKeys:
        """Keys of as many rows, values counted."""
        found = self.scan(after, rows_max, bytes_max)
        last = found[-1][0] if found else after
        return scanned_keys(found, whole=not self.scan(last, 1, 1))

    def scan_packed(
        self,
        first: bytes,
        before: bytes | None,
        rows_max: int,
        bytes_max: int,
        *,
        values: bool = True,
    ) -> PackedRows:
        """All at once, as columns."""
        found = [
            (key, self._rows[key])
            for key in sorted(self._rows)
            if first <= key and (before is None or key < before)
        ]
        return pack_rows(found, whole=True, values=values)

    def row_count(self) -> int:
        """Live rows."""
        return sum(row.value is not None for row in self._rows.values())

    def byte_count(self) -> int:
        """Bytes of keys and values."""
        return sum(len(key) + len(row.value or b"") for key, row in self._rows.items())

    def digest(self) -> int:
        """What the live rows add up to, counted anew."""
        return sum(row_digest(key, row) for key, row in self._rows.items()) % (1 << 128)

    def count_digest(self, rows_max: int) -> int:
        """It is counted when it is asked for."""
        return 0

    def forget_digest(self) -> None:
        """There is nothing to forget."""


class SimStorage:
    """One zone's storage in one process.  `durable` is what a crash leaves, batch by batch."""

    def __init__(self, durable: Image) -> None:
        self.durable = durable
        self.live = durable.copy()
        self.refuse = False
        self.closed = False
        self._spaces: dict[tuple[int, int], SimSpace] = {}
        self._sorted_logs: dict[int, list[tuple[int, int]]] = {
            partition: sorted(log) for partition, log in self.live.logs.items()
        }
        self._batch: list[_Change] = []
        self._unsynced: list[list[_Change]] = []
        self._synced = 0

    # --- writes ----------------------------------------------------------------------------------

    def do_row(self, name: tuple[int, int], key: bytes, row: Row | None) -> None:
        rows = self.live.spaces.setdefault(name, {})
        self._batch.append(_RowChange(name[0], name, key, row, rows.get(key)))
        _put(rows, key, row)

    def space(self, partition: int, generation: int) -> SimSpace:
        """The rows of one copy."""
        name = (partition, generation)
        space = self._spaces.get(name)
        if space is None:
            space = self._spaces[name] = SimSpace(self, name)
        return space

    def drop_space(self, partition: int, generation: int) -> None:
        """Remove all rows of a copy."""
        rows = self.live.spaces.setdefault((partition, generation), {})
        for key in list(rows):
            self.do_row((partition, generation), key, None)

    def _do_log(self, partition: int, name: tuple[int, int], update: bytes | None) -> None:
        old = self.live.logs.setdefault(partition, {}).get(name)
        self._batch.append(_LogChange(partition, name, update, old))
        self._put_log(partition, name, update)

    def _put_log(self, partition: int, name: tuple[int, int], update: bytes | None) -> None:
        log, order = self.live.logs[partition], self._sorted_logs.setdefault(partition, [])
        if update is None:
            if log.pop(name, None) is not None:
                del order[bisect_left(order, name)]
            return
        if name not in log:
            insort(order, name)
        log[name] = update

    def log_put(self, partition: int, counter: int, term: int, update: bytes) -> None:
        """Keep one encoded update."""
        self._do_log(partition, (counter, term), update)

    def log_read(
        self, partition: int, first: int, last: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Updates with first <= counter <= last in order."""
        order = self._sorted_logs.get(partition, [])
        log = self.live.logs.get(partition, {})
        found: list[tuple[int, int, bytes]] = []
        size = 0
        for at in range(bisect_left(order, (first, 0)), len(order)):
            counter, term = order[at]
            is_next = not found or counter != found[-1][0]
            if counter > last or (is_next and size >= bytes_max):
                break
            update = log[counter, term]
            found.append((counter, term, update))
            size += len(update)
        return found

    def log_drop(self, partition: int, counter: int, term: int) -> None:
        """Forget one update."""
        self._do_log(partition, (counter, term), None)

    def log_cut(self, partition: int, upto: int) -> None:
        """Forget all updates up to `upto`."""
        order = self._sorted_logs.get(partition, [])
        for name in order[: bisect_left(order, (upto + 1, 0))]:
            self._do_log(partition, name, None)

    def log_bytes(self, partition: int, first: int = 0, last: int = COUNTER_MAX) -> int:
        """Bytes of the updates with first <= counter <= last."""
        log = self.live.logs.get(partition, {})
        return sum(len(update) for (counter, _), update in log.items() if first <= counter <= last)

    def log_floor(self, partition: int, bytes_max: int) -> int:
        """Up to which counter to cut so that no more than `bytes_max` bytes stay."""
        log = self.live.logs.get(partition, {})
        stay, floor = self.log_bytes(partition), 0
        for name in self._sorted_logs.get(partition, []):
            if stay <= bytes_max:
                break
            stay -= len(log[name])
            floor = name[0]
        return floor

    def record_put(self, name: bytes, data: bytes) -> None:
        """Write one named record."""
        self._do_record(name, data)

    def record_drop(self, name: bytes) -> None:
        """Remove one named record."""
        self._do_record(name, None)

    def _do_record(self, name: bytes, data: bytes | None) -> None:
        self._batch.append(_RecordChange(name, data, self.live.records.get(name)))
        _put(self.live.records, name, data)

    def record_get(self, name: bytes) -> bytes | None:
        """One named record."""
        return self.live.records.get(name)

    def records(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Records whose name starts with `prefix`, in order."""
        names = sorted(name for name in self.live.records if name.startswith(prefix))
        return iter([(name, self.live.records[name]) for name in names])

    # --- batches ---------------------------------------------------------------------------------

    @property
    def gathered(self) -> list[int]:
        """The partitions that the batch writes rows or updates of."""
        return sorted({each.of for each in self._batch if isinstance(each.of, int)})

    def write_ahead(self) -> Collection[int]:
        """Nothing here is long; a test whose turns shall go on replaces this."""
        return ()

    def commit(
        self, waiting: Collection[int] = (), waiting_records: Collection[bytes] = ()
    ) -> None:
        """Write the batch, or refuse it whole, but for what waits."""
        stays = {*waiting, *waiting_records}
        batch, self._batch = self._batch, []
        if stays:
            self._batch = [change for change in batch if change.of in stays]
            batch = [change for change in batch if change.of not in stays]
        if self.refuse:
            self.refuse = False
            for change in reversed(batch):
                self._undo(change)
            raise StorageFull("the simulated disk is full")
        if batch:
            self._unsynced.append(batch)

    def _undo(self, change: _Change) -> None:
        if isinstance(change, _LogChange):
            self._put_log(change.of, change.name, change.old)
        elif isinstance(change, _RowChange):
            _put(self.live.spaces[change.space], change.key, change.old)
        else:
            _put(self.live.records, change.of, change.old)

    @property
    def written(self) -> int:
        """How many batches were ever committed by this process."""
        return self._synced + len(self._unsynced)

    @property
    def unsynced(self) -> int:
        """How many of them a crash of the machine may lose."""
        return len(self._unsynced)

    def sync_upto(self, batches: int) -> None:
        """Make the first `batches` ever committed durable."""
        while self._synced < batches:
            self._synced += 1
            for change in self._unsynced.pop(0):
                self.durable.take(change)

    def sync(self) -> None:
        """Make everything committed durable."""
        self.sync_upto(self.written)

    def close(self) -> None:
        """Let go."""
        self.closed = True


class Disk:
    """What a machine keeps of one agent: its folder and its zones."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.incarnation = 0
        self.master_term = 0
        self.master_word = ""
        self.slow = False
        self.images: dict[str, Image] = {}
        self.kept: dict[str, ZoneRecord] = {}
        self.refuses: set[str] = set()


class SimAgentStore:
    """One process's view of its disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.storages: dict[str, SimStorage] = {}

    def open_zone(self, record: ZoneRecord) -> SimStorage:
        """The zone's storage; memory is empty in every new process."""
        if record.uid in self.disk.refuses:
            raise ZoneRefused("file descriptors are missing")
        image = Image()
        if record.persistent:
            image = self.disk.images.setdefault(record.uid, image)
        storage = self.storages[record.uid] = SimStorage(image)
        return storage

    def keep_zone(self, record: ZoneRecord) -> bool:
        """Durable at once."""
        if record.persistent:
            self.disk.kept[record.uid] = record
        return True

    def kept_zones(self) -> list[ZoneRecord]:
        """Of zones in memory nothing is left."""
        return [self.disk.kept[uid] for uid in sorted(self.disk.kept)]

    def remove_zone(self, uid: str) -> bool:
        """Delete the zone's data: at once."""
        self.disk.kept.pop(uid, None)
        self.storages.pop(uid, None)
        self.disk.images.pop(uid, None)
        return True

    def raise_master_term(self, term: int, word: str) -> None:
        """Durable at once."""
        if term >= self.disk.master_term:
            self.disk.master_term, self.disk.master_word = term, word
