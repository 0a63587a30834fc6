"""Deletions that the operator is told late, or never; API server and agents are in memory."""

import asyncio
from typing import Any

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator import names
from quorate_operator.declared.deleting import reread
from quorate_operator.declared.kinds import Kind

Json = dict[str, Any]
PAUSED = {names.ANNOTATION_PAUSED: "true"}


@pytest.fixture
def reads_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread, "READ_S", 0.0)
    monkeypatch.setattr(reread, "READS_PER_S", 1e9)


async def waiting(
    declared: Namespace, kind: str = "Zone", name: str = "first"
) -> asyncio.Task[None]:
    """Delete an object that is paused, or whose cluster has zones; return what kopf waits for."""
    body = declared.deleting(name, kind)
    released = declared.controller.zone_released
    if kind == "StorageCluster":
        released = declared.controller.cluster_released
    releasing = asyncio.create_task(released(body))
    await until(lambda: _reads(declared, kind) > 0, "it was looked at")
    assert not releasing.done()
    return releasing


async def waiting_cluster(declared: Namespace) -> tuple[list[str], list[str], asyncio.Task[None]]:
    """Delete a cluster that has a zone; return its rows and nodes, and what kopf waits for."""
    spec = {"external": {"addresses": declared.addresses()}, "deletionPolicy": "Delete"}
    declared.declare("StorageCluster", "main", **spec)
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    rows, nodes = declared.tables(), declared.tables("storagenodes")
    return rows, nodes, await waiting(declared, "StorageCluster", "main")


def _reads(declared: Namespace, kind: str) -> int:
    return declared.api.requests.count(("GET", declared.path(kind, "x").rpartition("/")[0]))


def change(declared: Namespace, kind: str, way: str, name: str = "first") -> None:
    """Change an object that waits for its deletion; the watch shows nothing of it."""
    path = declared.path(kind, name)
    body = declared.api.objects[path]
    metadata, spec = body["metadata"], body["spec"]
    match way:
        case "released":
            annotations = {**PAUSED, names.ANNOTATION_RELEASE: "true"}
            metadata = {**metadata, "annotations": annotations}
        case "resumed":
            metadata = {**metadata, "annotations": {}}
        case "retained":
            spec = {**spec, "deletionPolicy": "Retain"}
            generation = metadata["generation"] + 1
            metadata = {**metadata, "annotations": {}, "generation": generation}
        case "taken from the operator":
            metadata = {**metadata, "annotations": {}, "finalizers": ["foregroundDeletion"]}
        case "gone":
            del declared.api.objects[path]
            return
        case "another":
            metadata = {"name": name, "namespace": "default", "uid": "another", "generation": 1}
    declared.api.put(path, {**body, "metadata": metadata, "spec": spec})


KEPT = ["released", "retained", "taken from the operator", "gone", "another"]


@pytest.mark.usefixtures("reads_often")
@pytest.mark.parametrize("way", KEPT)
async def test_a_zone_that_waits_is_released_without_an_event(
    declared: Namespace, way: str
) -> None:
    """kopf tells no event of it meanwhile."""
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")
    declared.zone("first", PAUSED, deletionPolicy="Delete")
    rows = declared.tables()
    releasing = await waiting(declared)

    change(declared, "Zone", way)

    await asyncio.wait_for(releasing, 10)
    kept = declared.led("first")
    assert kept is not None
    assert not kept.deleting
    assert declared.tables() == rows
    if way == "another":
        await until(lambda: declared.conditions("first").get("Available") == "True", "served")
    assert declared.controller._zones.keys() == ({"first"} - {"first" if way == "gone" else ""})


