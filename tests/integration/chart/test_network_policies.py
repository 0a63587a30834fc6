"""The chart's NetworkPolicies, against connections that a run was seen to make.

No network plugin runs here.  An evaluator reads the policies as the API reference defines them,
with the labels that the API server has of the pods; what a plugin makes of them is not shown.
Connections that are to be denied, and that nobody made here, are in tests/unit/chart.
"""

import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from quorate.facts.keyspace import key_partition
from quorate_cli.kubectl.exec_client import CLIENT
from quorate_cluster.names import Names
from quorate_cluster.processes import environment, python
from quorate_cluster.road import QUIET
from quorate_control_plane.control_plane import ControlPlane
from quorate_helm.released import Released
from quorate_network_policies.evaluator import End, Policies
from quorate_network_policies.seen import Seen, SeenConnections
from quorate_operator.owned.agent_names import PEER_PORT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(300),
]

API_PORT = 6443
VALUES = (
    "networkPolicy.create=true",
    f"networkPolicy.apiServerPorts={{{API_PORT}}}",
    "networkPolicy.clients[0].podSelector.matchLabels.app=shop",
)
API_SERVER = End("the API server", "10.96.0.1")


@pytest.fixture
def released(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Released]:
    names = Names(tmp_path / "hosts", monkeypatch)
    made = Released(control_plane, namespace, names, *VALUES)
    try:
        yield made
    finally:
        made.close()


class Evaluated:
    """The ends of a run with the labels that they have on the API server, and the policies."""

    def __init__(self, released: Released) -> None:
        road = released.road
        self.namespace = road.namespace
        labels = {
            each["metadata"]["name"]: each["metadata"]["labels"] for each in road.items("pods")
        }
        self.agents = {
            released.pods.address(name): End(name, released.pods.address(name), self.namespace, of)
            for name, of in labels.items()
        }
        of_operator = released.operator_template["metadata"]["labels"]
        self.operator = End("the operator", "10.0.0.9", self.namespace, of_operator)
        self.policies = Policies(
            [each for each in released.rendered if each["kind"] == "NetworkPolicy"],
            {self.namespace: {"kubernetes.io/metadata.name": self.namespace}},
        )


def test_every_connection_that_a_run_makes_is_allowed(
    control_plane: ControlPlane, released: Released
) -> None:
    road = released.road
    of_agents: dict[int, str] = {}
    of_operators: set[int] = set()

    def pids() -> Collection[int]:
        of_agents.update(
            (process.pid, released.pods.address(pod))
            for pod, (_, process) in [*released.pods.running.items()]
            if process.is_alive()
        )
        of_operators.update(each.pid for each in [*road.operators.values()] if each.is_alive())
        return [*of_agents, *of_operators]

    with SeenConnections(pids) as watched:
        _live(released)
        ports = _enter_a_pod(released, of_agents, watched)

    ends = Evaluated(released)
    api_port = int(control_plane.server.rpartition(":")[2])
    made = [_named(each, of_agents, ends, api_port) for each in watched.seen]
    kinds = {(source.name == ends.operator.name, port) for source, _, port in made}
    assert {(True, PEER_PORT), (True, API_PORT), (False, PEER_PORT)} <= kinds, kinds
    assert {(False, port) for port in ports} <= kinds, kinds
    denied = {
        f"{source.name} -> {destination.name} port {port}"
        for source, destination, port in made
        if not ends.policies.allow(source, destination, port)
    }
    assert denied == set()


def _live(released: Released) -> None:
    """Three managed agents with a zone; one is killed, the operator is followed by another."""
    road = released.road
    first = released.start_operator("operator-a")
    managed = {"replicas": 3, "image": "i", "storage": {"size": "1Gi"}}
    road.apply("StorageCluster", "shop", managed=managed)
    road.apply("Zone", "carts", clusterRef={"name": "shop"}, partitions=16)
    _wait_quiet(released)
    client = road.client("carts")
    for number in range(100):
        client.set(f"key-{number}", number)
    second = released.start_operator("operator-b")
    first.kill()
    released.wait(
        "the second operator",
        lambda: f"/{second.pid}/" in road.status("stc", "shop")["master"]["identity"],
    )
    road.kubectl("delete", "pod", "shop-agent-2-0")
    released.wait(
        "a copy missed", lambda: road.conditions(name="carts").get("FullyReplicated") == "False"
    )
    _wait_quiet(released)
    assert [int(client.get(f"key-{number}") or -1) for number in range(100)] == [*range(100)]
    client.close()


def _enter_a_pod(
    released: Released, of_agents: dict[int, str], watched: SeenConnections
) -> set[int]:
    """Give commands as `kubectl quorate cli` does; the ports of the zone.

    The process plays one that was started in the pod of the first agent.  Its connection is seen
    while it waits for the next line."""
    status = released.road.status("zone", "carts")
    keys = {key_partition(f"key-{number}".encode(), 16): number for number in range(100)}
    name, first = "shop-agent-1-0", released.pods.address("shop-agent-1-0")
    address = f"{first}:{status['ports']['agent-1']}"
    command = python(CLIENT[-1], address)
    entered = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    of_agents[entered.pid] = first
    reached: set[str] = set()
    assert entered.stdin is not None
    assert entered.stdout is not None
    with entered.stdin, entered.stdout:
        for number in keys.values():
            entered.stdin.write(b"GET key-%d\n" % number)
            entered.stdin.flush()
            assert int(entered.stdout.readline()) == number
            looks = watched.looks
            released.wait(f"a look at {name}", lambda looks=looks: watched.looks > looks + 1)
            reached |= {each.address for each in watched.seen.copy() if each.pid == entered.pid}
    entered.wait()
    assert len(reached) == 3, "it was sent on to every agent"
    return set(status["ports"].values())


def _wait_quiet(released: Released) -> None:
    released.wait(
        "quiet zone", lambda: QUIET.items() <= released.road.conditions(name="carts").items()
    )


def _named(
    seen: Seen, of_agents: dict[int, str], ends: Evaluated, api_port: int
) -> tuple[End, End, int]:
    source = ends.agents[of_agents[seen.pid]] if seen.pid in of_agents else ends.operator
    if seen.address in ends.agents:
        return source, ends.agents[seen.address], seen.port
    assert seen.port == api_port, f"a connection to nobody who is known: {source.name}, {seen}"
    return source, API_SERVER, API_PORT
