"""The migrations that a zone's rows need: its target, and the next step of every row.

The target is computed again when agents, their weights or the zone change. Each row's next step
follows from the row and the target. The steps that begin are chosen for all zones together
(migration_queue.py).
"""

from collections.abc import Callable, Iterable, Sequence

from quorate.facts.partition_row import Migration, PartitionRow, is_committed
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import Planner, ZoneRecord
from quorate.planning.queue.choose_migrations import QueuedMigration
from quorate.planning.queue.keep_migrations import row_when_done, still_serves
from quorate.planning.queue.retries import MigrationRetries, StuckMigration
from quorate.planning.steps.intent import Intent, intent_of
from quorate.planning.steps.plan_migrations import PlannedMigration
from quorate.planning.steps.plan_staged import reachable_target
from quorate.planning.steps.plan_step import plan_step
from quorate.planning.steps.preview import PresentNodes
from quorate.planning.target.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
)
from quorate.planning.target.stand_ins import is_drained, with_stand_ins
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import ZoneNodes
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.agent_states import AgentState, AgentStates
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import is_cut_off
from quorate.protocol.zone_master.fitting_nodes import FittingNodes
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.zone import Parts


class Rebalance:
    """Target and queue of one zone. `nodes`, `parts` and `fitting` are the zone's own."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: ZoneNodes,
        parts: Parts,
        fitting: FittingNodes,
    ) -> None:
        self.target: Distribution | None = None
        self.off_target: dict[int, None] = {}
        self.states = AgentStates(cluster, nodes, parts, fitting)
        self._agents = cluster.agents
        self._retries = cluster.retries
        self._nodes = nodes
        self._parts = parts
        self._signature: object = None
        self._steps: dict[int, tuple[PartitionRow, PlannedMigration | None]] = {}
        self._queued: dict[int, QueuedMigration] = {}
        self._intents: dict[int, tuple[PartitionRow, Intent]] = {}
        self.sizes: dict[int, int] = {}
        self._refilling: dict[str, tuple[int, ...]] = {}
        self._kept_off: set[int] = set()
        self._without_room: set[str] = set()
        self._copies_planned = False

    def is_at_rest(self, record: ZoneRecord) -> bool:
        """Return whether the zone needs nothing, and will not by the passing of time alone.

        That is so if every partition serves with all its copies in their places, and every agent
        was online at the last look. The zone's timers are for the caller to judge.
        """
        if self.off_target or not self.states.are_at_rest:
            return False
        return all(
            part.serves
            and not part.stuck
            and part.row.active is None
            and not part.unheard
            and len(part.row.owners) == len(part.row.voters) == record.replicas
            for part in self._parts.values()
        )

    # --- target ----------------------------------------------------------------------------------

    def topology_changed(self) -> None:
        """Plan every step again: an agent joined, left or is leaving."""
        self._forget_steps()

    def _forget_steps(self) -> None:
        self._steps.clear()
        self._intents.clear()
        self._queued.clear()
        self._kept_off.clear()

    def _forget_step(self, partition: int) -> None:
        self._steps.pop(partition, None)
        self._intents.pop(partition, None)

    def reach_changed(self) -> None:
        """Plan again the steps that depend on which members an agent reaches."""
        for partition in self._kept_off:
            self._forget_step(partition)
        self._kept_off.clear()

    def note_size(self, partition: int, size: int) -> None:
        """Note the bytes of one of the partition's copies."""
        if self.sizes.get(partition) != size:
            self.sizes[partition] = size
            self._queued.pop(partition, None)

    def note_refilling(self, node: str, partitions: tuple[int, ...]) -> None:
        """Note the copies that `node` has refilled: it must not be primary of them."""
        before = self._refilling.pop(node, ())
        if partitions:
            self._refilling[node] = partitions
        if before != partitions:
            for partition in sorted({*before, *partitions} & self._parts.keys()):
                self._forget_step(partition)
                self.look_again(partition)

    def note_room(self, node: str, *, has_room: bool) -> None:
        """Note whether `node` has room for more. Without it, no new copy begins there."""
        if has_room:
            self._without_room.discard(node)
        else:
            self._without_room.add(node)

    def refresh(self, record: ZoneRecord, now: Now) -> bool:
        """Compute the target again if anything it depends on has changed. Return whether it was."""
        nodes = self.states.data_nodes(record, now)
        signature = (
            tuple((n.name, n.weight, n.failure_domain, n.online) for n in nodes),
            record.replicas,
            record.planner,
            tuple(n for n in sorted(self._agents) if self._nodes.leaving(n)),
            tuple(n.name for n in nodes if self._nodes.holder(n.name) is None),
        )
        if signature == self._signature or not any(node.online for node in nodes):
            return False
        self._signature = signature
        # Active migrations count as done, so their newcomers are asked for again where balance
        # permits.
        there = {n.name: None for n in nodes if n.online and self._nodes.holder(n.name)}
        current = [row_when_done(self._parts[p].row, there) for p in sorted(self._parts)]
        self._forget_steps()
        target = distribute_partitions(current, nodes, record.replicas)
        absent = self._absent(nodes)
        if absent:
            drained = [
                partition
                for partition, wanted in enumerate(target.assignments)
                if self._is_drained(self._parts[partition].row, wanted)
            ]
            target = with_stand_ins(target, current, drained, nodes, absent)
        self.target = target
        self.off_target = dict.fromkeys(sorted(self._parts))
        return True

    def present_nodes(self, record: ZoneRecord, now: Now) -> PresentNodes:
        """Return the nodes from which a preview is made."""
        nodes = self.states.data_nodes(record, now)
        giving_away = [name for name in self._agents if self.states.gives_away(name)]
        return PresentNodes(nodes, self._absent(nodes), giving_away)

    def _absent(self, nodes: Iterable[DataNode]) -> list[str]:
        """Return the nodes that count as online because they are waited for."""
        return [n.name for n in nodes if n.online and self._nodes.holder(n.name) is None]

    def _assigned(self, row: PartitionRow) -> tuple[str, ...]:
        """Return the row's target; () before there is one."""
        return self.target.assignments[row.partition] if self.target is not None else ()

    def _is_drained(self, row: PartitionRow, wanted: Sequence[str]) -> bool:
        """Return whether the row has a copy, or a vote, to move off an agent that is to have none.

        Each step of such a row leads there, also one that replaces another copy first.
        """
        return is_drained(row.voter_nodes, wanted, self.states.gives_away)

    def plan(self, record: ZoneRecord) -> None:
        """Plan the next step of each row that may not be at its target."""
        if self.target is not None:
            for partition in self.off_target:
                part = self._parts[partition]
                if _may_begin(part):
                    self._planned_step(part.row, record)

    def take_copies_planned(self) -> bool:
        """Return whether a step that makes a copy was planned since the last call."""
        planned, self._copies_planned = self._copies_planned, False
        return planned

    def _wanted(self, row: PartitionRow) -> tuple[str, ...]:
        """Return the target of one row, with a primary that can serve.

        The primary is kept off nodes that are leaving, offline or cut off, or whose copy is being
        refilled. A node that is cut off keeps the role if it has it.
        """
        assert self.target is not None
        target = list(self.target.assignments[row.partition])

        def serves(node: str) -> bool:
            if row.partition in self._refilling.get(node, ()):
                return False
            is_there = self._nodes.holder(node) is not None and not self._nodes.leaving(node)
            return is_there and not self._is_kept_off(row, node)

        if target and not serves(target[0]):
            primary = row.replicas[0]
            others = [n for n in target if serves(n) and n in row.owners]
            if primary in others:
                others = [primary]
            if others:
                target.remove(others[0])
                target.insert(0, others[0])
        return tuple(target)

    def _is_kept_off(self, row: PartitionRow, node: str) -> bool:
        """Return whether `node`, by its own and others' reports, would be a stuck primary."""
        return node != row.replicas[0] and is_cut_off(self._nodes, row, node)

    def _lacks_successor(self, row: PartitionRow, wanted: Sequence[str]) -> bool:
        """Return whether the primary stays on a leaving node because another is cut off."""
        return self._nodes.leaving(wanted[0]) and any(
            node in row.owners and self._is_kept_off(row, node) for node in wanted[1:]
        )

    def is_wanted(self, row: PartitionRow, record: ZoneRecord) -> bool:
        """Return whether the row's active migration still leads to its target."""
        # A store that is gone for good is removed, although its node is to get a copy again. So is
        # a copy that a person has made anew.
        dead = self._nodes.dead_voters(row)
        is_erasure = row.active is not None and row.active.is_erasure
        if self.target is None or is_erasure or _is_reduction(row, dead):
            return True
        wanted = self._end(row, record)
        return still_serves(row, [node for node in wanted if node not in dead] or wanted)

    def intents(self, record: ZoneRecord, most: int) -> tuple[int, tuple[Intent, ...]]:
        """Return the number of partitions with a step to come, and what is intended with the first.

        Only partitions that may not be at their target are looked at, and of these the steps that
        are planned already: a zone at rest costs nothing.
        """
        count, named = 0, list[Intent]()
        for partition in self.off_target if self.target is not None else ():
            row = self._parts[partition].row
            intent = None
            if row.active is not None:
                intent = self._intent(row, record)
                if not intent.has_more:
                    continue
            elif not self._is_planned(row) or self._steps[partition][1] is None:
                continue
            count += 1
            if len(named) < most:
                named.append(intent or self._intent(row, record))
        return count, tuple(named)

    def _intent(self, row: PartitionRow, record: ZoneRecord) -> Intent:
        """Return what is intended with the row, computed once as its next step is."""
        known = self._intents.get(row.partition)
        if known is None or known[0] is not row:
            wanted = [node for node in self._end(row, record) if node is not None]
            reduced = [*self._nodes.dead_voters(row)]
            if all(node in row.voter_nodes for node in wanted):
                reduced += [node for node in self._given_up(row) if node not in reduced]
            known = (row, intent_of(row, wanted, reduced))
            self._intents[row.partition] = known
        return known[1]

    def _end(self, row: PartitionRow, record: ZoneRecord) -> tuple[str | None, ...]:
        """Return where the zone's planner leads the row in the end."""
        wanted = self._wanted(row)
        if record.planner is Planner.STAGED and not self._hands_over(row, wanted):
            lost = self._nodes.gone_voters(row)
            return reachable_target(row.replicas, row.voter_nodes, wanted, lost)
        return wanted

    def _hands_over(self, row: PartitionRow, wanted: Sequence[str | None]) -> bool:
        """Return whether the target's primary was replaced, because it could not serve.

        Such a step is not for balance, and Staged might give it up as part of a cycle.
        """
        return self.target is not None and wanted != self.target.assignments[row.partition]

    def _next_step(self, row: PartitionRow, record: ZoneRecord) -> PlannedMigration | None:
        nodes, wanted = self._nodes, self._wanted(row)
        meant = self._assigned(row)
        if meant and (self._is_kept_off(row, meant[0]) or self._lacks_successor(row, wanted)):
            self._kept_off.add(row.partition)
        planner = Planner.MINIMAL if self._hands_over(row, wanted) else record.planner
        lost = [*nodes.gone_voters(row)]
        lost += [n for n in wanted if n not in lost and nodes.holder(n) is None]
        dead = nodes.dead_voters(row)
        given_up = self._given_up(row)
        return plan_step(
            row.replicas, row.voter_nodes, wanted, lost, dead, record.replicas, planner, given_up
        )

    def _given_up(self, row: PartitionRow) -> tuple[str, ...]:
        """Return the silent voters that are dropped if no other node takes their place.

        Their memory ends with their processes, and the scale-down timer has fired for their nodes.
        """
        return tuple(n for n in row.voter_nodes if self.states.of(n) is AgentState.GIVEN_UP)

    def _planned_step(self, row: PartitionRow, record: ZoneRecord) -> PlannedMigration | None:
        """Return `_next_step`, computed once for a row, a target and a topology."""
        if not self._is_planned(row):
            step = self._next_step(row, record)
            self._steps[row.partition] = (row, step)
            self._queued.pop(row.partition, None)
            self._copies_planned |= step is not None and step.newcomer is not None
            self._forget_failures(row, step, record.uid)
        return self._steps[row.partition][1]

    def _forget_failures(self, row: PartitionRow, step: PlannedMigration | None, uid: str) -> None:
        """Forget what failed on the way to something that is not wanted any more.

        A node of the target that may not be primary for now is wanted. What failed on the way to a
        node that is out for now is remembered, so that it is not tried at once when it is back.
        """
        wanted = self._assigned(row)
        still: list[str | None] = [n for n in wanted if n not in row.replicas]
        if wanted and wanted[0] != row.replicas[0]:
            still.append(wanted[0])
        if step is not None:
            still.append(step.destination)
        self._retries.keep_only(uid, row.partition, {*still, *self.states.out_for_now})

    def stuck(self, uid: str) -> tuple[StuckMigration, ...]:
        """Return the steps that fail again and again, without those to agents out for now."""
        return tuple(
            each
            for each in self._retries.stuck(uid)
            if each.destination not in self.states.out_for_now
        )

    def _is_planned(self, row: PartitionRow) -> bool:
        known = self._steps.get(row.partition)
        return known is not None and known[0] is row

    # --- queue -----------------------------------------------------------------------------------

    def waiting(
        self, record: ZoneRecord, is_busy: Callable[[int], bool], may_plan: Callable[[], bool]
    ) -> list[QueuedMigration]:
        """Return the next steps of rows that are not at their target and have no active migration.

        A row whose step is not planned yet stays queued if `may_plan` refuses (`plan` comes to it).
        `bytes` is what the partition's agents last reported of their copies, 0 if none has.
        """
        if self.target is None or not self.off_target:
            return []
        found: list[QueuedMigration] = []
        left: dict[int, None] = {}
        for partition in self.off_target:
            part = self._parts[partition]
            is_held = is_busy(partition) or not _may_begin(part)
            if is_held or not (self._is_planned(part.row) or may_plan()):
                left[partition] = None
                continue
            step = self._planned_step(part.row, record)
            if step is None:
                if _misses_copies(part.row) or partition in self._kept_off:
                    left[partition] = None  # an agent is waited for
                continue
            left[partition] = None
            if step.destination is not None and self._nodes.holder(step.destination) is None:
                continue
            if step.newcomer in self._without_room:
                continue  # it would use up the rest of that disk
            queued = self._queued.get(partition)
            if queued is None:
                queued = self._queued[partition] = self._as_queued(record.uid, part.row, step)
            found.append(queued)
        self.off_target = left
        return found

    def running(self, uid: str, rows: Iterable[PartitionRow]) -> list[QueuedMigration]:
        """Return the migrations that are active in `rows`."""
        return [
            self._as_queued(uid, row, _as_planned(row)) for row in rows if row.active is not None
        ]

    def _as_queued(self, uid: str, row: PartitionRow, step: PlannedMigration) -> QueuedMigration:
        copies_data = step.newcomer is not None
        # The leaver may be lost: the primary supplies the data, or has another owner do so.
        source = step.source
        if copies_data:
            source = row.primary.node if row.primary is not None else None
        wanted = self._assigned(row)
        return QueuedMigration(
            uid,
            row.partition,
            len(row.owners),
            source,
            step.destination,
            copies_data,
            self.sizes.get(row.partition, 0) if copies_data else 0,
            self._is_repair(row, step),
            self._is_drained(row, wanted),
        )

    def _is_repair(self, row: PartitionRow, step: PlannedMigration) -> bool:
        """Return whether the step is for a copy that was lost, or never made."""
        if step.newcomer is None:
            return step.leaver in (*self._nodes.dead_voters(row), *self._given_up(row))
        if step.leaver is not None:
            return step.leaver not in row.replicas
        wanted = self._assigned(row)
        return len(row.owners) < len(wanted)

    def misses_copies(self, repairs: Iterable[QueuedMigration], retries: MigrationRetries) -> bool:
        """Return whether missing copies are on their way back; moves for balance wait for them.

        That is so if a repair is active or can begin, or if an agent with an old copy is online or
        waited for. Repairs to a node where the last one failed do not count: they may go on for
        ever.
        """
        for repair in repairs:
            if repair.is_repair and (
                repair.destination is None or retries.at_most(repair.destination) > 1
            ):
                return True
        for partition in self.off_target:
            row = self._parts[partition].row
            for voter in row.voters:
                state = self.states.of(voter.node)
                if state in (AgentState.WAITED, AgentState.REFUSED) or (
                    state is AgentState.ONLINE and voter.node not in row.replicas
                ):
                    return True
        return False

    def begin(self, record: ZoneRecord, partition: int) -> tuple[PartitionRow, Why]:
        """Return the row with its next step active, and the reason."""
        row = self._parts[partition].row
        step = self._planned_step(row, record)
        assert step is not None
        destination = self._nodes.holder(step.destination) if step.destination else None
        migration = _migration(record.name, row, step, destination)
        return ownership.started(row, migration), Why(Cause.STARTED, (str(step.kind),))

    def owners_changed(self, before: PartitionRow, row: PartitionRow) -> str:
        """Queue the partition again after its row changed. Return the old primary if it was stuck.

        It was stuck, or did not come to serve, if it is online and another node took the role over
        without a migration. Otherwise "".
        """
        self.look_again(row.partition)
        old, new = before.primary, row.primary
        if old is None or new is None or old.node == new.node or is_committed(before, row):
            return ""
        return old.node if self._nodes.holder(old.node) == old else ""

    def look_again(self, partition: int) -> None:
        """Queue the partition again: its row may not be at its target."""
        self.off_target.setdefault(partition)

    def forget(self, partition: int) -> None:
        """Note that the partition has no row for now."""
        self._forget_step(partition)
        self._queued.pop(partition, None)
        self.off_target.pop(partition, None)


