"""Clients outside of the Kubernetes cluster, which reach nothing but the addresses of its nodes.

There is no kubelet and no proxy of nodes: the test runs each pod's agent with the arguments of the
pod, at an address of its own, and leads node ports to it as the Services say.
"""

import json
import random
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.cluster import RedisCluster

from quorate.facts.keyspace import SLOT_COUNT
from quorate_cluster.names import Names
from quorate_cluster.processes import environment, python
from quorate_cluster.road import QUIET, Road, sound_operator
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_outside.network import OutsideNetwork

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.needs("own-names", "own-network"),
]

Json = dict[str, Any]
NODES = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
MANAGED = {
    "replicas": 2,
    "image": "localhost/quorate-agent:1",
    "storage": {"size": "1Gi"},
    "listeners": {"external": {"type": "NodePort"}},
}
KEY = "key-0"


class Nodes:
    """What kubelets and proxies of nodes would do for the pods of one cluster."""

    def __init__(self, road: Road, names: Names, network: OutsideNetwork) -> None:
        self.road = road
        self.network = network
        self._names = names
        # Not where anything else on this machine listens on the same ports.
        self._net = f"127.{random.randint(64, 250)}.{random.randint(1, 250)}"
        self.agents: dict[str, Component] = {}

    def ip(self, agent: str) -> str:
        return f"{self._net}.{agent.rpartition('-')[2]}"

    def node(self, agent: str) -> str:
        return NODES[int(agent.rpartition("-")[2]) - 1]

    def close(self) -> None:
        for agent in self.agents.values():
            if agent.is_alive():
                agent.kill()

    def run_pods(self, count: int, services: int = 0) -> None:
        """Start the agents of pods that have none yet.  Node ports lead to them once there are so
        many Services, before the operator hears on which node they are."""
        wait_until(lambda: len(self._pods()) == count, f"{count} pods", 60, self.road.logs)
        hosts = {
            f"main-{agent}-0.main-agents.{self.road.namespace}.svc": self.ip(agent)
            for agent in self._pods()
        }
        self._names.set(hosts)
        for agent, pod in self._pods().items():
            if agent not in self.agents:
                self._start(agent, pod)
        wait_until(lambda: len(self._items("services")) == services, "Services", 60, self.road.logs)
        self.lead()
        for agent, pod in self._pods().items():
            if "hostIP" not in pod["status"]:
                self._tell_status(agent, pod)

    def _pods(self) -> dict[str, Json]:
        return {
            each["metadata"]["labels"]["quorate.io/agent"]: each for each in self._items("pods")
        }

    def _items(self, kinds: str) -> list[Json]:
        found = self.road.items(kinds)
        return [e for e in found if "quorate.io/agent" in e["metadata"].get("labels", {})]

    def _start(self, agent: str, pod: Json) -> None:
        folder = self.road.kept.path
        [container] = pod["spec"]["containers"]
        filled = {
            "$(POD_IP)": self.ip(agent),
            "$(FAILURE_DOMAIN)": "",
            "=/data/agent": f"={folder / agent}",
            "=/secret": f"={self._secret()}",
        }
        arguments = []
        for each in container["args"]:
            for text, value in filled.items():
                each = each.replace(text, value)
            arguments.append(each)
        command = python("quorate_agent", *arguments)
        self.agents[agent] = Component(agent, folder, command, environment())
        self.agents[agent].start()

    def _secret(self) -> Path:
        folder = self.road.kept.path / "secret"
        folder.mkdir(exist_ok=True)
        for name, value in (self.road.get("secret", "main-quorate") or {})["data"].items():
            (folder / name).write_bytes(b64decode(value))
        return folder

    def _tell_status(self, agent: str, pod: Json) -> None:
        running = {
            "name": "agent",
            "image": "i",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        self._patch(
            "pod",
            pod["metadata"]["name"],
            phase="Running",
            hostIP=self.node(agent),
            podIP=self.ip(agent),
            conditions=[{"type": "Ready", "status": "True"}],
            containerStatuses=[running],
        )

    def _patch(self, kind: str, name: str, **status: Any) -> None:
        patch = json.dumps({"status": status})
        self.road.kubectl(
            "patch", kind, name, "--subresource=status", "--type=merge", f"--patch={patch}"
        )

    def balance(self, agent: str, host: str) -> None:
        """A load balancer leads to the agent's Service from now on."""
        ingress = [{"hostname": host}]
        self._patch("service", f"main-{agent}-external", loadBalancer={"ingress": ingress})

    def lead(self) -> None:
        """Lead every node port of every Service to its pod, on all nodes."""
        for service in self._items("services"):
            agent = service["spec"]["selector"]["quorate.io/agent"]
            for port in service["spec"]["ports"]:
                for node in NODES:
                    to = self.ip(agent), port["targetPort"]
                    self.network.lead(node, port["nodePort"], to)

    def zone(self) -> Json:
        return self.road.status("zone", "sessions")

    def outside(self) -> list[str]:
        return list(self.zone().get("externalEndpoints", []))

    def wait_outside(self, count: int) -> list[str]:
        wait_until(
            lambda: len(self.outside()) == count,
            f"{count} external endpoints",
            60,
            lambda: (self.zone(), self.road.status("storagecluster", "main"), self.road.logs()),
        )
        return self.outside()

    def reachable(self) -> Json:
        conditions = self.road.status("storagecluster", "main").get("conditions", [])
        found = [each for each in conditions if each["type"] == "ExternallyReachable"]
        return found[0] if found else {}


@pytest.fixture
def nodes(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nodes]:
    names = Names(tmp_path / "hosts", monkeypatch)
    network = OutsideNetwork(NODES, tmp_path)
    road = Road(control_plane, namespace)
    made = Nodes(road, names, network)
    try:
        road.use_example_role()
        road.start_operator(program=lambda *words: [*names.prefix, *sound_operator(*words)])
        yield made
    finally:
        made.close()
        network.close()
        road.close()


def _split(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host, int(port)


def _moved(nodes: Nodes, endpoints: list[str]) -> set[str]:
    """Where each agent sends a client for KEY that it does not serve itself."""
    replies = [nodes.network.order("ask", *_split(each), "GET", KEY) for each in endpoints]
    return {reply.split()[2] for reply in replies if reply.startswith("MOVED")}


def test_clients_outside_and_inside_are_each_given_addresses_that_they_reach(nodes: Nodes) -> None:
    road, network = nodes.road, nodes.network
    road.apply("StorageCluster", "main", managed=MANAGED)
    nodes.run_pods(2)
    road.apply("Zone", "sessions", clusterRef={"name": "main"}, partitions=16, replicas=2)
    road.wait_zone(**QUIET)
    endpoints = nodes.wait_outside(2)
    nodes.lead()

    assert [_split(each)[0] for each in endpoints] == NODES[:2]
    assert nodes.reachable()["status"] == "True"
    members = road.status("storagecluster", "main")["members"]
    assert [each["externalHost"] for each in members] == NODES[:2]
    inside_ports = nodes.zone()["endpoints"]
    assert not any(network.order("reaches", *_split(each)) for each in inside_ports)
    network.order("connect", *_split(endpoints[0]))
    assert network.order("write", "first") == SLOT_COUNT
    assert network.order("read", "first") == SLOT_COUNT
    assert network.order("nodes") == endpoints
    for command in ("SLOTS", "SHARDS", "NODES"):
        told = network.order("ask", *_split(endpoints[0]), "CLUSTER", command)
        assert nodes.ip("agent-1").rpartition(".")[0] not in told
        assert all(node in told for node in NODES[:2])
    assert _moved(nodes, endpoints) < {*endpoints}

    inside: RedisCluster = road.client()
    assert {f"{node.host}:{node.port}" for node in inside.get_nodes()} == {*inside_ports}
    assert inside.get(KEY) == b"first"

    network.order("keep_writing")
    road.kubectl("scale", "storagecluster", "main", "--replicas=3")
    nodes.run_pods(3, services=3)
    endpoints = nodes.wait_outside(3)
    road.wait_zone(**QUIET)
    began = network.order("count")
    wait_until(
        lambda: network.order("count") > began + 500 and network.order("nodes") == endpoints,
        "writes by three agents",
        60,
        lambda: (network.order("nodes"), endpoints, road.logs()),
    )
    written = network.order("stop")
    assert (written["failures"], written["wrong"]) == ([], [])
    assert network.order("nodes") == endpoints
    inside.set(KEY, "inside")
    assert {str(node.host) for node in inside.get_nodes()} <= set(map(nodes.ip, nodes.agents))
    inside.close()

    _behind_load_balancers(nodes)


def _behind_load_balancers(nodes: Nodes) -> None:
    """The same agents, whose Services become another type."""
    balanced = {**MANAGED, "replicas": 3, "listeners": {"external": {"type": "LoadBalancer"}}}
    processes = {name: agent.pid for name, agent in nodes.agents.items()}
    nodes.road.apply("StorageCluster", "main", managed=balanced)
    wait_until(
        lambda: "from a load balancer yet" in nodes.reachable().get("message", ""),
        "agents without an address",
        60,
        nodes.road.logs,
    )
    assert nodes.reachable()["status"] == "False"

    for agent in nodes.agents:
        nodes.balance(agent, f"{agent}.example.org")
    port = nodes.zone()["port"] + 1000
    expected = [f"{agent}.example.org:{port}" for agent in sorted(nodes.agents)]
    wait_until(
        lambda: nodes.outside() == expected, "addresses of load balancers", 60, nodes.outside
    )
    wait_until(lambda: nodes.reachable()["status"] == "True", "reachable", 60, nodes.reachable)
    assert {name: agent.pid for name, agent in nodes.agents.items()} == processes
