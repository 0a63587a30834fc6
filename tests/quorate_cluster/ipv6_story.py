"""A cluster where there is IPv6 only: `python -m quorate_cluster.ipv6_story` in such a network.

Prints what was seen as one JSON object; the test that starts it judges.
"""

import json
import socket
import sys
from typing import Any

from redis.cluster import RedisCluster

from quorate_cluster.cluster import Cluster

HOST = "::1"
KEYS = [f"key-{number}" for number in range(200)]


def _has_ipv4() -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError:
            return False
        return True


def _read_all(client: RedisCluster) -> int:
    return sum(client.get(key) == key.encode() for key in KEYS)


def main() -> None:
    """Write, lose an agent, bring it back, restart the operator; read after each."""
    seen: dict[str, object] = {"ipv4": _has_ipv4()}
    with Cluster(agents=3, host=HOST) as cluster:
        cluster.apply_zone("z", partitions=16)
        client: Any = cluster.client("z")
        for key in KEYS:
            client.set(key, key)
        seen["read"] = _read_all(client)
        lost = cluster.agent_with_most_primaries()
        lost.kill()
        cluster.wait_left(lost.name)
        cluster.wait_available("z")
        seen["read after a loss"] = _read_all(client)
        lost.start()
        cluster.wait_quiet("z")
        cluster.operator.terminate()
        cluster.operator.start()
        cluster.wait_online()
        seen["read after restarts"] = _read_all(cluster.client("z"))
        seen["endpoints"] = cluster.zone("z")["status"]["endpoints"]
        seen["members"] = [node["address"] for node in cluster.api.status()["nodes"]]
        seen["nodes"] = sorted({node.host for node in client.get_nodes()})
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
