"""`kubectl scale` under stock clients, with a real API server and each pod's agent as a process."""

import json
import time
from typing import Any

import pytest

from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses, key_in_each
from quorate_cluster.road import Road
from quorate_cluster.served import NotServed
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_owned.sized import PARTITIONS, ZONE, Sized

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("own-names"),
    pytest.mark.timeout(300),
]

Json = dict[str, Any]


def test_three_agents_become_six_and_three_again_and_no_command_fails(
    sized: Sized, measured: Measured
) -> None:
    of_three = sized.claims()
    with Pulses(sized, ZONE, keys_max=8) as pulses:
        began = time.monotonic()
        sized.scale(6)
        sized.wait_size(6)
        grown_s = time.monotonic() - began
        sized.wait(lambda: max(sized.primaries()) - min(sized.primaries()) <= 1, "even primaries")
        pulses.wait_all_written_since(time.monotonic())
        of_six = sized.claims()
        assert of_three.items() < of_six.items()
        assert len(of_six) == 6

        began = time.monotonic()
        sized.scale(3)
        sized.wait_size(3)
        shrunk_s = time.monotonic() - began
        sized.wait(lambda: max(sized.primaries()) - min(sized.primaries()) <= 1, "even primaries")
        pulses.wait_all_written_since(time.monotonic())
    measured(
        "3 agents to 6 to 3 under clients",
        f"{grown_s:.1f} s and {shrunk_s:.1f} s, {sum(pulses.last_acknowledged.values())} writes;"
        f" a key waits for at most {max(pulses.longest_gaps_s(0)):.2f} s",
    )
    assert sized.claims() == of_six, "claims are kept"
    assert are_equal(sized.digests())
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    if pulses.failed:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def test_names_of_pods_are_announced_where_that_is_asked_for(sized: Sized) -> None:
    """Under a domain of the user's own; clients and agents reach each other by these names."""
    road = sized.road
    names = {"clusterDomain": "k8s.example"}
    patch = json.dumps({"spec": {"managed": {"announcedNames": names}}})
    road.kubectl("patch", "storagecluster", "main", "--type=merge", f"--patch={patch}")
    service = f"main-agents.{road.namespace}.svc.k8s.example"
    expected = [f"main-agent-{number}-0.{service}:7200" for number in (1, 2, 3)]
    sized.wait(lambda: road.status("zone", ZONE)["endpoints"] == expected, "names", 120)
    sized.wait_size(3)
    client: Any = sized.client(ZONE)  # parts of it ship without types
    for key in key_in_each(PARTITIONS):
        assert client.set(key, key)
    told = {str(node.host) for node in client.get_nodes()}
    assert told == {each.rpartition(":")[0] for each in expected}
    members = road.status("storagecluster", "main")["members"]
    peers = [f"main-agent-{number}-0.{service}:{PEER_PORT}" for number in (1, 2, 3)]
    assert [each["address"] for each in members] == peers
    assert are_equal(sized.digests())


RACK = "example.org/rack"


