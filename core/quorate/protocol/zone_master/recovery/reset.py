"""Resets partitions that have lost the majority of their voters.

Source: IEP-131, phase 1: when `partitionDistributionResetTimeoutSeconds` have passed since the last
loss, the voter with the freshest copy of those that have been there all the time is forced to be
the only voter. The others keep their copies and become voters again by ordinary migrations. That is
for HIGH_AVAILABILITY; in both modes a person can decide it (master/decisions). docs/protocol.md,
section 7.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow, is_quorum
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import NEVER_MS, ConsistencyMode
from quorate.planning.target.data_nodes import TimerKind
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.events import Reason
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.status import TimerStatus
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import may_be_replaced, may_wait_for_left
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate.protocol.zone_master.timers import shown_timer
from quorate.protocol.zone_master.zone import Zone

CLOCK_DRIFT = 20
"""Two machines' clocks may drift apart by one part in so many, as for leases."""


class Resets:
    """Decides the rows of one zone's partitions that narrow to one survivor.

    `running`: the timer of the partitions for which that is due next, as users see it.
    """

    def __init__(self, cluster: Cluster, zone: Zone) -> None:
        self.running: tuple[TimerStatus, ...] = ()
        self._cluster = cluster
        self._zone = zone

    def topology_changed(self) -> None:
        """Forget that copies were ready whose agents have left: writes go on without them."""
        zone = self._zone
        if not zone.record.acknowledges_by_all:
            return
        for partition, part in list(zone.parts.items()):
            ready = tuple(each for each in part.ready if zone.nodes.holder(each.node) == each)
            if ready != part.ready:
                zone.parts[partition] = msgspec.structs.replace(part, ready=ready)

    def look(self, writing: Mapping[int, object], now: Now) -> None:
        """Reset the partitions for which that is due; after every partition was looked at.

        `writing`: the shards whose write is under way.
        """
        zone, cluster = self._zone, self._cluster
        if self.is_new(now):
            return
        is_high = zone.record.mode is ConsistencyMode.HIGH_AVAILABILITY
        reset: list[PartitionRow] = []
        waiting: dict[str, int] = {}
        for partition, part in list(zone.parts.items()):
            if part.row.reset is None and not is_high:
                continue
            is_busy = partition in zone.decided or partition // SHARD_PARTITIONS in writing
            if is_busy or (zone.record.uid, partition) in cluster.newer_rows.told:
                continue
            dropped = self._dropped(part)
            if dropped:
                after = ownership.without_left(part.row, dropped)
                zone.decided[partition] = after, Why(Cause.GIVEN_UP_COPY, (", ".join(dropped),))
                continue
            better = survivor = self._better(part)
            if survivor is None and is_high:
                survivor = self._survivor_if_due(part, waiting, now)
            if survivor is not None:
                zone.decided[partition] = self.change(part, survivor, better is not None)
                reset.append(zone.decided[partition][0])
        self._show(waiting, now)
        if reset:
            self.report(reset)

    def is_new(self, now: Now) -> bool:
        """Return whether agents that are there may not have greeted this master yet."""
        cluster = self._cluster
        return now.boot_ms - cluster.began_ms < cluster.settings.failure_detection_ms

    def report(self, reset: Sequence[PartitionRow], decided: str = "") -> None:
        """Tell users of the new rows `reset` before they are written. `decided`: by whom."""
        zone = self._zone
        nodes = sorted({row.voters[0].node for row in reset})
        before = {row.partition: zone.parts[row.partition] for row in reset}
        record = zone.record
        was, was_not = ("an owner", "no owner")
        if record.acknowledges_alone:
            was, was_not = ("the primary", "not the primary")
        bare = sum(not self.has_all(before[row.partition], row.voters[0]) for row in reset)
        lost = f"it was {was}, so it has every acknowledged write"
        if not (record.acknowledges_by_all or record.acknowledges_alone):
            lost = "acknowledged writes that only the others had are lost"
        elif bare:
            lost = f"in {bare} of them it was {was_not}, so acknowledged writes may be lost"
        about = (
            f"{len(reset)} partitions from {min(before)} on lost the majority of their voters and"
            f" narrow to one copy ({', '.join(nodes)}){decided}: {lost}"
        )
        self._cluster.event(record.uid, None, Reason.DATA_LOSS_ACCEPTED, about, "Warning")

    def has_all(self, part: PartitionState, voter: Voter | Holder) -> bool:
        """Return whether the voter surely has every acknowledged write.

        With FULL_SYNC an owner has that the primary counts, with PRIMARY_SYNC the primary. One that
        was just elected counts as an owner before it has gathered what others hold.
        """
        record, row = self._zone.record, part.row
        if _is_primary(row, voter) and not part.has_served:
            return False
        if record.acknowledges_alone:
            return _is_primary(row, voter)
        is_counted = all(each.node != voter.node for each in part.uncounted)
        return record.acknowledges_by_all and voter.node in row.owners and is_counted

    def _show(self, waiting: Mapping[str, int], now: Now) -> None:
        """Note the timer that runs. `waiting`: lost nodes -> the time until a reset is due (ms)."""
        if not waiting:
            self.running = ()
            return
        left_ms = min(waiting.values())
        due_ms = now.wall_ms + left_ms if left_ms < NEVER_MS // 2 else None
        timer = TimerStatus(TimerKind.RESET, tuple(sorted(waiting)), due_ms)
        self.running = (shown_timer(self.running, timer),)

    def _dropped(self, part: PartitionState) -> list[str]:
        """Return the nodes whose copies, which a reset left, are not to be kept any longer.

        Their stores are gone for good, or the partition has all its copies elsewhere. The voters
        must have been heard first: one may know a newer row, with the version of the next one.
        """
        row = part.row
        if part.unheard or row.active is not None or not row.left_by_reset:
            return []
        zone = self._zone
        is_whole = len(row.owners) >= zone.record.replicas
        return [
            voter.node
            for voter in row.left_by_reset
            if is_whole or zone.nodes.is_dead(voter) or not zone.nodes.is_registered(voter.node)
        ]

    def change(
        self, part: PartitionState, survivor: Holder, is_better: bool = False
    ) -> tuple[PartitionRow, Why]:
        """Return the row in which `survivor` alone votes, and the cause.

        `is_better`: the present primary could not take over what it has, so nothing was written
        since.
        """
        row = part.row
        # Without a quorum of reports a newer row may be unknown: the version is above all others.
        above = self._cluster.master_term * RECOVERY_GAP if part.unheard else 0
        lost = ", ".join(v.node for v in row.voters if self._zone.nodes.gone(v.node, v.store))
        has_all = is_better or self.has_all(part, survivor)
        after = ownership.reset_to(row, survivor, above, has_all)
        return after, Why(Cause.RESET, (lost, survivor.node))

    def _better(self, part: PartitionState) -> Holder | None:
        """Return the copy to narrow to instead of a survivor that cannot take over what it has.

        The survivor has reported it: the other's log is too short, and it is not a voter.
        """
        if part.is_activation_over or part.row.active is not None:
            return None
        better = [voter for voter in part.row.left_by_reset if voter.node == part.better]
        return self._zone.nodes.voter_holder(better[0]) if better else None

    def _survivor_if_due(
        self, part: PartitionState, waiting: dict[str, int], now: Now
    ) -> Holder | None:
        """Return the voter to narrow to if that is due; else note in `waiting` who is lost.

        A master that was cut off hears of one agent after the other, and after a failure of power
        one starts after the other. So only a voter that was there when the last of the others was
        lost can be the survivor: the others that return then are not about to be a majority.
        """
        row, nodes = part.row, self._zone.nodes
        if not may_be_replaced(part, nodes):
            return None  # first it is found out whether the migration was committed
        lost = [voter for voter in row.voters if nodes.gone(voter.node, voter.store)]
        there = [voter for voter in row.voters if nodes.voter_holder(voter) is not None]
        if not lost or len(there) + len(lost) < len(row.voters):
            return None
        if is_quorum(row, [voter.node for voter in there], nodes.dead_voters(row)):
            return None
        lost_ms = min(nodes.unchanged_ms(voter, now) for voter in lost)
        remained = [v for v in there if any(nodes.was_there(v, each, now) for each in lost)]
        if may_wait_for_left(row) and not part.has_served:
            # Those that restarted wait for copies that a reset left; a person can end that.
            since_ms = now.boot_ms - part.served_ms if part.served_ms >= 0 else NEVER_MS
            remained = [voter for voter in remained if nodes.unchanged_ms(voter, now) >= since_ms]
        if not there and all(map(nodes.is_dead, row.voters)):
            remained = [v for v in row.left_by_reset if nodes.voter_holder(v) is not None]
        # Agents answer only the newest master. One that another has followed loses all of them, and
        # hears from none after the first.
        lost_at_ms = now.boot_ms - lost_ms
        remained = [voter for voter in remained if nodes.heard_ms(voter.node) > lost_at_ms]
        if not remained:
            return None
        left_ms = max(self._zone.record.reset_ms - lost_ms, self.may_serve_ms(lost, now))
        if left_ms > 0:
            waiting |= {voter.node: left_ms for voter in lost}
            return None
        return self.freshest(part, remained, now)

    def may_serve_ms(self, lost: Iterable[Voter], now: Now) -> int:
        """Return for how long lost voters may still serve in a zone with an isolation timeout.

        Those whose stores are not gone for good may be cut off. Their clocks may run slower.
        """
        isolation_ms, nodes = self._zone.record.isolation_ms, self._zone.nodes
        since_ms = [nodes.unchanged_ms(voter, now) for voter in lost if not nodes.is_dead(voter)]
        if isolation_ms >= NEVER_MS or not since_ms:
            return 0
        return max(isolation_ms + isolation_ms // CLOCK_DRIFT - min(since_ms), 0)

    def freshest(self, part: PartitionState, voters: Iterable[Voter], now: Now) -> Holder | None:
        """Return the one with the freshest copy; None while a report is waited for.

        Reports are old, so one that surely has everything comes first, then owners, which were
        close to the primary.
        """
        row, nodes = part.row, self._zone.nodes
        asked = [holder for voter in voters if (holder := nodes.voter_holder(voter)) is not None]
        late_ms = now.boot_ms - self._cluster.settings.failure_detection_ms
        if any(not nodes.reported(h.node) and nodes.asked_ms(h.node) > late_ms for h in asked):
            return None

        def rank(holder: Holder) -> tuple[bool, bool, int, int, str]:
            report = nodes.report(holder.node, row.partition)
            position = (-report.last_term, -report.lwm) if report is not None else (0, 0)
            return (
                not self.has_all(part, holder),
                holder.node not in row.owners,
                *position,
                holder.node,
            )

        return min(asked, key=rank)


def _is_primary(row: PartitionRow, voter: Voter | Holder) -> bool:
    """Return whether the voter is the row's primary, with the same store."""
    primary = row.primary
    return primary is not None and (primary.node, primary.store) == (voter.node, voter.store)
