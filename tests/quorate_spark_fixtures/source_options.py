"""Options with which Spark reads and writes a zone of a cluster of real processes."""

from quorate_cluster.cluster import Cluster


def source_options(cluster: Cluster, zone: str) -> dict[str, str]:
    """Options of the format `quorate`."""
    return {
        "zone": zone,
        "cluster": cluster.name,
        "secret_file": str(cluster.secret_file),
        "agents": ",".join(agent.peer_address for agent in cluster.agents.values()),
    }
