"""What stays and what goes with deleted objects; API server and agents are in memory."""

import asyncio
from typing import Any

import pytest

from quorate.protocol.messages.events import Event, Reason
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator import names
from quorate_operator.declared import watched_cluster
from quorate_operator.declared.deleting import termination
from quorate_operator.kube.api import ApiRefused, path_of
from quorate_owned.facts import MANAGED

Json = dict[str, Any]


async def test_a_zone_without_an_object_is_kept_and_named(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_cluster, "WATCH_BEHIND_S", 0.05)
    declared.start()
    declared.zone("seen")
    declared.zone("gone")
    await declared.until_available("seen", "gone")
    del declared.api.objects[declared.path("Zone", "gone")]

    await declared.restart()

    await until(lambda: declared.retained() == ["gone"], "named", 20)
    gone = declared.led("gone")
    assert gone is not None
    assert not gone.deleting


async def test_a_zone_that_is_deleted_is_released_at_once_and_its_data_is_kept(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    rows = declared.tables()

    await declared.delete("first")

    assert declared.tables() == rows
    kept = declared.led("first")
    assert kept is not None
    assert not kept.deleting


async def test_a_zone_that_is_deleted_soon_after_leading_began_is_named_later(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_cluster, "WATCH_BEHIND_S", 1.5)
    declared.start()
    declared.zone("first")
    await declared.until_available("first")

    await declared.delete("first")

    await until(lambda: declared.retained() == ["first"], "named")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_zone_that_is_declared_again_has_its_data(
    declared: Namespace, is_restarted: bool
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    rows = declared.tables()
    await declared.delete("first")
    if is_restarted:
        await declared.restart()

    declared.zone("first", uid="another", replicas=2)

    await until(lambda: declared.conditions("first").get("Available") == "True", "served")
    status = declared.api.objects[declared.path("Zone", "first")]["status"]
    assert status["zoneId"] == "uid-of-first"
    assert declared.tables() == rows
    await until(lambda: getattr(declared.led("first"), "replicas", 0) == 2, "as declared now")


async def test_a_zone_that_has_kept_data_still_has_it_when_the_metastore_is_lost(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await declared.delete("first")
    declared.zone("first", uid="another")
    await until(lambda: declared.conditions("first").get("Available") == "True", "served")
    await declared.controller.close()
    for path in declared.tables():
        del declared.api.objects[path]

    await declared.restart()

    await until(lambda: declared.led("first") is not None, "led under the id of its data")


async def test_another_zone_of_that_name_is_refused_and_its_deletion_erases_nothing(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    rows = declared.tables()
    await declared.delete("first")

    declared.zone("first", uid="another", partitions=32, deletionPolicy="Delete")
    await until(lambda: declared.conditions("first").get("Accepted") == "False", "refused")
    await declared.delete("first")

    assert declared.tables() == rows
    kept = declared.led("first")
    assert kept is not None
    assert (kept.partitions, kept.deleting) == (16, False)


async def test_with_delete_a_zone_is_released_when_its_data_is_gone(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")

    await declared.delete("first")

    await until(lambda: declared.led("first") is None, "end of its record")
    assert declared.tables() == []


async def test_kept_data_goes_with_a_later_zone_that_says_delete(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await declared.delete("first")
    declared.zone("first", uid="another", deletionPolicy="Delete")
    await until(lambda: declared.conditions("first").get("Available") == "True", "served")

    await declared.delete("first")

    await until(lambda: declared.led("first") is None, "end of its record")
    assert declared.tables() == []


async def test_an_annotation_frees_a_zone_whose_data_cannot_be_deleted(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")
    declared.api.refuse = lambda method, path: 403 if method == "DELETE" else 0
    body = declared.deleting("first")
    releasing = asyncio.create_task(declared.controller.zone_released(body))
    await until(lambda: declared.conditions("first").get("Blocked") == "True", "it says why")
    assert not releasing.done()

    metadata = {**body["metadata"], "annotations": {names.ANNOTATION_RELEASE: "true"}}
    changed = {**body, "metadata": metadata}
    declared.controller.zone_seen(declared.api.put(declared.path("Zone", "first"), changed))

    await asyncio.wait_for(releasing, 10)
    assert declared.tables() != []


async def test_a_namespace_that_terminates_frees_what_waits(declared: Namespace) -> None:
    declared.start()
    declared.zone("first", deletionPolicy="Delete")
    await declared.until_available("first")

    def refuse(method: str, path: str) -> int:
        if path.endswith("/events"):
            causes = [{"reason": "NamespaceTerminating", "message": "it is being deleted"}]
            raise ApiRefused(403, "Forbidden", f"{method} {path}: 403", causes)
        return 403 if method == "DELETE" else 0

    declared.api.refuse = refuse
    declared.controller._led["main"].decisions.add(
        Event("uid-of-first", None, Reason.STORAGE_FULL, "something to tell", "Warning")
    )

    await declared.delete("first")


async def test_a_cluster_that_is_deleted_and_declared_again_has_its_zones(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    rows, nodes = declared.tables(), declared.tables("storagenodes")

    await declared.delete("main", "StorageCluster")
    declared.controller.cluster_gone("main", "uid-of-main")
    await until(lambda: declared.conditions("first").get("Accepted") == "False", "not led")
    declared.declare("StorageCluster", "main", uid="another", addresses=declared.addresses())

    await until(lambda: declared.conditions("first").get("Available") == "True", "served")
    assert (declared.tables(), declared.tables("storagenodes")) == (rows, nodes)


async def test_a_cluster_with_delete_waits_for_zones_and_leaves_nothing(
    declared: Namespace,
) -> None:
    addresses = declared.addresses()
    declared.declare("StorageCluster", "main", addresses=addresses, deletionPolicy="Delete")
    declared.start()
    declared.zone("first")
    declared.zone("kept")
    await declared.until_available("first", "kept")
    await declared.delete("kept")
    body = declared.deleting("main", "StorageCluster")
    releasing = asyncio.create_task(declared.controller.cluster_released(body))
    await asyncio.sleep(0.3)  # looks
    assert not releasing.done()
    assert declared.conditions("first")["Available"] == "True"

    await declared.delete("first")

    await asyncio.wait_for(releasing, 10)
    assert declared.tables() == []
    assert declared.tables("storagenodes") == []


async def test_a_cluster_with_delete_waits_also_for_zones_that_the_watch_has_not_shown(
    declared: Namespace,
) -> None:
    """The next operator sees the cluster's deletion before it sees any Zone."""
    addresses = declared.addresses()
    declared.declare("StorageCluster", "main", addresses=addresses, deletionPolicy="Delete")
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    await declared.controller.close()
    declared.controller = declared._make()
    declared.controller.start()
    body = declared.deleting("main", "StorageCluster")
    zones = path_of("default", "zones")
    declared.api.requests.clear()

    releasing = asyncio.create_task(declared.controller.cluster_released(body))
    await until(
        lambda: releasing.done() or declared.api.requests.count(("GET", zones)) >= 2,
        "looked at",
    )

    led = declared.led("first")
    assert led is not None
    assert not led.deleting
    releasing.cancel()


# --- volumes of managed agents -----------------------------------------------------------------


CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/main-agent-1"


async def _manage(declared: Namespace, policy: str) -> None:
    """Declare managed agents in the place of those of others; the first claim is made."""
    del declared.api.objects[declared.path("StorageCluster", "main")]
    declared.declare("StorageCluster", "main", managed=MANAGED, deletionPolicy=policy)
    declared.start()
    await until(lambda: CLAIM in declared.api.objects, "made")


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
async def test_a_claim_belongs_to_nobody_while_its_cluster_is_there(
    declared: Namespace, policy: str
) -> None:
    """So whatever deletes the StorageCluster, and whether an operator runs or not, it stays."""
    await _manage(declared, policy)

    assert "ownerReferences" not in declared.api.objects[CLAIM]["metadata"]


async def test_objects_of_a_cluster_that_is_being_deleted_are_not_made_again(
    declared: Namespace,
) -> None:
    """Once nothing holds it: Kubernetes deletes or frees them one by one, and the owner last."""
    await _manage(declared, "Retain")
    assert declared.controller._owned._seen
    declared.show(declared.deleting("main", "StorageCluster"))

    await until(lambda: not declared.controller._owned._seen, "an end of their care")


async def test_claims_go_with_the_cluster_when_its_data_goes(declared: Namespace) -> None:
    await _manage(declared, "Delete")
    await declared.delete("main", "StorageCluster")

    [owner] = declared.api.objects[CLAIM]["metadata"]["ownerReferences"]
    assert owner["name"] == "main"


async def test_of_a_cluster_of_agents_of_others_no_claim_is_looked_for(
    declared: Namespace,
) -> None:
    """The operator may have no right to."""
    declared.start()
    await declared.delete("main", "StorageCluster")

    assert not [at for _, at in declared.api.requests if "persistentvolumeclaims" in at]


def _own_claim(declared: Namespace, path: str = CLAIM) -> None:
    """As an earlier version did where deletionPolicy was Delete."""
    claim = declared.api.objects[CLAIM]
    owner = {"name": "main", "uid": "uid-of-main"}
    name = path.rpartition("/")[2]
    labels = {**claim["metadata"]["labels"], names.LABEL_AGENT: name.removeprefix("main-")}
    own = {"name": name, "labels": labels, "ownerReferences": [owner]}
    metadata = {**claim["metadata"], **own}
    declared.api.put(path, {**claim, "metadata": metadata})


def _owns(declared: Namespace, path: str = CLAIM) -> bool:
    return "ownerReferences" in declared.api.objects[path]["metadata"]


@pytest.mark.parametrize(("policy", "released"), [("Retain", False), ("Delete", True)])
async def test_a_claim_that_an_earlier_version_made_stays_with_kept_data(
    declared: Namespace, policy: str, released: bool
) -> None:
    await _manage(declared, "Delete")
    cluster = declared.path("StorageCluster", "main")
    body = declared.api.objects[cluster]
    _own_claim(declared)
    annotations = {names.ANNOTATION_RELEASE: "true"} if released else {}
    metadata = {**body["metadata"], "annotations": annotations}
    spec = {**body["spec"], "deletionPolicy": policy}
    declared.api.put(cluster, {**body, "metadata": metadata, "spec": spec})
    await declared.delete("main", "StorageCluster")

    assert not _owns(declared)


async def test_a_copy_of_a_claim_is_freed_as_it_is(declared: Namespace) -> None:
    """Its owner came with the copied labels, so only a request for this field takes it away."""
    await _manage(declared, "Delete")
    await declared.controller.close()
    copied = CLAIM + "-copy"
    _own_claim(declared)
    owned = declared.api.objects[CLAIM]
    metadata = {**owned["metadata"], "name": "main-agent-1-copy"}
    spec = {**owned["spec"], "accessModes": ["ReadWriteMany"]}
    declared.api.put(copied, {**owned, "metadata": metadata, "spec": spec})
    await declared.restart()

    await until(lambda: declared.controller.owns_no_claim("uid-of-main"), "it owns none")

    assert not _owns(declared)
    found = declared.api.objects[copied]
    assert (found["metadata"]["ownerReferences"], found["spec"]) == ([], spec)


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_new_operator_takes_claims_from_their_cluster_before_that_loses_its_finaliser(
    declared: Namespace, is_paused: bool
) -> None:
    """Paused or not, and also those of agents that were scaled away."""
    await _manage(declared, "Delete")
    await declared.controller.close()
    scaled_away = CLAIM.replace("agent-1", "agent-9")
    for path in (CLAIM, scaled_away):
        _own_claim(declared, path)
    annotations = {names.ANNOTATION_PAUSED: "true"} if is_paused else {}
    declared.declare("StorageCluster", "main", annotations, managed=MANAGED)
    declared.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", CLAIM) else 0
    await declared.restart()
    await until(lambda: ("PATCH", CLAIM) in declared.api.requests, "refused")
    assert not declared.controller.owns_no_claim("uid-of-main")

    declared.api.refuse = lambda method, path: 0
    declared.controller._owned._queue.add("main")

    await until(lambda: declared.controller.owns_no_claim("uid-of-main"), "it owns none")
    assert [path for path in (CLAIM, scaled_away) if _owns(declared, path)] == []


# --- a namespace that is deleted ---------------------------------------------------------------


def _terminate(declared: Namespace) -> None:
    metadata = {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    declared.api.put("/api/v1/namespaces/default", {"metadata": metadata})


async def test_in_a_namespace_that_is_deleted_what_cannot_be_led_is_let_go(
    declared: Namespace,
) -> None:
    """Its Secret is gone already, so a later operator leads nothing, and is refused nothing."""
    addresses = declared.addresses()
    declared.declare("StorageCluster", "main", addresses=addresses, deletionPolicy="Delete")
    declared.zone("first", deletionPolicy="Delete")
    declared.api.refuse = lambda method, path: 403 if "/secrets" in path else 0
    declared.start()
    _terminate(declared)

    await declared.delete("first")
    await declared.delete("main", "StorageCluster")


async def test_a_paused_zone_goes_with_its_namespace_and_one_made_anew_waits_again(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "LOOK_S", 0.0)
    paused = {names.ANNOTATION_PAUSED: "true"}
    declared.start()
    declared.zone("first", paused)
    releasing = asyncio.create_task(declared.controller.zone_released(declared.deleting("first")))
    namespace = ("GET", "/api/v1/namespaces/default")
    await until(lambda: declared.api.requests.count(namespace) >= 2, "it waits")
    assert not releasing.done()

    _terminate(declared)

    async with asyncio.timeout(10):
        await releasing
    declared.controller.zone_gone("first", "uid-of-first")
    declared.controller.cluster_gone("main", "uid-of-main")
    del declared.api.objects["/api/v1/namespaces/default"]
    declared.zone("first", paused, uid="another")
    declared.api.requests.clear()
    again = asyncio.create_task(declared.controller.zone_released(declared.deleting("first")))
    await until(lambda: declared.api.requests.count(namespace) >= 2, "it waits again")
    assert not again.done()
    again.cancel()


@pytest.mark.parametrize("kind", ["Zone", "StorageCluster"])
async def test_a_namespace_that_was_there_a_moment_ago_is_read_again_before_data_is_erased(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A Zone of another cluster has waited: the Namespace was read just before it was deleted."""
    monkeypatch.setattr(termination, "LOOK_S", 3600.0)
    external = {"addresses": declared.addresses()}
    declared.declare("StorageCluster", "main", external=external, deletionPolicy="Delete")
    declared.start()
    declared.zone("first", deletionPolicy="Delete" if kind == "Zone" else "Retain")
    await declared.until_available("first")
    declared.zone("paused", {names.ANNOTATION_PAUSED: "true"}, clusterRef={"name": "another"})
    waiting = asyncio.create_task(declared.controller.zone_released(declared.deleting("paused")))
    namespace = ("GET", "/api/v1/namespaces/default")
    await until(lambda: namespace in declared.api.requests, "the Namespace was read")
    assert not waiting.done()
    _terminate(declared)

    rows = declared.tables()
    await declared.delete("first")
    if kind == "StorageCluster":
        waiting.cancel()
        del declared.api.objects[declared.path("Zone", "paused")]
        declared.controller.zone_gone("paused", "uid-of-paused")
        await declared.delete("main", kind)
    waiting.cancel()

    assert rows
    assert declared.tables() == rows
