"""Partitions whose every copy is lost begin again without data, where the zone says so.

Source: Ignite 3's design of in-memory groups: a group that was restarted whole starts as it did the
first time, and not before every member is known to be empty. docs/protocol.md, section 6.
"""

from collections.abc import Mapping

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.events import Reason
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.rebalance import Rebalance
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
        is not lost but rebuilt (rebuild_zone.py), so every data node must have told what it has.
        """
        self.sentence = ""
        zone, target = self._zone, self._rebalance.target
        if not zone.record.start_empty or target is None:
            return
        lost = [
            row
            for row in (part.row for part in zone.parts.values())
            if row.active is None and self._is_lost(row)
        ]
        if not lost:
            return
        missing = self._not_heard()
        if missing:
            self.sentence = f"they start empty once {', '.join(missing)} told what they have"
            return
        started = [
            row for row in lost if self._start(row, target.assignments[row.partition], writing)
        ]
        if started:
            first = min(row.partition for row in started)
            about = (
                f"{len(started)} partitions from {first} on start empty: every copy was lost, and "
                "onAllCopiesLost of the zone is StartEmpty"
            )
            self._cluster.event(zone.record.uid, None, Reason.STARTED_EMPTY, about, "Warning")

    def _is_lost(self, row: PartitionRow) -> bool:
        voters = (voter for each in row.voter_sets for voter in each)
        return all(map(self._zone.nodes.is_dead, voters))

    def _not_heard(self) -> list[str]:
        """Return the data nodes that have not told this master everything."""
        agents = self._cluster.agents
        nodes = self._zone.record.data_nodes
        return [
            node
            for node in (nodes.nodes if nodes is not None else ())
            if node not in agents or not agents[node].online or not agents[node].told_all
        ]

    def _start(
        self, row: PartitionRow, wanted: tuple[str, ...], writing: Mapping[int, object]
    ) -> bool:
        zone = self._zone
        is_newer_told = (zone.record.uid, row.partition) in self._cluster.newer_rows.told
        is_busy = row.partition in zone.decided or row.partition // SHARD_PARTITIONS in writing
        holders = [holder for holder in map(zone.nodes.holder, wanted) if holder is not None]
        if is_newer_told or is_busy or not holders:
            return False
        zone.decided[row.partition] = (
            ownership.started_empty(row, holders),
            Why(Cause.STARTED_EMPTY),
        )
        return True
