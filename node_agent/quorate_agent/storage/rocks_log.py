"""How a Persistent zone keeps one partition's updates: the keys `l` of `rocks.py`.

A long update is kept in pieces (`pieces.py`): a byte that begins no message, and a reference.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from rocksdict import WriteBatch

from quorate.protocol.storage import COUNTER_MAX
from quorate_agent.storage.database import Database
from quorate_agent.storage.pieces import LONG_BYTES, REFERENCE, Pieces

_LOG: Final = Struct(">cHQQ")
_IN_PIECES: Final = b"\xc1"

SEGMENT_BYTES: Final = 256 * 1024
"""The log is cut from the files in pieces of this size; smaller cuts wait for the piece to fill."""


class RocksLog:
    """One partition's updates: this turn's, and what is known of the others without reading."""

    __slots__ = (
        "_below", "_database", "_in_pieces", "_partition", "_pieces", "_touched", "_touched_logs",
        "bytes", "cut_from", "cut_to", "floor", "kept", "overlay", "segments",
    )  # fmt: skip

    def __init__(
        self,
        database: Database,
        pieces: Pieces,
        partition: int,
        touched_logs: list["RocksLog"],
    ) -> None:
        self._database = database
        self._pieces = pieces
        self._in_pieces = pieces.owned(_LOG.pack(b"l", partition, 0, 0)[:3])
        self._partition = partition
        self._touched_logs = touched_logs  # every log that the turn's batch has to ask
        self._touched = False
        self._below = False  # the turn put something at or below the floor
        self.overlay: dict[tuple[int, int], bytes | None] = {}
        # The database's updates up to `floor` are cut and no longer read; they are removed from it
        # up to `cut_from`, and by this turn's batch up to `cut_to`.
        self.floor = self.cut_from = self.cut_to = 0
        self.kept = 0  # the floor if the batch is forgotten
        self.segments: list[list[int]] = []  # [last counter, bytes]
        self.bytes = 0
        self._measure()

    def put(self, counter: int, term: int, update: bytes) -> None:
        """Keep one update."""
        self._touch()
        self.overlay[counter, term] = update
        size = len(update)
        if size > LONG_BYTES:
            self._pieces.take(_LOG.pack(b"l", self._partition, counter, term), update)
        self._count(counter, size)
        if counter <= self.floor:
            self._below = True
            self.cut_to = self.floor  # or what was cut below the floor would hide it

    def drop(self, counter: int, term: int) -> None:
        """Forget one update."""
        self._touch()
        self.overlay[counter, term] = None

    def bytes_of(self, first: int, last: int) -> int:
        """Of each segment that has some of the updates, their share: many short ranges must not
        count as many segments."""
        total, begins = 0, self.floor + 1
        for ends, size in self.segments:
            begins = min(begins, ends)  # the turn may have put something below the floor
            count = min(ends, last) - max(begins, first) + 1
            if count > 0:
                total += -(-size * count // (ends - begins + 1))
            begins = ends + 1
        return total

    def floor_for(self, bytes_max: int) -> int:
        """Where to cut so that no more than `bytes_max` stay."""
        stay, counter = self.bytes, 0
        for ends, size in self.segments:
            if stay <= bytes_max:
                break
            stay -= size
            counter = ends
        return counter

    def cut(self, upto: int) -> None:
        """Forget everything up to counter `upto`."""
        for key in [key for key in self.overlay if key[0] <= upto]:
            self._touch()
            self.overlay[key] = None
        if upto <= self.floor:
            return
        self._touch()
        self.floor = upto
        self._below = False
        passed = 0
        while passed < len(self.segments) and self.segments[passed][0] <= upto:
            self.bytes -= self.segments[passed][1]
            passed += 1
        if passed:
            del self.segments[:passed]
            self.cut_to = upto

    def read(self, first: int, last: int, bytes_max: int) -> list[tuple[int, int, bytes]]:
        """Updates with first <= counter <= last."""
        overlay = self.overlay
        fresh = sorted(key for key in overlay if first <= key[0] <= last)
        found: list[tuple[int, int, bytes]] = []
        size = 0
        for counter, term, update in self._merged(first, last, fresh):
            if size >= bytes_max:
                break
            found.append((counter, term, update))
            size += len(update)
        return found

    def write_to(self, batch: WriteBatch) -> None:
        """Add what the turn wrote."""
        partition = self._partition
        if self.cut_to:
            start = _LOG.pack(b"l", partition, self.cut_from, 0)
            batch.delete_range(start, _LOG.pack(b"l", partition, self.cut_to + 1, 0))
        if self._in_pieces:
            self._remove_pieces(batch)
        for (counter, term), update in self.overlay.items():
            key = _LOG.pack(b"l", partition, counter, term)
            if update is None:
                batch.delete(key)
            elif len(update) > LONG_BYTES:
                batch.put(key, _IN_PIECES + self._pieces.refer(key, batch))
            else:
                batch.put(key, update)

    def _remove_pieces(self, batch: WriteBatch) -> None:
        """Of updates that the turn cuts, drops or replaces."""
        owned, partition, cut_to = self._in_pieces, self._partition, self.cut_to
        gone = {_LOG.pack(b"l", partition, counter, term) for counter, term in self.overlay}
        gone &= owned.keys()
        if cut_to:
            end = _LOG.pack(b"l", partition, cut_to + 1, 0)
            gone.update([key for key in owned if key < end])
        self._pieces.remove(sorted(gone), owned, batch)

    def end_turn(self, committed: bool) -> None:
        """The batch is in the database, or gone."""
        if committed:
            if self.cut_to:
                self.cut_from = self.cut_to + 1
            if self._below:
                self.floor = self.cut_from = 0
            self.kept = self.floor
            self.overlay.clear()
        else:
            self.floor = self.kept
            self.overlay.clear()
            self._measure()
        self.cut_to = 0
        self._touched = self._below = False

    def _touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._touched_logs.append(self)

    def _count(self, counter: int, size: int) -> None:
        self.bytes += size
        segments = self.segments
        if segments and counter <= segments[-1][0]:
            segments[-1][1] += size  # late: whichever piece it is in, the sum is right
        elif segments and segments[-1][1] < SEGMENT_BYTES:
            segments[-1][0] = counter
            segments[-1][1] += size
        else:
            segments.append([counter, size])

    def _measure(self) -> None:
        self.bytes = 0
        self.segments.clear()
        for counter, _, data in self._entries(self.floor + 1, COUNTER_MAX):
            size = len(data)
            if data[:1] == _IN_PIECES:
                _, size = REFERENCE.unpack(data[1:])
            self._count(counter, size)

    def _stored(self, first: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        for counter, term, data in self._entries(first, last):
            is_long = data[:1] == _IN_PIECES
            yield counter, term, self._pieces.read(data[1:]) if is_long else data

    def _entries(self, first: int, last: int) -> Iterator[tuple[int, int, bytes]]:
        """As they are in the database: long ones by reference."""
        start = _LOG.pack(b"l", self._partition, max(first, self.floor + 1), 0)
        end = _LOG.pack(b"l", self._partition, last + 1, 0)
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
