"""A zone's data nodes change when its timers say so: never early, and in the end as they should.

When a master first numbers a join or leave is noted here, on the world's own clock. So neither the
ages that masters store nor their clocks can hide a mistake of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.facts.errors import InvariantError
from quorate.facts.zone import DataNodes, ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.members.membership import Past
from quorate.protocol.metastore import ZoneKey
from quorate_sim.node_filters import fits
from quorate_sim.world import MS

if TYPE_CHECKING:
    from quorate_sim.cluster import Cluster

GRACE_MS = 500
"""Clocks differ, and a master takes a while to write a zone's rows."""


class TimerChecks:
    """Watches every master's data nodes, after each of its steps."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._happened: dict[tuple[str, int], int] = {}
        self._unplaced: dict[tuple[int, str], int] = {}
        """When a master last had no row of some partition, by its term and the zone."""

    def looked(self, master: Master, before: dict[str, DataNodes | None]) -> None:
        """A master has taken a step. `before`: the data nodes of each zone before it, by uid."""
        now_ms = self._cluster.world.time_us // MS
        for node, agent in master.agents.items():
            if agent.since is not None:
                self._happened.setdefault((node, agent.since.stored.revision), now_ms)
        for uid, zone in master.zones.items():
            known, nodes = before.get(uid), zone.record.data_nodes
            if len(zone.parts) < zone.record.partitions:
                self._unplaced[master.master_term, uid] = now_ms
                continue  # all that are there are taken until it is placed
            if known is None or nodes is None or known is nodes:
                continue
            unfit = [node for node in nodes.nodes if not fits(node, zone.record)]
            if unfit:
                raise InvariantError(f"{unfit} are data nodes of {uid}: {zone.record.filter}")
            if known.filter == nodes.filter:  # else no timer had to fire
                self._judge(master, zone.record, {*known.nodes}, {*nodes.nodes}, now_ms)

    def _judge(
        self, master: Master, record: ZoneRecord, before: set[str], nodes: set[str], now_ms: int
    ) -> None:
        parts = master.zones[record.uid].parts.values()
        voters = {voter.node for part in parts for each in part.row.voter_sets for voter in each}
        # Agents of a new cluster may register while the first of them are given its first zone.
        grace_ms = self._cluster.swarm.settings.failure_detection_ms + GRACE_MS
        unplaced_ms = self._unplaced.get((master.master_term, record.uid))
        is_new = unplaced_ms is not None and now_ms - unplaced_ms <= grace_ms
        up_ms = 0 if is_new else record.scale_up_ms
        for node in sorted(nodes - before - voters):
            agent = master.agents[node]
            self._must_be_over("joined", node, agent.since, up_ms, now_ms)
        for node in sorted(before - nodes):
            known = master.agents.get(node)
            if known is not None and known.record is not None and not known.removing:
                self._must_be_over("left", node, known.since, record.scale_down_ms, now_ms)

    def _must_be_over(
        self, kind: str, node: str, past: Past | None, after_ms: int, now_ms: int
    ) -> None:
        if past is None:
            raise InvariantError(f"a timer fired for {node}, which has never {kind}")
        since_ms = now_ms - self._happened[node, past.stored.revision]
        if since_ms < after_ms * (1 - 2 * self._cluster.swarm.drift) - 1:
            raise InvariantError(
                f"{node} {kind} {since_ms} ms ago, and the timer of {after_ms} ms has fired"
            )


def data_node_problems(cluster: Cluster, record: ZoneRecord) -> list[str]:
    """Which agents wrongly are data nodes of the zone, or are not, though all is quiet for long."""
    stored = cluster.metastore.value(ZoneKey(record.uid))
    known = stored.data_nodes if isinstance(stored, ZoneRecord) else None
    if known is None:
        return [f"zone {record.uid} has no data nodes"]
    fitting = {agent.name for agent in cluster.living() if fits(agent.name, record)}
    other = sorted(fitting ^ {*known.nodes})
    return [f"{node} is a data node of {record.uid}, or should be" for node in other]
