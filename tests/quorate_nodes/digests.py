"""What the copies of a zone add up to, as the agents of pods say."""

from base64 import b64decode

from quorate.protocol.tool_messages import DIGESTS_ASKED_MAX
from quorate_link.secret import parse_secret
from quorate_nodes.installed import CLUSTER, Installed
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_spark.agent_link import AgentLink, Cluster
from quorate_spark.read_digests import read_digests

Digests = dict[str, dict[int, tuple[int, bytes]]]
"""By agent and partition: rows and their digest."""


def digests(installed: Installed, zone: str) -> Digests:
    """Of every copy; nobody may write meanwhile."""
    data = installed.get("secret", f"{CLUSTER}-quorate")["data"]
    texts = {name: b64decode(value).decode() for name, value in data.items()}
    secret = parse_secret("the Secret", texts["clusterId"], texts["key"])
    access = Cluster(CLUSTER, secret.keys("tool"))
    partitions = range(installed.zone(zone)["spec"]["partitions"])
    assert len(partitions) <= DIGESTS_ASKED_MAX
    found: Digests = {}
    for pod in installed.pods():
        address = f"{pod['status']['podIP']}:{PEER_PORT}"
        with AgentLink(address, access, 5, 10) as link:
            told = read_digests(link, zone, tuple(partitions), ())
        agent = pod["metadata"]["labels"]["quorate.io/agent"]
        found[agent] = {each.partition: (each.rows, each.digest) for each in told.values()}
    return found
