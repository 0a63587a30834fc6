"""The chart's NetworkPolicies, against every TCP connection that a run makes to or from its pods.

A run has an operator and its successor, agents, a client, Prometheus, the pod of `helm test` and a
client in an agent's pod.  No network plugin runs here.  An evaluator reads the policies as the API
reference defines them, with the labels that the API server has of the pods; what a plugin makes of
them is not shown.  Not seen, and allowed by rule: DNS, which is UDP.  Not here, as a run has none:
an external listener's clients, and validation by Spark, which has no pods on Kubernetes.
Connections that are to be denied, and that nobody made here, are in tests/unit/chart.
"""

import http.client
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from quorate.facts.keyspace import key_partition
from quorate_cli.kubectl.exec_client import CLIENT
from quorate_cluster.names import Names
from quorate_cluster.processes import HOST, environment, python
from quorate_cluster.road import QUIET
from quorate_control_plane.control_plane import ControlPlane
from quorate_helm.chart import find
from quorate_helm.released import Released
from quorate_network_policies.evaluator import End, Policies
from quorate_network_policies.from_address import from_address
from quorate_network_policies.seen import Seen, SeenConnections
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_operator.owned.agent_pod import ADMIN_PORT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(600),
]

API_PORT = 6443
HEALTH_PORT = 8080
VALUES = (
    "networkPolicy.create=true",
    f"networkPolicy.apiServerPorts={{{API_PORT}}}",
    "networkPolicy.clients[0].podSelector.matchLabels.app=shop",
    "networkPolicy.prometheus[0].podSelector.matchLabels.app=prometheus",
)
API_SERVER = End("the API server", "10.96.0.1")
KUBELET = End("a kubelet", HOST)
KEYS = range(100)


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


class Run:
    """The ends of a run, with the labels that they have on the API server, and who is who."""

    def __init__(self, released: Released) -> None:
        self._released = released
        self._namespace = released.road.namespace
        self._api_port = int(released.plane.server.rpartition(":")[2])
        self.pod_of: dict[int, str] = {}
        """The pod of each process of an agent, or in the pod of one."""
        self.zone_ports: set[int] = set()
        self._operators: set[int] = set()
        self._operator = self._end(
            "the operator", "10.0.0.9", released.operator_template["metadata"]["labels"]
        )
        self.shop = self._visitor(201, "a client", {"app": "shop"})
        self.prometheus = self._visitor(202, "Prometheus", {"app": "prometheus"})
        test = find(released.rendered, "Pod")["metadata"]["labels"]
        self.test = self._visitor(203, "helm test", test)
        self._visitors = {each.address: each for each in (self.shop, self.prometheus, self.test)}

    def _visitor(self, number: int, name: str, labels: dict[str, str]) -> End:
        return self._end(name, self._released.pods.address(f"visitor-{number}-0"), labels)

    def _end(self, name: str, address: str, labels: dict[str, str]) -> End:
        return End(name, address, self._namespace, labels)

    def pids(self) -> Collection[int]:
        """Of the agents and operators that run, and have run."""
        self.pod_of.update(
            (process.pid, pod)
            for pod, (_, process) in [*self._released.pods.running.items()]
            if process.is_alive()
        )
        operators = [*self._released.road.operators.values()]
        self._operators.update(each.pid for each in operators if each.is_alive())
        return [*self.pod_of, *self._operators]

    def is_wanted(self, source: str, address: str, port: int) -> bool:
        """Whether the connection comes from a visitor, or leads to an agent or an operator."""
        network = self.shop.address.rpartition(".")[0]
        return f"{network}." in source or f"{network}." in address or self._is_health(address, port)

    def _is_health(self, address: str, port: int) -> bool:
        return address == HOST and port in self._released.road.health.values()

    def ends(self, seen: Collection[Seen]) -> Iterator[tuple[End, End, int]]:
        """Who connected to whom, at which port that it has in a pod."""
        agents = {
            name: self._end(name, self._released.pods.address(name), each["metadata"]["labels"])
            for each in self._released.road.items("pods")
            for name in [each["metadata"]["name"]]
        }
        by_address = {each.address: each for each in agents.values()}
        for each in seen:
            if each.address in by_address:
                to, port = by_address[each.address], each.port
            elif self._is_health(each.address, each.port):
                to, port = self._operator, HEALTH_PORT
            else:
                assert each.port == self._api_port, f"a connection to nobody who is known: {each}"
                to, port = API_SERVER, API_PORT
            for source in self._sources(each, port, agents):
                yield source, to, port

    def _sources(self, seen: Seen, port: int, agents: dict[str, End]) -> list[End]:
        if seen.pid in self.pod_of:
            return [agents[self.pod_of[seen.pid]]]
        if seen.pid in self._operators:
            return [self._operator]
        if seen.source in self._visitors:
            return [self._visitors[seen.source]]
        if port in (ADMIN_PORT, HEALTH_PORT):
            return [KUBELET]  # played by this process, which asks anew each time
        # One of them held it for less than a look.
        if port == PEER_PORT:
            return [self._operator, *agents.values()]
        assert port in self.zone_ports, f"a connection of nobody who is known: {seen}"
        return [*agents.values()]  # a client in an agent's pod that was sent on at once


