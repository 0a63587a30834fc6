"""Agents that are elsewhere after a restart, under names that lead elsewhere, or on IPv6 only."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from quorate_cluster.background import Background
from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.names import Names, told_in_own_network
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

BACK_S_MAX = 60.0
KEYS = [f"key-{number}" for number in range(64)]
NAMES = ["agent-1.pods", "agent-2.pods", "agent-3.pods"]


class Writes(Background):
    """One stock client that writes on and on, whatever happens.  `acknowledged`: key -> the last
    number for which it was told OK; a later one may be there, too."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.acknowledged: dict[str, int] = {}
        self.last_ok: dict[str, float] = {}
        retry = Retry(ConstantBackoff(0.2), 5)
        self.client: Any = cluster.client("z", socket_timeout=3, retry=retry)
        self.add_road(self._write)

    def _write(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            for key in KEYS:
                if self.stop.is_set():
                    return
                try:
                    self.client.set(key, number)
                except CLIENT_ERRORS:
                    continue
                self.acknowledged[key] = number
                self.last_ok[key] = time.monotonic()

    def wait_all_written_since(self, moment: float, timeout_s: float = 60) -> float:
        """Until each key was written after `moment`; seconds that it took."""

        def late() -> list[str]:
            return [key for key in KEYS if self.last_ok.get(key, 0) <= moment]

        wait_until(lambda: not late(), "writes of every key", timeout_s, late)
        return time.monotonic() - moment

    def lost(self) -> dict[str, Any]:
        """Keys of which less is there than was acknowledged."""
        found = {key: self.client.get(key) for key in KEYS}
        return {
            key: (self.acknowledged[key], value)
            for key, value in found.items()
            if int(value or 0) < self.acknowledged[key]
        }


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(tmp_path / "hosts", monkeypatch)


@pytest.fixture
def peer_ports() -> Iterator[int]:
    return free_ports()


def _kill_all(cluster: Cluster) -> None:
    """At once, as when all pods are deleted and their nodes are gone."""
    for agent in cluster.agents.values():
        os.kill(agent.pid, 9)
    for agent in cluster.agents.values():
        agent.forget()


@pytest.mark.needs("own-names")
def test_all_agents_come_back_under_their_names_with_other_addresses(
    start_cluster: StartCluster, names: Names, peer_ports: Iterator[int], measured: Measured
) -> None:
    cluster = start_cluster(agents=0, prefix=names.prefix, operator_prefix=names.prefix)
    names.set({name: f"127.0.1.{at}" for at, name in enumerate(NAMES, 1)})
    ports = {name: (next(peer_ports), next(peer_ports)) for name in NAMES}
    for at, name in enumerate(NAMES, 1):
        cluster.define_agent().move(f"127.0.1.{at}", *ports[name], name=name)
    for agent in cluster.agents.values():
        agent.start()
    cluster.declare()
    cluster.apply_zone("z", partitions=16)
    assert sorted(host for host, _ in cluster.endpoints("z")) == NAMES

    with Writes(cluster) as writes:
        writes.wait_all_written_since(time.monotonic())
        assert {node.host for node in writes.client.get_nodes()} == {*NAMES}
        _kill_all(cluster)
        names.set({name: f"127.0.2.{at}" for at, name in enumerate(NAMES, 1)})
        for at, name in enumerate(NAMES, 1):
            cluster.agents[f"agent-{at}"].move(f"127.0.2.{at}", *ports[name], name=name)
        began = time.monotonic()
        for agent in cluster.agents.values():
            agent.start(wait=False)
        took = writes.wait_all_written_since(began, BACK_S_MAX)

    measured("all agents killed, back at other addresses under their names", f"{took:.1f} s")
    assert took <= BACK_S_MAX
    assert writes.lost() == {}
    assert {node["address"] for node in cluster.api.status()["nodes"]} == {
        f"{name}:{peer}" for name, (peer, _) in ports.items()
    }


def test_all_agents_come_back_at_addresses_and_ports_that_nobody_knew(
    start_cluster: StartCluster, peer_ports: Iterator[int], measured: Measured
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    with Writes(cluster) as writes:
        writes.wait_all_written_since(time.monotonic())
        _kill_all(cluster)
    stores = {node["name"]: node["store"] for node in cluster.api.status()["nodes"]}

    began = time.monotonic()
    for at, agent in enumerate(cluster.agents.values(), 1):
        agent.move(f"127.0.2.{at}", next(peer_ports), next(peer_ports))
        agent.start(wait=False)
    cluster.declare()
    wait_until(
        lambda: all(host.startswith("127.0.2.") for host, _ in cluster.endpoints("z")),
        "new client addresses",
        say=lambda: cluster.endpoints("z"),
    )
    cluster.wait_available("z")
    again = Writes(cluster)
    again.acknowledged = writes.acknowledged
    assert again.lost() == {}
    with again:
        took = again.wait_all_written_since(began, BACK_S_MAX)

    measured("all agents killed, back at addresses nobody knew", f"{took:.1f} s")
    assert took <= BACK_S_MAX
    assert not any(node["state"] == "Draining" for node in cluster.api.status()["nodes"])
    assert {n["name"]: n["store"] for n in cluster.api.status()["nodes"]} == stores


def test_zones_have_the_ports_that_the_master_gave_them_on_all_agents_wherever_these_are(
    start_cluster: StartCluster, peer_ports: Iterator[int]
) -> None:
    before = [next(peer_ports) for _ in range(3)]
    after = [next(peer_ports) for _ in range(3)]
    first = max(*before, *after) + 1
    options = ["--client-ports-from-master", f"{first}-{first + 40}"]
    cluster = start_cluster(agents=0, options=options)
    for at, peer_port in enumerate(before, 1):
        cluster.define_agent().move(f"127.0.3.{at}", peer_port, 1)
    for agent in cluster.agents.values():
        agent.start()
    cluster.declare()
    processes = {agent.name: agent.pid for agent in cluster.agents.values()}

    cluster.apply_zone("z", partitions=16)
    cluster.apply_zone("y", partitions=4)
    port, other = _ports(cluster, "z"), _ports(cluster, "y")
    assert first <= port < other <= first + 40
    assert {agent.name: agent.pid for agent in cluster.agents.values()} == processes
    with Writes(cluster) as writes:
        writes.wait_all_written_since(time.monotonic())
        _kill_all(cluster)
        cluster.operator.kill()
    for at, agent in enumerate(cluster.agents.values(), 1):
        agent.move(f"127.0.4.{at}", after[at - 1], 1)
        agent.start(wait=False)
    cluster.operator.start()
    cluster.declare()
    cluster.wait_quiet("z")
    cluster.wait_quiet("y")

    assert (_ports(cluster, "z"), _ports(cluster, "y")) == (port, other)
    assert {*cluster.endpoints("z")} == {(f"127.0.4.{at}", port) for at in (1, 2, 3)}
    again = Writes(cluster)
    again.acknowledged = writes.acknowledged
    assert again.lost() == {}
    cluster.delete_zone("z")
    with _listening("127.0.4.2", port) as occupied:
        cluster.apply_zone("x", partitions=4)
        refused = wait_until(lambda: _refusal(cluster, "x"), "a refusal")
        assert refused == (
            f"agent agent-2: client port {port}, which the master gave it, cannot be listened on:"
            " Address already in use. Way out: end what has the port at 127.0.4.2"
        )
        occupied.close()
        wait_until(lambda: not _refusal(cluster, "x"), "end of the refusal", 90)
    assert _ports(cluster, "x") == port, "a port is free again when its zone is gone"


def _ports(cluster: Cluster, zone: str) -> int:
    """The port of the zone, which is the same on all agents."""
    status = cluster.zone(zone)["status"]
    assert {*status["ports"].values()} == {status["port"]}
    assert len(status["ports"]) == len(cluster.agents)
    return int(status["port"])


def _refusal(cluster: Cluster, zone: str) -> str:
    """What the condition RefusedByAgents says while it is true."""
    conditions = cluster.zone(zone)["status"]["conditions"]
    (found,) = [each for each in conditions if each["type"] == "RefusedByAgents"]
    return str(found["message"]) if found["status"] == "True" else ""


def _listening(host: str, port: int) -> socket.socket:
    """Another program that has the port."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.listen()
    return made


@pytest.mark.needs("own-network")
def test_a_cluster_lives_where_there_is_ipv6_only() -> None:
    seen = told_in_own_network("ipv6_story", 200)
    assert seen["ipv4"] is False
    assert [seen[f"read{when}"] for when in ("", " after a loss", " after restarts")] == [200] * 3
    assert all(each.startswith("[::1]:") for each in (*seen["endpoints"], *seen["members"]))
    assert seen["nodes"] == ["::1"]
