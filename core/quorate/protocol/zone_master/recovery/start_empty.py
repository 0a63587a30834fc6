"""Partitions whose every copy is lost begin again without data, where the zone says so.

Source: Ignite 3's design of in-memory groups: a group that was restarted whole starts as it did the
first time, and not before every member is known to be empty. docs/protocol.md, section 6.
"""

from collections.abc import Mapping, Sequence

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.events import Reason
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.decide_partition import may_be_replaced
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate.protocol.zone_master.zone import Zone


class EmptyStart:
    """Gives LOST partitions of one zone a row over stores that are empty.

    `sentence`: what that waits for, for the zone's status; "" if no partition waits.
    """

    def __init__(self, cluster: Cluster, zone: Zone, rebalance: Rebalance) -> None:
        self.sentence = ""
        self._cluster = cluster
        self._zone = zone
        self._rebalance = rebalance

    def look(self, writing: Mapping[int, object], now: Now) -> None:
        """Decide rows for the partitions that are LOST; after every partition was looked at.

        `writing`: the shards whose write is under way. A row that is older than one an agent knows
        is not lost but rebuilt (rebuild_zone.py), so every agent must have told what it has, and
        agents that are not registered must have had the time to greet.
        """
        self.sentence = ""
        zone, target, cluster = self._zone, self._rebalance.target, self._cluster
        if not zone.record.start_empty or zone.record.recovering or target is None:
            return
        lost = [part.row for part in zone.parts.values() if self._is_lost(part)]
        if not lost or now.boot_ms - cluster.began_ms < cluster.settings.failure_detection_ms:
            return
        missing = self.not_heard()
        if missing:
            self.sentence = (
                "the LOST partitions start empty once these agents have told what they have, or are"
                f" removed: {', '.join(missing)}"
            )
            return
        started = [
            row for row in lost if self._start(row, target.assignments[row.partition], writing)
        ]
        if started:
            self.report(started, "onAllCopiesLost of the zone is StartEmpty")

    def _is_lost(self, part: PartitionState) -> bool:
        """Return whether no store is left that could have anything of the partition."""
        row, nodes = part.row, self._zone.nodes
        has_left = not all(map(nodes.is_dead, row.left_by_reset))
        return nodes.is_lost(row) and not has_left and self.is_free(part)

    def is_free(self, part: PartitionState) -> bool:
        """Return whether no migration of the partition is under way, or was committed."""
        if part.row.active is None:
            return True
        return part.unheard and may_be_replaced(part, self._zone.nodes)

    def report(self, started: Sequence[PartitionRow], why: str) -> None:
        """Tell users that these partitions start empty."""
        first = min(row.partition for row in started)
        about = (
            f"{len(started)} partitions from {first} on start empty: every copy was lost, and {why}"
        )
        uid = self._zone.record.uid
        self._cluster.event(uid, None, Reason.STARTED_EMPTY, about, "Warning")

    def not_heard(self) -> list[str]:
        """Return the registered agents that have not told this master what they have of the zone.

        One that refuses the zone cannot tell.
        """
        zone = self._zone
        return [
            node
            for node, agent in sorted(self._cluster.agents.items())
            if agent.record is not None
            and not agent.removing
            and not (
                agent.online
                and agent.told_all
                and zone.record.uid in agent.reported
                and zone.nodes.refusal(node) is None
            )
        ]

    def _start(
        self, row: PartitionRow, wanted: tuple[str, ...], writing: Mapping[int, object]
    ) -> bool:
        # A row that nobody can vouch for any more is not waited for to be heard of (`unheard`).
        zone = self._zone
        is_newer_told = (zone.record.uid, row.partition) in self._cluster.newer_rows.told
        is_busy = row.partition in zone.decided or row.partition // SHARD_PARTITIONS in writing
        change = self.change(row, wanted)
        if is_newer_told or is_busy or change is None:
            return False
        zone.decided[row.partition] = change
        return True

    def change(self, row: PartitionRow, wanted: tuple[str, ...]) -> tuple[PartitionRow, Why] | None:
        """Return the row over empty stores of those of `wanted` that are there, and the cause.

        None if none of them is there.
        """
        holders = [h for h in map(self._zone.nodes.holder, wanted) if h is not None]
        if not holders:
            return None
        version = max(row.version + 2, self._cluster.master_term * RECOVERY_GAP)
        return ownership.started_empty(row, holders, version), Why(Cause.STARTED_EMPTY)
