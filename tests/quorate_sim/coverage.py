"""Which moments of migrations and activations a run reached, and which faults struck at each.

A moment is reached when the process that brings it about says so.  Nothing here decides anything:
it watches, and tells who asked (`on_moment`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from migration_words import MOMENTS, Kind, Moment, Role, kind_of
from quorate.facts.partition_row import Migration, PartitionRow, committed_row
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.messages.master import (
    ActivationBlocked,
    CaughtUp,
    Frozen,
    Prepared,
    PreparedRow,
    RowsStored,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import FenceAck, Sync
from quorate.protocol.messages.transactions import TransactionMessage

if TYPE_CHECKING:
    from quorate_sim.agent_process import AgentProcess
    from quorate_sim.cluster import Cluster

_WATCHED = {Sync, CaughtUp, Frozen, Prepared, RowsStored, FenceAck, ActivationBlocked}
"""Messages that bring a migration to a moment, or that are counted."""

Hit = tuple[str, str, str, str]
"""Kind and moment of a migration, the role of who was struck, the fault."""


class Counts(msgspec.Struct):
    """What runs reached, added up."""

    moments: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    hits: Counter[Hit] = msgspec.field(default_factory=Counter)
    activations: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    events: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Another run's."""
        for name in self.__struct_fields__:
            getattr(self, name).update(getattr(other, name))


class Running(msgspec.Struct):
    """A migration under way, or committed and not yet followed by another row."""

    migration: Migration
    kind: Kind
    primary: str
    voters: tuple[str, ...]
    version: int
    moment: Moment = Moment.START

    def has_come_to(self, moment: Moment) -> bool:
        """Whether it is there or further."""
        return MOMENTS.index(self.moment) >= MOMENTS.index(moment)

    def nodes(self, role: Role) -> list[str]:
        """Who has a role in it (not the master)."""
        destination = self.migration.destination
        known = {
            Role.PRIMARY: self.primary,
            Role.SOURCE: self.migration.source,
            Role.DESTINATION: destination.node if destination is not None else None,
        }
        if role is Role.BYSTANDER:
            return [node for node in self.voters if node not in known.values()]
        node = known.get(role)
        return [node] if node else []


class Reached(NamedTuple):
    """A migration has come to a moment."""

    running: Running
    moment: Moment


