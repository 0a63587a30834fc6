"""One operator with several clusters in a namespace, on a real API server.

What it asks of the API server does not grow with the clusters, and a defect in one of them is no
other's business.
"""

import re
from collections import Counter

import pytest

from quorate.wire.storage_cluster import external
from quorate_cluster.defective_operator import poisoned_operator
from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane

OTHERS = ("one", "two", "three", "four", "five", "six")
NOBODY = "127.0.0.1:9"

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(240)]


def watches(control_plane: ControlPlane) -> Counter[str]:
    """kind -> number of watches of one namespace that the API server has now; those of the
    controller manager are of all namespaces."""
    told = control_plane.kubectl("get", "--raw", "/metrics").stdout
    found: Counter[str] = Counter()
    for line in told.splitlines():
        if line.startswith("apiserver_longrunning_requests{") and 'verb="WATCH"' in line:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["group"] == "quorate.io" and labels["scope"] == "namespace":
                found[labels["resource"]] += int(float(line.rpartition(" ")[2]))
    return found


def reason(road: Road, kind: str, name: str, condition: str) -> str:
    found = road.status(kind, name).get("conditions", [])
    return next((each["reason"] for each in found if each["type"] == condition), "")


def declare_others(road: Road, *names: str) -> None:
    for name in names:
        road.apply("StorageCluster", name, **external([NOBODY]))


def test_the_number_of_watches_does_not_grow_with_the_clusters(
    road: Road, control_plane: ControlPlane
) -> None:
    before = watches(control_plane)
    road.start_agents()
    road.declare()
    declare_others(road, *OTHERS)
    operator = road.start_operator()
    road.wait_zone(**QUIET)
    for name in OTHERS:
        wait_until(
            lambda name=name: reason(road, "storagecluster", name, "Ready") == "AgentsMissing",
            f"{name} is led",
            60,
            road.logs,
        )
    kinds = ("partitiontables", "storagenodes", "storageclusters", "zones")
    wait_until(
        lambda: (
            {kind: watches(control_plane)[kind] - before[kind] for kind in kinds}
            == dict.fromkeys(kinds, 1)
        ),
        "one watch per kind",
        60,
        lambda: (before, watches(control_plane)),
    )

    # What another deletes is seen by it.
    node = road.items("storagenodes")[0]["metadata"]
    road.kubectl("delete", "storagenode", node["name"])
    wait_until(
        lambda: (
            (road.get("storagenode", node["name"]) or {"metadata": {"uid": node["uid"]}})[
                "metadata"
            ]["uid"]
            != node["uid"]
        ),
        "the registration is written again",
        60,
        road.logs,
    )
    assert operator.is_alive()


def test_a_defect_in_one_cluster_ends_its_master_and_no_other(road: Road) -> None:
    road.start_agents()
    road.declare()
    declare_others(road, "other")
    road.apply("Zone", "poison", clusterRef={"name": "other"}, partitions=4)
    planted = road.kept.path / "planted"
    operator = road.start_operator(program=poisoned_operator(planted))
    road.wait_zone(**QUIET)
    road.write_keys("first")
    term = road.wait_led_by(operator)
    wait_until(
        lambda: reason(road, "zone", "poison", "Accepted") == "Accepted", "led", 60, road.logs
    )

    planted.touch()

    for kind, name in (("storagecluster", "other"), ("zone", "poison")):
        wait_until(
            lambda kind=kind, name=name: reason(road, kind, name, "Blocked") == "MasterFailed",
            f"{kind} says so",
            60,
            lambda: (road.status("storagecluster", "other"), road.logs()),
        )
    wait_until(
        lambda: "stopped by a defect: KeyError: 'planted'" in road.asked("operator-a", "readyz")[1],
        "it is not ready",
        60,
    )
    wait_until(
        lambda: "MasterFailed" in {each["reason"] for each in road.items("events")}, "an Event", 60
    )
    assert road.asked("operator-a", "healthz") == (200, "ok\n")
    labels = f'{{cluster="other",namespace="{road.namespace}"}}'
    assert road.metrics("operator-a")[f"quorate_operator_master_defects_total{labels}"] >= 1
    road.agents["agent-2"].kill()
    road.wait_zone(Available="True", FullyReplicated="False", Blocked="False")
    road.check_keys("first")
    assert road.wait_led_by(operator) == term

    planted.unlink()

    for kind, name in (("storagecluster", "other"), ("zone", "poison")):
        wait_until(
            lambda kind=kind, name=name: reason(road, kind, name, "Blocked") == "Written",
            f"{kind} is led again",
            150,
            lambda: (road.status("storagecluster", "other"), road.logs()),
        )
    road.agents["agent-2"].start()
    road.wait_zone(**QUIET)
    assert road.wait_led_by(operator) == term
    assert operator.is_alive()