@pytest.mark.usefixtures("reads_often")
async def test_a_zone_that_is_paused_no_longer_is_erased_without_an_event(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")
    declared.zone("first", PAUSED, deletionPolicy="Delete")
    releasing = await waiting(declared)

    change(declared, "Zone", "resumed")

    await asyncio.wait_for(releasing, 10)
    await until(lambda: declared.tables() == [], "erased")


@pytest.mark.parametrize("way", KEPT)
async def test_a_zone_is_read_again_before_its_data_is_erased(
    declared: Namespace, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a user has done since the last read counts."""
    monkeypatch.setattr(reread, "READ_S", 3600.0)
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")
    declared.zone("first", PAUSED, deletionPolicy="Delete")
    rows = declared.tables()
    releasing = await waiting(declared)
    change(declared, "Zone", "resumed")
    resumed = declared.api.objects[declared.path("Zone", "first")]
    change(declared, "Zone", way)

    declared.controller.zone_seen(resumed)

    await asyncio.wait_for(releasing, 10)
    kept = declared.led("first")
    assert kept is not None
    assert not kept.deleting
    assert declared.tables() == rows


@pytest.mark.usefixtures("reads_often")
@pytest.mark.parametrize("way", KEPT)
async def test_a_cluster_that_waits_is_released_without_an_event(
    declared: Namespace, way: str
) -> None:
    rows, nodes, releasing = await waiting_cluster(declared)

    change(declared, "StorageCluster", way, "main")

    await asyncio.wait_for(releasing, 10)
    assert (declared.tables(), declared.tables("storagenodes")) == (rows, nodes)


@pytest.mark.parametrize("way", KEPT)
async def test_a_cluster_is_read_again_before_its_data_is_erased(
    declared: Namespace, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "READ_S", 3600.0)
    rows, nodes, releasing = await waiting_cluster(declared)
    change(declared, "StorageCluster", way, "main")

    await declared.delete("first")

    await asyncio.wait_for(releasing, 10)
    assert (declared.tables(), declared.tables("storagenodes")) == (rows, nodes)


@pytest.mark.usefixtures("reads_often")
async def test_the_more_objects_wait_the_less_often_each_is_read(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "READS_PER_S", 0.001)
    declared.start()
    declared.zone("first", PAUSED, deletionPolicy="Delete")
    releasing = await waiting(declared)
    looks = declared.looked_at()["zone"]

    await until(lambda: declared.looked_at()["zone"] >= looks + 2, "two more looks")

    assert _reads(declared, "Zone") == 1
    releasing.cancel()


@pytest.mark.usefixtures("reads_often")
async def test_a_zone_that_was_removed_by_hand_does_not_hold_its_cluster(
    declared: Namespace,
) -> None:
    spec = {"external": {"addresses": declared.addresses()}, "deletionPolicy": "Delete"}
    declared.declare("StorageCluster", "main", **spec)
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")
    declared.zone("first", PAUSED, deletionPolicy="Delete")
    zone = await waiting(declared)
    cluster = await waiting(declared, "StorageCluster", "main")

    change(declared, "Zone", "gone")

    await asyncio.wait_for(zone, 10)
    await asyncio.wait_for(cluster, 10)


@pytest.mark.usefixtures("reads_often")
async def test_without_the_right_to_list_the_watch_frees_what_waits(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first", PAUSED, deletionPolicy="Delete")
    zones = declared.path("Zone", "x").rpartition("/")[0]
    declared.api.refuse = lambda method, path: 403 if (method, path) == ("GET", zones) else 0
    releasing = await waiting(declared)
    change(declared, "Zone", "released")

    declared.controller.zone_seen(declared.api.objects[declared.path("Zone", "first")])

    await asyncio.wait_for(releasing, 10)


@pytest.mark.parametrize("kind", ["Zone", "StorageCluster"])
async def test_a_late_event_of_an_earlier_object_does_not_replace_the_later_one(
    declared: Namespace, kind: str
) -> None:
    """As when kopf tells at last what happened to an object while it waited."""
    name = {"Zone": "first", "StorageCluster": "main"}[kind]
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    at_first = declared.api.objects[declared.path(kind, name)]
    earlier = declared.deleting(name, kind)
    change(declared, kind, "another", name)
    later = declared.api.objects[declared.path(kind, name)]
    controller = declared.controller
    seen, released = controller.zone_seen, controller.zone_released
    if kind == "StorageCluster":
        seen, released = controller.cluster_seen, controller.cluster_released

    def known() -> str:
        zone = controller._zones["first"]
        body = zone.body if kind == "Zone" else controller._clusters["main"]
        return str(body["metadata"]["uid"])

    seen(later)  # the end of the earlier one was missed
    await until(lambda: known() == "another", "the later one is known")

    seen(at_first)
    assert known() == "another"
    seen(earlier)
    await asyncio.wait_for(released(earlier), 10)

    assert known() == "another"
    if kind == "Zone":
        controller.zone_gone("first", earlier["metadata"]["uid"])
    else:
        controller.cluster_gone("main", earlier["metadata"]["uid"])
    assert known() == "another"
    declared.zone("second")
    await declared.until_available("second")


async def test_the_end_of_an_earlier_cluster_does_not_end_the_later_one(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    declared.controller.cluster_gone("main", "uid-of-main")
    external = {"addresses": declared.addresses()}
    declared.declare("StorageCluster", "main", uid="another", external=external)

    declared.controller.cluster_gone("main", "uid-of-main")

    assert list(declared.controller._clusters) == ["main"]
    declared.zone("second")
    await declared.until_available("second")


async def test_the_end_of_an_earlier_run_does_not_end_the_later_one(led: Namespace) -> None:
    led.declare("ScheduledDataValidation", "nightly", schedule="0 3 * * *")
    led.declare("ScheduledDataValidation", "nightly", uid="another", schedule="0 3 * * *")

    led.controller.run_gone(Kind.SCHEDULE, "nightly", "uid-of-nightly")
    assert led.controller._runs

    led.controller.run_gone(Kind.SCHEDULE, "nightly", "another")
    assert not led.controller._runs


@pytest.mark.parametrize("kind", ["Zone", "StorageCluster"])
async def test_a_status_is_not_written_to_another_object_of_the_name(
    declared: Namespace, kind: str
) -> None:
    """It was created a moment ago, and the watch has not shown it yet."""
    name = {"Zone": "first", "StorageCluster": "main"}[kind]
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    path = declared.path(kind, name)
    earlier = declared.api.objects[path]
    change(declared, kind, "another", name)
    del declared.api.objects[path]["status"]
    changed = {**earlier, "metadata": {**earlier["metadata"], "generation": 7}}
    controller = declared.controller

    (controller.zone_seen if kind == "Zone" else controller.cluster_seen)(changed)

    await until(lambda: "status" in declared.api.objects[path], "a status")
    assert declared.api.objects[path]["status"]["observedGeneration"] == 1
    assert controller.problems() == []
