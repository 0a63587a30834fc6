"""Where copies must lie when all is quiet: over the failure domains, by weight, as the target says.

Shares are computed here in another way than `quorate.planning.target.quotas` does it, and from what
the simulator gave its agents, not from what the master has heard: so neither can hide its own
mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import Planner, ZoneRecord
from quorate.planning.steps.plan_migrations import is_reached
from quorate.planning.steps.plan_staged import reachable_target
from quorate.protocol.metastore import NodeKey
from quorate_sim.node_filters import fits

if TYPE_CHECKING:
    from quorate_sim.cluster import Cluster

_ROUNDING = 1e-6


def placement_problems(cluster: Cluster, record: ZoneRecord) -> list[str]:
    """What of a zone lies where it should not; nothing is judged while rows or agents are few."""
    usable = [
        agent.name
        for agent in cluster.living()
        if record.uid in agent.core.zones
        and not _is_draining(cluster, agent.name)
        and fits(agent.name, record)
    ]
    if len(usable) < record.replicas:
        return []
    rows = [cluster.committed_row(record.uid, p) for p in range(record.partitions)]
    present = [row for row in rows if row is not None and len(row.owners) == record.replicas]
    if len(present) < record.partitions:
        return []
    return [
        *_spread_problems(cluster, usable, present),
        *_share_problems(cluster, usable, record, present),
        *_target_problems(cluster, record, present),
    ]


def _is_draining(cluster: Cluster, name: str) -> bool:
    registered = cluster.metastore.value(NodeKey(name))
    return isinstance(registered, NodeRecord) and registered.draining


def _domain(cluster: Cluster, name: str) -> str:
    return cluster.placement(name).failure_domain or f"only {name}"


def _spread_problems(
    cluster: Cluster, usable: Sequence[str], rows: Sequence[PartitionRow]
) -> list[str]:
    """A domain has two copies more than another one that has a node to spare."""
    sizes = Counter(_domain(cluster, name) for name in usable)
    found: list[str] = []
    for row in rows:
        inside = Counter(_domain(cluster, name) for name in row.owners)
        least = min((inside[d] for d in sizes if inside[d] < sizes[d]), default=None)
        if least is not None and max(inside.values()) > least + 1:
            found.append(f"spread: partition {row.partition} is in {dict(inside)} of {dict(sizes)}")
    return found


def _share_problems(
    cluster: Cluster, usable: Sequence[str], record: ZoneRecord, rows: Sequence[PartitionRow]
) -> list[str]:
    """A node has not its share by weight, rounded up or down."""
    owned = Counter(name for row in rows for name in row.owners)
    nodes = [(n, _domain(cluster, n), cluster.placement(n).weight) for n in usable]
    shares = _shares(record.partitions, record.replicas, tuple(nodes))
    return [
        f"weights: {name} has {owned[name]} copies of {record.uid}, its share is {share:.2f}"
        for name, share in shares.items()
        if abs(owned[name] - share) >= 1 - _ROUNDING
    ]


@lru_cache
def _shares(
    partitions: int, replicas: int, nodes: tuple[tuple[str, str, int], ...]
) -> Mapping[str, float]:
    """`fair_shares` of nodes with their domains and weights: asked for again until all is quiet."""
    return fair_shares(partitions, replicas, {name: (d, weight) for name, d, weight in nodes})


def fair_shares(
    partitions: int, replicas: int, nodes: dict[str, tuple[str, int]]
) -> dict[str, float]:
    """How many copies each node is due: by weight among domains, then among a domain's nodes.

    `nodes`: name to domain and weight.  A domain takes as many copies of each partition as an even
    spread gives it, one more or less where that does not come out even."""
    members: dict[str, list[str]] = {}
    for name, (domain, _) in nodes.items():
        members.setdefault(domain, []).append(name)
    level = 1
    while sum(min(len(names), level) for names in members.values()) < replicas:
        level += 1
    of_domains = _in_proportion(
        partitions * replicas,
        {d: float(sum(nodes[n][1] for n in names)) for d, names in members.items()},
        {d: partitions * min(len(names), level - 1) for d, names in members.items()},
        {d: partitions * min(len(names), level) for d, names in members.items()},
    )
    shares: dict[str, float] = {}
    for domain, names in members.items():
        weights = {name: float(nodes[name][1]) for name in names}
        low, high = dict.fromkeys(names, 0), dict.fromkeys(names, partitions)
        shares.update(_in_proportion(of_domains[domain], weights, low, high))
    return shares


def _in_proportion(
    total: float, weights: dict[str, float], low: dict[str, int], high: dict[str, int]
) -> dict[str, float]:
    """The shares that are one multiple of the weights, but for those at a bound: by bisection."""

    def at(multiple: float) -> dict[str, float]:
        return {n: min(max(w * multiple, low[n]), high[n]) for n, w in weights.items()}

    little, much = 0.0, float(max(high.values()) + 1)  # no weight is below 1
    for _ in range(80):
        middle = (little + much) / 2
        if sum(at(middle).values()) < total:
            little = middle
        else:
            much = middle
    return at(much)


def _target_problems(
    cluster: Cluster, record: ZoneRecord, rows: Sequence[PartitionRow]
) -> list[str]:
    """A row has not the owners that the target names: what both planners promise.

    In its order, but for owners that would change places in a circle, which Staged leaves, and for
    primaries that an agent has handed over because it says that it leaves."""
    master = cluster.newest_master()
    led = master.master.zones.get(record.uid) if master is not None and master.master else None
    target = led.target if led is not None else None
    if target is None:
        return []
    leaving = {agent.name for agent in cluster.living() if agent.core.leaving}
    found: list[str] = []
    for row in rows:
        wanted: Sequence[str | None] = target[row.partition]
        if wanted[0] in leaving and any(node not in leaving for node in wanted):
            first = next((n for n in wanted if n == row.replicas[0] and n not in leaving), None)
            wanted = [first, *(node for node in wanted if node != first)]
        elif record.planner is Planner.STAGED:
            wanted = reachable_target(row.replicas, row.voter_nodes, wanted)
        if not is_reached(row.replicas, row.voter_nodes, wanted):
            found.append(
                f"target: partition {row.partition} is at {row.replicas}, {record.planner} was to "
                f"bring it to {wanted}"
            )
    return found
