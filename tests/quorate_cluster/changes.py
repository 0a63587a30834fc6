"""What tests do to a cluster while clients go on: an agent is lost, or joins."""

from collections.abc import Callable

from quorate_cluster.cluster import Cluster
from quorate_cluster.processes import Agent
from quorate_cluster.waiting import wait_until

Change = Callable[[Cluster], object]


def lose(cluster: Cluster) -> None:
    """Kill the agent whose loss is felt most; until zone `z` is served without it."""
    victim = cluster.agent_with_most_primaries()
    victim.kill()
    cluster.wait_left(victim.name)
    cluster.wait_available("z")


def grow(cluster: Cluster) -> Agent:
    """Add an agent; until it has its part of zone `z`, and nothing moves any more."""
    newcomer = cluster.add_agent()
    # Before it is among those that get copies, the zone is quiet for another reason.
    wait_until(
        lambda: newcomer.name in cluster.zone("z")["status"]["dataNodes"],
        f"data node {newcomer.name}",
    )
    cluster.wait_quiet("z")
    return newcomer
