"""A zone as the parts of its master share it: its record, its rows, and what is to be done."""

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.membership import ZoneNodes
from quorate.protocol.zone_master.causes import Why
from quorate.protocol.zone_master.status import Parts


class Zone:
    """The state of one zone that the parts of its master share."""

    def __init__(self, record: ZoneRecord, nodes: ZoneNodes) -> None:
        self.record = record
        self.port_written = 0
        """The client port in the stored record."""
        self.nodes = nodes
        self.parts = Parts()
        self.decided: dict[int, tuple[PartitionRow, Why]] = {}
        """Rows that wait for a write, by partition."""
        self.dirty: set[int] = set()
        """Partitions that are to be decided about again."""
        self.sentence = ""
        """What the zone waits for before it is placed, or ""."""

    @property
    def told(self) -> ZoneRecord:
        """The zone's record as agents are told it: its client port only once it is written."""
        if self.record.port == self.port_written:
            return self.record
        return msgspec.structs.replace(self.record, port=self.port_written)
