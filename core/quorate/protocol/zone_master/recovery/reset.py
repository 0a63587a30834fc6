"""Resets partitions of a HIGH_AVAILABILITY zone that have lost the majority of their voters.

Source: IEP-131, phase 1: when `partitionDistributionResetTimeoutSeconds` have passed, the one voter
that is left with the freshest copy is forced to be the only voter; the others that are left get
copies after that, by ordinary migrations. docs/protocol.md, section 7.
"""

from collections.abc import Mapping

import msgspec

from quorate.facts.partition_row import PartitionRow, is_quorum
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import NEVER_MS, ConsistencyMode
from quorate.planning.target.data_nodes import TimerKind
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import FOREVER_MS
from quorate.protocol.messages.events import Reason
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.status import TimerStatus
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import PartitionState
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate.protocol.zone_master.timers import DUE_MOVED_MS
from quorate.protocol.zone_master.zone import Zone


class Resets:
    """Decides the rows of one zone's partitions that narrow to one survivor.

    `running`: the timer of the partitions for which that is due next, as users see it.
    """

    def __init__(self, cluster: Cluster, zone: Zone) -> None:
        self.running: tuple[TimerStatus, ...] = ()
        self._cluster = cluster
        self._zone = zone
        self._highest: dict[int, int] = {}

    def note_position(self, partition: int, counter: int) -> None:
        """Note that some copy of the partition has, or knows of, updates up to `counter`."""
        if counter > self._highest.get(partition, 0):
            self._highest[partition] = counter

    def topology_changed(self) -> None:
        """Forget that copies were ready whose agents have left: writes go on without them."""
        zone = self._zone
        if not zone.record.acknowledges_by_all:
            return
        for partition, part in list(zone.parts.items()):
            ready = tuple(node for node in part.ready if zone.nodes.holder(node) is not None)
            if ready != part.ready:
                zone.parts[partition] = msgspec.structs.replace(part, ready=ready)

    def look(self, writing: Mapping[int, object], now: Now) -> None:
        """Reset the partitions for which that is due; after every partition was looked at.

        `writing`: the shards whose write is under way.
        """
        zone, cluster = self._zone, self._cluster
        is_new = now.boot_ms - cluster.began_ms < cluster.settings.failure_detection_ms
        if zone.record.mode is not ConsistencyMode.HIGH_AVAILABILITY or is_new:
            return
        reset: dict[str, list[int]] = {}
        waiting: dict[str, int] = {}
        lost = 0
        for partition, part in zone.parts.items():
            is_busy = partition in zone.decided or partition // SHARD_PARTITIONS in writing
            if is_busy or (zone.record.uid, partition) in cluster.newer_rows.told:
                continue
            dropped = self._dropped(part.row)
            if dropped:
                after = ownership.without_left(part.row, dropped)
                zone.decided[partition] = after, Why(Cause.GIVEN_UP_COPY, (", ".join(dropped),))
                continue
            lost_ms = self._majority_lost_ms(part, now)
            if lost_ms is None:
                continue
            if lost_ms < zone.record.reset_ms:
                waiting |= dict.fromkeys(zone.nodes.gone_voters(part.row), lost_ms)
                continue
            survivor = self._survivor(part, now)
            if survivor is None:
                continue
            zone.decided[partition] = self._reset(part, survivor)
            reset.setdefault(survivor.node, []).append(partition)
            lost += self._may_be_lost(partition, survivor.node)
        self._show(waiting, now)
        if reset:
            count = sum(map(len, reset.values()))
            first = min(min(each) for each in reset.values())
            about = (
                f"{count} partitions from {first} on had lost the majority of their voters and"
                f" narrowed to {', '.join(sorted(reset))}; up to {lost} updates known of elsewhere"
                " may be lost"
            )
            self._cluster.event(zone.record.uid, None, Reason.DATA_LOSS_ACCEPTED, about, "Warning")

    def _show(self, waiting: Mapping[str, int], now: Now) -> None:
        """Note the timer that runs. `waiting`: lost nodes -> since when a majority is lost (ms)."""
        if not waiting:
            self.running = ()
            return
        left_ms = self._zone.record.reset_ms - max(waiting.values())
        due_ms = now.wall_ms + left_ms if left_ms < NEVER_MS // 2 else None
        timer = TimerStatus(TimerKind.RESET, tuple(sorted(waiting)), due_ms)
        shown = self.running[0] if self.running else timer
        is_same = shown.nodes == timer.nodes and (
            shown.due_ms == due_ms
            or (
                shown.due_ms is not None
                and due_ms is not None
                and abs(shown.due_ms - due_ms) < DUE_MOVED_MS
            )
        )
        self.running = (shown if is_same else timer,)

    def _dropped(self, row: PartitionRow) -> list[str]:
        """Return the nodes whose copies, which a reset left, are not to be kept any longer.

        Their stores are gone for good, or the partition has all its copies elsewhere.
        """
        if row.active is not None or not row.left_by_reset:
            return []
        zone = self._zone
        is_whole = len(row.owners) >= zone.record.replicas
        return [
            voter.node
            for voter in row.left_by_reset
            if is_whole or zone.nodes.is_dead(voter) or not zone.nodes.is_registered(voter.node)
        ]

    def _may_be_lost(self, partition: int, survivor: str) -> int:
        report = self._zone.nodes.report(survivor, partition)
        own = report.lwm if report is not None else 0
        return max(self._highest.get(partition, 0) - own, 0)

    def _reset(self, part: PartitionState, survivor: Holder) -> tuple[PartitionRow, Why]:
        row = part.row
        # Nobody can vouch any more that this is the newest row: the version is above all others.
        above = self._cluster.master_term * RECOVERY_GAP if part.unheard else 0
        lost = ", ".join(v.node for v in row.voters if self._zone.nodes.gone(v.node, v.store))
        return ownership.reset_to(row, survivor, above), Why(Cause.RESET, (lost, survivor.node))

    def _majority_lost_ms(self, part: PartitionState, now: Now) -> int | None:
        """Return for how long the voters that are there have been no quorum; None: they are one.

        It counts from the last loss. Every voter must be either there or lost. While one has just
        come back, others may be about to: a master that was cut off hears of one after the other.
        """
        row, nodes = part.row, self._zone.nodes
        if not part.resolved or part.prepared:
            return None  # first it is found out whether the migration was committed
        lost = [voter for voter in row.voters if nodes.gone(voter.node, voter.store)]
        if not lost:
            return None
        there = [voter for voter in row.voters if self._there(voter) is not None]
        here = [voter.node for voter in there]
        if len(here) + len(lost) < len(row.voters):
            return None
        settled_ms = min((nodes.unchanged_ms(voter, now) for voter in there), default=FOREVER_MS)
        if settled_ms < self._cluster.settings.failure_detection_ms:
            return None
        if is_quorum(row, here, nodes.dead_voters(row)):
            return None
        return min(nodes.unchanged_ms(voter, now) for voter in lost)

    def _survivor(self, part: PartitionState, now: Now) -> Holder | None:
        """Return the voter to narrow to; None if there is none, or its report is waited for.

        It is the voter with the freshest copy; without any, the destination of a migration if its
        copy was complete. If the stores of all voters are gone for good, it is one of those that
        the last reset left.
        """
        row, nodes = part.row, self._zone.nodes
        there = [holder for voter in row.voters if (holder := self._there(voter)) is not None]
        left = [holder for voter in row.left_by_reset if (holder := self._there(voter)) is not None]
        asked = [*there, *left]
        newcomer = self._newcomer(row)
        if newcomer is not None:
            asked.append(newcomer)
        late_ms = now.boot_ms - self._cluster.settings.failure_detection_ms
        if any(not nodes.reported(h.node) and nodes.asked_ms(h.node) > late_ms for h in asked):
            return None

        def rank(holder: Holder) -> tuple[bool, int, int, str]:
            report = nodes.report(holder.node, row.partition)
            if report is None:
                return True, 0, 0, holder.node
            return False, -report.last_term, -report.lwm, holder.node

        if there:
            return min(there, key=rank)
        if newcomer is not None and self._is_complete(newcomer, row):
            return newcomer
        return min(left, key=rank) if left and all(map(nodes.is_dead, row.voters)) else None

    def _there(self, voter: Voter) -> Holder | None:
        holder = self._zone.nodes.holder(voter.node)
        return holder if holder is not None and holder.store == voter.store else None

    def _newcomer(self, row: PartitionRow) -> Holder | None:
        newcomer = row.destination
        if newcomer is None or self._zone.nodes.holder(newcomer.node) != newcomer:
            return None
        return newcomer

    def _is_complete(self, newcomer: Holder, row: PartitionRow) -> bool:
        report = self._zone.nodes.report(newcomer.node, row.partition)
        return report is not None and report.adopted and report.last_term == row.term
