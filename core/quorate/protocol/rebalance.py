"""Which migrations a zone's rows need, and which of them may start now.

The target is computed anew when agents, their weights or the zone change; each row's next step
follows from the row and the target.  Partitions whose row is not at its target wait in one queue.
"""

from collections.abc import Callable

from quorate.facts.partition_row import Migration, PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import Planner, ZoneRecord
from quorate.planning.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
    placed_voters,
)
from quorate.planning.next_migration import next_migration
from quorate.planning.plan_migrations import PlannedMigration
from quorate.protocol import ownership
from quorate.protocol.membership import Agent, ZoneNodes
from quorate.protocol.migration_commit import Part
from quorate.protocol.settings import ProtocolSettings

BACKOFF_MS_MAX = 30_000


class Rebalance:
    """One zone's target and queue.  `parts` are the zone's own; `agents` the master's."""

    def __init__(
        self,
        agents: dict[str, Agent],
        nodes: ZoneNodes,
        parts: dict[int, Part],
        settings: ProtocolSettings,
    ) -> None:
        self.target: Distribution | None = None
        self.off_target: list[int] = []
        self._agents = agents
        self._nodes = nodes
        self._parts = parts
        self._settings = settings
        self._signature: object = None
        self._steps: dict[int, tuple[PartitionRow, PlannedMigration | None]] = {}
        self._backoff: dict[tuple[int, str], tuple[int, int]] = {}
        self._states: dict[str, str] = {}

    # --- who may hold copies ---------------------------------------------------------------------

    def data_nodes(self, record: ZoneRecord, now: Now) -> list[DataNode]:
        """The agents that copies may be placed on; those that are waited for count as online."""
        nodes: list[DataNode] = []
        for name in sorted(self._agents):
            agent = self._agents[name]
            state = self._states[name] = self._state_of(name, agent, record, now)
            if agent.record is None or state in ("draining", "unregistered"):
                continue
            there = state in ("online", "new-store") or (state == "waited" and bool(self._parts))
            nodes.append(DataNode(name, agent.record.weight, agent.record.failure_domain, there))
        return nodes

    def _state_of(self, node: str, agent: Agent, record: ZoneRecord, now: Now) -> str:
        if agent.record is None or agent.draining:
            return "draining" if agent.draining else "unregistered"
        if not agent.online:
            waited = agent.left_ms < 0 or (
                now.boot_ms - agent.left_ms < self._settings.replacement_delay_ms
            )
            return "waited" if waited else "lost"
        store = agent.record.zone_store(record.persistent)
        for part in self._parts.values():
            for voter in part.row.voters:
                if voter.node == node and voter.store != store:
                    return "new-store"
        return "online"

    def missing(self) -> list[str]:
        """Why copies are missing, node by node."""
        words = {
            "waited": "{} is offline and waited for",
            "lost": "{} is offline; another agent without a copy would take its place",
            "new-store": "{} came back with a new store and takes no part as its old self: "
            "its votes are given up, then it is given new copies",
            "draining": "{} is draining",
        }
        return [
            words[state].format(node)
            for node, state in sorted(self._states.items())
            if state in words
        ]

    def is_lost(self, row: PartitionRow) -> bool:
        """Whether the stores of all its voters are gone for good: nobody has its data any more."""
        return all(self._nodes.dead(voter.node, voter.store) for voter in row.voters)

    # --- target ----------------------------------------------------------------------------------

    def topology_changed(self) -> None:
        """Somebody came, left or is leaving: every step is to be planned anew."""
        self._steps.clear()

    def refresh(self, record: ZoneRecord, now: Now) -> None:
        """Compute the target anew when anything it depends on has changed."""
        nodes = self.data_nodes(record, now)
        signature = (
            tuple((n.name, n.weight, n.failure_domain, n.online) for n in nodes),
            record.replicas,
            record.planner,
            tuple(n for n in sorted(self._agents) if self._nodes.leaving(n)),
            tuple(n.name for n in nodes if self._nodes.holder(n.name) is None),
        )
        if signature == self._signature or not any(node.online for node in nodes):
            return
        self._signature = signature
        current = [
            placed_voters(self._parts[p].row.replicas, self._parts[p].row.voter_nodes)
            for p in sorted(self._parts)
        ]
        self._steps.clear()
        self.target = distribute_partitions(current, nodes, record.replicas)
        self.off_target = sorted(self._parts)

    def _wanted(self, row: PartitionRow) -> tuple[str, ...]:
        """The target of one row, its primary kept off nodes that are leaving or not there."""
        assert self.target is not None
        target = list(self.target.assignments[row.partition])

        def serves(node: str) -> bool:
            return self._nodes.holder(node) is not None and not self._nodes.leaving(node)

        if target and not serves(target[0]):
            primary = row.replicas[0]
            others = [n for n in target if serves(n) and n in row.owners]
            if primary in others:
                others = [primary]
            if others:
                target.remove(others[0])
                target.insert(0, others[0])
        return tuple(target)

    def _next_step(self, row: PartitionRow, record: ZoneRecord) -> PlannedMigration | None:
        nodes, wanted = self._nodes, self._wanted(row)
        # A primary that must go is no matter of balance: Staged would give the circle up.
        assert self.target is not None
        hands_over = wanted != self.target.assignments[row.partition]
        planner = Planner.MINIMAL if hands_over else record.planner
        lost = [voter.node for voter in row.voters if nodes.gone(voter.node, voter.store)]
        lost += [n for n in wanted if n not in lost and nodes.holder(n) is None]
        dead = [voter.node for voter in row.voters if nodes.dead(voter.node, voter.store)]
        return next_migration(
            row.replicas, row.voter_nodes, wanted, lost, dead, record.replicas, planner
        )

    def _planned_step(self, row: PartitionRow, record: ZoneRecord) -> PlannedMigration | None:
        """`_next_step`, computed once for a row, a target and a topology."""
        known = self._steps.get(row.partition)
        if known is None or known[0] is not row:
            known = self._steps[row.partition] = (row, self._next_step(row, record))
        return known[1]

    # --- queue -----------------------------------------------------------------------------------

    def starts(
        self, record: ZoneRecord, now: Now, is_busy: Callable[[int], bool]
    ) -> dict[int, tuple[PartitionRow, str]]:
        """Rows in which a migration begins, with the reason: as many as their destinations take."""
        if self.target is None or not self.off_target:
            return {}
        load: dict[str, int] = {}
        for part in self._parts.values():
            active = part.row.active
            if active is not None and active.destination is not None:
                load[active.destination.node] = load.get(active.destination.node, 0) + 1
        limit = self._settings.migrations_per_node
        started: dict[int, tuple[PartitionRow, str]] = {}
        left: list[int] = []
        queue = sorted(self.off_target, key=lambda p: (len(self._parts[p].row.owners), p))
        for partition in queue:
            part = self._parts[partition]
            if is_busy(partition) or part.row.active is not None or not part.serves:
                left.append(partition)
                continue
            step = self._planned_step(part.row, record)
            if step is None:
                if any(part.row.replicas[i] is None for i in range(len(part.row.replicas))):
                    left.append(partition)  # somebody is waited for
                continue
            left.append(partition)
            node = step.destination or ""
            if self._backoff.get((partition, node), (0, 0))[0] > now.boot_ms:
                continue
            destination = self._destination(step)
            if step.destination is not None and destination is None:
                continue
            if step.newcomer is not None and load.get(node, 0) >= limit:
                continue
            load[node] = load.get(node, 0) + 1
            migration = _migration(record.name, part.row, step, destination)
            started[partition] = (ownership.started(part.row, migration), f"{step.kind} started")
        self.off_target = left
        return started

    def ended(self, partition: int, destination: str, failed: bool, now: Now) -> None:
        """A migration is over; one that failed is tried again with the same destination each time
        after a longer pause, with another one at once."""
        to = (partition, destination)
        if not failed:
            self._backoff.pop(to, None)
            return
        count = self._backoff.get(to, (0, 0))[1] + 1
        until = now.boot_ms + min(500 << min(count, 6), BACKOFF_MS_MAX)
        self._backoff[to] = (until, count)
        if partition not in self.off_target:
            self.off_target.append(partition)

    def _destination(self, step: PlannedMigration) -> Holder | None:
        return self._nodes.holder(step.destination) if step.destination is not None else None


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
