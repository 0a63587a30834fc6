"""A StorageCluster that cannot be read: its status says so, and it can be deleted."""

import asyncio
from typing import Any

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.runner_world import NAMES
from quorate_loopback.waiting import until
from quorate_operator import names
from quorate_operator.declared import lead_again
from quorate_operator.kube.api import path_of
from quorate_owned.facts import MANAGED

MAIN = path_of("default", "storageclusters", "main")
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
UNREADABLE = {"addresses": "of a later version"}


def ready(declared: Namespace) -> Any:
    """Its condition of that name."""
    found = declared.api.objects[MAIN].get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == "Ready"), {})


def is_told(declared: Namespace) -> bool:
    return bool(ready(declared).get("reason") == "Invalid")


async def lead(declared: Namespace, **spec: Any) -> None:
    external = {"addresses": declared.addresses()}
    declared.declare("StorageCluster", "main", external=external, **spec)
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await until(lambda: ready(declared).get("status") == "True", "ready")


async def become_unreadable(
    declared: Namespace, annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    """While no operator runs; then one begins to lead."""
    await declared.controller.close()
    declared.declare("StorageCluster", "main", annotations, external=UNREADABLE, **spec)
    await declared.restart()
    await until(lambda: is_told(declared), "told")


async def test_one_that_is_not_led_says_so_and_keeps_what_the_next_master_needs(
    declared: Namespace,
) -> None:
    await lead(declared)
    before = declared.api.objects[MAIN]["status"]

    await become_unreadable(declared)

    status, told = declared.api.objects[MAIN]["status"], ready(declared)
    assert (told["status"], told["reason"]) == ("False", "Invalid")
    assert "spec.external.addresses is 'of a later version'" in told["message"]
    assert "the cluster is not led; agents keep serving: correct it" in told["message"]
    assert [each["type"] for each in status["conditions"]] == ["Ready"]
    assert status["master"]["term"] == before["master"]["term"] > 0
    assert (status["addresses"], status["members"]) == (before["addresses"], [])
    why = "StorageCluster main is not led: its status says why"
    zone = declared.path("Zone", "first")
    await until(lambda: why in str(declared.api.objects[zone]["status"]), "told")
    assert declared.conditions("first")["Available"] == "Unknown"


async def test_its_status_is_written_once(declared: Namespace) -> None:
    await lead(declared)
    await become_unreadable(declared, deletionPolicy="Delete")
    body = declared.deleting("main", "StorageCluster")
    releasing = asyncio.create_task(declared.controller.cluster_released(body))
    await until(lambda: "the object waits" in ready(declared)["message"], "told")
    declared.api.requests.clear()

    for _ in range(3):
        await declared.controller._reconcile_cluster("main")

    assert not declared.api.writes("storageclusters")
    releasing.cancel()


async def test_one_that_is_led_stays_led_as_it_was_read_last(declared: Namespace) -> None:
    await lead(declared)

    declared.declare("StorageCluster", "main", external=UNREADABLE)

    await until(lambda: is_told(declared), "told")
    assert "the cluster is led as the object was read last" in ready(declared)["message"]
    assert len(declared.api.objects[MAIN]["status"]["members"]) == len(declared.addresses())
    declared.zone("second")
    await declared.until_available("first", "second")

    declared.declare("StorageCluster", "main", external={"addresses": declared.addresses()})

    await until(lambda: ready(declared)["status"] == "True", "ready")


async def test_one_that_is_led_can_be_paused_and_resumed(declared: Namespace) -> None:
    await lead(declared)
    declared.declare("StorageCluster", "main", external=UNREADABLE)
    await until(lambda: is_told(declared), "told")
    paused = {names.ANNOTATION_PAUSED: "true"}

    declared.declare("StorageCluster", "main", paused, external=UNREADABLE)

    await until(lambda: "Paused" in declared.conditions("main", "StorageCluster"), "paused")
    assert declared.controller._led["main"].pause

    declared.declare("StorageCluster", "main", external=UNREADABLE)

    await until(lambda: "Paused" not in declared.conditions("main", "StorageCluster"), "resumed")
    assert not declared.controller._led["main"].pause
    assert is_told(declared)


async def test_one_whose_master_ends_by_a_defect_is_led_again_as_it_was_read_last(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lead_again, "FAILED_PAUSE_S", 0.05)
    await lead(declared)
    declared.declare("StorageCluster", "main", external=UNREADABLE)
    await until(lambda: is_told(declared), "told")
    first = declared.controller._led["main"].runner

    first.fail(RuntimeError("planted"))

    def is_followed() -> bool:
        led = declared.controller._led.get("main")
        return led is not None and led.runner is not first and led.is_seen

    await until(is_followed, "led again")
    assert is_told(declared)
    declared.zone("second")
    await declared.until_available("first", "second")
    assert "the cluster is led as the object was read last" in ready(declared)["message"]


async def test_agents_of_a_scale_up_that_is_under_way_are_dialed(declared: Namespace) -> None:
    del declared.api.objects[MAIN]
    declared.declare("StorageCluster", "main", managed=MANAGED)
    declared.start()
    led = declared.controller._led
    await until(lambda: "main" in led and len(led["main"].addresses) == 3, "three agents")
    declared.declare("StorageCluster", "main", managed={**MANAGED, "replicas": 4})
    await declared.controller._reconcile_cluster("main")
    assert len(led["main"].addresses) == 3, "its objects are not made yet"

    managed = {**MANAGED, "replicas": "of a later version"}
    declared.declare("StorageCluster", "main", managed=managed)

    await until(lambda: len(led["main"].addresses) == 4, "four agents")
    await until(lambda: is_told(declared), "told")


async def test_a_recovery_ends_also_then(declared: Namespace) -> None:
    away = declared.world.agents[NAMES[2]]
    await away.die()
    declared.start()
    led = declared.controller._led
    await until(lambda: "main" in led and led["main"].runner.is_recovering, "recovering")
    declared.declare("StorageCluster", "main", external=UNREADABLE)
    await until(lambda: is_told(declared), "told")

    await declared.world.add_agent(NAMES[2], port=int(away.address.rpartition(":")[2]))

    await until(lambda: not led["main"].runner.is_recovering, "its end")
    assert is_told(declared)


@pytest.mark.parametrize(("policy", "released"), [("Retain", False), ("Delete", True)])
async def test_it_goes_where_its_data_is_kept(
    declared: Namespace, policy: str, released: bool
) -> None:
    await lead(declared)
    rows = declared.tables()
    annotations = {names.ANNOTATION_RELEASE: "true"} if released else {}
    await become_unreadable(declared, annotations, deletionPolicy=policy)

    await declared.delete("main", "StorageCluster")

    assert declared.tables() == rows


async def test_it_waits_where_its_data_is_to_be_deleted_and_names_the_way_out(
    declared: Namespace,
) -> None:
    await lead(declared)
    rows = declared.tables()
    await become_unreadable(declared, deletionPolicy="Delete")
    body = declared.deleting("main", "StorageCluster")
    releasing = asyncio.create_task(declared.controller.cluster_released(body))

    await until(lambda: names.ANNOTATION_RELEASE in ready(declared)["message"], "told")
    assert "its data cannot be deleted, and the object waits" in ready(declared)["message"]
    metadata = {**body["metadata"], "annotations": {names.ANNOTATION_RELEASE: "true"}}
    declared.api.put(MAIN, {**body, "metadata": metadata})
    await asyncio.wait_for(releasing, 10)

    assert declared.tables() == rows


async def test_one_that_is_led_takes_its_data_with_it(declared: Namespace) -> None:
    await lead(declared, deletionPolicy="Delete")
    declared.declare("StorageCluster", "main", external=UNREADABLE, deletionPolicy="Delete")
    await until(lambda: is_told(declared), "told")
    await declared.delete("first")

    await declared.delete("main", "StorageCluster")

    assert declared.tables() == []


async def test_it_goes_with_its_namespace(declared: Namespace) -> None:
    await lead(declared)
    await become_unreadable(declared, deletionPolicy="Delete")
    metadata = {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    declared.api.put("/api/v1/namespaces/default", {"metadata": metadata})

    await declared.delete("main", "StorageCluster")


async def test_claims_that_it_owns_stay_with_its_data(declared: Namespace) -> None:
    """An earlier version made them so."""
    owners = [{"name": "main", "uid": "uid-of-main"}, {"name": "other", "uid": "uid-of-other"}]
    labels = {names.LABEL_CLUSTER: "main", names.LABEL_AGENT: "agent-1"}
    metadata = {"name": "main-agent-1", "labels": labels, "ownerReferences": owners}
    claim = f"{CLAIMS}/main-agent-1"
    declared.api.put(claim, {"metadata": metadata, "spec": {}})
    managed = {**MANAGED, "replicas": "of a later version"}
    declared.declare("StorageCluster", "main", managed=managed, deletionPolicy="Retain")
    declared.start()
    await until(lambda: is_told(declared), "told")

    await declared.delete("main", "StorageCluster")

    assert declared.api.objects[claim]["metadata"]["ownerReferences"] == owners[1:]
