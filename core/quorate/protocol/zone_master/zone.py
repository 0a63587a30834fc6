"""A zone as the parts of its master share it: its record, its rows, and what is to be done."""

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import ZoneNodes
from quorate.protocol.zone_master.causes import Why
from quorate.protocol.zone_master.fitting_nodes import FittingNodes
from quorate.protocol.zone_master.partition_state import PartitionState


class Parts(dict[int, PartitionState]):
    """A zone's parts by partition, with a count of changes, so that readers can cache results."""

    changes = 0

    def __init__(self) -> None:
        super().__init__()
        self._known: tuple[set[str], set[str]] | None = None
        """See `_nodes`; None: a row has changed."""

    def __setitem__(self, partition: int, part: PartitionState) -> None:
        before = self.get(partition)
        if before is None or before.row is not part.row:
            self._known = None
        self.changes += 1
        super().__setitem__(partition, part)

    def voters(self) -> set[Voter]:
        """Return the voters of all rows, also those of the rows' sets."""
        return {voter for part in self.values() for each in part.row.voter_sets for voter in each}

    def names(self, node: str) -> bool:
        """Return whether any row names `node` as a voter, also of its sets, or a destination."""
        return node in self._nodes()[0]

    def leave(self, node: str) -> bool:
        """Return whether any row says that a reset left a copy on `node`."""
        return node in self._nodes()[1]

    def _nodes(self) -> tuple[set[str], set[str]]:
        """Return the nodes for `names` and for `leave`, gathered once while no row changes."""
        if self._known is None:
            rows = [part.row for part in self.values()]
            named = {voter.node for row in rows for each in row.voter_sets for voter in each}
            named.update(row.destination.node for row in rows if row.destination is not None)
            left = {voter.node for row in rows for voter in row.left_by_reset}
            self._known = (named, left)
        return self._known

    def forget(self, partition: int) -> None:
        """Remove the part of a partition that has no row for now."""
        if super().pop(partition, None) is not None:
            self._known = None
            self.changes += 1

    def clear(self) -> None:
        """Remove all parts."""
        self._known = None
        self.changes += 1
        super().clear()


class Zone:
    """The state of one zone that the parts of its master share."""

    def __init__(self, cluster: Cluster, record: ZoneRecord) -> None:
        self.record = record
        self._cluster = cluster
        self.port_written = 0
        """The client port in the stored record."""
        self.importing_written = ""
        """`importing` in the stored record."""
        self.nodes = ZoneNodes(cluster.agents, record.uid, record.persistent)
        self.fitting = FittingNodes()
        self.parts = Parts()
        self.decided: dict[int, tuple[PartitionRow, Why]] = {}
        """Rows that wait for a write, by partition."""
        self.dirty: set[int] = set()
        """Partitions that are to be decided about again."""
        self.sentence = ""
        """The condition for which the zone waits before it is placed, or ""."""

    def change(self, **fields: object) -> None:
        """Change fields of the zone's record, and have it written if that changes anything.

        The record of a zone that is being deleted stays as it is: it would be there again.
        """
        record = msgspec.structs.replace(self.record, **fields)
        if record != self.record and not self.record.deleting:
            self.record = record
            self._cluster.write_zone(record)

    def may_hold(self, node: str) -> bool:
        """Return whether `node` has told of data of the zone while rows are not known."""
        record, agent = self.record, self._cluster.agents.get(node)
        lacks_rows = record.placed and not record.deleting and len(self.parts) < record.partitions
        return lacks_rows and agent is not None and record.uid in agent.kept

    def is_data_node(self, node: str) -> bool:
        """Return whether `node` may hold copies, as far as the zone's timers decide it."""
        known = self.record.data_nodes
        return known is None or node in known.nodes

    @property
    def told(self) -> ZoneRecord:
        """The zone's record as agents are told it: its client port only once it is written.

        They need no filter, but a lost metastore is rebuilt from what they were told.
        """
        return msgspec.structs.replace(self.record, port=self.port_written, data_nodes=None)
