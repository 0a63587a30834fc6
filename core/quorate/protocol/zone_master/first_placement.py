"""Place a new zone: distribute its partitions over the agents that are online."""

from collections.abc import Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Voter
from quorate.planning.target.distribute_partitions import distribute_partitions, placed_voters
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.zone_ports import ZonePorts
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.timers import ZoneTimers
from quorate.protocol.zone_master.zone import Zone

NOTE_MS = 5_000


class FirstPlacement:
    """First placement of one zone. `stored`: the stored record says that it was placed."""

    def __init__(
        self,
        cluster: Cluster,
        ports: ZonePorts,
        zone: Zone,
        rebalance: Rebalance,
        timers: ZoneTimers,
    ) -> None:
        self.stored = False
        self._cluster = cluster
        self._ports = ports
        self._zone = zone
        self._rebalance = rebalance
        self._timers = timers
        self._noted_ms = 0

    def place(self, missing: Sequence[int], now: Now) -> str:
        """Decide rows for the partitions `missing`, if enough agents are online.

        Return a sentence on what is done or waited for. Rows become parts only when written; until
        then nothing may be decided about them.
        """
        zone = self._zone
        if why := self._ports.why_none(zone.record, zone.told):
            return why
        self._timers.placing(now)  # until all have rows, whoever is there takes part
        data_nodes = self._rebalance.states.data_nodes(zone.record, now)
        # An agent that is waited for counts as online in a zone that has rows; here it cannot be
        # named.
        online = [n for n in data_nodes if n.online and zone.nodes.holder(n.name) is not None]
        if len(online) < zone.record.replicas:
            few = self._rebalance.states.misfits(zone.record)
            return (
                f"waiting for agents: the zone needs {zone.record.replicas}, and {len(online)} are "
                f"online{f'; {few}' if few else ''}"
            )
        if not self._cluster.may_pass():
            return "placing partitions"
        current: list[tuple[str | None, ...]] = [()] * zone.record.partitions
        for partition, part in zone.parts.items():
            current[partition] = placed_voters(part.row.replicas, part.row.voter_nodes)
        target = distribute_partitions(current, online, zone.record.replicas)
        for partition in missing:
            owners = target.assignments[partition]
            holders = [zone.nodes.holder(node) for node in owners]
            voters = tuple(Voter(holder.node, holder.store) for holder in holders if holder)
            row = PartitionRow(partition, 1, 1, holders[0], tuple(owners), voters)
            zone.decided[partition] = (row, Why(Cause.PLACED))
        self._rebalance.target = target
        return "placing partitions"

    def note_placed(self, now: Now) -> None:
        """Note in the zone's record, once every partition has a row, that it was placed.

        The record is usually written soon anyway, with the zone's ports; if not, it is written for
        this.
        """
        zone = self._zone
        if self.stored or len(zone.parts) < zone.record.partitions:
            return
        zone.sentence = ""
        if not zone.record.placed:
            zone.record = msgspec.structs.replace(zone.record, placed=True)
            self._noted_ms = now.boot_ms
        elif now.boot_ms - self._noted_ms >= NOTE_MS:
            self._noted_ms = now.boot_ms
            self._cluster.write_zone(zone.record)
