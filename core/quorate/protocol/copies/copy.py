"""One copy of one partition: its rows, log and counters, and how updates become rows.

The rows of a copy are exactly the fold of its updates up to LWM, in the terms of its lineage.  An
update above a gap, or of a term that the copy has not adopted, stays in the log.  It is held
(durable, reported, never given up) but not applied, so undoing a divergent update never needs a
value that only this copy had.  Source: docs/protocol.md, sections 2, 4 and 5.

    ABSENT --row, Fence--> MOVING --adopt--> OWNING --row without us--> RENTING --> EVICTED
    (all of them, with reasons: facts.copy_state)
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat

import msgspec

from quorate.facts.copy_state import State, check_transition
from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet
from quorate.facts.keyspace import is_reserved
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder
from quorate.facts.update_counter import UpdateCounter
from quorate.protocol.copies.expiries import Expiries
from quorate.protocol.copies.record import (
    CopyRecord,
    KeptRows,
    PromiseRecord,
    drop_copy,
    read_copy,
    read_kept_rows,
    read_promise,
    write_copy,
    write_kept_rows,
    write_promise,
)
from quorate.protocol.messages.replication import Update
from quorate.protocol.storage import Operation, Row, Storage

_encode = msgspec.msgpack.Encoder().encode
decode_update = msgspec.msgpack.Decoder(Update).decode

LOG_READ_BYTES = 4 * 1024 * 1024

TOGETHER_MIN = 8
"""Updates with at least this many rows are written in one pass.  Fewer are as fast one by one."""

LOOK_BACK_MAX, LOOK_BACK_BYTES_MAX = 10_000, 16 * 1024 * 1024
"""Limits on the updates that `written_since` searches, and on about their bytes."""


class Copy(UpdateCounter):
    """One copy: its counters, rows and log.  All writes go into the storage's batch of the turn.

    - `lwm`: rows are the fold of the updates up to it; what is held above it is in the log only
    - `durable_lwm`: the LWM that may be acknowledged
    - `log_from`: the log has everything above it up to `lwm`
    - `answered`: as primary in the adopted term, the counter up to which clients were answered
    - `bare`: a key deleted at or below it may lack its tombstone, whatever `settled` says
    - `tombstones`: of deleted keys the counters, the first first
    - `purged`, `expired`: what this turn took from `tombstones` and `expiring`; it is put back if
      the batch is refused
    - `surveyed`: a survey may have passed rows of this turn instead of those that come back then
    - `is_alive`: it has adopted a term since its process started
    - `kept_rows`: earlier rows that are kept for a while, because a reset left what they hold
    """

    __slots__ = (
        "answered",
        "bare",
        "durable_lwm",
        "evicted_by",
        "expired",
        "expiring",
        "generation",
        "get",
        "is_alive",
        "kept_rows",
        "last_term",
        "lease_until",
        "log_from",
        "majority",
        "mark",
        "mark_at",
        "partition",
        "prepared",
        "prepared_migration",
        "present",
        "promise_holder",
        "promise_term",
        "purged",
        "put",
        "row",
        "settled",
        "space",
        "state",
        "storage",
        "surveyed",
        "tombstones",
        "version",
    )

    def __init__(self, partition: int, storage: Storage) -> None:
        self.partition = partition
        self.storage = storage
        self.promise_term = 0
        self.promise_holder: Holder | None = None
        self.version = 0
        self.generation = 0
        self.lease_until = 0
        self.evicted_by: PartitionRow | None = None
        self.state = State.ABSENT
        self.purged: list[tuple[int, bytes]] = []
        self.expired: list[tuple[int, bytes]] = []
        self.surveyed = False
        self.kept_rows: tuple[KeptRows, ...] = ()
        self._reset()

    def _reset(self) -> None:
        self.present = self.is_alive = False
        UpdateCounter.__init__(self)
        self.last_term = 0
        self.durable_lwm = 0
        self.answered = 0
        self.bare = 0
        self.majority = self.settled = 0
        self.log_from = 0
        self.row: PartitionRow | None = None
        self.prepared: PartitionRow | None = None
        self.prepared_migration = ""
        self.tombstones: OrderedDict[bytes, int] = OrderedDict()
        self.expiring = Expiries()
        self.mark_at, self.mark = 0, (0, 0)
        self._use_space()

    def _use_space(self) -> None:
        self.space = self.storage.space(self.partition, self.generation)
        self.get, self.put = self.space.get, self.space.put

    # --- durable state ---------------------------------------------------------------------------

    def recover(self) -> None:
        """Load the state from the storage, at the start or after a batch was refused.

        The recorded LWM may be old.  The log continues it, because an update without a gap before
        it was applied in the batch that logged it.
        """
        self.kept_rows = read_kept_rows(self.storage, self.partition)
        kept = read_promise(self.storage, self.partition)
        if kept is None:
            self.promise_term, self.promise_holder = 0, None
            self.version, self.generation = 0, 0
        else:
            self.promise_term, self.promise_holder = kept.term, kept.holder
            self.version, self.generation = kept.version, kept.generation
            self.evicted_by = kept.row
        for counter, key in reversed(self.purged):
            self.tombstones[key] = counter
            self.tombstones.move_to_end(key, last=False)
        for at_ms, key in reversed(self.expired):  # the first is what the rows say again
            self.expiring.note(key, at_ms)
        self.written()
        tombstones, expiring = self.tombstones, self.expiring
        self._reset()
        record = read_copy(self.storage, self.partition)
        if record is None:
            self.state = self._present_state()
            return
        self.present = True
        self.tombstones, self.expiring = tombstones, expiring
        self.generation = record.generation
        self.lineage, self.last_term = record.lineage, record.lineage.last_term
        self.lwm, self.log_from = record.lwm, record.log_from
        self.row = record.row
        if record.row is not None:
            self.version = max(self.version, record.row.version)
        self.prepared, self.prepared_migration = record.prepared, record.prepared_migration
        self._use_space()
        at = self.lwm + 1
        while entries := self.storage.log_read(self.partition, at, 1 << 62, LOG_READ_BYTES):
            for counter, term, _ in entries:
                if counter == self.lwm + 1 and term == self.lineage.term_at(counter):
                    self.lwm = counter
                elif counter > self.lwm:
                    self.hold(term, counter, counter)
            at = entries[-1][0] + 1
        self.durable_lwm = self.hwm = self.bare = self.lwm  # `settled` is not known any more
        self.state = self._present_state()

    def written(self) -> None:
        """Note that the turn's batch was written: what the turn took from the queues is gone."""
        self.purged.clear()
        self.expired.clear()
        self.surveyed = False

    def _enter(self, state: State) -> None:
        check_transition(self.partition, self.state, state)
        self.state = state

    def _present_state(self) -> State:
        """Return the state that follows from the durable facts, without the copy's history."""
        if self.present:
            return State.OWNING if self.adopted else State.MOVING
        return State.EVICTED if self.promise_term else State.ABSENT

    def save(self) -> None:
        """Put the copy's record into the batch."""
        record = CopyRecord(
            self.generation,
            self.lineage,
            self.lwm,
            self.log_from,
            self.row,
            self.prepared,
            self.prepared_migration,
        )
        write_copy(self.storage, self.partition, record)

    def save_promise(self) -> None:
        """Put the promise's record into the batch."""
        record = PromiseRecord(
            self.promise_term, self.promise_holder, self.version, self.generation, self.evicted_by
        )
        write_promise(self.storage, self.partition, record)

    def promise(self, term: int, holder: Holder) -> bool:
        """Promise `term` to `holder`; return whether the promise stands.

        It does not if a higher term, or this term to another holder, was promised before.
        """
        if term < self.promise_term:
            return False
        if term == self.promise_term:
            return holder == self.promise_holder
        self.promise_term, self.promise_holder = term, holder
        self.majority = min(self.majority, self.lwm)  # a reset may undo what we did not have
        self.save_promise()
        if not self.present and term > self.version:
            self.present = True
            self.save()
        if self.present:
            self._enter(State.MOVING)
        return True

    def set_row(self, row: PartitionRow) -> None:
        """Store a newer committed row, and drop a prepared row that it supersedes."""
        if row.version <= self.version:
            raise InvariantError(f"partition {row.partition}: row {row.version} <= {self.version}")
        self.row, self.version = row, row.version
        if self.prepared is not None and row.version >= self.prepared.version:
            self.prepared, self.prepared_migration = None, ""
        if not self.present:
            self._enter(State.MOVING)
        self.present = True
        self.save()

    def prepare(self, row: PartitionRow, migration_id: str) -> None:
        """Store a prepared row beside the committed one."""
        self.prepared, self.prepared_migration = row, migration_id
        self.save()

    def evict(self, row: PartitionRow, aside: KeptRows | None = None) -> None:
        """Delete the data, because a committed row newer than the copy does not name this node.

        `aside`: the rows are kept under it. The promise stays, and is raised to the row's term if
        that is higher: an empty copy must never help a primary that the row has replaced.
        """
        self._enter(State.RENTING)
        self.purged.extend((counter, key) for key, counter in self.tombstones.items())
        self._replace_space(aside)
        self._drop_half_copy()
        self.storage.log_cut(self.partition, 1 << 62)
        drop_copy(self.storage, self.partition)
        self.version = max(self.version, row.version)
        self.evicted_by = row
        if row.term > self.promise_term:
            self.promise_term, self.promise_holder = row.term, row.primary
        self.generation += 1
        self._reset()
        self.save_promise()
        self._enter(State.EVICTED)

    def as_kept_rows(self, reset_term: int, wall_ms: int) -> KeptRows:
        """Return what names the present rows once they are set aside."""
        rows, size = self.space.row_count(), self.space.byte_count()
        return KeptRows(self.generation, wall_ms, reset_term, self.last_term, self.lwm, rows, size)

    def _replace_space(self, aside: KeptRows | None) -> None:
        """Remove the rows, or keep them aside."""
        if aside is None:
            self.storage.drop_space(self.partition, self.generation)
        else:
            self.kept_rows += (aside,)
            write_kept_rows(self.storage, self.partition, self.kept_rows)

    def drop_aside(self, dropped: Collection[KeptRows]) -> None:
        """Remove these rows that were set aside."""
        for each in dropped:
            self.storage.drop_space(self.partition, each.generation)
        self.kept_rows = tuple(each for each in self.kept_rows if each not in dropped)
        write_kept_rows(self.storage, self.partition, self.kept_rows)

    def _drop_half_copy(self) -> None:
        """Remove the rows of an interrupted full copy, perhaps of an earlier process."""
        if self.storage.space(self.partition, self.generation + 1).byte_count():
            self.storage.drop_space(self.partition, self.generation + 1)

    # --- updates ---------------------------------------------------------------------------------

    @property
    def adopted(self) -> bool:
        """Whether the copy has adopted the term it promised; if so its acknowledgements count."""
        return self.present and self.promise_term > 0 and self.last_term == self.promise_term

    def keep(self, update: Update, raw: bytes) -> bool:
        """Keep one update and apply what became contiguous; return whether it was new."""
        counter, term = update.counter, update.term
        if counter == self.lwm + 1 and term == self.last_term and not self.above:
            self.storage.log_put(self.partition, counter, term, raw)
            self._put_rows(counter, term, update.operations)
            self.lwm = counter
            if counter == self.mark_at:
                self.take_mark(counter)
            return True
        if not self.hold(term, counter, counter):
            return False
        self.storage.log_put(self.partition, counter, term, raw)
        self._apply_held(compare=False)
        return True

    def _apply_held(self, compare: bool) -> None:
        """Apply held updates that follow the LWM in the lineage's terms."""
        while found := self.next_held():
            term, last = found
            at = self.lwm
            for counter, of_term, raw in self.storage.log_read(
                self.partition, at + 1, last, LOG_READ_BYTES
            ):
                if of_term != term:
                    continue
                if counter != at + 1:
                    break
                self._apply(decode_update(raw), compare)
                at = counter
                if counter == self.mark_at:
                    self.take_mark(counter)
            if at == self.lwm:
                raise InvariantError(
                    f"partition {self.partition}: log lacks held {at + 1} of term {term}"
                )
            self.advance(term, at)

    def _apply(self, update: Update, compare: bool) -> None:
        operations: Sequence[Operation] = update.operations
        if compare:
            operations = [each for each in operations if self._is_older(each[0], update.counter)]
        self._put_rows(update.counter, update.term, operations, compare)

    def _is_older(self, key: bytes | None, counter: int) -> bool:
        """Return whether the key has no row, or one of an earlier update."""
        present = None if key is None else self.get(key)
        return present is None or present.counter < counter

    def _put_rows(
        self, counter: int, term: int, operations: Sequence[Operation], compare: bool = False
    ) -> None:
        """Write the rows of an update.

        `compare`: rows of later updates may be there already; a FLUSHALL keeps them.
        """
        if len(operations) >= TOGETHER_MIN:
            keys, values, expiries = zip(*operations, strict=True)
            if all(keys):
                each = map(Row, repeat(counter), repeat(term), expiries, values)
                rows = dict(zip(keys, each, strict=True))
                self.space.put_all(rows)
                if not all(values):
                    for key, row in rows.items():
                        if row.value is None:
                            self._note_tombstone(counter, key)
                return
        for key, value, expires_at in operations:
            if key is None:
                self._delete_below(counter, compare)
                continue
            self.put(key, Row(counter, term, expires_at, value))
            if value is None:
                self._note_tombstone(counter, key)

    def _note_tombstone(self, counter: int, key: bytes) -> None:
        """Have it dropped in time, instead of an earlier one of the key."""
        earlier = self.tombstones.pop(key, None)
        if earlier is not None:
            self.purged.append((earlier, key))
        self.tombstones[key] = counter

    def _delete_below(self, counter: int, compare: bool) -> None:
        """Delete all rows but the protocol's own, without tombstones."""
        self.bare = max(self.bare, counter)
        after: bytes | None = None
        while (found := self.space.scan_keys(after, 10_000, 1 << 24)).keys:
            for key, of_row in zip(found.keys, found.counters, strict=True):
                if not is_reserved(key) and (not compare or of_row < counter):
                    self.space.drop(key)
            after = found.keys[-1]

    def write(self, operations: tuple[Operation, ...]) -> bytes:
        """As primary: reserve the next counter, log and apply the update; return it encoded."""
        counter = self.reserve()
        if counter != self.lwm + 1:
            raise InvariantError(f"partition {self.partition}: {counter} reserved, LWM {self.lwm}")
        term = self.promise_term
        raw = _encode((counter, term, operations))  # encoded as an Update
        self.storage.log_put(self.partition, counter, term, raw)
        self._put_rows(counter, term, operations)
        expiring = self.expiring
        for key, _, expires_at in operations:
            if key is None:
                self.expired.extend(expiring.forget_clients())
            elif expires_at or key in expiring.due:
                self._note_expiry(key, expires_at)
        self.lwm = counter
        if counter == self.mark_at:
            self.take_mark(counter)
        return raw

    def _note_expiry(self, key: bytes, at_ms: int) -> None:
        """Have the key expire at this time; 0: never."""
        before = self.expiring.due.get(key)
        if before is not None and before != at_ms:
            self.expired.append((before, key))
        if at_ms:
            self.expiring.note(key, at_ms)
        else:
            self.expiring.forget(key)

    def take_mark(self, counter: int) -> None:
        """Note the digest at this counter, at which the rows of all copies are the same."""
        self.mark = (counter, self.space.digest())
        self.mark_at = 0

    # --- adopting a term -------------------------------------------------------------------------

    def touched_keys(self, first: int, last: int) -> dict[bytes | None, int] | None:
        """Return the keys touched by own updates first..last, each with its last counter there.

        A FLUSHALL adds None: it lists no keys.  The whole is None if the log cannot tell.
        """
        if self.log_from >= first:
            return None
        keys: dict[bytes | None, int] = {}
        at = first
        while at <= last:
            entries = self.storage.log_read(self.partition, at, last, LOG_READ_BYTES)
            if not entries:
                return None
            for counter, term, raw in entries:
                if not self.lineage.is_divergent(term, counter):
                    keys.update([(key, counter) for key, _, _ in decode_update(raw).operations])
            at = entries[-1][0] + 1
        return keys

    def written_since(self, absent: Mapping[bytes, int]) -> bool:
        """Return whether one of these keys was touched above the counter at which it was absent.

        It is also true if finding out would take long.  A FLUSHALL touches no absent key.
        """
        unsure: dict[bytes, int] = {}
        for key, at in absent.items():
            row = self.get(key)
            if row is not None and row.counter > at:
                return True
            if row is None and at < max(self.settled, self.bare):  # above, a tombstone would tell
                unsure[key] = at
        if not unsure:
            return False
        first = min(unsure.values()) + 1
        many = self.hwm - first >= LOOK_BACK_MAX
        if many or self.storage.log_bytes(self.partition, first) > LOOK_BACK_BYTES_MAX:
            return True
        touched = self.touched_keys(first, self.hwm)
        return touched is None or any(touched.get(key, 0) > at for key, at in unsure.items())

    def adopt(
        self,
        lineage: Lineage,
        prefix: int,
        undo: dict[bytes, Row | None],
        full: tuple[int, int] | None = None,
        aside: KeptRows | None = None,
    ) -> None:
        """Adopt `lineage`, in the turn's one batch.

        - `prefix`: own rows up to this counter are valid under the lineage
        - `undo`: keys touched above `prefix`, with the supplier's rows
        - `full` = (generation, counter): rows of that generation, complete up to the counter,
          replace ours; `aside`: ours are kept under it

        Then held updates that are valid under the lineage are applied, in order of counter.
        """
        if prefix < self.lwm:  # what a majority had may be undone
            self.majority = min(self.majority, prefix)
        if full is not None:
            self._replace_space(aside)
            self.generation, prefix = full
            self._use_space()
            self.tombstones.clear()
            self.log_from = prefix
        self._drop_half_copy()
        self.mark_at, self.mark = 0, (0, 0)  # fetched rows may be ahead of the LWM
        for key, row in undo.items():
            if row is None:
                self.space.drop(key)
            else:
                self.space.put(key, row)
        self._drop_divergent(lineage, prefix)
        self.lineage, self.last_term = lineage, lineage.last_term
        self.is_alive = True
        self.lwm = prefix
        self.durable_lwm = min(self.durable_lwm, prefix)
        self.answered = 0  # above what a quorum holds, it may be undone
        if full is not None:
            self.storage.log_cut(self.partition, prefix)
        self._apply_held(compare=True)
        self.hwm = self.lwm  # an earlier term's HWM may not exist
        self.bare = max(self.bare, self.lwm)  # the supplier may have purged more tombstones
        if self.lwm < lineage.last_first - 1:
            raise InvariantError(
                f"partition {self.partition}: adopting {lineage} with LWM {self.lwm}"
            )
        self.save()
        self.save_promise()
        self._enter(State.OWNING)

    def _drop_divergent(self, lineage: Lineage, prefix: int) -> None:
        """Remove divergent updates from the log; what is valid above `prefix` becomes held.

        That includes updates that were applied before.
        """
        at = prefix + 1
        above: dict[int, IntervalSet] = {}
        while entries := self.storage.log_read(self.partition, at, 1 << 62, LOG_READ_BYTES):
            for counter, term, _ in entries:
                if lineage.is_divergent(term, counter):
                    self.storage.log_drop(self.partition, counter, term)
                else:
                    above.setdefault(term, IntervalSet()).add(counter, counter)
            at = entries[-1][0] + 1
        self.above = above

    # --- upkeep ----------------------------------------------------------------------------------

    def purge_tombstones(self, most: int) -> int:
        """Drop tombstones that every copy is past; return how many of `most` were looked at."""
        for looked_at in range(most):
            key, counter = next(iter(self.tombstones.items()), (b"", self.settled + 1))
            if counter > self.settled:
                return looked_at
            del self.tombstones[key]
            row = self.get(key)
            if row is not None and row.value is None and row.counter <= self.settled:
                self.space.drop(key)
                counter = row.counter
            self.purged.append((counter, key))  # a row of this turn may hide the tombstone
        return most

    def cut_log(self, upto: int) -> None:
        """Remove updates up to `upto` that a majority holds and this copy has applied."""
        upto = min(upto, self.majority, self.lwm)
        if upto <= self.log_from:
            return
        self.storage.log_cut(self.partition, upto)
        self.log_from = upto
        self.lineage = self.lineage.folded(min(self.settled, self.lwm))
        self.save()

    def check(self) -> None:
        """Raise InvariantError unless the counters, terms and state are consistent (I-2)."""
        if not self.durable_lwm <= self.lwm:
            raise InvariantError(
                f"partition {self.partition}: durable LWM {self.durable_lwm} above LWM {self.lwm}"
            )
        state = self._present_state()
        if self.state is not state:
            raise InvariantError(f"partition {self.partition}: {self.state}, by its facts {state}")
        if self.log_from > self.lwm:
            raise InvariantError(
                f"partition {self.partition}: log from {self.log_from} above LWM {self.lwm}"
            )
        if self.last_term > self.promise_term:
            raise InvariantError(
                f"partition {self.partition}: adopted {self.last_term} above {self.promise_term}"
            )
        if self.above:
            for term, ranges in self.above.items():
                if ranges.is_empty():
                    raise InvariantError(f"partition {self.partition}: nothing held of term {term}")
