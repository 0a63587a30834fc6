"""Agents that announce an external address of their own: a client outside, and one inside."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from quorate.facts.keyspace import SLOT_COUNT
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import HOST
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports
from quorate_outside.network import OutsideNetwork

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(200),
    pytest.mark.needs("own-network"),
]

NODE = "192.0.2.1"
OFFSET = 1  # so that both ports are among those that tests may listen on


@pytest.fixture
def network(tmp_path: Path) -> Iterator[OutsideNetwork]:
    made = OutsideNetwork([NODE], tmp_path)
    yield made
    made.close()


@pytest.fixture
def ports() -> Iterator[int]:
    return free_ports()


def _outside(cluster: Cluster) -> list[tuple[str, int]]:
    told = [each.rpartition(":") for each in cluster.zone("z")["status"]["externalEndpoints"]]
    return [(host, int(port)) for host, _, port in told]


def _lead(cluster: Cluster, network: OutsideNetwork, count: int) -> list[str]:
    """Lead the announced addresses to their agents, as a router would; the addresses."""
    outside = wait_until(
        lambda: found if len(found := _outside(cluster)) == count else None, "external endpoints"
    )
    for host, port in outside:
        network.lead(host, port, (HOST, port))
    return sorted(f"{host}:{port}" for host, port in outside)


def test_each_client_is_given_the_addresses_of_its_side_also_when_data_moves(
    start_cluster: StartCluster, network: OutsideNetwork, ports: Iterator[int]
) -> None:
    options = ["--external-port-offset", f"{OFFSET}", "--announce-external-host", NODE]
    cluster = start_cluster(agents=2, options=options)
    cluster.apply_zone("z", partitions=16, replicas=2)
    outside = _lead(cluster, network, 2)
    inside = cluster.endpoints("z")
    assert outside == sorted(f"{NODE}:{port + OFFSET}" for _, port in inside)

    network.order("connect", NODE, int(outside[0].rpartition(":")[2]))
    assert network.order("write", "outside") == SLOT_COUNT
    assert network.order("nodes") == outside
    client = cluster.client("z")
    assert client.get("key-0") == b"outside"
    assert {(node.host, node.port) for node in client.get_nodes()} == {*inside}

    network.order("keep_writing")
    peer = next(ports)
    base = next(first for first, second in pairwise(ports) if second == first + OFFSET)
    network.lead(NODE, base + OFFSET, (HOST, base + OFFSET))  # before anybody is told of it
    third = cluster.define_agent(options=options)
    third.move(HOST, peer, base)
    third.start()
    cluster.declare()
    outside = _lead(cluster, network, 3)
    assert f"{NODE}:{base + OFFSET}" in outside
    cluster.wait_quiet("z")
    wait_until(lambda: network.order("nodes") == outside, "news of the third agent", 60)
    written = network.order("stop")
    assert (written["failures"], written["wrong"]) == ([], [])
    assert written["count"] > 0

    cluster.agents["agent-1"].kill()
    cluster.agents["agent-1"].start()
    cluster.wait_quiet("z")
    assert sorted(f"{host}:{port}" for host, port in _outside(cluster)) == outside
    assert network.order("write", "again") == network.order("read", "again") == SLOT_COUNT