def test_every_connection_that_a_run_makes_is_allowed(released: Released, tmp_path: Path) -> None:
    run = Run(released)
    with SeenConnections(run.pids, run.is_wanted) as watched:
        _live(released, run)
        ports = _enter_a_pod(released, run, watched)
        _scrape(released, run)
        _test_release(released, run, tmp_path)
        looks = watched.looks
        released.wait("another look", lambda: watched.looks > looks + 1)

    run.zone_ports = ports
    # Where it read the zones: TLS may have reset that connection between two looks.
    made = [*run.ends(watched.seen), (run.test, API_SERVER, API_PORT)]
    agent = "shop-agent-1-0"
    of_zone = {(name, port) for name in ("a client", agent, "helm test") for port in ports}
    kinds = {(source.name, port) for source, _, port in made}
    assert {
        *of_zone,
        (agent, PEER_PORT),
        ("the operator", PEER_PORT),
        ("the operator", API_PORT),
        ("Prometheus", ADMIN_PORT),
        ("Prometheus", HEALTH_PORT),
        ("a kubelet", ADMIN_PORT),
    } <= kinds, kinds
    policies = Policies(
        [each for each in released.rendered if each["kind"] == "NetworkPolicy"],
        {released.road.namespace: {"kubernetes.io/metadata.name": released.road.namespace}},
    )
    denied = {
        f"{source.name} -> {to.name} port {port}"
        for source, to, port in made
        if not policies.allow(source, to, port)
    }
    # Of a node's own a policy says nothing: with most plugins it reaches its pods by any of them.
    assert {each for each in denied if not each.startswith(f"{KUBELET.name} -> ")} == set()


def _live(released: Released, run: Run) -> None:
    """Three managed agents with a zone; one is killed, the operator is followed by another."""
    road = released.road
    first = released.start_operator("operator-a")
    managed = {"replicas": 3, "image": "i", "storage": {"size": "1Gi"}}
    road.apply("StorageCluster", "shop", managed=managed)
    road.apply("Zone", "carts", clusterRef={"name": "shop"}, partitions=16)
    _wait_quiet(released)
    said = _type(released, run, [f"SET key-{number} {number}" for number in KEYS])
    assert said == ["OK"] * len(KEYS)
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
    said = _type(released, run, [f"GET key-{number}" for number in KEYS])
    assert said == [str(number) for number in KEYS]


def _type(released: Released, run: Run, commands: list[str]) -> list[str]:
    """What the client is answered."""
    line = from_address(run.shop.address, CLIENT[-1], _first_endpoint(released))
    done = subprocess.run(
        line, env=environment(), input="\n".join(commands), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _first_endpoint(released: Released) -> str:
    status = released.road.status("zone", "carts")
    return f"{released.pods.address('shop-agent-1-0')}:{status['ports']['agent-1']}"


def _enter_a_pod(released: Released, run: Run, watched: SeenConnections) -> set[int]:
    """Give commands as `kubectl quorate cli` does; the ports of the zone.

    The process plays one that was started in the pod of the first agent.  Its connection is seen
    while it waits for the next line."""
    released.wait(
        "a primary on every agent",
        lambda: all(each["primaries"] for each in released.road.status("stc", "shop")["members"]),
    )
    keys = {key_partition(f"key-{number}".encode(), 16): number for number in KEYS}
    name = "shop-agent-1-0"
    entered = subprocess.Popen(
        python(CLIENT[-1], _first_endpoint(released)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    run.pod_of[entered.pid] = name
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
            reached |= {each.address for each in watched.seen if each.pid == entered.pid}
    entered.wait()
    assert len(reached) == 3, "it was sent on to every agent"
    return set(released.road.status("zone", "carts")["ports"].values())


def _scrape(released: Released, run: Run) -> None:
    """Read the metrics of the operator that is there, and of every agent."""
    agents = [(released.pods.address(pod), ADMIN_PORT) for pod in released.pods.running]
    for host, port in [*agents, (HOST, released.road.health["operator-b"])]:
        source = (run.prometheus.address, 0)
        connection = http.client.HTTPConnection(host, port, timeout=30, source_address=source)
        connection.request("GET", "/metrics")
        assert b"quorate_" in connection.getresponse().read()
        connection.close()


def _test_release(released: Released, run: Run, folder: Path) -> None:
    """Do as the pod of `helm test` does."""
    released.road.kubectl("create", "serviceaccount", "quorate-operator")
    command = from_address(run.test.address, *released.zone_check(folder / "account"))
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a key was written, read and deleted" in done.stdout


def _wait_quiet(released: Released) -> None:
    released.wait(
        "quiet zone", lambda: QUIET.items() <= released.road.conditions(name="carts").items()
    )
