"""The log of one partition of a Persistent zone: the keys `l` of `rocks.py`.

A long update is kept in a file (`long_values.py`): two bytes that begin no message, then a
reference.  If an earlier version wrote it in pieces, the second byte is zero.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from rocksdict import WriteBatch

from quorate.protocol.storage import COUNTER_MAX
from quorate_agent.storage.database import Database
from quorate_agent.storage.long_values import (
    LONG_BYTES,
    REFERENCE,
    REFERENCE_TO_PIECES,
    LongValues,
)

_LOG: Final = Struct(">cHQQ")
_IS_LONG: Final = b"\xc1"
_IN_FILE: Final = b"\xc1\x01"

SEGMENT_BYTES: Final = 256 * 1024
"""The log is cut in segments, of this size at most.  So much must be cut before it is removed from
the files, unless it is the whole log."""
SEGMENT_BYTES_MIN: Final = 2 * 1024
SEGMENTS: Final = 8
"""A log has so many segments or more, if they have the least size."""


def partitions_with_logs(database: Database) -> Iterator[int]:
    """Yield the partitions that have updates in the database."""
    partition = 0
    while True:
        found = next(database.items(_LOG.pack(b"l", partition, 0, 0), b"m"), None)
        if found is None:
            return
        _, partition, _, _ = _LOG.unpack(found[0])
        yield partition
        partition += 1


class RocksLog:
    """One partition's updates: this turn's, and what is known of the others unread."""

    __slots__ = (
        "_before", "_below", "_database", "_in_files", "_long_values", "_owned", "_touched",
        "_touched_logs", "bytes", "cut_from", "cut_to", "floor", "kept", "overlay", "partition",
        "segments",
    )  # fmt: skip

    def __init__(
        self,
        database: Database,
        long_values: LongValues,
        partition: int,
        touched_logs: list["RocksLog"],
    ) -> None:
        self._database = database
        self._long_values = long_values
        self._owned = long_values.owned(_LOG.pack(b"l", partition, 0, 0)[:3])
        self.partition = partition
        self._touched_logs = touched_logs  # every log that takes part in the turn's batch
        self._touched = False
        self._below = False  # the turn put something at or below the floor
        self.overlay: dict[tuple[int, int], bytes | None] = {}
        # The database's updates up to `floor` are cut and no longer read; they are removed from it
        # up to `cut_from`, and by this turn's batch up to `cut_to`.
        self.floor = self.cut_from = self.cut_to = 0
        self.kept = 0  # the floor if the batch is dropped
        self.segments: list[list[int]] = []  # [last counter, bytes]
        self.bytes = 0
        self._in_files = 0  # bytes that are cut, but not yet removed from the database
        # `bytes`, the number of segments and the last one, before the turn; None: some were cut.
        self._before: tuple[int, int, list[int]] | None = None
        self._measure()

    def put(self, counter: int, term: int, update: bytes) -> None:
        """Keep one update."""
        self._touch()
        self.overlay[counter, term] = update
        size = len(update)
        if size > LONG_BYTES:
            name = (self.partition, counter, term)
            self._long_values.take_update(_LOG.pack(b"l", *name), name, update)
        self._count(counter, size)
        if counter <= self.floor:
            self._below = True
            self.cut_to = self.floor  # or updates that were cut would be read again

    def drop(self, counter: int, term: int) -> None:
        """Remove one update."""
        self._touch()
        self.overlay[counter, term] = None

    def bytes_of(self, first: int, last: int) -> int:
        """Return the bytes of the updates with first <= counter <= last, approximately.

        Each segment counts in proportion, so that many short ranges do not count as many segments.
        """
        total, begins = 0, self.floor + 1
        for ends, size in self.segments:
            begins = min(begins, ends)  # the turn may have put something below the floor
            count = min(ends, last) - max(begins, first) + 1
            if count > 0:
                total += -(-size * count // (ends - begins + 1))
            begins = ends + 1
        return total

    def floor_for(self, bytes_max: int) -> int:
        """Return where to cut so that no more than `bytes_max` stay."""
        stay, counter = self.bytes, 0
        for ends, size in self.segments:
            if stay <= bytes_max:
                break
            stay -= size
            counter = ends
        return counter

    def cut(self, upto: int) -> None:
        """Remove everything up to counter `upto`."""
        for key in [key for key in self.overlay if key[0] <= upto]:
            self._touch()
            self.overlay[key] = None
        if upto <= self.floor:
            return
        self._touch()
        self.floor = upto
        self._below = False
        passed, size = 0, 0
        while passed < len(self.segments) and self.segments[passed][0] <= upto:
            size += self.segments[passed][1]
            passed += 1
        if passed:
            del self.segments[:passed]
            self.bytes -= size
            self._in_files += size
            self._before = None
            if self._in_files >= SEGMENT_BYTES or not self.segments:
                self.cut_to = upto

    def read(self, first: int, last: int, bytes_max: int) -> list[tuple[int, int, bytes]]:
        """Return updates with first <= counter <= last; see Storage.log_read."""
        overlay = self.overlay
        fresh = sorted(key for key in overlay if first <= key[0] <= last)
        found: list[tuple[int, int, bytes]] = []
        size = 0
        for counter, term, update in self._merged(first, last, fresh):
            is_next = not found or counter != found[-1][0]
            if is_next and size >= bytes_max:
                break
            found.append((counter, term, update))
            size += len(update)
        return found

    def write_to(self, batch: WriteBatch) -> None:
        """Add to the batch what the turn wrote."""
        partition = self.partition
        if self.cut_to:
            start = _LOG.pack(b"l", partition, self.cut_from, 0)
            batch.delete_range(start, _LOG.pack(b"l", partition, self.cut_to + 1, 0))
        if self._owned:
            self._remove_long(batch)
        for (counter, term), update in self.overlay.items():
            key = _LOG.pack(b"l", partition, counter, term)
            if update is None:
                batch.delete(key)
            elif len(update) > LONG_BYTES:
                batch.put(key, _IN_FILE + self._long_values.refer(key, batch))
            else:
                batch.put(key, update)

    def _remove_long(self, batch: WriteBatch) -> None:
        """Remove the long updates that the turn cuts, drops or replaces."""
        owned, partition, cut_to = self._owned, self.partition, self.cut_to
        gone = {_LOG.pack(b"l", partition, counter, term) for counter, term in self.overlay}
        gone &= owned.keys()
        if cut_to:
            end = _LOG.pack(b"l", partition, cut_to + 1, 0)
            gone.update([key for key in owned if key < end])
        self._long_values.remove(sorted(gone), owned, batch)

    def end_turn(self, committed: bool) -> None:
        """Take note that the batch is in the database, or was dropped."""
        if committed:
            if self.cut_to:
                self.cut_from = self.cut_to + 1
                self._in_files = 0
            if self._below:
                self.floor = self.cut_from = 0
            self.kept = self.floor
            self.overlay.clear()
        else:
            self.floor = self.kept
            self.overlay.clear()
            self._measure_back()
        self.cut_to = 0
        self._touched = self._below = False

    def _touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._touched_logs.append(self)
            last = self.segments[-1].copy() if self.segments else []
            self._before = (self.bytes, len(self.segments), last)

    def _count(self, counter: int, size: int) -> None:
        self.bytes += size
        segments = self.segments
        if segments and counter <= segments[-1][0]:
            segments[-1][1] += size  # late: in whichever segment, the sum is right
        elif segments and self._is_open(segments[-1][1]):
            segments[-1][0] = counter
            segments[-1][1] += size
        else:
            segments.append([counter, size])

    def _is_open(self, size: int) -> bool:
        """Return whether a segment of this size takes more."""
        if size < SEGMENT_BYTES_MIN:
            return True
        return size < SEGMENT_BYTES and size * SEGMENTS < self.bytes

    def _measure_back(self) -> None:
        """Go back to the sizes before the turn, which the log need not be read for."""
        if self._before is None:
            self._measure()
            return
        self.bytes, count, last = self._before
        del self.segments[count:]
        if count:
            self.segments[-1] = last

    def _measure(self) -> None:
        self.bytes = 0
        self.segments.clear()
        for counter, _, data in self._entries(self.floor + 1, COUNTER_MAX):
            self._count(counter, _length_of(data))

    def _stored(self, first: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        for counter, term, data in self._entries(first, last):
            yield counter, term, self._read(data)

    def _read(self, data: bytes) -> bytes:
        if data[:1] != _IS_LONG:
            return data
        if data.startswith(_IN_FILE):
            return self._long_values.read(data[2:])
        return self._long_values.read_pieces(data[1:])

    def _entries(self, first: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield updates as they are in the database: long ones as references."""
        start = _LOG.pack(b"l", self.partition, max(first, self.floor + 1), 0)
        end = _LOG.pack(b"l", self.partition, last + 1, 0)
        if start >= end:
            return
        for key, update in self._database.items(start, end):
            _, _, counter, term = _LOG.unpack(key)
            yield counter, term, update

    def _merged(
        self, first: int, last: int, fresh: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int, bytes]]:
        overlay = self.overlay
        at = 0
        for counter, term, update in self._stored(first, last):
            while at < len(fresh) and fresh[at] < (counter, term):
                waiting = overlay[fresh[at]]
                if waiting is not None:
                    yield *fresh[at], waiting
                at += 1
            if (counter, term) not in overlay:
                yield counter, term, update
        for key in fresh[at:]:
            waiting = overlay[key]
            if waiting is not None:
                yield *key, waiting


def _length_of(data: bytes) -> int:
    """Return the bytes of an update from how it is in the database."""
    if data[:1] != _IS_LONG:
        return len(data)
    if data.startswith(_IN_FILE):
        _, _, length, _ = REFERENCE.unpack(data[2:])
    else:
        _, length = REFERENCE_TO_PIECES.unpack(data[1:])
    return int(length)
