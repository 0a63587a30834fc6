"""What clients' rows in the copies of a zone add up to, as agents say wherever they run."""

from base64 import b64decode
from collections.abc import Iterable, Mapping
from hashlib import sha256

from quorate.facts.keyspace import is_reserved
from quorate_cluster.agreement import read_copy
from quorate_link.secret import parse_secret
from quorate_spark.reading.agent_link import AgentLink, Cluster

Digests = dict[str, dict[int, tuple[int, str]]]
"""By agent and partition: rows and their digest."""


def digests_of(
    cluster: str,
    secret: Mapping[str, str],
    zone: str,
    partitions: Mapping[str, Iterable[int]],
    addresses: Mapping[str, str],
) -> Digests:
    """Of every copy; nobody may write meanwhile.  Rows of the protocol's own come and go.

    `secret`: the data of the cluster's Secret; `partitions`: what to read of each agent;
    `addresses`: of peer ports, by agent."""
    texts = {name: b64decode(value).decode() for name, value in secret.items()}
    keys = parse_secret("the Secret", texts["clusterId"], texts["key"]).keys("tool")
    found: Digests = {}
    for agent, address in addresses.items():
        with AgentLink(address, Cluster(cluster, keys), 5, 10) as link:
            found[agent] = {each: _digest(link, zone, each) for each in partitions[agent]}
    return found


def are_equal(found: Digests) -> bool:
    """Whether each agent has a copy of each partition, with the same rows."""
    first, *others = found.values()
    return all(each == first for each in others)


def differing(found: Digests) -> dict[int, list[tuple[int, str]]]:
    """Partitions of which not all copies have the same rows."""
    copies: dict[int, list[tuple[int, str]]] = {}
    for of_agent in found.values():
        for partition, digest in of_agent.items():
            copies.setdefault(partition, []).append(digest)
    return {partition: each for partition, each in copies.items() if len({*each}) > 1}


def _digest(link: AgentLink, zone: str, partition: int) -> tuple[int, str]:
    _, rows = read_copy(link, zone, partition)
    # Tombstones go once every copy has them.
    kept = [row for row in rows if row[4] is not None and not is_reserved(row[0])]
    return len(kept), sha256(repr(kept).encode()).hexdigest()