def _may_begin(part: PartitionState) -> bool:
    """Return whether the row, as it is, lets a migration begin."""
    return part.serves and not part.stuck and part.row.active is None and not part.row.sets


def _is_reduction(row: PartitionRow, dead: Sequence[str]) -> bool:
    """Return whether the row's active migration removes voters, and only dead ones."""
    active = row.active
    if active is None or active.destination is not None:
        return False
    leavers = [voter.node for voter in row.voters if voter not in active.voters]
    return bool(leavers) and all(node in dead for node in leavers)


def _misses_copies(row: PartitionRow) -> bool:
    return len(row.owners) < len(row.voters)


def _as_planned(row: PartitionRow) -> PlannedMigration:
    """Return the active migration as the step it was planned as."""
    active = row.active
    assert active is not None
    before, after = row.voter_nodes, tuple(voter.node for voter in active.voters)
    return PlannedMigration(
        active.kind,
        active.source,
        active.destination.node if active.destination is not None else None,
        next((node for node in after if node not in before), None),
        next((node for node in before if node not in after), None),
        active.replicas,
        after,
    )


def _migration(
    zone: str, row: PartitionRow, step: PlannedMigration, destination: Holder | None
) -> Migration:
    stores = {voter.node: voter.store for voter in row.voters}
    if destination is not None:
        stores.setdefault(destination.node, destination.store)
    return Migration(
        f"{zone}/{row.partition}/{row.version + 1}",
        step.kind,
        step.source,
        destination,
        step.replicas,
        tuple(Voter(node, stores[node]) for node in step.voters),
    )
