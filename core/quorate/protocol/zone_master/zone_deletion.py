"""Delete a zone: tell all agents, delete the rows, and finally the zone's record.

The record stays until every registered agent has said that its data is gone, so that an agent that
is away is told when it returns.
"""

from quorate.facts.time import Now
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.master import RowsStored, ZoneGone
from quorate.protocol.metastore import SHARD_PARTITIONS
from quorate.protocol.zone_master.publish_rows import RESEND_MS


class ZoneDeletion:
    """The remains of a zone being deleted. `shards_left`: None until its deletion begins."""

    def __init__(self, cluster: Cluster, uid: str) -> None:
        self.shards_left: set[int] | None = None
        self._cluster = cluster
        self._uid = uid
        self._told: set[str] = set()
        self._acked: set[str] = set()
        self._resent_ms = 0
        self._has_ended = False

    def begin(self, partitions: int, has_rows: bool) -> None:
        """Begin to delete all rows. No write of rows may be active."""
        count = -(-partitions // SHARD_PARTITIONS)
        self.shards_left = set(range(count)) if has_rows else set()

    def advance(self, now: Now) -> None:
        """Tell the agents that have not confirmed; delete the record when all have."""
        cluster = self._cluster
        connected = [n for n, agent in sorted(cluster.agents.items()) if agent.online]
        due = now.boot_ms - self._resent_ms >= RESEND_MS
        for node in connected:
            if node not in self._acked and (node not in self._told or due):
                self._told.add(node)
                cluster.publish([node], ZoneGone(cluster.master_term, self._uid))
        if due:
            self._resent_ms = now.boot_ms
        is_over = self.shards_left == set() and self._acked.issuperset(cluster.agents)
        if is_over and not self._has_ended:
            self._has_ended = True
            cluster.delete_zone_record(self._uid)

    def record_is_there(self) -> None:
        """Note that the zone's record is stored: it is to be deleted, or to be deleted again."""
        self._has_ended = False

    def confirmed(self, node: str, message: RowsStored) -> None:
        """Note that the agent's data is gone, unless its message is about rows sent before."""
        if not message.versions:
            self._acked.add(node)
            if (agent := self._cluster.agents.get(node)) is not None:
                agent.kept -= {self._uid}

    def shard_deleted(self, shard: int) -> None:
        """Note that the rows of one shard are gone."""
        if self.shards_left is not None:
            self.shards_left.discard(shard)

    def shard_found(self, shard: int, has_rows: bool) -> None:
        """Note how one shard is stored: rows that are still there, or again, are to be deleted."""
        if self.shards_left is not None and has_rows:
            self.shards_left.add(shard)

    @property
    def is_done_here(self) -> bool:
        """Whether all rows are gone and every online agent has removed its data."""
        online = {n for n, agent in self._cluster.agents.items() if agent.online}
        return self.shards_left == set() and online <= self._acked
