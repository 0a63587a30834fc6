"""Why agents refuse a zone, as its condition says."""

from quorate_cluster.cluster import Cluster


def refusals(cluster: Cluster, zone: str) -> str:
    """The message of the zone's condition while agents refuse it; empty when none does."""
    for condition in cluster.zone(zone).get("status", {}).get("conditions", []):
        if condition["type"] == "RefusedByAgents" and condition["status"] == "True":
            return str(condition["message"])
    return ""
