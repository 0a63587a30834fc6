"""What clients' rows in the copies of a zone add up to, as the agents of pods say."""

from base64 import b64decode
from hashlib import sha256

from quorate.facts.keyspace import is_reserved
from quorate_cluster.agreement import read_copy
from quorate_link.secret import parse_secret
from quorate_nodes.installed import CLUSTER, Installed
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_spark.agent_link import AgentLink, Cluster

Digests = dict[str, dict[int, tuple[int, str]]]
"""By agent and partition: rows and their digest."""


def digests(installed: Installed, zone: str) -> Digests:
    """Of every copy; nobody may write meanwhile.  Rows of the protocol's own come and go."""
    data = installed.get("secret", f"{CLUSTER}-quorate")["data"]
    texts = {name: b64decode(value).decode() for name, value in data.items()}
    secret = parse_secret("the Secret", texts["clusterId"], texts["key"])
    access = Cluster(CLUSTER, secret.keys("tool"))
    partitions = range(installed.zone(zone)["spec"]["partitions"])
    found: Digests = {}
    for pod in installed.pods():
        address = f"{pod['status']['podIP']}:{PEER_PORT}"
        agent = pod["metadata"]["labels"]["quorate.io/agent"]
        with AgentLink(address, access, 5, 10) as link:
            found[agent] = {each: _digest(link, zone, each) for each in partitions}
    return found


def _digest(link: AgentLink, zone: str, partition: int) -> tuple[int, str]:
    _, rows = read_copy(link, zone, partition)
    # Tombstones go once every copy has them.
    kept = [row for row in rows if row[4] is not None and not is_reserved(row[0])]
    return len(kept), sha256(repr(kept).encode()).hexdigest()
