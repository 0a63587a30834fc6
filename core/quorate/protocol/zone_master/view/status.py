"""The status of one zone: its phase, its partitions by state, its active migrations.

It is computed only when something it depends on has changed (`ZoneView`).  A master with hundreds
of zones at rest is asked for their status twice a second, and looking at tens of thousands of
partitions each time would cost more than all its decisions.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from quorate.facts.partition_row import PartitionRow, is_committed, is_quorum
from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.membership import ZoneNodes
from quorate.protocol.members.reported_storages import ReportedStorages
from quorate.protocol.messages.events import LOST_NAMED_MAX
from quorate.protocol.messages.master import TransferProgress
from quorate.protocol.recovery import RecoveryAction, commands_of
from quorate.protocol.status import MigrationStatus, TimerStatus, ZoneStatus
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import may_wait_for_left
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.view.availability import (
    Availability,
    availability,
    data_loss,
    voters_online,
)
from quorate.protocol.zone_master.zone import Parts

UNAVAILABLE_NAMED_MAX = 100
LOST_SHOWN_MAX = 8
INTENTS_NAMED_MAX = 8
_NO_FAILOVER = frozenset({Cause.RESET, Cause.STARTED_EMPTY, Cause.RESTARTED})
"""Causes of another primary that are counted and told as what they are."""


class Moved:
    """Migrations, bytes and failovers since this master took over, and migrations under way."""

    def __init__(self) -> None:
        self.migrations_done = 0
        self.migrations_failed = 0
        self.migrations_cancelled = 0
        self.bytes_moved = 0
        self.bytes_wasted = 0
        self.failovers = 0
        self._received: dict[tuple[int, str], int] = {}
        self.full_copies = 0
        self.under_way: dict[tuple[int, str], TransferProgress] = {}
        self.changes = 0
        """How often any of this has changed."""

    def note(self, node: str, message: TransferProgress, is_newcomer: bool = False) -> bool:
        """Note the progress of a filling copy on `node`. Return whether it has changed.

        `is_newcomer`: it fills for a migration, which may still fail.
        """
        self.changes += 1
        copy = (message.partition, node)
        known = self.under_way.get(copy)
        before = known.bytes_done if known is not None else 0
        more = max(message.bytes_done - before, 0)
        self.bytes_moved += more
        if is_newcomer:
            self._received[copy] = self._received.get(copy, 0) + more
        if message.done:
            self.full_copies += 1 if message.full_reason else 0
            self.under_way.pop(copy, None)
        else:
            self.under_way[copy] = message
        return message.done or message.bytes_done != before

    def ended(
        self, partition: int, destination: str, failed: bool, is_cancelled: bool = False
    ) -> None:
        """Note the end of a migration. What a failed one had moved counts as wasted."""
        self.changes += 1
        self.under_way.pop((partition, destination), None)
        received = self._received.pop((partition, destination), 0)
        if failed:
            self.bytes_wasted += received
            self.migrations_cancelled += is_cancelled
            self.migrations_failed += not is_cancelled
        else:
            self.migrations_done += 1

    def row_changed(self, before: PartitionRow | None, row: PartitionRow, why: Why | None) -> None:
        """Count a failover, if that is what the new row means: another primary, or another process
        of the same, without a hand-over, a reset or a decision of a person."""
        if before is None or before.primary is None or row.primary is None:
            return
        if why is not None and why.cause in _NO_FAILOVER:
            return
        if before.primary != row.primary and not is_committed(before, row):
            self.changes += 1
            self.failovers += 1


class HasTimers(Protocol):
    """Something of which timers run."""

    running: tuple[TimerStatus, ...]


class ZoneView:
    """The cached status of one zone. The objects that it reads belong to the zone's master."""

    def __init__(
        self,
        parts: Parts,
        nodes: ZoneNodes,
        rebalance: Rebalance,
        timers: HasTimers,
        resets: HasTimers,
        moved: Moved,
        storages: ReportedStorages,
    ) -> None:
        self._parts = parts
        self._nodes = nodes
        self._rebalance = rebalance
        self._timers = timers
        self._resets = resets
        self._moved = moved
        self._storages = storages
        self._known: ZoneStatus | None = None
        self._basis: object = None
        self._roles_of = -1
        self._roles: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def status(self, record: ZoneRecord, sentence: str, ownership: str = "") -> ZoneStatus:
        """Return the zone as users see it; the same object as before while nothing has changed."""
        basis = (
            ownership,
            self._parts.changes,
            self._moved.changes,
            record,
            sentence,
            self._rebalance.target,
            len(self._rebalance.off_target),
            self._rebalance.intents(record, INTENTS_NAMED_MAX),
            self._rebalance.states.missing(),
            self._rebalance.states.misfits(record),
            self._nodes.refusals(),
            self._nodes.holders(),
            self._storages.full(),
            self._storages.aside(),
            self._timers.running,
            self._resets.running,
            self._rebalance.stuck(record.uid),
        )
        known = self._known
        # Which partitions are LOST also depends on registrations.
        if known is None or basis != self._basis or known.unavailable:
            fresh = self.observe(record, sentence, ownership)
            self._basis = basis
            self._known = known = known if fresh == known and known is not None else fresh
        return known

    def observe(self, record: ZoneRecord, sentence: str, ownership: str = "") -> ZoneStatus:
        """Return the zone as users see it, after looking at every partition."""
        status = zone_status(
            record, self._parts, self._nodes, self._rebalance, self._moved, sentence
        )
        return msgspec.structs.replace(
            status,
            full=self._storages.full(),
            aside=self._storages.aside(),
            placed=record.placed,
            importing=record.importing,
            rebuilding=record.recovering,
            ownership=ownership,
            timers=self._timers.running + self._resets.running,
            data_loss=data_loss(self._parts, record.replicas),
            stuck=self._rebalance.stuck(record.uid),
            misfits=self._rebalance.states.misfits(record),
        )

    def roles(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of primaries, and of copies, that each node has of this zone."""
        if self._roles_of != self._parts.changes:
            self._roles_of, self._roles = self._parts.changes, roles(self._parts)
        return self._roles


def roles(parts: Mapping[int, PartitionState]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of primaries, and of copies, that each node has."""
    primaries: dict[str, int] = {}
    owners: dict[str, int] = {}
    for part in parts.values():
        for node in part.row.owners:
            owners[node] = owners.get(node, 0) + 1
        first = part.row.replicas[0]
        if first is not None:
            primaries[first] = primaries.get(first, 0) + 1
    return primaries, owners


def way_out_of_loss(record: ZoneRecord) -> str:
    """Return what becomes of partitions that are LOST, or what a person can do about them."""
    if record.start_empty:
        return "onAllCopiesLost of the zone is StartEmpty"
    reopen = f"let them begin again without data ({commands_of(RecoveryAction.REOPEN)})"
    if not record.persistent:
        return reopen
    return (
        "data that agents set aside is in set-aside-N of their data folders (their logs and"
        " `quorate dev status` show where and why): put it back (`quorate dev put-back`, or"
        f" `quorate-agent --put-back N` for each agent that you start yourself), or {reopen}"
    )


def zone_status(
    record: ZoneRecord,
    parts: Mapping[int, PartitionState],
    nodes: ZoneNodes,
    rebalance: Rebalance,
    moved: Moved,
    sentence: str,
) -> ZoneStatus:
    """Return the zone as users see it.

    `sentence`: what its first placement or its rebuild waits for, and which rows are set aside. A
    partition whose primary is being handed over counts as served, and its migration as running.
    """
    refusals = nodes.refusals()
    by_state: dict[Availability, list[int]] = {state: [] for state in Availability}
    handed_over = 0
    was_placed = record.recovering or record.placed
    missing: dict[int, int] = {}
    for partition in sorted(parts):
        part = parts[partition]
        short = record.replicas - len(part.row.owners)
        if short > 0:
            missing[short] = missing.get(short, 0) + 1
        handed_over += part.is_being_handed_over
        by_state[availability(part, record.replicas, nodes)].append(partition)
    migrations = _migrations(parts, moved)
    running = len(migrations) + handed_over
    available = len(by_state[Availability.AVAILABLE])
    degraded = len(by_state[Availability.DEGRADED])
    lost, read_only = by_state[Availability.LOST], by_state[Availability.READ_ONLY]
    waiting = sorted([*by_state[Availability.UNAVAILABLE], *read_only])
    rowless = [p for p in range(record.partitions) if p not in parts] if was_placed else []
    unavailable = sorted([*waiting, *lost, *rowless])
    if record.deleting:
        phase, sentence = "Deleting", "removing rows and data"
    elif not parts and not was_placed:
        phase = "Pending"
    elif unavailable:
        waited_for = f"; {sentence}" if was_placed and sentence else ""
        phase, sentence = "Unavailable", f"{len(unavailable)} partitions have no serving primary"
        sentence += waited_for
        if lost:
            sentence += (
                f"; {len(lost)} of them are LOST (partitions {listed(lost)}): every store that held"
                f" them is gone for good; {way_out_of_loss(record)}"
            )
        sentence += _without_quorum(record, [parts[p].row for p in waiting], nodes)
        if read_only:
            sentence += (
                f"; {len(read_only)} of them answer reads of READONLY connections, which may be"
                f" old (partitions {listed(read_only)})"
            )
    elif running:
        phase, sentence = "Rebalancing", f"{running} migrations are running"
    elif degraded:
        counted = f"{degraded} partitions have fewer than {record.replicas} copies"
        phase, sentence = "Degraded", "; ".join([counted, *rebalance.states.missing()])
    else:
        phase, sentence = "Available", f"all {available} partitions have {record.replicas} copies"
    for node, reason in refusals:
        sentence += f"; {node} refuses the zone: {reason}"
    target = rebalance.target
    planned, intents = rebalance.intents(record, INTENTS_NAMED_MAX)
    return ZoneStatus(
        uid=record.uid,
        name=record.name,
        phase=phase,
        sentence=sentence,
        partitions=record.partitions,
        available=available,
        degraded=degraded,
        unavailable=len(unavailable),
        migrations_running=running,
        migrations_queued=max(len(rebalance.off_target) - len(migrations), 0),
        migrations_done=moved.migrations_done,
        migrations_failed=moved.migrations_failed,
        bytes_moved=moved.bytes_moved,
        full_copies=moved.full_copies,
        migrations_cancelled=moved.migrations_cancelled,
        bytes_wasted=moved.bytes_wasted,
        failovers=moved.failovers,
        ports=dict(record.ports),
        port=record.port,
        external_ports=dict(record.external_ports),
        data_nodes=record.data_nodes.nodes if record.data_nodes is not None else (),
        spread_violations=target.report.shared_domains if target else (),
        migrations=migrations,
        unavailable_partitions=tuple(unavailable[:UNAVAILABLE_NAMED_MAX]),
        missing_copies=dict(sorted(missing.items())),
        read_only=len(read_only),
        lost=len(lost),
        lost_partitions=tuple(lost[:LOST_NAMED_MAX]),
        refusals=refusals,
        planned=planned,
        intents=intents,
    )


def _without_quorum(record: ZoneRecord, rows: Sequence[PartitionRow], nodes: ZoneNodes) -> str:
    """Return sentences on the `rows` that wait for copies, or "".

    The stores of voters are gone for good, or voters are away, or copies that a reset left.
    """
    gone: set[str] = set()
    away: set[str] = set()
    stopped: list[int] = []
    waiting: list[int] = []
    behind: list[int] = []
    left: set[str] = set()
    silent: set[str] = set()
    for row in rows:
        dead = nodes.dead_voters(row)
        voters = {voter.node for each in row.voter_sets for voter in each}
        here = voters_online(row, nodes)
        if not is_quorum(row, [node for node in row.voter_nodes if node not in dead], dead):
            gone.update(dead)
            stopped.append(row.partition)
        elif not is_quorum(row, here, dead):
            away |= voters.difference(here, dead)
            waiting.append(row.partition)
        elif row.left_by_reset and may_wait_for_left(row):
            for voter in row.left_by_reset:
                (silent if nodes.voter_holder(voter) is not None else left).add(voter.node)
            behind.append(row.partition)
    sentence, reset = "", commands_of(RecoveryAction.RESET)
    if stopped:
        again = "start one of these agents with its old folder, or " if record.persistent else ""
        sentence = (
            f"; {len(stopped)} of them no longer have a quorum (partitions {listed(stopped)}): the"
            f" stores of {', '.join(sorted(gone))} are gone for good, and may have held the only"
            f" copies of acknowledged writes; {again}go on without them ({reset})"
        )
    if waiting:
        sentence += (
            f"; {len(waiting)} of them wait for a quorum (partitions {listed(waiting)}): start"
            f" agents that are away: {', '.join(sorted(away))}, or go on without what only they"
            f" have ({reset})"
        )
    if behind:
        start = f"start agents that are away ({', '.join(sorted(left))})" if left else ""
        look = f"look why {', '.join(sorted(silent))} do not answer them" if silent else ""
        sentence += (
            f"; {len(behind)} of them restarted before anything was written after a reset, and wait"
            f" for the copies that it left (partitions {listed(behind)}), which may have later"
            f" updates: {', or '.join(filter(None, (start, look)))}, or go on without them"
            f" ({reset})"
        )
    return sentence


def listed(partitions: Sequence[int]) -> str:
    """Return the first of these partitions, for people."""
    more = ", …" if len(partitions) > LOST_SHOWN_MAX else ""
    return ", ".join(map(str, partitions[:LOST_SHOWN_MAX])) + more


def _migrations(parts: Mapping[int, PartitionState], moved: Moved) -> tuple[MigrationStatus, ...]:
    found: list[MigrationStatus] = []
    for partition in sorted(parts):
        told = migration_status(parts[partition])
        if told is not None:
            progress = moved.under_way.get((partition, told.destination or ""))
            if progress is not None:
                told = msgspec.structs.replace(
                    told, bytes_done=progress.bytes_done, bytes_total=progress.bytes_total
                )
            found.append(told)
    return tuple(found)


def migration_status(part: PartitionState) -> MigrationStatus | None:
    """Return the partition's active migration without its progress; None if there is none."""
    row, active = part.row, part.row.active
    if active is None:
        return None
    to = active.destination.node if active.destination else None
    kind, phase = active.kind.value, _phase(part)
    return MigrationStatus(row.partition, kind, active.source, to, phase, version=row.version)


def _phase(part: PartitionState) -> str:
    if part.prepared:
        return "committing"
    if part.prepare_ms >= 0:
        return "prepared"
    if part.freeze_ms >= 0:
        return "frozen" if part.frozen else "freezing"
    return "caught-up" if part.caught_up else "filling"
