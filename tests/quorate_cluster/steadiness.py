"""Whether a cluster stayed as it was under a load: its rows, agents, master and memory."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from quorate_cluster.agreement import stored_rows
from quorate_cluster.cluster import Cluster

GROWTH_BYTES_MAX = 50_000_000
"""What an allocator may still take in the second half without meaning growth."""

_STATE = "State"


@dataclass(frozen=True)
class Standing:
    """Who is master, who the agents are, who is primary of what and in which term; and the last
    event that was told."""

    master_term: int
    agents: dict[str, tuple[str, int]]
    rows: dict[int, tuple[str | None, int, int]]
    sequence: int


def standing(cluster: Cluster, zone: str) -> Standing:
    """As of now, from the master and from the metastore."""
    status = cluster.api.status()
    rows = stored_rows(cluster.folder, cluster.zone(zone)["metadata"]["uid"])
    return Standing(
        status["master_term"],
        {node["name"]: (node["store"], node["incarnation"]) for node in status["nodes"]},
        {
            partition: (row.primary.node if row.primary else None, row.term, row.version)
            for partition, row in rows.items()
        },
        cluster.api.ask("GET", "/events")["next"],
    )


def changes(cluster: Cluster, zone: str, before: Standing) -> list[str]:
    """What is not as it was, and what was told meanwhile; empty when nobody was taken for lost."""
    now = standing(cluster, zone)
    found = []
    if now.master_term != before.master_term:
        found.append(f"master term {before.master_term} became {now.master_term}")
    found += [
        f"{name} was {before.agents.get(name)}, is {now.agents.get(name)}"
        for name in sorted(before.agents.keys() | now.agents.keys())
        if before.agents.get(name) != now.agents.get(name)
    ]
    found += [
        f"partition {partition}: (primary, term, version) was {row}, is {now.rows.get(partition)}"
        for partition, row in before.rows.items()
        if now.rows.get(partition) != row
    ]
    told = cluster.api.ask("GET", f"/events?after={before.sequence}")["events"]
    return found + [
        f"{event['reason']}: {event['message']}" for event in told if event["reason"] != _STATE
    ]


def growth(sizes: Sequence[int]) -> int:
    """Bytes by which a process became larger in the second half of what was looked at, beyond what
    it may: the median of the last quarter against that of the second."""
    quarter = len(sizes) // 4
    if not quarter:
        return 0
    second, last = sizes[quarter : 2 * quarter], sizes[-quarter:]
    return max(0, int(statistics.median(last) - statistics.median(second)) - GROWTH_BYTES_MAX)
