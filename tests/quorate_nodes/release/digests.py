"""What clients' rows in the copies of a zone add up to, as the agents of pods say."""

from quorate_cluster.digests import Digests, digests_of
from quorate_nodes.release.installed import CLUSTER, Installed
from quorate_operator.owned.agent_names import PEER_PORT


def digests(installed: Installed, zone: str) -> Digests:
    """Of every copy; nobody may write meanwhile."""
    addresses = {
        pod["metadata"]["labels"]["quorate.io/agent"]: f"{pod['status']['podIP']}:{PEER_PORT}"
        for pod in installed.pods()
    }
    secret = installed.get("secret", f"{CLUSTER}-quorate")["data"]
    whole = range(installed.zone(zone)["spec"]["partitions"])
    return digests_of(CLUSTER, secret, zone, dict.fromkeys(addresses, whole), addresses)
