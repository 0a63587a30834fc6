"""Clients outside by node ports of real nodes, beside clients inside."""

import json
import time
from typing import Any

import pytest
from redis.cluster import RedisCluster

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses, key_in_each
from quorate_cluster.served import NotServed
from quorate_nodes.release.installed import CLUSTER, ZONE, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(400)]


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
