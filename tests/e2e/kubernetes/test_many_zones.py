"""Two hundred zones of one cluster of pods: declared at once, served, and deleted at once."""

import json
import time
from contextlib import closing

import pytest

from quorate_cluster.fixtures import Measured
from quorate_nodes.cluster import Json
from quorate_nodes.installed import CLUSTER, Installed, condition_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(900)]

COUNT = 200
PARTITIONS = 16
SERVED_S_MAX = 400.0
GONE_S_MAX = 300.0
NAMES = [f"many-{number:03}" for number in range(COUNT)]
LABEL = "many=yes"
CHOSEN = f"--selector={LABEL}"


def test_two_hundred_zones_are_served_beside_the_first_and_leave_nothing_behind(
    first_day: Installed, measured: Measured
) -> None:
    pods = {pod["metadata"]["uid"] for pod in first_day.pods()}
    leader, terms = first_day.leader(), _term(first_day)
    try:
        began = time.monotonic()
        first_day.kubectl("apply", "--filename=-", stdin=_manifests())
        first_day.wait(lambda: _available(first_day) == COUNT, "every zone served", SERVED_S_MAX)
        served_s = time.monotonic() - began
        assert _services(first_day) == {f"{name}-clients" for name in NAMES}
        for name in NAMES:
            with closing(first_day.client(name)) as client:
                assert client.set(name, name)
                assert client.get(name) == name.encode()
        assert (first_day.leader(), _term(first_day)) == (leader, terms), "the lease was kept"
    finally:
        began = time.monotonic()
        first_day.kubectl("delete", "zones", CHOSEN, "--wait=false")
        first_day.wait(lambda: not _zones(first_day), "no zone of them", GONE_S_MAX)
        gone_s = time.monotonic() - began
    measured(
        f"{COUNT} zones of {PARTITIONS} partitions on nodes",
        f"served after {served_s:.0f} s, gone after {gone_s:.0f} s",
    )
    first_day.wait(lambda: not _services(first_day), "no Service of them")
    for kind in ("partitiontables", "secrets", "configmaps"):
        left = [each["metadata"]["name"] for each in first_day.get(kind)["items"]]
        assert not [name for name in left if "many-" in name]
    first_day.wait_whole(120)
    assert {pod["metadata"]["uid"] for pod in first_day.pods()} == pods, "no pod was restarted"
    assert _restarts(first_day) == 0


def _manifests() -> str:
    spec = {
        "clusterRef": {"name": CLUSTER},
        "partitions": PARTITIONS,
        "replicas": 3,
        "deletionPolicy": "Delete",
    }
    key, _, value = LABEL.partition("=")
    zones = [
        {
            "apiVersion": "quorate.io/v1alpha1",
            "kind": "Zone",
            "metadata": {"name": name, "labels": {key: value}},
            "spec": spec,
        }
        for name in NAMES
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": zones})


def _zones(installed: Installed) -> list[Json]:
    return list(installed.get("zones", CHOSEN)["items"])


def _available(installed: Installed) -> int:
    zones = _zones(installed)
    return sum(condition_of(zone, "Available").get("status") == "True" for zone in zones)


def _services(installed: Installed) -> set[str]:
    """Services for clients of these zones."""
    names = {each["metadata"]["name"] for each in installed.get("services")["items"]}
    return {name for name in names if name.startswith("many-")}


def _term(installed: Installed) -> int:
    [found] = installed.get("masterterms")["items"]
    return int(found["spec"]["term"])


def _restarts(installed: Installed) -> int:
    statuses = [s for pod in installed.pods() for s in pod["status"]["containerStatuses"]]
    return sum(status["restartCount"] for status in statuses)
