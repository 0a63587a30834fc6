"""Fills a copy that was told to adopt a term, until it can adopt.

It pulls piece by piece.  First it tries a delta: the keys that its own divergent updates touched,
and the missing updates.  If the supplier's log does not reach far enough, or a delta is larger than
the partition (`supply_updates` judges both), it fetches a snapshot.  That goes into a second
generation beside the old rows, and replaces them in the same write that adopts the term.  A new
term starts again.  Source: docs/protocol.md, section 5.

    DELTA --log too short | divergent beyond the log | too much--> FULL
    DELTA | FULL --nothing missing--> adopted
"""

import enum
from collections.abc import Sequence

from quorate.facts.keyspace import is_reserved
from quorate.facts.lineage import Lineage
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.gathering import TouchedKeys
from quorate.protocol.copies.record import KeptRows
from quorate.protocol.copies.supply import TOO_MUCH, keys_to_ask
from quorate.protocol.messages.master import TransferProgress
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Updates,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Row, Space

RANGES_PER_ASK = 200
CATCH_UP_CHUNKS = 4
"""So many pieces' bytes of updates behind snapshots are applied to their rows with one tick."""
CATCH_UP_TRIES = 20
"""After so many slices of updates in succession that left no less than before, all are applied."""
ROW_DROPPED_BYTES = 512
"""A row that a FLUSHALL deletes counts as so many bytes of updates."""
PATIENCE_MS_MAX = 8_000
"""The longest wait for an answer.  If the supplier is gone, the term ends anyway."""


class FullReason(enum.StrEnum):
    """Why a full copy is needed instead of a delta."""

    NO_HISTORY = "NoHistory"
    DIVERGENT = "Divergent"
    TOO_MUCH = "TooMuchMissing"
    EMPTY_STORE = "EmptyStore"
    REFILL = "Refill"
    """A person found that its rows are damaged (refill.py)."""