class Coverage:
    """Watches one run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.counts = Counts()
        self.on_moment: Callable[[Reached], None] | None = None
        self.on_activation: Callable[[AgentProcess], None] | None = None
        self.on_transaction: Callable[[str, str, TransactionMessage], None] | None = None
        self._running: dict[tuple[str, int], Running] = {}

    # --- moments ---------------------------------------------------------------------------------

    def _reach(self, running: Running, moment: Moment) -> None:
        if moment is not Moment.START and running.has_come_to(moment):
            return
        running.moment = moment
        self.counts.moments[running.kind, moment] += 1
        if self.on_moment is not None:
            self.on_moment(Reached(running, moment))

    def rows_written(
        self, uid: str, before: tuple[PartitionRow, ...], rows: tuple[PartitionRow, ...]
    ) -> None:
        """The metastore holds other rows of a shard."""
        known = {row.partition: row for row in before}
        for row in rows:
            old = known.get(row.partition)
            if old == row:
                continue
            where = (uid, row.partition)
            running = self._running.get(where)
            if running is not None and old is not None and old.active is not None:
                if row == committed_row(old):
                    running.version = row.version
                    self._reach(running, Moment.MIGRATION_COMMIT)
                    continue
                self.counts.events["migration given up"] += 1
            self._running.pop(where, None)
            if row.active is not None:
                self._running[where] = running = self._started(row, row.active)
                self._reach(running, Moment.START)

    def _started(self, row: PartitionRow, migration: Migration) -> Running:
        primary = row.primary.node if row.primary is not None else ""
        kind = kind_of(row)
        assert kind is not None
        return Running(migration, kind, primary, row.voter_nodes, row.version)

    def prepared(self, message: PreparedRow) -> None:
        """A master sends a destination the row after its migration."""
        running = self._running.get((message.zone, message.row.partition))
        if running is not None and running.migration.migration_id == message.migration_id:
            self._reach(running, Moment.PREPARED_ROW_SENT)

    def said(self, node: str, to: str, message: Message) -> None:
        """An agent sends a message."""
        if type(message) not in _WATCHED and self.on_transaction is None:
            return
        match message:
            case Sync():
                self._said_sync(to, message)
            case CaughtUp():
                self._said_of(message, Moment.CAUGHT_UP)
            case Frozen():
                self._said_of(message, Moment.FROZEN)
            case Prepared(accepted=True):
                self._said_of(message, Moment.PREPARED_ROW_STORED)
            case RowsStored():
                self._said_stored(message)
            case FenceAck() if self.on_activation is not None:
                self.on_activation(self.cluster.agents[node])
            case ActivationBlocked():
                self.counts.events["activation blocked"] += 1
            case _ if self.on_transaction is not None and isinstance(message, TransactionMessage):
                self.on_transaction(node, to, message)
            case _:
                pass

    def _said_sync(self, to: str, message: Sync) -> None:
        running = self._running.get((message.zone, message.partition))
        if running is not None and to in running.nodes(Role.DESTINATION):
            self._reach(running, Moment.FILLING)

    def _said_of(self, message: CaughtUp | Frozen | Prepared, moment: Moment) -> None:
        running = self._running.get((message.zone, message.partition))
        if running is not None and running.migration.migration_id == message.migration_id:
            self._reach(running, moment)

    def _said_stored(self, message: RowsStored) -> None:
        for partition, version in message.versions:
            running = self._running.get((message.zone, partition))
            if running is None or running.moment is not Moment.MIGRATION_COMMIT:
                continue
            if version >= running.version:
                self._reach(running, Moment.PUBLISHED)

    def deleted(self, uid: str, partition: int, node: str) -> None:
        """An agent has deleted its copy."""
        running = self._running.get((uid, partition))
        if running is None or not running.has_come_to(Moment.MIGRATION_COMMIT):
            return
        if node == running.migration.source:
            self._reach(running, Moment.SOURCE_DELETES)

    def activating(self, agent: AgentProcess, role: Primary) -> None:
        """A new primary has stored its lineage, or has begun to serve."""
        self.counts.events[f"activations {role.stage.name.lower()}"] += 1
        if self.on_activation is not None:
            self.on_activation(agent)

    # --- faults ----------------------------------------------------------------------------------

    def struck(self, fault: str, names: Iterable[str]) -> None:
        """A fault strikes these processes now: note what each of them was in the middle of."""
        counts = self.counts
        counts.faults[fault] += 1
        struck = list(names)
        master = self.cluster.newest_master()
        for running in self._running.values():
            for name in struck:
                for role in Role:
                    if role is Role.MASTER:
                        is_it = master is not None and name == master.name
                    else:
                        is_it = name in running.nodes(role)
                    if is_it:
                        counts.hits[running.kind, running.moment, role, fault] += 1
        for agent in self.cluster.living():
            for zone in agent.core.zones.values():
                for primary in zone.roles.values():
                    if primary.stage is not Stage.SERVING:
                        who = "primary" if agent.name in struck else "another"
                        counts.activations[primary.stage.name.lower(), fault, who] += 1


def table(counts: Counts) -> str:
    """Coverage as text: migrations by moment, faults by moment, faults by stage of activations."""
    kinds = sorted({kind for kind, _ in counts.moments})
    lines = ["migrations that reached a moment"]
    lines += _grid(kinds, MOMENTS, lambda kind, moment: counts.moments[kind, moment])
    faults = sorted(counts.faults)
    at: Counter[tuple[str, str]] = Counter()
    for (_, moment, _, fault), count in counts.hits.items():
        at[fault, moment] += count
    lines += ["", "faults that struck one who takes part, by the moment of the migration"]
    lines += _grid(faults, MOMENTS, lambda fault, moment: at[fault, moment])
    stages = [stage.name.lower() for stage in Stage if stage is not Stage.SERVING]
    during: Counter[tuple[str, str]] = Counter()
    for (stage, fault, who), count in counts.activations.items():
        during[fault, stage] += count if who == "primary" else 0
    lines += ["", "faults that struck the new primary, by the stage of its activation"]
    lines += _grid(faults, stages, lambda fault, stage: during[fault, stage])
    for name, count in sorted(counts.events.items()):
        lines.append(f"{name}: {count}")
    reachable = {(kind, moment) for kind, moment in counts.moments}
    cells = {(k, m, r, f) for k, m in reachable for r in Role for f in counts.faults}
    lines.append(
        f"kind x moment x role x fault: {len(counts.hits)} of at most {len(cells)} cells reached"
    )
    return "\n".join(lines)


def _grid(
    rows: Iterable[str], columns: Iterable[str], count: Callable[[str, str], int]
) -> list[str]:
    names = list(columns)
    widths = [max(len(name), 7) for name in names]
    lines = [" " * 16 + "  ".join(n.rjust(w) for n, w in zip(names, widths, strict=True))]
    for row in rows:
        cells = [str(count(row, name)).rjust(w) for name, w in zip(names, widths, strict=True)]
        lines.append(row.ljust(16) + "  ".join(cells))
    return lines
