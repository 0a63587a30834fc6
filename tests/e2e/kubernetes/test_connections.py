"""Connections: clients outside by node ports, and ways that NetworkPolicies of the chart leave."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.cluster import RedisCluster

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses, key_in_each
from quorate_cluster.served import NotServed
from quorate_cluster.waiting import wait_until
from quorate_network_policies.evaluator import Policies
from quorate_nodes.enforced import policies_enforced
from quorate_nodes.release.installed import CLUSTER, NAMESPACE, REGISTRY, ZONE, Installed
from quorate_nodes.release.reach import (
    API_PORT,
    API_SERVER,
    ELSEWHERE,
    HEALTH_PORT,
    Visitors,
    Way,
)
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_operator.owned.agent_pod import ADMIN_PORT
from quorate_operator.owned.children import labels

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

VISITORS = {
    (NAMESPACE, "shop"): {"app": "shop"},
    (NAMESPACE, "blog"): {"app": "blog"},
    (ELSEWHERE, "prometheus"): {"app": "prometheus"},
    (ELSEWHERE, "false-shop"): {"app": "shop"},
    (ELSEWHERE, "false-agent"): labels(CLUSTER),
}
UPGRADE = "helm upgrade quorate charts/quorate --namespace storage"
PING = f"""
import socket
with socket.create_connection(("{ZONE}-clients", 6379), 5) as line:
    line.sendall(b"PING\\r\\n")
    print(line.recv(100))
"""
PONG = repr(b"+PONG\r\n")


def test_the_kernel_lets_in_whom_the_charts_policies_name_and_nobody_else(
    first_day: Installed, measured: Measured
) -> None:
    """The same is tried before, under and behind the policies: only these can refuse it."""
    began = time.monotonic()
    visitors = Visitors(first_day, VISITORS)
    named = {
        Way("operator", "agent", PEER_PORT),
        Way("agent", "agent", PEER_PORT),
        Way("agent", "agent", visitors.client_port),
        Way("shop", "agent", visitors.client_port),
        Way("prometheus", "agent", ADMIN_PORT),
        Way("prometheus", "operator", HEALTH_PORT),
        # The policies are not about what visitors do elsewhere.
        *(Way(name, API_SERVER, API_PORT) for name in ("operator", *(pod for _, pod in VISITORS))),
    }

    def wait_open(wanted: set[Way], when: str) -> None:
        found: set[Way] = set()

        def is_so() -> bool:
            found.clear()
            found.update(visitors.open_ways())
            return found == wanted

        wait_until(is_so, f"ways {when}", 60, lambda: (found - wanted, wanted - found))

    with visitors.run(), policies_enforced(first_day.nodes):
        wait_open(visitors.all_ways(), "without a policy")
        with _policies(first_day):
            wait_open(named, "by the policies")
            policies = first_day.get("networkpolicies")["items"]
            names = {
                name: first_day.nodes.get("namespace", name) for name in (NAMESPACE, ELSEWHERE)
            }
            told = {name: each["metadata"]["labels"] for name, each in names.items()}
            assert visitors.allowed_ways(Policies(policies, told)) == named
            assert [_pong(first_day, pod) for pod in ("shop", "main-agent-2-0")] == [PONG] * 2
            first_day.type("helm test quorate --namespace storage --logs")
            first_day.kubectl("delete", "pod", "main-agent-1-0")
            first_day.wait_whole()
            wait_open(named, "with the agent's new address")
        wait_open(visitors.all_ways(), "without a policy again")
    measured("the chart's policies, enforced", f"{time.monotonic() - began:.1f} s")


@pytest.mark.deep
def test_who_enters_by_a_node_is_told_of_nodes_and_who_is_inside_of_pods(
    first_day: Installed, measured: Measured
) -> None:
    on = {node.address for node in first_day.nodes.nodes}
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        began = time.monotonic()
        _listen(first_day, {"type": "NodePort"})
        first_day.wait(lambda: len(_outside(first_day)) == 3, "three external endpoints", 150)
        first_day.wait_whole(150)
        measured("an external listener is added", f"{time.monotonic() - began:.1f} s")
        assert {host for host, _ in _outside(first_day)} <= on
        host, port = _outside(first_day)[0]
        outside: Any = RedisCluster(host=host, port=port, socket_timeout=8)
        inside: Any = first_day.client(ZONE)
        try:
            for key in key_in_each(first_day.zone(ZONE)["spec"]["partitions"]):
                assert outside.set(f"outside-{key}", key)
                assert inside.get(f"outside-{key}") == key.encode()
            told = {(str(node.host), int(node.port)) for node in outside.get_nodes()}
            assert told == {*_outside(first_day)}
        finally:
            outside.close()
        pods = {pod["status"]["podIP"] for pod in first_day.pods()}
        assert {str(node.host) for node in inside.get_nodes()} == pods

        _listen(first_day, None)
        first_day.wait(lambda: not _outside(first_day), "no external endpoint", 150)
        first_day.wait_whole(150)
    services = first_day.kubectl("get", "services", "--output=name")
    assert "external" not in services
    assert pulses.lost() == []
    if pulses.failed:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


@contextmanager
def _policies(installed: Installed) -> Iterator[None]:
    """Those of the chart: a shop is a client, and `prometheus` elsewhere reads metrics."""
    prometheus = "networkPolicy.prometheus[0]"
    api_port = installed.nodes.plane.server.rpartition(":")[2]
    values = (
        "networkPolicy.create=true",
        f"networkPolicy.apiServerPorts={{{api_port}}}",
        "networkPolicy.clients[0].podSelector.matchLabels.app=shop",
        f"{prometheus}.namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name={ELSEWHERE}",
        f"{prometheus}.podSelector.matchLabels.app=prometheus",
    )
    chosen = " ".join(f"--set '{each}'" for each in values)
    installed.type(f"{UPGRADE} --reuse-values {chosen}")
    try:
        yield
    finally:
        repository = f"image.repository={REGISTRY}/quorate-operator"
        installed.type(f"{UPGRADE} --reset-values --set {repository}")


def _pong(installed: Installed, pod: str) -> str:
    """The answer of the zone's Service to a pod of the namespace, which knows its name."""
    return installed.kubectl("exec", pod, "--", "python3", "-c", PING).strip()


def _listen(installed: Installed, external: dict[str, Any] | None) -> None:
    """Declare the listener, and wait until the operator has seen it."""
    patch = json.dumps({"spec": {"managed": {"listeners": external and {"external": external}}}})
    installed.kubectl("patch", "storagecluster", CLUSTER, "--type=merge", f"--patch={patch}")

    def is_seen() -> bool:
        found = installed.get("storagecluster", CLUSTER)
        return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])

    installed.wait(is_seen, "a spec that was seen")


def _outside(installed: Installed) -> list[tuple[str, int]]:
    found = installed.zone(ZONE)["status"].get("externalEndpoints", [])
    pairs = [each.rpartition(":") for each in found]
    return [(host, int(port)) for host, _, port in pairs]