class Fill:
    """The filling of one copy for one term.

    `suppliers` are the nodes to ask, in this order.  Unless it is a refill, one of them is the
    primary, which sent the Sync and has everything.  `refill`: the token of a refill, None for any
    other fill.  In a refill the copy has already adopted the term and goes on acknowledging
    updates; only its rows are replaced.  `aside`: if the copy's rows are to be undone, a snapshot
    replaces them and they are kept under it; None: they are undone key by key where that is less.
    """

    __slots__ = (
        "_after",
        "_asked_ms",
        "_asked_ranges",
        "_at",
        "_behind_least",
        "_chunk_floor",
        "_floor_min",
        "_flushed",
        "_full_done",
        "_is_next_due",
        "_left_behind",
        "_need",
        "_need_first",
        "_patience_ms",
        "_settings",
        "_short",
        "_space",
        "_suppliers",
        "_touched",
        "_tries",
        "_unable",
        "aside",
        "bytes_done",
        "bytes_total",
        "copy",
        "full_reason",
        "generation",
        "lineage",
        "refill",
        "reported_ms",
        "term",
        "undo",
        "undo_rows",
    )

    def __init__(
        self,
        copy: Copy,
        lineage: Lineage,
        need: int,
        suppliers: Sequence[str],
        settings: ProtocolSettings,
        *,
        refill: str | None = None,
        aside: KeptRows | None = None,
    ) -> None:
        self.copy = copy
        self.aside = aside
        self.term = lineage.last_term
        self.lineage = lineage
        self._suppliers = tuple(suppliers)
        self._at = 0
        self._is_next_due = False  # the retry asks the present supplier, not the next
        self._short: dict[str, int] = {}  # the node -> where its log begins
        self._unable: set[str] = set()
        self._settings = settings
        self._asked_ms = -(1 << 40)
        self._patience_ms = settings.retry_ms
        self._need = need
        self._need_first = need
        self.full_reason = ""
        self.reported_ms = 0
        self.bytes_done = 0
        self.bytes_total = 0
        self._asked_ranges: tuple[tuple[int, int], ...] = ()
        self.generation = 0
        self._space: Space | None = None
        self._after: bytes | None = None
        self._chunk_floor = 0
        self._floor_min = -1
        self._full_done = False
        self._begin_catching_up()
        self._touched = TouchedKeys()
        self.undo: set[bytes] = set()
        self.undo_rows: dict[bytes, Row | None] = {}
        self.refill = refill
        if self.is_refill:
            self._go_full(FullReason.REFILL)
        else:
            self._note_undone()

    @property
    def is_refill(self) -> bool:
        """Whether it replaces the rows of an adopted copy, at a person's request."""
        return self.refill is not None

    def _note_undone(self) -> None:
        """Note which keys own divergent updates touched.

        This is repeated whenever updates arrive: an update that closes a gap also lets held updates
        behind it be applied, divergent ones too.
        """
        copy, prefix = self.copy, self._agreed()
        if self.is_full:
            return
        if prefix < self.lineage.base_counter:
            # Below its base the lineage cannot tell which updates are part of the history.  Other
            # logs may still have them all, but that does not help a copy that ends there.
            is_behind = copy.lwm < self.lineage.base_counter
            self._go_full(FullReason.NO_HISTORY if is_behind else FullReason.DIVERGENT)
            return
        if copy.lwm <= prefix:
            return
        if self.aside is not None:
            self._go_full(FullReason.DIVERGENT)
            return
        touched = self._touched.look(copy, prefix + 1)
        if touched is None:
            self._go_full(FullReason.DIVERGENT)
        else:
            self.undo |= touched

    @property
    def supplier(self) -> str:
        """The node that is asked at present."""
        return self._suppliers[self._at]

    def may_ask(self, node: str) -> bool:
        """Return whether `node` may give rows; for a refill only the named suppliers may."""
        return not self.is_refill or node in self._suppliers

    def _next_supplier(self) -> bool:
        """Turn to the next supplier; return False if that is the first one again."""
        self._at = (self._at + 1) % len(self._suppliers)
        return self._at != 0

    def unavailable(self, node: str) -> None:
        """Note that `node` cannot supply: it is in another term, or lacks the same updates."""
        self._unable.add(node)
        if not self.is_full and self._nobody_reaches():
            self._go_full(FullReason.NO_HISTORY)
        elif node == self.supplier:
            self._is_next_due = not self._next_supplier()
            if not self._is_next_due:
                self.answered()

    def _nobody_reaches(self) -> bool:
        """Return whether some logs are too short and no other supplier can be asked.

        Waiting for the others would ask both in turn, without a pause and without end.
        """
        return bool(self._short) and (self._short.keys() | self._unable).issuperset(self._suppliers)

    @property
    def is_full(self) -> bool:
        """Whether the whole partition is being copied."""
        return bool(self.full_reason)

    def _go_full(self, reason: FullReason) -> None:
        copy = self.copy
        if self.is_refill:
            reason = FullReason.REFILL
        elif copy.lwm == 0 and reason is FullReason.NO_HISTORY:
            reason = FullReason.EMPTY_STORE
        self.abandon()
        self._floor_min = self._floor_worth(reason)
        self.full_reason = reason.value
        self.generation = copy.generation + 1
        copy.storage.drop_space(copy.partition, self.generation)
        self._space = copy.storage.space(copy.partition, self.generation)
        self._after = None
        self._full_done = False
        self._begin_catching_up()
        self._chunk_floor = -1
        self._need = self._need_first
        self.bytes_done = 0
        self.undo = set()
        self.undo_rows = {}
        self._at = 0
        self._short = {}
        self._unable = set()
        self._asked_ms = -(1 << 40)

    def _floor_worth(self, reason: FullReason) -> int:
        """Return the counter from which on a snapshot is worth having.

        An owner can be as far behind as this copy: it adopted a term for which it needed nothing.
        Over its snapshot the same would be missing, and two that ask each other first, because
        they share a failure domain, would do that without end.
        """
        if self._short:
            return min(self._short.values())  # what follows is in a log
        return self._agreed() + 1 if reason is FullReason.TOO_MUCH else -1

    def abandon(self) -> None:
        """Drop what was gathered in the second generation (a new term, an eviction)."""
        if self._space is not None:
            self.copy.storage.drop_space(self.copy.partition, self.generation)
            self._space = None

    def _agreed(self) -> int:
        """Return the counter up to which the copy's rows are valid.

        It grows as updates of known terms are applied.
        """
        return self.copy.lineage.agreed_prefix(self.lineage, self.copy.lwm)

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges of updates that are still missing."""
        copy, agreed = self.copy, self._agreed()
        held = copy.held_under(self.lineage, self._chunk_floor if self.is_full else agreed)
        if self.is_full:
            held.add(copy.log_from + 1, agreed)  # applied and still in the log
        need = self._need
        if self.is_refill:
            need = max(need, copy.lwm)  # never behind what was acknowledged meanwhile
        return held.gaps(1, need)

    def is_complete(self) -> bool:
        """Return whether `finish` may be called."""
        if self.is_full and not self._full_done:
            return False
        return not (self.undo - self.undo_rows.keys()) and not self.missing()

    @property
    def has_snapshot(self) -> bool:
        """Whether all rows are copied, and only updates behind them can be missing."""
        return self._space is not None and self._full_done

    def _begin_catching_up(self) -> None:
        """Note that no update behind a snapshot was applied to its rows yet."""
        self._behind_least = self._left_behind = 1 << 62
        self._tries = 0
        self._flushed: bytes | None = None  # so far the next FLUSHALL has deleted rows

    def catch_up(self, bytes_max: int) -> bool:
        """Apply some of the updates that came during the copying to the snapshot's rows.

        Return whether to go on with it before anything else: what is left would be too much for
        the turn that adopts.  It is left to that turn all the same if many slices in succession do
        not make it less, and if an update has more than a FLUSHALL.

        `bytes_max`: the size of a slice.  It is at least twice what came since the last one, so
        that ever less is left.  0: only say whether there is much, which the next tick applies.
        """
        if not self.has_snapshot or self._tries == CATCH_UP_TRIES:
            return False
        first = self._chunk_floor + 1
        behind = self.copy.storage.log_bytes(self.copy.partition, first)
        if behind <= (bytes_max or self._settings.transfer_chunk_bytes):
            return False
        if not bytes_max:
            return True
        has_less = behind < self._behind_least or self._flushed is not None
        if not self._apply_behind(max(bytes_max, 2 * (behind - self._left_behind))):
            return False
        self._tries = 0 if has_less else self._tries + 1
        self._behind_least = min(self._behind_least, behind)
        self._left_behind = self.copy.storage.log_bytes(self.copy.partition, self._chunk_floor + 1)
        return True

    def _apply_behind(self, bytes_max: int) -> bool:
        """Apply the next updates behind the snapshot; return whether there were any."""
        copy, space, first = self.copy, self._space, self._chunk_floor + 1
        assert space is not None
        for counter, term, raw in copy.storage.log_read(copy.partition, first, 1 << 62, bytes_max):
            if self._lineage_now.is_divergent(term, counter):
                continue
            update = decode_update(raw)
            if counter != self._chunk_floor + 1:
                break
            if _is_flush(update):
                if counter != first:
                    break  # the next slice begins with it
                return self._flush_some(space, counter, bytes_max)
            if not _put_newer(space, update):
                break
            self._chunk_floor = counter
            self.bytes_done += len(raw)
        return self._chunk_floor >= first

    def _flush_some(self, space: Space, counter: int, bytes_max: int) -> bool:
        """Delete the next rows that are older than the FLUSHALL under `counter`."""
        rows_max = max(bytes_max // ROW_DROPPED_BYTES, 1)
        found = space.scan_keys(self._flushed, rows_max, bytes_max)
        for key, of_row in zip(found.keys, found.counters, strict=True):
            if of_row < counter and not is_reserved(key):
                space.drop(key)
        self.bytes_done += max(found.read_bytes, 1)
        self._flushed = None if found.whole else found.keys[-1]
        if found.whole:
            self._chunk_floor = counter
        return True

    @property
    def _lineage_now(self) -> Lineage:
        """The history to adopt; in a refill the copy's own, which may be folded meanwhile."""
        return self.copy.lineage if self.is_refill else self.lineage

    def finish(self) -> None:
        """Adopt the term, in the turn's batch; does nothing if only a gap was closed."""
        if not self.is_full and self.copy.last_term == self.term:
            return
        full = (self.generation, self._chunk_floor) if self.is_full else None
        self._space = None
        agreed = self._agreed()
        aside = self.aside if self.copy.lwm > agreed else None
        self.copy.adopt(self._lineage_now, agreed, self.undo_rows, full, aside)

    def ask(self, zone: str, now_ms: int) -> list[tuple[str, Message]]:
        """Return the next request to send; none while an answer is awaited."""
        if now_ms - self._asked_ms < self._patience_ms or self.is_complete():
            return []
        if self._asked_ms >= 0:
            # The wait doubles: a large row may still be in flight, and requests at a steady pace
            # would have it sent again and again, later each time.
            self._patience_ms = min(2 * self._patience_ms, PATIENCE_MS_MAX)
            if not self._is_next_due:
                self._next_supplier()
        self._is_next_due = False
        self._asked_ms = now_ms
        partition, size = self.copy.partition, self._settings.transfer_chunk_bytes
        if self.is_full and not self._full_done:
            return [(self.supplier, FetchSnapshot(zone, partition, self.term, self._after, size))]
        keys = sorted(self.undo - self.undo_rows.keys())
        if keys:
            asked = keys_to_ask(keys)
            return [(self.supplier, FetchKeys(zone, partition, self.term, asked, True))]
        ranges = self._asked_ranges = tuple(self.missing()[:RANGES_PER_ASK])
        return [(self.supplier, FetchUpdates(zone, partition, self.term, ranges))]

    def answered(self) -> None:
        """Note that an answer came: the next request may be sent at once."""
        self._asked_ms = -(1 << 40)
        self._patience_ms = self._settings.retry_ms

    def take_updates(self, node: str, answer: Updates) -> None:
        """Take in an answer whose updates are held already; see whether any log reaches far
        enough."""
        self._note_undone()
        missing = self.missing()
        if answer.updates and tuple(missing[:RANGES_PER_ASK]) != self._asked_ranges:
            # A duplicate answer brings nothing.  If each one led to a request, both sides would
            # soon send nothing else.
            self.answered()
            self.bytes_done += sum(map(len, answer.updates))
            self._tries, self._behind_least = 0, 1 << 62  # what closes a gap makes it no less
        if answer.reaches_from == TOO_MUCH:
            self._go_full(FullReason.TOO_MUCH)
        elif missing and missing[0][0] <= answer.reaches_from:
            self._short[node] = answer.reaches_from
            if self._nobody_reaches():
                self._go_full(FullReason.NO_HISTORY)
            elif node == self.supplier:
                while self.supplier in self._short:
                    self._next_supplier()
                self.answered()
        elif missing and not answer.updates and node == self.supplier:
            # It lacks the same updates, and may be waiting for us.
            self.unavailable(node)

    def take_keys(self, answer: KeyRows) -> None:
        """Take in the rows that replace what divergent updates touched."""
        count = len(self.undo_rows)
        for key, counter, term, expires_at, value in answer.rows:
            if key in self.undo:
                self.undo_rows[key] = Row(counter, term, expires_at, value) if counter else None
        if len(self.undo_rows) > count:
            self.answered()  # as with updates, a duplicate answer leads to no request
        self._need = max(self._need, answer.lwm)

    def take_chunk(self, node: str, chunk: SnapshotChunk) -> None:
        """Take in one piece of the snapshot; ignore late or repeated ones."""
        if self._space is None or self._full_done or chunk.after != self._after:
            return
        if chunk.lwm < self._chunk_floor:
            return  # requested before the copying restarted: older than its first piece
        # In a refill, updates that we acknowledged must be in its rows or in our log.
        floor_min = self.copy.log_from if self.is_refill else self._floor_min
        if self._chunk_floor < 0 and chunk.lwm < floor_min:
            self.unavailable(node)
            return
        self.answered()
        if self._chunk_floor < 0:
            self._chunk_floor = chunk.lwm
        self._need = max(self._need, chunk.lwm)
        self.bytes_total = chunk.bytes_total
        rows = {}
        for key, counter, term, expires_at, value in chunk.rows:
            rows[key] = Row(counter, term, expires_at, value)
            self.bytes_done += len(key) + len(value or b"")
        self._space.put_all(rows)
        if chunk.next is None:
            self._full_done = True
        else:
            self._after = chunk.next

    def progress(self, zone: str, done: bool) -> TransferProgress:
        """Return the progress, for the master."""
        return TransferProgress(
            zone,
            self.copy.partition,
            self.bytes_done,
            max(self.bytes_total, self.bytes_done),
            self.full_reason,
            done,
        )


def _is_flush(update: Update) -> bool:
    """Return whether the update is a FLUSHALL and nothing else."""
    return len(update.operations) == 1 and update.operations[0][0] is None


def _put_newer(space: Space, update: Update) -> bool:
    """Write the rows of an update where there are none of later ones; False: it has a FLUSHALL."""
    rows = {
        key: Row(update.counter, update.term, expires_at, value)
        for key, value, expires_at in update.operations
        if key is not None
    }
    if any(key is None for key, _, _ in update.operations):
        return False
    for key, row in rows.items():
        present = space.get(key)
        if present is None or present.counter < row.counter:
            space.put(key, row)
    return True