def test_copies_are_apart_by_a_label_of_nodes_that_the_user_chose(
    sized: Sized, request: pytest.FixtureRequest
) -> None:
    """The API server copies no such label to pods: the operator reads Nodes, once it may."""
    road, plane = sized.road, sized.plane
    user = f"system:serviceaccount:{road.namespace}:quorate-operator"
    role = f"nodes-of-{road.namespace}"
    pods = sized.names("pods")
    nodes = {pod: f"{road.namespace}-{pod}" for pod in pods}

    def clean() -> None:
        plane.kubectl("delete", "node", *nodes.values(), "--ignore-not-found", "--wait=false")
        plane.kubectl("delete", "clusterrole,clusterrolebinding", role, "--ignore-not-found")

    request.addfinalizer(clean)
    patch = json.dumps({"spec": {"managed": {"failureDomainLabel": RACK}}})
    road.kubectl("patch", "storagecluster", "main", "--type=merge", f"--patch={patch}")
    sized.wait(lambda: sized.domains_known()[0] == "False", "told that Nodes cannot be read")
    assert "no Node can be read" in sized.domains_known()[1]
    assert "examples/operator-cluster-role.yaml" in sized.domains_known()[1]
    sized.wait_size(3)  # pods of the changed template
    road.apply("Zone", ZONE, clusterRef={"name": "main"}, partitions=PARTITIONS, replicas=2,
               storage="Persistent")  # fmt: skip
    sized.wait_size(3)

    rights = ("--verb=get,list,watch", "--resource=nodes")
    plane.kubectl("create", "clusterrole", role, *rights)
    plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={user}")
    for pod, rack in zip(pods, ("one", "one", "two"), strict=True):
        _make_node(plane, nodes[pod], rack)
        _bind(road, pod, nodes[pod])
    (operator,) = road.operators.values()  # one that runs asks again within five minutes
    operator.terminate()
    operator.start()
    expected = {"agent-1": "one", "agent-2": "one", "agent-3": "two"}
    sized.wait(lambda: sized.racks() == expected, "racks of nodes", 90)
    sized.wait(lambda: sized.domains_known()[0] == "True", "told")
    sized.wait(lambda: sized.attributes(RACK) == expected, "labels of nodes as attributes")
    assert sized.attributes("quorate.io/agent") == {agent: agent for agent in expected}
    sized.wait_size(3)
    assert road.conditions(name=ZONE)["SpreadViolated"] == "False"
    apart = [{*row["replicas"]} for row in sized.rows()]
    assert len(apart) == PARTITIONS
    assert all("agent-3" in each for each in apart), "the only one in its rack"

    uids = {name: uid for name, (uid, _) in sized.pods.running.items()}
    plane.kubectl("label", "node", nodes[pods[1]], f"{RACK}=three", "--overwrite")
    sized.wait(lambda: sized.racks()["agent-2"] == "three", "the changed label")
    sized.wait(
        lambda: not all("agent-3" in row["replicas"] for row in sized.rows()), "others share now"
    )
    sized.wait_size(3)
    assert {name: uid for name, (uid, _) in sized.pods.running.items()} == uids


def _make_node(plane: ControlPlane, name: str, rack: str) -> None:
    metadata = {"name": name, "labels": {RACK: rack}}
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    plane.kubectl("create", "--filename=-", stdin=json.dumps(manifest))


def _bind(road: Road, pod: str, node: str) -> None:
    """As the scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    path = f"/api/v1/namespaces/{road.namespace}/pods/{pod}/binding"
    road.kubectl("create", f"--raw={path}", "--filename=-", stdin=json.dumps(binding))


def test_when_a_zone_is_available_its_name_is_there_for_clients(sized: Sized) -> None:
    """Whoever waits for the condition and starts a client then finds the Service."""
    road = sized.road
    for number in range(4):
        name = f"zone-{number}"
        road.apply("Zone", name, clusterRef={"name": "main"}, partitions=4, replicas=3)
        road.kubectl("wait", f"zone/{name}", "--for=condition=Available", "--timeout=60s")
        service = road.get("service", f"{name}-clients")
        assert service is not None, name
        [port] = service["spec"]["ports"]
        assert port["targetPort"] == road.status("zone", name)["port"]


def test_at_zero_nothing_runs_and_at_three_all_rows_are_there_again(sized: Sized) -> None:
    client = sized.client(ZONE)
    keys = key_in_each(PARTITIONS)
    for key in keys:
        assert client.set(key, json.dumps({"of": key}))
    sized.wait_size(3)
    before, claims = sized.digests(), sized.claims()
    assert all(rows > 0 for copies in before.values() for rows, _ in copies.values())

    sized.scale(0)
    sized.wait(lambda: not sized.names("pods"), "no pod")
    sized.wait(lambda: not (sized.pods.processes), "no process")
    sized.wait(lambda: sized.road.conditions(name=ZONE)["Available"] == "False", "told")
    assert len(sized.road.status("storagecluster", "main")["members"]) == 3, "nobody has left"
    assert sized.claims() == claims

    sized.scale(3)
    sized.wait_size(3)
    assert sized.claims() == claims
    assert sized.digests() == before
    client = sized.client(ZONE)
    assert [client.get(key) for key in keys] == [json.dumps({"of": key}).encode() for key in keys]
