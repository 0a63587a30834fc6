"""How long agents took to answer each other's heartbeats."""

from collections import Counter
from math import inf

from quorate_agent.metrics import HEARTBEAT_BUCKETS_S
from quorate_cluster.cluster import Cluster


def heartbeats_answered(cluster: Cluster) -> Counter[float]:
    """Seconds, the last bound being infinite -> how many answers took no longer, so far."""
    found: Counter[float] = Counter()
    for agent in cluster.agents.values():
        counts = agent.metrics("quorate_heartbeat_seconds_bucket")
        found.update(dict(zip((*HEARTBEAT_BUCKETS_S, inf), map(int, counts), strict=True)))
    return found
