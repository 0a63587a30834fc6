"""Publish committed rows, and send them again until each agent says that it has them."""

from collections.abc import Mapping, Sequence

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.master import RowsStored
from quorate.protocol.zone_master.partition_state import PartitionState

RESEND_MS = 1000
RESENT_ROWS_MAX = 1000


class RowPublisher:
    """The rows of one zone that are on their way to the agents."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unacked: dict[str, dict[int, int]] = {}
        self._resent_ms = 0
        self._told: ZoneRecord | None = None

    def publish_record(self, zone: ZoneRecord) -> None:
        """Tell all agents the zone's record, unless they were told the same last."""
        if zone != self._told:
            self._told = zone
            self._cluster.publish_to_all(self._cluster.zone_table(zone, ()))

    def publish(self, zone: ZoneRecord, rows: Sequence[PartitionRow]) -> None:
        """Send written rows to all agents."""
        message = self._cluster.zone_table(zone, tuple(rows))
        for node in sorted(self._cluster.agents):
            waiting = self._unacked.setdefault(node, {})
            waiting.update({row.partition: row.version for row in rows})
        self._cluster.publish_to_all(message)

    def resend(self, zone: ZoneRecord, parts: Mapping[int, PartitionState], now: Now) -> None:
        """Send unconfirmed rows again, every `RESEND_MS`."""
        if now.boot_ms - self._resent_ms < RESEND_MS:
            return
        self._resent_ms = now.boot_ms
        for node in sorted(self._unacked):
            agent = self._cluster.agents.get(node)
            waiting = self._unacked[node]
            if agent is None:
                del self._unacked[node]
            elif waiting and agent.online:
                known = [p for p in sorted(waiting) if p in parts]  # others are rebuilt first
                rows = tuple(parts[p].row for p in known[:RESENT_ROWS_MAX])
                self._cluster.publish([node], self._cluster.zone_table(zone, rows))

    def stored(self, node: str, message: RowsStored) -> None:
        """Note that the agent has these rows, or newer ones, durably."""
        waiting = self._unacked.get(node)
        if waiting:
            for partition, version in message.versions:
                if version >= waiting.get(partition, version + 1):
                    del waiting[partition]
