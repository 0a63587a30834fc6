"""Services of an external listener, the addresses that they make, and what is said of these."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.protocol.status import ClusterStatus, NodeStatus
from quorate.wire.storage_cluster import StorageClusterStatus
from quorate_operator.declared.object_status import Seen, cluster_status
from quorate_operator.owned.agent_names import Agents
from quorate_operator.owned.children import desired_children
from quorate_operator.owned.external_listener import Outside, ZonePort, external_addresses
from quorate_operator.owned.owned_objects import ManagedView
from quorate_owned.facts import managed_cluster

Json = dict[str, Any]
TWO = Agents(("agent-1", "agent-2"), (), run=True)
CART = ZonePort("cart", {"agent-1": 7201}, "uid-cart", 7201)
STOCK = ZonePort("stock", {"agent-1": 7200}, "uid-stock", 7200)
CHOSEN_BY_AGENTS = ZonePort("odd", {"agent-1": 7000}, "uid-odd")


def listeners(kind: str = "NodePort", **more: Any) -> Json:
    return {"external": {"type": kind, **more}}


def services(*zones: ZonePort, **spec: Any) -> dict[str, Json]:
    made = desired_children(managed_cluster(**spec), TWO, (), zones, {})
    found = {e["metadata"]["name"]: e for e in made if e["kind"] == "Service"}
    return {name: each for name, each in found.items() if name.endswith("-external")}


def test_each_agent_has_a_service_with_a_port_for_each_zone() -> None:
    made = services(CART, STOCK, CHOSEN_BY_AGENTS, listeners=listeners())

    assert made.keys() == {"main-agent-1-external", "main-agent-2-external"}
    service = made["main-agent-2-external"]
    assert service["metadata"]["labels"]["quorate.io/agent"] == "agent-2"
    assert service["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert service["spec"] == {
        "type": "NodePort",
        "ipFamilyPolicy": "SingleStack",
        "externalTrafficPolicy": "Cluster",
        "selector": {
            "quorate.io/cluster": "main",
            "app.kubernetes.io/component": "agent",
            "quorate.io/agent": "agent-2",
        },
        "ports": [
            {"name": "clients-8200", "port": 8200, "protocol": "TCP", "targetPort": 8200},
            {"name": "clients-8201", "port": 8201, "protocol": "TCP", "targetPort": 8201},
        ],
    }


def test_without_a_listener_or_a_zone_there_is_none_and_pods_are_as_before() -> None:
    assert services(CART) == {}
    assert services(listeners=listeners()) == {}
    assert services(CHOSEN_BY_AGENTS, listeners=listeners()) == {}
    offset = "--external-port-offset=1000"
    for spec, expected in (({}, False), ({"listeners": listeners()}, True)):
        made = desired_children(managed_cluster(**spec), TWO, (), (), {})
        [pod, _] = [e["spec"]["template"]["spec"] for e in made if e["kind"] == "StatefulSet"]
        assert (offset in pod["containers"][0]["args"]) is expected


def test_annotations_are_filled_in() -> None:
    name = "external-dns.alpha.kubernetes.io/hostname"
    annotations = {name: "{agent}.{cluster}.{namespace}.example.org"}
    spec = listeners("LoadBalancer", annotations=annotations)
    made = services(CART, listeners=spec)["main-agent-1-external"]

    assert made["metadata"]["annotations"] == {name: "agent-1.main.shop.example.org"}
    assert made["spec"]["type"] == "LoadBalancer"


def addresses(
    spec: Json, ingress: Json | None = None, node: str = "n1", node_ip: str = "192.0.2.1"
) -> Outside:
    """Those of agent-1, whose Service has node ports."""
    ports = [
        {"name": "clients-8200", "port": 8200, "nodePort": 31000},
        {"name": "clients-8201", "port": 8201, "nodePort": 31001},
    ]
    status = {"loadBalancer": {"ingress": [ingress]} if ingress else {}}
    pod: Json = {"spec": {"nodeName": node}, "status": {"hostIP": node_ip}}
    return external_addresses(
        managed_cluster(listeners=spec),
        ["agent-1"],
        [CART, STOCK],
        {"main-agent-1-external": {"spec": {"ports": ports}, "status": status}},
        {"main-agent-1-0": pod},
    )


NODE_PORTS = {"uid-cart": {"agent-1": 31001}, "uid-stock": {"agent-1": 31000}}
OWN_PORTS = {"uid-cart": {"agent-1": 8201}, "uid-stock": {"agent-1": 8200}}


@pytest.mark.parametrize(
    ("spec", "ingress", "host", "ports"),
    [
        (listeners(), None, "192.0.2.1", NODE_PORTS),
        (listeners(hostTemplate="{node}.example.org"), None, "n1.example.org", NODE_PORTS),
        (
            listeners(hostTemplate="{agent}.{cluster}.{namespace}.org"),
            None,
            "agent-1.main.shop.org",
            NODE_PORTS,
        ),
        (listeners("LoadBalancer"), {"ip": "198.51.100.7"}, "198.51.100.7", OWN_PORTS),
        (listeners("LoadBalancer"), {"ip": "fd00::7"}, "fd00::7", OWN_PORTS),
        (listeners("LoadBalancer"), {"hostname": "lb.example.org"}, "lb.example.org", OWN_PORTS),
        (
            listeners("LoadBalancer", hostTemplate="{agent}.example.org"),
            None,
            "agent-1.example.org",
            OWN_PORTS,
        ),
    ],
)
def test_an_address_is_what_template_and_type_say(
    spec: Json, ingress: Json | None, host: str, ports: Any
) -> None:
    assert addresses(spec, ingress) == ({"agent-1": host}, ports, {})


@pytest.mark.parametrize(
    ("spec", "facts", "why"),
    [
        (listeners("LoadBalancer"), {}, "no address from a load balancer yet"),
        (listeners(), {"node_ip": ""}, "runs on no node yet, which {node_ip} of hostTemplate"),
        (listeners(hostTemplate="{node}"), {"node": ""}, "which {node} of hostTemplate asks for"),
        (listeners(hostTemplate="-{agent}"), {}, "gives -agent-1, which is not a host"),
    ],
)
def test_an_agent_without_an_address_is_told_with_the_reason(
    spec: Json, facts: dict[str, str], why: str
) -> None:
    found = addresses(spec, **facts)

    assert (found.hosts, found.ports) == ({}, {"uid-cart": {}, "uid-stock": {}})
    assert why in found.missing["agent-1"]


def test_a_service_that_is_not_there_yet_and_one_that_lacks_a_zone() -> None:
    cluster = managed_cluster(listeners=listeners())
    pods = {"main-agent-1-0": {"status": {"hostIP": "192.0.2.1"}}}
    none = external_addresses(cluster, ["agent-1"], [CART], {}, pods)
    assert none.missing == {"agent-1": "Service main-agent-1-external is not created yet"}

    service = {"spec": {"ports": [{"name": "clients-8200", "port": 8200, "nodePort": 31000}]}}
    some = external_addresses(
        cluster, ["agent-1"], [CART, STOCK], {"main-agent-1-external": service}, pods
    )
    assert some.ports == {"uid-cart": {}, "uid-stock": {"agent-1": 31000}}
    assert external_addresses(managed_cluster(), ["agent-1"], [CART], {}, pods).missing == {}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (listeners("ClusterIP"), "type"),
        (listeners(hostTemplate="{pod}.example.org"), "hostTemplate"),
        (listeners(hostTemplate="{ingress}"), r"a NodePort has no \{ingress\}: write \{node_ip\}"),
    ],
)
def test_what_cannot_be_is_refused(spec: Json, sentence: str) -> None:
    with pytest.raises(WireError, match=sentence):
        managed_cluster(listeners=spec)


def told(unreachable: dict[str, str] | None) -> StorageClusterStatus:
    view = ManagedView(
        TWO, ["one:7100", "two:7100"], [], "", "", managed_cluster().spec, unreachable
    )
    node = NodeStatus(
        "agent-1", "s", 1, True, "Online", "one:7100", "", 0, 0, external_host="192.0.2.1"
    )
    seen = Seen(ClusterStatus(1, (node,), ()))
    now = "2026-01-01T00:00:00Z"
    return cluster_status(managed_cluster(), seen, "me", now, dialed=view.addresses, managed=view)


def test_the_status_says_who_is_reachable_and_who_is_not() -> None:
    def condition(unreachable: dict[str, str] | None) -> list[tuple[str, str, str]]:
        conditions = told(unreachable).conditions
        found = [each for each in conditions if each.type == "ExternallyReachable"]
        return [(each.status, each.reason, each.message) for each in found]

    assert told({}).members[0].external_host == "192.0.2.1"
    assert condition(None) == []
    assert condition({}) == [
        ("True", "AddressesKnown", "every agent has an external address"),
    ]
    assert condition({"agent-2": "no node", "agent-1": "no Service"}) == [
        ("False", "AddressMissing", "agent-1: no Service, and 1 more agents"),
    ]
