"""Many zones on the same agents: what fits is served, what does not is refused with a reason."""

import socket
from collections.abc import Sequence

import pytest
import redis

from quorate_agent.machine.descriptors import CLIENTS_MIN, RESERVE, Descriptors
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import HOST
from quorate_cluster.refusals import refusals
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

LIMIT = 256


def _limited(flags: str) -> list[str]:
    """Before an agent's command line: with so few descriptors."""
    return ["sh", "-c", f'ulimit {flags} {LIMIT} && exec "$0" "$@"']


def _declare(cluster: Cluster, names: Sequence[str]) -> None:
    for name in names:
        spec = {"clusterRef": {"name": cluster.name}, "partitions": 1, "replicas": 3}
        cluster.apply("Zone", "zones", name, spec)


def _serving(cluster: Cluster) -> list[str]:
    """Zones that serve on all agents."""
    zones = cluster.api.status()["zones"]
    return [z["name"] for z in zones if z["available"] == 1 and len(z["ports"]) == 3]


def _writes(cluster: Cluster, zone: str, value: str) -> None:
    client = cluster.client(zone)
    assert client.set("key", value)
    assert client.get("key") == value.encode()
    client.close()


def test_zones_that_do_not_fit_say_why_and_open_when_there_is_room(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(prefix=_limited("-n"))
    fitting = (LIMIT - RESERVE - CLIENTS_MIN) // Descriptors(LIMIT).of_zone(persistent=True)
    names = [f"zone-{number}" for number in range(fitting + 4)]
    _declare(cluster, names)

    wait_until(lambda: len(_serving(cluster)) == fitting, f"{fitting} zones that serve", 120)
    served = _serving(cluster)
    waiting = [name for name in names if name not in served]
    for name in waiting:
        said = wait_until(lambda name=name: refusals(cluster, name), f"why {name} is refused", 60)
        for agent in cluster.agents:
            assert f"agent {agent}: it needs" in said
        assert "Way out: start the agent with a higher hard limit (ulimit -Hn" in said
    for name in served:
        assert refusals(cluster, name) == ""
        _writes(cluster, name, "first")

    cluster.delete_zone(served[0])
    wait_until(lambda: len(_serving(cluster)) == fitting, "a refused zone that serves", 120)

    [opened] = set(_serving(cluster)) - set(served)
    assert opened in waiting
    assert refusals(cluster, opened) == ""
    for name in _serving(cluster):
        _writes(cluster, name, "second")
    assert all(agent.is_alive() for agent in cluster.agents.values())


def test_clients_beyond_the_descriptors_are_refused_and_the_agent_serves_on(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(prefix=_limited("-n"))
    cluster.apply_zone("z", partitions=1)
    port = cluster.port("z", "agent-1")
    kept = redis.Redis(host=HOST, port=port, socket_timeout=20)
    assert kept.ping()

    crowd = [socket.create_connection((HOST, port), 20) for _ in range(LIMIT + 50)]
    try:
        refused = 0
        for client in crowd:
            client.sendall(b"PING\r\n")
            refused += client.recv(100).startswith(b"-ERR max number of clients reached")
        assert refused >= 50
        assert kept.ping()
        cluster.apply_zone("other", partitions=1)  # the folder and a database have descriptors
        _writes_elsewhere(cluster, "other")
    finally:
        for client in crowd:
            client.close()

    def is_let_in() -> bool:
        with redis.Redis(host=HOST, port=port, socket_timeout=20) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    wait_until(is_let_in, "room for clients again", 30)
    assert all(agent.is_alive() for agent in cluster.agents.values())


def _writes_elsewhere(cluster: Cluster, zone: str) -> None:
    """Where the crowd is not, clients are let in."""
    with redis.Redis(host=HOST, port=cluster.port(zone, "agent-2"), socket_timeout=20) as client:
        assert client.ping()


def test_a_hundred_zones_are_served_and_served_again_after_a_restart(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(prefix=_limited("-Sn"))  # the soft limit alone is no obstacle
    names = [f"zone-{number}" for number in range(100)]
    _declare(cluster, names)

    wait_until(lambda: len(_serving(cluster)) == 100, "100 zones that serve", 240)
    for name in names[::10]:
        _writes(cluster, name, name)
    for agent in cluster.agents.values():
        agent.terminate()
    for agent in cluster.agents.values():
        agent.start(wait=False)
    for agent in cluster.agents.values():
        agent.wait_listening()
    wait_until(lambda: len(_serving(cluster)) == 100, "100 zones that serve again", 240)

    for name in names[::10]:
        cluster.wait_available(name)
        assert cluster.client(name).get("key") == name.encode()
