"""What the master decides for one zone: first placement, losses, migrations, ports, deletion."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from quorate.facts.partition_row import Migration, PartitionRow, check_row
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import ZoneRecord
from quorate.planning.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
    placed_voters,
)
from quorate.planning.plan_migrations import PlannedMigration, plan_migrations
from quorate.protocol import migration_commit, ownership
from quorate.protocol.membership import Agent, ZoneNodes
from quorate.protocol.messages import (
    Activated,
    ActivationBlocked,
    CaughtUp,
    CopyReady,
    Frozen,
    Prepared,
    RowsStored,
    TransferProgress,
    Trouble,
    ZoneGone,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.metastore import SHARD_PARTITIONS, Key, ShardKey, Value
from quorate.protocol.migration_commit import Part, adopt_row, decide
from quorate.protocol.status import MigrationStatus, ZoneStatus

if TYPE_CHECKING:
    from quorate.protocol.master import Master

FULL_PASS_MS = 500
RESEND_MS = 1000
BACKOFF_MS_MAX = 30_000
STARTS_LOOKED_AT_PER_MS = 50


class ZoneMaster:
    """One zone's rows and what is under way for them."""

    def __init__(self, master: Master, record: ZoneRecord) -> None:
        self._master = master
        self.record = record
        self.parts: dict[int, Part] = {}
        self.nodes = ZoneNodes(master.agents, record.uid, record.persistent)
        self._stored = False
        self._decided: dict[int, tuple[PartitionRow, str]] = {}
        self._writing: dict[int, dict[int, tuple[PartitionRow, str]]] = {}
        self._dirty: set[int] = set()
        self._pass_ms = -(1 << 40)
        self._target: Distribution | None = None
        self._signature: object = None
        self._off_target: list[int] = []
        self._steps: dict[int, tuple[PartitionRow, PlannedMigration | None]] = {}
        self._started_ms = -(1 << 40)
        self._start_due = False
        self._all_placed = False
        self._backoff: dict[int, tuple[int, int]] = {}
        self._unacked: dict[str, dict[int, int]] = {}
        self._resent_ms = 0
        self._progress: dict[int, TransferProgress] = {}
        self._gone_told: set[str] = set()
        self._gone_acked: set[str] = set()
        self._shards_left: set[int] | None = None
        self.migrations_done = 0
        self.migrations_failed = 0
        self.bytes_moved = 0
        self.full_copies = 0
        self.sentence = ""
        self._states: dict[str, str] = {}

    # --- rows ------------------------------------------------------------------------------------

    def take_rows(self, rows: tuple[PartitionRow, ...], now: Now) -> None:
        """Rows read from the metastore."""
        for row in rows:
            check_row(row)
            self.parts[row.partition] = Part(row, now.boot_ms, resolved=row.active is None)
        self._stored = True

    def is_published(self, node: str) -> bool:
        """Whether agents are to know of this zone."""
        return bool(self.parts) and not self.record.deleting and bool(node)

    def table_message(self) -> ZoneTable:
        """The zone with all its rows."""
        rows = tuple(self.parts[p].row for p in sorted(self.parts))
        return ZoneTable(self._master.master_term, self.record, rows)

    def names(self, node: str) -> bool:
        """Whether any row names `node`."""
        for part in self.parts.values():
            active = part.row.active
            if node in part.row.voter_nodes or (
                active is not None and active.destination and active.destination.node == node
            ):
                return True
        return False

    def topology_changed(self) -> None:
        """Somebody came, left or is leaving: look at every partition again."""
        self._steps.clear()
        self._pass_ms = -(1 << 40)

    # --- what agents say -------------------------------------------------------------------------

    def _note(self, partition: int, **changes: object) -> None:
        self.parts[partition] = msgspec.structs.replace(self.parts[partition], **changes)
        self._dirty.add(partition)

    def _of_term(self, node: str, partition: int, term: int) -> Part | None:
        part = self.parts.get(partition)
        if part is None or part.row.term != term or part.row.primary is None:
            return None
        return part if part.row.primary.node == node else None

    def activated(self, node: str, message: Activated, now: Now) -> None:
        """The primary serves."""
        part = self._of_term(node, message.partition, message.term)
        if part is not None and not part.activated:
            self._note(
                message.partition, activated=True, tried=(), better="", stuck="",
                since_ms=now.boot_ms,
            )  # fmt: skip

    def blocked(self, node: str, message: ActivationBlocked) -> None:
        """The primary's logs do not reach; `better` can."""
        part = self._of_term(node, message.partition, message.term)
        if part is not None and not part.activated:
            self._note(message.partition, better=message.better)

    def _of_migration(self, partition: int, migration_id: str) -> Part | None:
        part = self.parts.get(partition)
        if part is None or part.row.active is None:
            return None
        return part if part.row.active.migration_id == migration_id else None

    def caught_up(self, node: str, message: CaughtUp) -> None:
        """The primary is in joint mode and both majorities hold what was answered."""
        part = self._of_migration(message.partition, message.migration_id)
        if part is not None and self._of_term(node, message.partition, message.term):
            self._note(message.partition, caught_up=True)

    def frozen(self, node: str, message: Frozen) -> None:
        """The old primary will never serve again in its term."""
        part = self._of_migration(message.partition, message.migration_id)
        if part is not None and self._of_term(node, message.partition, message.term):
            self._note(message.partition, frozen=True)

    def prepared(self, message: Prepared) -> None:
        """The destination stored, or refused, the prepared row."""
        part = self._of_migration(message.partition, message.migration_id)
        if part is not None and part.row.version + 1 == message.version:
            self._note(message.partition, prepared=message.accepted)

    def copy_ready(self, node: str, message: CopyReady) -> None:
        """A voter that is not among the owners holds everything."""
        part = self._of_term(node, message.partition, message.term)
        holder = self.nodes.holder(message.node)
        if part is None or holder is None or holder.store != message.store:
            return
        if message.node not in part.ready:
            self._note(message.partition, ready=(*part.ready, message.node))

    def trouble(self, node: str, trouble: Trouble) -> None:
        """A primary is stuck."""
        part = self._of_term(node, trouble.partition, trouble.term)
        if part is None or trouble.since_ms < self._master.settings.lease_ms:
            return
        # Frozen for a migration that was given up: only a new term lets it serve again.
        forgotten = trouble.kind == "frozen" and part.freeze_ms < 0
        no_quorum = part.activated and trouble.kind == "no-quorum"
        if trouble.kind == "no-role" or forgotten or no_quorum:
            self._note(trouble.partition, stuck=trouble.kind, activated=True)

    def progress(self, node: str, message: TransferProgress) -> None:
        """How far a filling copy is."""
        known = self._progress.get(message.partition)
        before = known.bytes_done if known is not None else 0
        self.bytes_moved += max(message.bytes_done - before, 0)
        if message.done:
            self.full_copies += 1 if message.full_reason else 0
            self._progress.pop(message.partition, None)
        else:
            self._progress[message.partition] = message

    def rows_stored(self, node: str, message: RowsStored) -> None:
        """The agent has these rows durably (for a deleted zone: its data is gone)."""
        if self.record.deleting:
            if not message.versions:  # else it speaks of rows sent before
                self._gone_acked.add(node)
            return
        waiting = self._unacked.get(node)
        if waiting:
            for partition, version in message.versions:
                if version >= waiting.get(partition, version + 1):
                    del waiting[partition]

    def ready(self, node: str, message: ZoneReady) -> None:
        """The agent listens for the zone's clients."""
        if message.problem:
            self._master.event(self.record.uid, None, "PortUnavailable", message.problem, "Warning")
        elif self.record.ports.get(node) != message.port:
            ports = {**self.record.ports, node: message.port}
            self.record = msgspec.structs.replace(self.record, ports=ports)
            self._master.write_zone(self.record)

    def keep_ports_of(self, agents: Collection[str]) -> None:
        """Nobody else is there: ports of removed agents are forgotten."""
        ports = {node: port for node, port in self.record.ports.items() if node in agents}
        if ports != self.record.ports:
            self.record = msgspec.structs.replace(self.record, ports=ports)
            self._master.write_zone(self.record)

    # --- decisions -------------------------------------------------------------------------------

    def decide(self, now: Now) -> None:
        """Do what is due; called after every event."""
        if self.record.deleting:
            self._delete(now)
            return
        if not self._stored:
            return
        if not self._all_placed:
            self._place_first(now)
        if not self.parts:
            return
        self._resend(now)
        whole = now.boot_ms - self._pass_ms >= FULL_PASS_MS
        if whole:
            self._pass_ms = now.boot_ms
            self._dirty.clear()
            if len(self.parts) == self.record.partitions:
                self._refresh_target(now)
        partitions = sorted(self.parts) if whole else sorted(self._dirty)
        self._dirty.clear()
        for partition in partitions:
            if not self._is_busy(partition):
                self._decide_part(partition, now)
        self._start_due = self._start_due or whole or bool(partitions)
        # The longer the queue, the rarer it is gone through: losing a node of a large zone touches
        # hundreds of shards, and each write of one of them comes by here.
        pause_ms = len(self._off_target) // STARTS_LOOKED_AT_PER_MS
        if self._start_due and now.boot_ms - self._started_ms >= pause_ms:
            self._start_due, self._started_ms = False, now.boot_ms
            self._start_migrations(now)

    def _is_busy(self, partition: int) -> bool:
        return partition in self._decided or partition in self._writing.get(
            partition // SHARD_PARTITIONS, {}
        )

    def _decide_part(self, partition: int, now: Now) -> None:
        master = self._master
        part = self.parts[partition]
        decision = decide(
            part, self.nodes, self.record.uid, master.master_term, master.settings, now.boot_ms
        )
        if decision.part is not None:
            self.parts[partition] = decision.part
        for node, message in decision.sends:
            master.publish([node], message)
        if decision.row is not None:
            self._decided[partition] = (decision.row, decision.reason)

    def _place_first(self, now: Now) -> None:
        """Rows for partitions that have none and for which none is on its way: a second first row
        of a partition would share its version with the other."""
        missing = [
            p for p in range(self.record.partitions) if p not in self.parts and not self._is_busy(p)
        ]
        if not missing:
            self._all_placed = True
            return
        data_nodes = self._data_nodes(now)
        online = [node for node in data_nodes if node.online]
        if len(online) < self.record.replicas:
            self.sentence = (
                f"waiting for agents: {len(online)} of {self.record.replicas} that the zone's "
                "copies need are online"
            )
            return
        current: list[tuple[str | None, ...]] = [()] * self.record.partitions
        for partition, part in self.parts.items():
            current[partition] = placed_voters(part.row.replicas, part.row.voter_nodes)
        target = distribute_partitions(current, online, self.record.replicas)
        for partition in missing:
            owners = target.assignments[partition]
            holders = [self.nodes.holder(node) for node in owners]
            voters = tuple(Voter(holder.node, holder.store) for holder in holders if holder)
            row = PartitionRow(partition, 1, 1, holders[0], tuple(owners), voters)
            self._decided[partition] = (row, "first placement")
        self._target = target
        # Rows become parts only when written; until then nobody may decide on them.
        self.sentence = "placing partitions"

    def _state_of(self, node: str, agent: Agent, now: Now) -> str:
        if agent.record is None or agent.draining:
            return "draining" if agent.draining else "unregistered"
        if not agent.online:
            waited = agent.left_ms < 0 or (
                now.boot_ms - agent.left_ms < self._master.settings.replacement_delay_ms
            )
            return "waited" if waited else "lost"
        store = agent.record.zone_store(self.record.persistent)
        for part in self.parts.values():
            for voter in part.row.voters:
                if voter.node == node and voter.store != store:
                    return "new-store"
        return "online"

    def _data_nodes(self, now: Now) -> list[DataNode]:
        nodes: list[DataNode] = []
        for name in sorted(self._master.agents):
            agent = self._master.agents[name]
            state = self._states[name] = self._state_of(name, agent, now)
            if agent.record is None or state in ("draining", "unregistered"):
                continue
            nodes.append(
                DataNode(
                    name,
                    agent.record.weight,
                    agent.record.failure_domain,
                    state in ("online", "waited") if self.parts else state == "online",
                )
            )
        return nodes

    def _refresh_target(self, now: Now) -> None:
        nodes = self._data_nodes(now)
        signature = (
            tuple((n.name, n.weight, n.failure_domain, n.online) for n in nodes),
            self.record.replicas,
            tuple(n for n in sorted(self._master.agents) if self.nodes.leaving(n)),
            tuple(n.name for n in nodes if self.nodes.holder(n.name) is None),
        )
        if signature == self._signature or not any(node.online for node in nodes):
            return
        self._signature = signature
        current = [
            placed_voters(self.parts[p].row.replicas, self.parts[p].row.voter_nodes)
            for p in sorted(self.parts)
        ]
        self._steps.clear()
        self._target = distribute_partitions(current, nodes, self.record.replicas)
        self._off_target = sorted(self.parts)

    def _wanted(self, row: PartitionRow) -> tuple[str, ...]:
        """The target of one row, its primary kept off nodes that are leaving or not there."""
        assert self._target is not None
        target = list(self._target.assignments[row.partition])

        def serves(node: str) -> bool:
            return self.nodes.holder(node) is not None and not self.nodes.leaving(node)

        if target and not serves(target[0]):
            primary = row.replicas[0]
            others = [n for n in target if serves(n) and n in row.owners]
            if primary in others:
                others = [primary]
            if others:
                target.remove(others[0])
                target.insert(0, others[0])
        return tuple(target)

    def _next_step(self, row: PartitionRow) -> PlannedMigration | None:
        lost = [voter.node for voter in row.voters if self.nodes.gone(voter.node, voter.store)]
        wanted = self._wanted(row)
        lost += [n for n in wanted if n not in lost and self.nodes.holder(n) is None]
        steps = plan_migrations(row.replicas, row.voter_nodes, wanted, lost)
        if not steps or len(steps[0].voters) < min(len(row.voters), self.record.replicas):
            return None  # a lost voter stays one until the node that is to replace it is there
        return steps[0]

    def _planned_step(self, row: PartitionRow) -> PlannedMigration | None:
        """`_next_step`, computed once for a row, a target and a topology."""
        known = self._steps.get(row.partition)
        if known is None or known[0] is not row:
            known = self._steps[row.partition] = (row, self._next_step(row))
        return known[1]

    def _start_migrations(self, now: Now) -> None:
        if self._target is None or not self._off_target:
            return
        load: dict[str, int] = {}
        for part in self.parts.values():
            active = part.row.active
            if active is not None and active.destination is not None:
                load[active.destination.node] = load.get(active.destination.node, 0) + 1
        limit = self._master.settings.migrations_per_node
        left: list[int] = []
        queue = sorted(self._off_target, key=lambda p: (len(self.parts[p].row.owners), p))
        for partition in queue:
            part = self.parts[partition]
            if self._is_busy(partition) or part.row.active is not None or not part.activated:
                left.append(partition)
                continue
            step = self._planned_step(part.row)
            if step is None:
                if any(part.row.replicas[i] is None for i in range(len(part.row.replicas))):
                    left.append(partition)  # somebody is waited for
                continue
            left.append(partition)
            if self._backoff.get(partition, (0, 0))[0] > now.boot_ms:
                continue
            destination = self._destination(step)
            if step.destination is not None and destination is None:
                continue
            node = step.destination or ""
            if step.newcomer is not None and load.get(node, 0) >= limit:
                continue
            load[node] = load.get(node, 0) + 1
            self._decided[partition] = (
                ownership.started(part.row, self._migration(part.row, step, destination)),
                f"{step.kind} started",
            )
        self._off_target = left

    def _destination(self, step: PlannedMigration) -> Holder | None:
        return self.nodes.holder(step.destination) if step.destination is not None else None

    def _migration(
        self, row: PartitionRow, step: PlannedMigration, destination: Holder | None
    ) -> Migration:
        stores = {voter.node: voter.store for voter in row.voters}
        if destination is not None:
            stores.setdefault(destination.node, destination.store)
        return Migration(
            f"{self.record.name}/{row.partition}/{row.version + 1}",
            step.kind,
            step.source,
            destination,
            step.replicas,
            tuple(Voter(node, stores[node]) for node in step.voters),
        )

    # --- writes ----------------------------------------------------------------------------------

    def take_writes(self) -> list[tuple[Key, Value | None]]:
        """One write per shard with decided rows and no write under way."""
        if self._shards_left is not None:
            keys = [s for s in sorted(self._shards_left) if s not in self._writing]
            for shard in keys:
                self._writing[shard] = {}
            return [(ShardKey(self.record.uid, shard), None) for shard in keys]
        writes: list[tuple[Key, Value | None]] = []
        for shard in sorted({partition // SHARD_PARTITIONS for partition in self._decided}):
            if shard in self._writing:
                continue
            first = shard * SHARD_PARTITIONS
            inside = range(first, min(first + SHARD_PARTITIONS, self.record.partitions))
            changed = {p: self._decided.pop(p) for p in inside if p in self._decided}
            rows = tuple(
                changed[p][0] if p in changed else self.parts[p].row
                for p in inside
                if p in changed or p in self.parts
            )
            self._writing[shard] = changed
            writes.append((ShardKey(self.record.uid, shard), rows))
        return writes

    def rows_written(self, key: ShardKey, rows: tuple[PartitionRow, ...], now: Now) -> None:
        """The shard is stored: its changed rows are the rows now; publish them."""
        changed = self._writing.pop(key.shard, {})
        self._take_changed(rows, changed, now)

    def rows_reloaded(self, key: ShardKey, rows: tuple[PartitionRow, ...], now: Now) -> None:
        """Another wrote, or the outcome was unknown: what is stored is the truth."""
        self._all_placed = False
        changed = self._writing.pop(key.shard, {})
        self._take_changed(rows, changed, now)

    def _take_changed(
        self,
        rows: tuple[PartitionRow, ...],
        changed: dict[int, tuple[PartitionRow, str]],
        now: Now,
    ) -> None:
        news: list[PartitionRow] = []
        reasons: dict[str, list[int]] = {}
        for row in rows:
            part = self.parts.get(row.partition)
            if part is not None and part.row == row:
                continue
            decided = changed.get(row.partition)
            ours = decided is not None and decided[0] == row
            if part is None:
                self.parts[row.partition] = Part(row, now.boot_ms, resolved=True)
            elif ours:
                self.parts[row.partition] = adopt_row(part, row, now.boot_ms)
            else:
                self.parts[row.partition] = Part(row, now.boot_ms, resolved=row.active is None)
                self._decided.pop(row.partition, None)  # it was decided from a row that is gone
            if part is not None and ours:
                self._count(part.row, row, now)
            if decided is not None and ours and part is not None:
                reasons.setdefault(decided[1], []).append(row.partition)
            self._dirty.add(row.partition)
            news.append(row)
        if news:
            self._publish(news)
        for reason, partitions in reasons.items():
            if not reason.endswith(("started", "committed", "owns again")):
                which = f"{len(partitions)} partitions from {partitions[0]} on"
                self._master.event(self.record.uid, None, "RowChanged", f"{reason}: {which}")

    def _count(self, before: PartitionRow, row: PartitionRow, now: Now) -> None:
        migration = before.active
        if migration is None or row.active is not None:
            return
        self._progress.pop(row.partition, None)
        if row.version == before.version + 1 and row.replicas == migration.replicas:
            self.migrations_done += 1
            self._backoff.pop(row.partition, None)
        else:
            self.migrations_failed += 1
            count = self._backoff.get(row.partition, (0, 0))[1] + 1
            until = now.boot_ms + min(500 << min(count, 6), BACKOFF_MS_MAX)
            self._backoff[row.partition] = (until, count)
            if row.partition not in self._off_target:
                self._off_target.append(row.partition)

    def _publish(self, rows: list[PartitionRow]) -> None:
        message = ZoneTable(self._master.master_term, self.record, tuple(rows))
        for node in sorted(self._master.agents):
            waiting = self._unacked.setdefault(node, {})
            waiting.update({row.partition: row.version for row in rows})
        self._master.publish(sorted(self._master.agents), message)

    def _resend(self, now: Now) -> None:
        if now.boot_ms - self._resent_ms < RESEND_MS:
            return
        self._resent_ms = now.boot_ms
        for node in sorted(self._unacked):
            agent = self._master.agents.get(node)
            waiting = self._unacked[node]
            if agent is None:
                del self._unacked[node]
            elif waiting and agent.online:
                rows = tuple(self.parts[p].row for p in sorted(waiting)[:1000])
                message = ZoneTable(self._master.master_term, self.record, rows)
                self._master.publish([node], message)

    def record_written(self, record: ZoneRecord | None, now: Now) -> None:
        """The zone's record is stored (None: deleted)."""
        if record is None:
            self._master.zones.pop(self.record.uid, None)
            return
        self._stored = True
        if self.parts and not record.deleting:
            message = ZoneTable(self._master.master_term, self.record, ())
            self._master.publish(sorted(self._master.agents), message)

    def record_reloaded(self, record: ZoneRecord | None, now: Now) -> None:
        """The zone's record could not be written as it was."""
        if record is None and self.record.deleting:
            self._master.zones.pop(self.record.uid, None)
        elif record != self.record:
            self._master.write_zone(self.record)
        else:
            self._stored = True

    # --- deletion --------------------------------------------------------------------------------

    def _delete(self, now: Now) -> None:
        """Tell everyone, delete the rows; the record goes when every registered agent has said
        that its data is gone, so that one that is away is told when it returns."""
        master = self._master
        if not self._stored:
            return
        if self._shards_left is None and not self._writing:
            count = -(-self.record.partitions // SHARD_PARTITIONS)
            self._shards_left = set(range(count)) if self.parts else set()
            self._decided.clear()
            self.parts.clear()
        connected = [n for n, agent in sorted(master.agents.items()) if agent.online]
        due = now.boot_ms - self._resent_ms >= RESEND_MS
        for node in connected:
            if node not in self._gone_acked and (node not in self._gone_told or due):
                self._gone_told.add(node)
                master.publish([node], ZoneGone(master.master_term, self.record.uid))
        if due:
            self._resent_ms = now.boot_ms
        if self._shards_left == set() and self._gone_acked.issuperset(master.agents):
            self._shards_left = None
            master.delete_zone_record(self.record.uid)

    def shard_deleted(self, key: ShardKey) -> None:
        """One shard's rows are gone."""
        self._writing.pop(key.shard, None)
        if self._shards_left is not None:
            self._shards_left.discard(key.shard)

    @property
    def is_deleted_here(self) -> bool:
        """Whether all rows are gone and every agent that is online has removed its data."""
        online = {n for n, agent in self._master.agents.items() if agent.online}
        return self.record.deleting and self._shards_left == set() and online <= self._gone_acked

    # --- status ----------------------------------------------------------------------------------

    def status(self) -> ZoneStatus:
        """The zone as users see it."""
        available = degraded = 0
        unavailable: list[int] = []
        missing: dict[int, int] = {}
        migrations: list[MigrationStatus] = []
        for partition in sorted(self.parts):
            part = self.parts[partition]
            row = part.row
            short = self.record.replicas - len(row.owners)
            if short > 0:
                missing[short] = missing.get(short, 0) + 1
            if not part.activated:
                unavailable.append(partition)
            elif len(row.owners) < self.record.replicas:
                degraded += 1
            else:
                available += 1
            if row.active is not None:
                progress = self._progress.get(partition)
                migrations.append(
                    MigrationStatus(
                        partition,
                        row.active.kind.value,
                        row.active.source,
                        row.active.destination.node if row.active.destination else None,
                        _phase(part),
                        progress.bytes_done if progress else 0,
                        progress.bytes_total if progress else 0,
                    )
                )
        phase, sentence = self._phase(available, degraded, len(unavailable), len(migrations))
        return ZoneStatus(
            uid=self.record.uid,
            name=self.record.name,
            phase=phase,
            sentence=sentence,
            partitions=self.record.partitions,
            available=available,
            degraded=degraded,
            unavailable=len(unavailable),
            migrations_running=len(migrations),
            migrations_queued=max(len(self._off_target) - len(migrations), 0),
            migrations_done=self.migrations_done,
            migrations_failed=self.migrations_failed,
            bytes_moved=self.bytes_moved,
            full_copies=self.full_copies,
            ports=dict(self.record.ports),
            data_nodes=tuple(load.name for load in self._target.report.loads)
            if self._target
            else (),
            spread_violations=self._target.report.shared_domains if self._target else (),
            migrations=tuple(migrations),
            unavailable_partitions=tuple(unavailable[:100]),
            missing_copies=dict(sorted(missing.items())),
        )

    def _missing(self) -> list[str]:
        """Why copies are missing, node by node."""
        words = {
            "waited": "{} is offline and waited for",
            "lost": "{} is offline; another agent without a copy would take its place",
            "new-store": "{} came back with a new store and takes no part as its old self; "
            "another agent without a copy would take the old one's place",
            "draining": "{} is draining",
        }
        return [
            words[state].format(node)
            for node, state in sorted(self._states.items())
            if state in words
        ]

    def _phase(
        self, available: int, degraded: int, unavailable: int, moving: int
    ) -> tuple[str, str]:
        if self.record.deleting:
            return "Deleting", "removing rows and data"
        if not self.parts:
            return "Pending", self.sentence
        if unavailable:
            return "Unavailable", f"{unavailable} partitions have no serving primary"
        if moving:
            return "Rebalancing", f"{moving} migrations are under way"
        if degraded:
            sentence = f"{degraded} partitions have fewer than {self.record.replicas} copies"
            return "Degraded", "; ".join([sentence, *self._missing()])
        return "Available", f"all {available} partitions have {self.record.replicas} copies"


def _phase(part: Part) -> str:
    if part.prepared:
        return "committing"
    if part.prepare_ms >= 0:
        return "prepared"
    if part.freeze_ms >= 0:
        return "frozen" if part.frozen else "freezing"
    return "caught-up" if part.caught_up else "filling"


__all__ = ["ZoneMaster", "migration_commit"]
