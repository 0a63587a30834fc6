"""The master's decisions for one zone: its rows, from the first placement to their deletion."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from zlib import crc32

from quorate.facts.partition_row import PartitionRow, check_row
from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.planning.queue.choose_migrations import QueuedMigration
from quorate.planning.queue.retries import MigrationRetries
from quorate.planning.steps.preview import Preview
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.reported_storages import ReportedStorages
from quorate.protocol.members.zone_ports import ZonePorts
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.master import (
    AgentReport,
    CopyReport,
    RowsStored,
    TransferProgress,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.metastore import (
    SHARD_PARTITIONS,
    DamagedRow,
    Key,
    ShardKey,
    Value,
    partitions_of,
)
from quorate.protocol.status import ZoneStatus
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import decide
from quorate.protocol.zone_master.ended_migrations import EndedMigrations
from quorate.protocol.zone_master.first_placement import FirstPlacement
from quorate.protocol.zone_master.partition_reports import PartitionReports
from quorate.protocol.zone_master.partition_state import PartitionState, adopt_row, read_part
from quorate.protocol.zone_master.publish_rows import RowPublisher
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.recovery.rebuild_zone import ZoneRebuild
from quorate.protocol.zone_master.recovery.reset import Resets
from quorate.protocol.zone_master.recovery.start_empty import EmptyStart
from quorate.protocol.zone_master.timers import ZoneTimers
from quorate.protocol.zone_master.view.events import ZoneEvents
from quorate.protocol.zone_master.view.preview import zone_preview
from quorate.protocol.zone_master.view.status import Moved, ZoneView
from quorate.protocol.zone_master.zone import Zone
from quorate.protocol.zone_master.zone_deletion import ZoneDeletion

FULL_PASS_MS = 500
QUIET_PASS_MS = 15_000
"""Interval of full passes over a zone at rest. Only messages and changes of the agents that are
online change it, and these lead to decisions at once."""


class ZoneMaster(Zone):
    """Decides about one zone's rows. `is_gone`: its record is deleted, so it is to be forgotten."""

    def __init__(self, cluster: Cluster, ports: ZonePorts, record: ZoneRecord) -> None:
        super().__init__(cluster, record)
        self.is_gone = False
        self._ports = ports
        self._stored = False
        self.writing: dict[int, dict[int, tuple[PartitionRow, Why]]] = {}
        self._pass_ms = -(1 << 40)
        self._is_quiet = False
        self._rebalance = Rebalance(cluster, self.nodes, self.parts, self.fitting)
        self.timers = ZoneTimers(cluster, self)
        self.empty_start = EmptyStart(cluster, self, self._rebalance)
        self.resets = Resets(cluster, self)
        self._publisher = RowPublisher(cluster)
        self._deletion = ZoneDeletion(cluster, record.uid)
        self._moved = Moved()
        self._events = ZoneEvents(cluster, self)
        self._ended = EndedMigrations(
            cluster, record.uid, self._rebalance, self._moved, self._events
        )
        self.reports = PartitionReports(self, self._events, cluster.settings.lease_ms)
        self._storages = ReportedStorages(cluster, record.uid)
        self._placement = FirstPlacement(cluster, ports, self, self._rebalance, self.timers)
        self.recovery = ZoneRebuild(cluster, self, self._drop_row, self._placement.place)
        self._all_placed = False
        self.view = ZoneView(
            self.parts,
            self.nodes,
            self._rebalance,
            self.timers,
            self.resets,
            self._moved,
            self._storages,
        )

    # --- rows ------------------------------------------------------------------------------------

    def take_rows(self, rows: tuple[PartitionRow, ...], now: Now) -> None:
        """Take rows read from the metastore."""
        for row in rows:
            check_row(row)
            self.parts[row.partition] = read_part(row, now.boot_ms)
        self._stored = True

    @property
    def is_published(self) -> bool:
        """Whether agents are to know of this zone."""
        return bool(self.parts) and not self.record.deleting

    def table_message(self) -> ZoneTable:
        """Return the zone with all its rows."""
        rows = tuple(self.parts[p].row for p in sorted(self.parts))
        return self._cluster.zone_table(self.told, rows)

    def names(self, node: str) -> bool:
        """Return whether `node` has copies that are needed."""
        if self.may_hold(node) or self.parts.names(node):
            return True
        # An agent that is gone can be removed in spite of copies that a reset left there.
        return self.nodes.holder(node) is not None and self.parts.leave(node)

    def topology_changed(self) -> None:
        """Look at every partition again: an agent joined, left or is leaving."""
        self._rebalance.topology_changed()
        self.resets.topology_changed()
        self.parts.changes += 1  # the status of a partition depends on the online agents
        self._pass_ms = -(1 << 40)
        self._is_quiet = False

    def reach_changed(self) -> None:
        """Note that an agent reaches other agents than before."""
        self._rebalance.reach_changed()
        self._is_quiet = False

    def told_all(self) -> None:
        """Note that an agent has reported everything: decisions may have waited for it."""
        if any(part.unheard or not part.resolved for part in self.parts.values()):
            self._pass_ms = -(1 << 40)

    # --- what agents say -------------------------------------------------------------------------

    def progress(self, node: str, message: TransferProgress, now: Now) -> None:
        """Note the progress of a copy that is filling."""
        part = self.parts.get(message.partition)
        destination = part.row.destination if part is not None else None
        is_newcomer = destination is not None and destination.node == node
        has_more = self._moved.note(node, message, is_newcomer)
        if message.full_reason and message.bytes_total and message.partition in self.parts:
            self._rebalance.note_size(message.partition, message.bytes_total)
        self.reports.progressed(node, message, has_more and is_newcomer, now)

    def opened(self, node: str) -> None:
        """Note that the agent has the zone open."""
        if self.nodes.opened(node):
            self.topology_changed()

    def copies_told(self, node: str, copies: Iterable[CopyReport]) -> None:
        """Take an agent's report on its copies: newer rows, and sizes of what it has adopted."""
        self.opened(node)
        for copy in copies:
            part = self.parts.get(copy.partition)
            if part is None:
                continue
            self._cluster.newer_rows.note(self.record.uid, part.row, node, copy)
            if copy.adopted:
                self._rebalance.note_size(copy.partition, copy.size)

    def size_told(self, partition: int, size: int) -> None:
        """Take the size of one of the partition's adopted copies, in bytes."""
        if partition in self.parts:
            self._rebalance.note_size(partition, size)

    def reported(self, node: str, report: AgentReport, now: Now) -> None:
        """Take what an agent reports about this zone twice a second, after its stuck primaries."""
        self.reports.troubles_told(node, report, now)
        if self._storages.reported(node, report):
            self._rebalance.note_room(node, has_room=self._storages.has_room(node))
            self._cluster.migrations_due = True
        self._rebalance.note_refilling(node, report.refilling.get(self.record.uid, ()))

    def stood_still(self, now: Now) -> None:
        """Restart the timeouts of migrations: the process was suspended, reports are unread."""
        for partition, part in list(self.parts.items()):
            if part.row.active is not None:
                caught_up_ms = now.boot_ms if part.caught_up else -1
                self.reports.note(partition, progress_ms=now.boot_ms, caught_up_ms=caught_up_ms)

    def rows_stored(self, node: str, message: RowsStored) -> None:
        """Note that the agent has these rows durably; for a deleted zone: that its data is gone."""
        if self.record.deleting:
            self._deletion.confirmed(node, message)
            return
        self._publisher.stored(node, message)
        self.reports.stored(node, message)

    def ready(self, node: str, message: ZoneReady, now: Now) -> None:
        """Note that the agent listens for the zone's clients, or refuses the zone."""
        if message.problem:
            if self.nodes.refused(node, message.problem, now):
                self.topology_changed()
                refused = f"{node} refuses the zone: {message.problem}"
                self._cluster.event(self.record.uid, None, Reason.ZONE_REFUSED, refused, "Warning")
            return
        self.opened(node)
        announced = {node: message.external_port} if message.external_port else {}
        self.change(
            ports={**self.record.ports, node: message.port},
            external_ports={**self.record.external_ports, **announced},
        )

    def take_external_ports(self, ports: Mapping[str, int]) -> None:
        """Take the ports, by agent, at which clients outside reach this zone."""
        self.change(external_ports={**self.record.external_ports, **ports})

    def take_port(self, port: int) -> None:
        """Set the zone's client port, for agents that take theirs from the master."""
        self.change(port=port)

    def keep_ports_of(self, agents: Collection[str]) -> None:
        """Forget the ports of agents that are not in `agents`: they were removed."""
        record = self.record
        self.change(
            ports={node: port for node, port in record.ports.items() if node in agents},
            external_ports={n: port for n, port in record.external_ports.items() if n in agents},
        )

    # --- decisions -------------------------------------------------------------------------------

    def decide(self, now: Now) -> None:
        """Do what is due; called after every event."""
        if self.record.deleting:
            self._delete(now)
            return
        if not self._stored:
            return
        if not self._all_placed and not self.record.recovering:
            self._look_for_missing(now)
        if not self.parts and not self.record.recovering:
            return
        self._publisher.resend(self.told, self.parts, now)
        is_quiet = self._is_quiet and not self.dirty and not self._rebalance.off_target
        due_ms = self._pass_ms + (QUIET_PASS_MS if is_quiet else FULL_PASS_MS)
        if is_quiet:
            due_ms = min(due_ms, self.timers.due_ms)
        whole = now.boot_ms >= due_ms and self._cluster.may_pass()
        if whole:
            self._pass_ms = now.boot_ms
            self.dirty.clear()
            if self.record.recovering:
                self.recovery.step(self._lacking(), now)
            elif self.recovery.set_aside:
                self.recovery.ask(now)  # a person may have them rebuilt
            is_whole = len(self.parts) == self.record.partitions
            self._placement.note_placed(now)
            if is_whole:
                self.timers.settle(now)
            if is_whole and self._rebalance.refresh(self.record, now):
                self._forget_begun()
                for partition, part in self.parts.items():
                    if part.row.active is not None:
                        self._judge_active(partition)
            self._rebalance.plan(self.record)
        partitions = sorted(self.parts) if whole else sorted(self.dirty & self.parts.keys())
        self.dirty.clear()
        for partition in partitions:
            self.recovery.note_heard(partition, now)
            if not self.is_busy(partition):
                self._decide_part(partition, now)
        if whole or partitions:
            self._cluster.migrations_due = True
            self._cluster.summaries_due |= self._rebalance.take_copies_planned()
            self._events.look_at_switched()
        if whole:
            is_still = is_whole and not self.decided and not self.writing
            self._events.look(self._rebalance, self._moved, is_still)
            self.empty_start.look(self.writing, now)
            self.resets.look(self.writing, now)
            was_quiet = self._is_quiet
            self._is_quiet = is_still and self._rebalance.is_at_rest(self.record)
            if self._is_quiet and not was_quiet:  # spread the zones' full passes over time
                self._pass_ms -= crc32(self.record.uid.encode()) % QUIET_PASS_MS

    def _forget_begun(self) -> None:
        """Forget the migrations that wait for a write: they were begun for an earlier target."""
        for partition, (row, why) in list(self.decided.items()):
            is_erasure = row.active is not None and row.active.is_erasure  # for no target
            if why.cause is Cause.STARTED and not is_erasure:
                del self.decided[partition]

    def _judge_active(self, partition: int) -> None:
        """Note whether the active migration still leads to the row's target."""
        part = self.parts[partition]
        unwanted = part.row.active is not None and not self._rebalance.is_wanted(
            part.row, self.record
        )
        if unwanted != part.unwanted:
            self.reports.note(partition, unwanted=unwanted)

    @property
    def sizes(self) -> Mapping[int, int]:
        """Bytes of a copy by partition, as far as agents reported them; up to a minute old."""
        return self._rebalance.sizes

    # --- migrations that wait (migration_queue.py) -----------------------------------------------

    def preview(self, without: Sequence[str], more: int, now: Now) -> Preview:
        """Return what would move without `without` and with `more` new nodes; see zone_preview."""
        nodes, sizes = self._rebalance.present_nodes(self.record, now), self._rebalance.sizes
        rows = {partition: part.row for partition, part in self.parts.items()}
        return zone_preview(self.record, rows, sizes, nodes, self._cluster.agents, without, more)

    @property
    def target(self) -> tuple[tuple[str, ...], ...] | None:
        """The target owners of each partition by replica index; None before the first placement."""
        return self._rebalance.target.assignments if self._rebalance.target is not None else None

    @property
    def queue_length(self) -> int:
        """The number of partitions that are not at their target."""
        return len(self._rebalance.off_target) if self.parts and not self.record.deleting else 0

    @property
    def is_idle(self) -> bool:
        """Whether no migration is active or waits, and none can before something happens."""
        busy = self.decided or self.writing or self.dirty or self._rebalance.off_target
        return self._is_quiet and not busy

    def waiting(self) -> list[QueuedMigration]:
        """Return the next steps that could begin."""
        if not self.queue_length:
            return []
        return self._rebalance.waiting(self.record, self.is_busy, self._cluster.may_plan)

    def running(self) -> list[QueuedMigration]:
        """Return the active migrations, including those whose first write is not finished."""
        rows = {p: part.row for p, part in self.parts.items() if part.row.active is not None}
        for changed in (*self.writing.values(), self.decided):
            rows.update({p: row for p, (row, _) in changed.items()})
        return self._rebalance.running(self.record.uid, rows.values())

    def misses_copies(self, queued: Iterable[QueuedMigration], retries: MigrationRetries) -> bool:
        """Return whether missing copies are on their way back; False for a deleted zone."""
        return not self.record.deleting and self._rebalance.misses_copies(queued, retries)

    def begin(self, partition: int) -> None:
        """Start the migration that waits for this partition."""
        self.decided[partition] = self._rebalance.begin(self.record, partition)

    def is_busy(self, partition: int) -> bool:
        """Return whether the partition's row is being written, or may be an old one."""
        # Only the voters can tell a new master that the metastore was put back to an older state.
        part = self.parts.get(partition)
        return (part is not None and part.unheard) or self.is_changing(partition)

    def is_changing(self, partition: int) -> bool:
        """Return whether the partition's row is being written, or an agent knows a newer one."""
        is_written = partition in self.writing.get(partition // SHARD_PARTITIONS, {})
        is_newer_told = (self.record.uid, partition) in self._cluster.newer_rows.told
        return is_written or is_newer_told or partition in self.decided

    def _decide_part(self, partition: int, now: Now) -> None:
        cluster = self._cluster
        part = self.parts[partition]
        decision = decide(
            part, self.nodes, self.record.uid, cluster.master_term, cluster.settings, now.boot_ms
        )
        if decision.part is not None:
            self.parts[partition] = decision.part
        for node, message in decision.sends:
            cluster.publish([node], message)
        if decision.row is not None:
            assert decision.why is not None
            self.decided[partition] = (decision.row, decision.why)

    def _look_for_missing(self, now: Now) -> None:
        """Give partitions without a row one: by placement, or by a rebuild if they had one.

        A partition whose row is already on its way gets no second one: both would have the same
        version.
        """
        missing = self._lacking()
        if not missing:
            self._all_placed = not self.writing
            self._placement.note_placed(now)
            return
        lost = missing if self.record.placed else self.recovery.known_of(missing, now)
        if lost is None:
            self.sentence = "waiting for agents to report whether they have data of the zone"
        elif lost:
            self.recovery.lose(lost, "have no row in the metastore")
        else:
            self.sentence = self._placement.place(missing, now)

    def _lacking(self) -> list[int]:
        """Return the partitions that have no row, and for which none is on its way."""
        aside = self.recovery.set_aside
        every = range(self.record.partitions)
        return [p for p in every if p not in self.parts and p not in aside and not self.is_busy(p)]

    # --- the metastore was lost ------------------------------------------------------------------

    def take_ports(self, ports: Mapping[str, int], port: int) -> None:
        """Take from an agent the ports at which agents listened, and the port that the zone had."""
        known = self.record
        port = known.port or self._ports.unless_taken(known.uid, port)
        self.change(ports={**ports, **known.ports}, port=port)

    def withdraw(self, versions: Mapping[int, int], why: str) -> None:
        """Discard rows that are older than agents' rows: those up to `versions`, by partition."""
        self.recovery.withdraw(versions, why)

    def _drop_row(self, partition: int) -> None:
        """Forget the partition's row: nothing is decided from it any more."""
        self.parts.forget(partition)
        self.decided.pop(partition, None)
        self.dirty.discard(partition)
        self._rebalance.forget(partition)
        self._pass_ms = -(1 << 40)

    def set_aside(self, shard: int, damaged: Sequence[DamagedRow]) -> None:
        """Take the rows of a shard that were found invalid when it was read."""
        self.recovery.look(shard, damaged)

    # --- writes ----------------------------------------------------------------------------------

    def take_writes(self) -> list[tuple[Key, Value | None]]:
        """Return one write for each shard that has decided rows and no write active."""
        if self._deletion.shards_left is not None:
            keys = [s for s in sorted(self._deletion.shards_left) if s not in self.writing]
            for shard in keys:
                self.writing[shard] = {}
            return [(ShardKey(self.record.uid, shard), None) for shard in keys]
        writes: list[tuple[Key, Value | None]] = []
        if not self.decided:  # the usual case with hundreds of zones at rest
            return writes
        taken: dict[int, tuple[PartitionRow, Why]] = {}
        for shard in sorted({partition // SHARD_PARTITIONS for partition in self.decided}):
            if shard in self.writing:
                continue
            inside = partitions_of(shard, self.record.partitions)
            changed = {p: self.decided.pop(p) for p in inside if p in self.decided}
            rows = tuple(
                changed[p][0] if p in changed else self.parts[p].row
                for p in inside
                if p in changed or p in self.parts
            )
            self.writing[shard] = changed
            writes.append((ShardKey(self.record.uid, shard), rows))
            taken |= changed
        self._events.look_at_primaries(taken)
        return writes

    def rows_written(self, key: ShardKey, rows: tuple[PartitionRow, ...], now: Now) -> None:
        """Take the changed rows of a shard that is now stored, and publish them."""
        self.recovery.note_stored(rows)
        self._take_changed(rows, self.writing.pop(key.shard, {}), now)

    def rows_reloaded(
        self,
        key: ShardKey,
        rows: tuple[PartitionRow, ...],
        now: Now,
        damaged: Sequence[DamagedRow] = (),
    ) -> None:
        """Take the stored rows after an unknown outcome, or another's write: truth if newer."""
        if self._deletion.shards_left is not None:
            self.writing.pop(key.shard, None)
            self._deletion.shard_found(key.shard, bool(rows or damaged))
            return
        self._all_placed = False
        self.recovery.note_stored(rows)
        self.recovery.look(key.shard, damaged)
        self._take_changed(rows, self.writing.pop(key.shard, {}), now)
        if not self.record.deleting:
            self.recovery.put_right(key.shard, rows)

    def _take_changed(
        self,
        rows: tuple[PartitionRow, ...],
        changed: dict[int, tuple[PartitionRow, Why]],
        now: Now,
    ) -> None:
        news: list[PartitionRow] = []
        causes: dict[Why, list[int]] = {}
        for row in rows:
            part = self.parts.get(row.partition)
            before = part.row if part is not None else None
            if before == row or self.recovery.is_withdrawn(row):
                continue
            if before is not None and row.version <= before.version:
                continue  # another process put it back (rebuild_zone.py, put_right)
            decided = changed.get(row.partition)
            ours = decided is not None and decided[0] == row
            why = decided[1] if decided is not None and ours else None
            if part is None and why is not None and why.cause is Cause.REBUILT:
                # Its owners are those of a row that agents told: they may have restarted since.
                self.parts[row.partition] = read_part(row, now.boot_ms, unheard=False)
            elif part is None and ours:
                self.parts[row.partition] = PartitionState(row, now.boot_ms, resolved=True)
            elif part is None:
                self.parts[row.partition] = read_part(row, now.boot_ms)
                self.decided.pop(row.partition, None)  # decided as if there was no row
                self._cluster.newer_rows.compare(self.record.uid, row)
            elif ours:
                self.parts[row.partition] = adopt_row(part, row, now.boot_ms)
            else:
                self.parts[row.partition] = read_part(row, now.boot_ms, unheard=False)
                self.decided.pop(row.partition, None)  # it was decided from a row that is gone
            if self._rebalance.target is not None and (part is None or not ours):
                self._rebalance.look_again(row.partition)
            self._events.row_changed(before, row, why)
            self._moved.row_changed(before, row, why)
            if before is not None and why is not None:
                self._ended.row_changed(before, row, why, now)
                causes.setdefault(why, []).append(row.partition)
            if row.active is not None:
                self._judge_active(row.partition)
            elif before is not None and before.replicas != row.replicas:
                self._ended.owners_changed(before, row, now)
            self.dirty.add(row.partition)
            news.append(row)
        for row in rows:
            if row.active is not None and self.decided.pop(row.partition, None) is not None:
                self.dirty.add(row.partition)  # it waited: agents that it relied on may be gone
        if news:
            self._publisher.publish(self.told, news)
        self._events.causes_of_changes(causes)

    @property
    def is_stored(self) -> bool:
        """Whether the metastore holds this zone's record."""
        return self._stored

    def record_written(self, record: ZoneRecord | None, now: Now) -> None:
        """Note that the zone's record is stored (None: deleted)."""
        if record is None:
            self.is_gone = True
            return
        self._stored = True
        self._deletion.record_is_there()
        self._placement.stored = record.placed
        self.port_written, self.importing_written = record.port, record.importing
        if self.parts and not record.deleting:
            self._publisher.publish_record(self.told)

    def record_reloaded(self, record: ZoneRecord | None, now: Now) -> None:
        """Take the stored record after a write that failed or whose outcome is unknown."""
        self._deletion.record_is_there()
        if record is None and self.record.deleting:
            self.is_gone = True
        elif record != self.record:
            self._cluster.write_zone(self.record)
        else:
            self._stored = True
            self.port_written, self.importing_written = self.record.port, self.record.importing

    # --- deletion --------------------------------------------------------------------------------

    def _delete(self, now: Now) -> None:
        if not self._stored:
            return
        if self._deletion.shards_left is None and not self.writing:
            had_rows = bool(self.parts) or self.record.placed or self.record.recovering
            self._deletion.begin(self.record.partitions, had_rows)
            self.timers.stop()
            self.decided.clear()
            self.parts.clear()
            self._rebalance.off_target.clear()
        self._deletion.advance(now)

    def shard_deleted(self, key: ShardKey) -> None:
        """Note that the rows of one shard are gone."""
        self.writing.pop(key.shard, None)
        self._deletion.shard_deleted(key.shard)

    @property
    def is_deleted_here(self) -> bool:
        """Whether all rows are gone and every online agent has removed its data."""
        return self.record.deleting and self._deletion.is_done_here

    # --- status ----------------------------------------------------------------------------------

    def status(self) -> ZoneStatus:
        """Return the zone as users see it; the same object as before while nothing has changed."""
        ownership = self.recovery.sentence
        waits = ownership or self.sentence or self.empty_start.sentence
        return self.view.status(self.record, waits, ownership)
