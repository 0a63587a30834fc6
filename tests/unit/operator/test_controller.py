"""What a master on Kubernetes makes of declared objects; API server and agents are in memory."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.events import Event, Reason
from quorate.protocol.settings import DEFAULTS
from quorate.wire.resource import API_VERSION
from quorate_loopback.memory_api import MemoryApi, watch_nothing
from quorate_loopback.runner_world import NAMES, World
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until
from quorate_operator import names
from quorate_operator.declared import controller as controller_module
from quorate_operator.declared.controller import Controller
from quorate_operator.kube.api import ApiRefused, path_of
from quorate_operator.metastores import kubernetes
from quorate_operator.process.mandate import Always
from quorate_operator.process.metrics import Metrics

Json = dict[str, Any]
PAUSED = {names.ANNOTATION_PAUSED: "true"}


class Namespace:
    """Declared objects, and the controllers that lead them one after the other."""

    def __init__(self, world: World) -> None:
        self.world = world
        for agent in world.agents.values():  # rows are kept elsewhere than in the world's metastore
            agent._check = lambda table: None
        self.api = MemoryApi()
        texts = {k: b64encode(v.encode()).decode() for k, v in SECRET.texts().items()}
        secret = {"metadata": {"name": "main-quorate"}, "data": texts}
        self.api.put("/api/v1/namespaces/default/secrets/main-quorate", secret)
        self.metrics = Metrics()
        self.controller = self._make()
        self.declare("StorageCluster", "main", addresses=self.addresses())

    def _make(self) -> Controller:
        self.metrics = Metrics()
        api = self.api.as_api
        return Controller(api, api, "default", "me", Always(), DEFAULTS, self.metrics)

    def addresses(self) -> list[str]:
        return [agent.address for agent in self.world.agents.values()]

    def start(self) -> None:
        """Lead, and show it what there is, as the watches do."""
        self.controller.start()
        for body in list(self.api.objects.values()):
            self.show(body)

    async def restart(self) -> None:
        await self.controller.close()
        self.controller = self._make()
        self.start()

    def show(self, body: Json) -> None:
        if body.get("kind") == "StorageCluster":
            self.controller.cluster_seen(body)
        elif body.get("kind") == "Zone":
            self.controller.zone_seen(body)

    def declare(
        self, kind: str, name: str, annotations: Json | None = None, *, uid: str = "", **spec: Any
    ) -> None:
        """Create or change an object; the watch shows it."""
        path = self.path(kind, name)
        before = self.api.objects.get(path, {"metadata": {"generation": 0}, "spec": {}})
        generation = before["metadata"]["generation"] + (before["spec"] != spec)
        metadata = {
            "name": name,
            "uid": uid or f"uid-of-{name}",
            "generation": generation,
            "annotations": annotations or {},
        }
        body = {**before, "apiVersion": API_VERSION, "kind": kind, "metadata": metadata}
        self.show(self.api.put(path, {**body, "spec": spec}))

    def zone(
        self, name: str, annotations: Json | None = None, *, uid: str = "", **spec: Any
    ) -> None:
        whole = {"clusterRef": {"name": "main"}, "partitions": 16, "replicas": 3, **spec}
        self.declare("Zone", name, annotations, uid=uid, **whole)

    def deleting(self, name: str, kind: str = "Zone") -> Json:
        """The object as the watch shows it once its deletion was asked for."""
        body = self.api.objects[self.path(kind, name)]
        metadata = {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {**body, "metadata": metadata}

    async def delete(self, name: str, kind: str = "Zone") -> None:
        """Ask for it, and wait until the object is gone."""
        body = self.deleting(name, kind)
        released = self.controller.zone_released
        if kind == "StorageCluster":
            released = self.controller.cluster_released
        await asyncio.wait_for(released(body), 10)
        del self.api.objects[self.path(kind, name)]
        if kind == "Zone":
            self.controller.zone_gone(name, body["metadata"]["uid"])

    def tables(self, plural: str = "partitiontables") -> list[str]:
        """The operator's own objects."""
        return sorted(path for path in self.api.objects if f"/{plural}/" in path)

    def retained(self) -> list[str]:
        """What the cluster's status names as kept."""
        status = self.api.objects[self.path("StorageCluster", "main")].get("status", {})
        return list(status.get("retainedZones", []))

    def path(self, kind: str, name: str) -> str:
        return path_of("default", f"{kind.lower()}s", name)

    def conditions(self, name: str, kind: str = "Zone") -> dict[str, str]:
        status = self.api.objects[self.path(kind, name)].get("status", {})
        return {each["type"]: each["status"] for each in status.get("conditions", [])}

    def led(self, name: str) -> ZoneRecord | None:
        led = self.controller._led.get("main")
        return led.runner.known_zone(f"uid-of-{name}") if led is not None else None

    def looked_at(self) -> dict[str, float]:
        """kind -> how often a worker looked at an object of it."""
        [family] = self.metrics.reconciles.collect()
        return {
            each.labels["kind"]: each.value
            for each in family.samples
            if each.name.endswith("_total") and each.labels["result"] == "done"
        }

    async def until_available(self, *zones: str) -> None:
        def is_so() -> bool:
            return all(self.conditions(name).get("FullyReplicated") == "True" for name in zones)

        await until(is_so, f"available {zones}")


@pytest.fixture
async def namespace(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Namespace]:
    monkeypatch.setattr(controller_module, "LOOK_S", 0.02)
    monkeypatch.setattr(kubernetes, "watch_revisions", watch_nothing)
    namespace = Namespace(world)
    yield namespace
    await namespace.controller.close()


async def test_a_zone_is_led_and_its_status_told(namespace: Namespace) -> None:
    namespace.start()
    namespace.zone("first")

    await namespace.until_available("first")

    assert namespace.conditions("main", "StorageCluster") == {"Ready": "True", "Blocked": "False"}
    status = namespace.api.objects[namespace.path("Zone", "first")]["status"]
    assert status["observedGeneration"] == 1


async def test_at_rest_nothing_is_asked_of_the_api_server_and_no_zone_is_looked_at(
    namespace: Namespace,
) -> None:
    namespace.start()
    for number in range(20):
        namespace.zone(f"zone-{number}")
    await namespace.until_available(*(f"zone-{number}" for number in range(20)))
    await asyncio.sleep(0.2)
    requests, looks = len(namespace.api.requests), namespace.looked_at()

    await asyncio.sleep(0.5)  # 25 looks

    assert namespace.api.requests[requests:] == []
    assert namespace.looked_at()["zone"] == looks["zone"]


async def test_what_changes_in_one_zone_is_told_of_that_zone_only(namespace: Namespace) -> None:
    namespace.start()
    for name in ("first", "second"):
        namespace.zone(name)
    await namespace.until_available("first", "second")
    await asyncio.sleep(0.2)
    namespace.api.requests.clear()

    namespace.zone("first", replicas=2)
    await until(lambda: namespace.api.writes("zones/first") != [], "told")
    await asyncio.sleep(0.2)

    assert namespace.api.writes("zones/second") == []


async def test_the_next_master_tells_nothing_that_the_objects_say_already(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    before = namespace.api.objects[namespace.path("Zone", "first")]["status"]
    namespace.api.requests.clear()

    await namespace.restart()
    await until(lambda: namespace.led("first") is not None, "led")
    await asyncio.sleep(0.3)
    await namespace.until_available("first")

    told = namespace.api.objects[namespace.path("Zone", "first")]["status"]
    accepted = [[c for c in s["conditions"] if c["type"] == "Accepted"] for s in (before, told)]
    assert accepted[0] == accepted[1]  # it was never said that its cluster is not there


async def test_a_status_that_cannot_be_told_is_tried_again_and_holds_up_no_other(
    namespace: Namespace,
) -> None:
    refused = namespace.path("Zone", "first")
    namespace.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", refused) else 0
    namespace.start()
    namespace.zone("first")
    namespace.zone("second")

    await namespace.until_available("second")
    [family] = namespace.metrics.reconciles.collect()
    failed = [e.value for e in family.samples if e.labels.get("result") == "failed"]
    assert failed[0] >= 1
    assert not namespace.controller.failed.is_set()

    namespace.api.refuse = lambda method, path: 0
    await namespace.until_available("first")


@pytest.mark.parametrize(("counted", "told", "led_in"), [(5, 10**6, 6), (None, 41, 42)])
async def test_the_term_that_a_status_tells_counts_only_where_the_counter_is_missing(
    namespace: Namespace, counted: int | None, told: int, led_in: int
) -> None:
    """Whoever may patch the status would lift terms beyond what agents believe."""
    cluster = namespace.path("StorageCluster", "main")
    status = {"master": {"identity": "before", "term": told}}
    namespace.api.put(cluster, {**namespace.api.objects[cluster], "status": status})
    if counted is not None:
        counter = {"metadata": {"name": names.MASTER_TERM}, "data": {"term": str(counted)}}
        namespace.api.put(f"/api/v1/namespaces/default/configmaps/{names.MASTER_TERM}", counter)

    await namespace.restart()
    namespace.zone("first")
    await namespace.until_available("first")

    assert namespace.controller._led["main"].runner.status().master_term == led_in
    assert namespace.api.objects[cluster]["status"]["master"]["term"] == led_in


async def test_events_that_are_refused_are_not_tried_with_every_look(namespace: Namespace) -> None:
    namespace.api.refuse = lambda method, path: 403 if path.endswith("/events") else 0
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    await until(lambda: namespace.api.writes("/events") != [], "tried")
    namespace.api.requests.clear()

    await asyncio.sleep(0.6)  # 30 looks

    assert len(namespace.api.writes("/events")) <= 3


async def test_what_is_to_be_told_and_is_refused_makes_the_operator_not_ready(
    namespace: Namespace,
) -> None:
    refused = namespace.path("Zone", "first")
    namespace.api.refuse = lambda method, path: 403 if (method, path) == ("PATCH", refused) else 0
    namespace.start()
    namespace.zone("first")

    await until(lambda: namespace.controller.problems() != [], "said")
    assert namespace.controller.problems()[0].startswith(f"zone first: PATCH {refused}: 403")
    namespace.api.refuse = lambda method, path: 0
    await namespace.until_available("first")

    assert namespace.controller.problems() == []


# --- deletion ---------------------------------------------------------------------------------


async def test_a_zone_without_an_object_is_kept_and_named(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "WATCH_BEHIND_S", 0.05)
    namespace.start()
    namespace.zone("seen")
    namespace.zone("gone")
    await namespace.until_available("seen", "gone")
    del namespace.api.objects[namespace.path("Zone", "gone")]

    await namespace.restart()

    await until(lambda: namespace.retained() == ["gone"], "named", 20)
    gone = namespace.led("gone")
    assert gone is not None
    assert not gone.deleting


async def test_a_zone_that_is_deleted_is_released_at_once_and_its_data_is_kept(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    rows = namespace.tables()

    await namespace.delete("first")

    assert namespace.tables() == rows
    kept = namespace.led("first")
    assert kept is not None
    assert not kept.deleting


async def test_a_zone_that_is_deleted_soon_after_leading_began_is_named_later(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "WATCH_BEHIND_S", 1.5)
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")

    await namespace.delete("first")

    await until(lambda: namespace.retained() == ["first"], "named")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_zone_that_is_declared_again_has_its_data(
    namespace: Namespace, is_restarted: bool
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    rows = namespace.tables()
    await namespace.delete("first")
    if is_restarted:
        await namespace.restart()

    namespace.zone("first", uid="another", replicas=2)

    await until(lambda: namespace.conditions("first").get("Available") == "True", "served")
    status = namespace.api.objects[namespace.path("Zone", "first")]["status"]
    assert status["zoneId"] == "uid-of-first"
    assert namespace.tables() == rows
    await until(lambda: getattr(namespace.led("first"), "replicas", 0) == 2, "as declared now")


async def test_a_zone_that_has_kept_data_still_has_it_when_the_metastore_is_lost(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    await namespace.delete("first")
    namespace.zone("first", uid="another")
    await until(lambda: namespace.conditions("first").get("Available") == "True", "served")
    await namespace.controller.close()
    for path in namespace.tables():
        del namespace.api.objects[path]

    await namespace.restart()

    await until(lambda: namespace.led("first") is not None, "led under the id of its data")


async def test_another_zone_of_that_name_is_refused_and_its_deletion_erases_nothing(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    rows = namespace.tables()
    await namespace.delete("first")

    namespace.zone("first", uid="another", partitions=32, deletionPolicy="Delete")
    await until(lambda: namespace.conditions("first").get("Accepted") == "False", "refused")
    await namespace.delete("first")

    assert namespace.tables() == rows
    kept = namespace.led("first")
    assert kept is not None
    assert (kept.partitions, kept.deleting) == (16, False)


async def test_with_delete_a_zone_is_released_when_its_data_is_gone(namespace: Namespace) -> None:
    namespace.start()
    namespace.zone("first", deletionPolicy="Delete")
    await namespace.until_available("first")

    await namespace.delete("first")

    await until(lambda: namespace.led("first") is None, "end of its record")
    assert namespace.tables() == []


async def test_kept_data_goes_with_a_later_zone_that_says_delete(namespace: Namespace) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    await namespace.delete("first")
    namespace.zone("first", uid="another", deletionPolicy="Delete")
    await until(lambda: namespace.conditions("first").get("Available") == "True", "served")

    await namespace.delete("first")

    await until(lambda: namespace.led("first") is None, "end of its record")
    assert namespace.tables() == []


async def test_an_annotation_frees_a_zone_whose_data_cannot_be_deleted(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first", deletionPolicy="Delete")
    await namespace.until_available("first")
    namespace.api.refuse = lambda method, path: 403 if method == "DELETE" else 0
    body = namespace.deleting("first")
    releasing = asyncio.create_task(namespace.controller.zone_released(body))
    await until(lambda: namespace.conditions("first").get("Blocked") == "True", "it says why")
    assert not releasing.done()

    metadata = {**body["metadata"], "annotations": {names.ANNOTATION_RELEASE: "true"}}
    namespace.controller.zone_seen({**body, "metadata": metadata})

    await asyncio.wait_for(releasing, 10)
    assert namespace.tables() != []


async def test_a_namespace_that_terminates_frees_what_waits(namespace: Namespace) -> None:
    namespace.start()
    namespace.zone("first", deletionPolicy="Delete")
    await namespace.until_available("first")

    def refuse(method: str, path: str) -> int:
        if path.endswith("/events"):
            causes = [{"reason": "NamespaceTerminating", "message": "it is being deleted"}]
            raise ApiRefused(403, "Forbidden", f"{method} {path}: 403", causes)
        return 403 if method == "DELETE" else 0

    namespace.api.refuse = refuse
    namespace.controller._led["main"].decisions.add(
        Event("uid-of-first", None, Reason.STORAGE_FULL, "something to tell", "Warning")
    )

    await namespace.delete("first")


async def test_a_cluster_that_is_deleted_and_declared_again_has_its_zones(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    rows, nodes = namespace.tables(), namespace.tables("storagenodes")

    await namespace.delete("main", "StorageCluster")
    namespace.controller.cluster_gone("main")
    await until(lambda: namespace.conditions("first").get("Accepted") == "False", "not led")
    namespace.declare("StorageCluster", "main", uid="another", addresses=namespace.addresses())

    await until(lambda: namespace.conditions("first").get("Available") == "True", "served")
    assert (namespace.tables(), namespace.tables("storagenodes")) == (rows, nodes)


async def test_a_cluster_with_delete_waits_for_zones_and_leaves_nothing(
    namespace: Namespace,
) -> None:
    addresses = namespace.addresses()
    namespace.declare("StorageCluster", "main", addresses=addresses, deletionPolicy="Delete")
    namespace.start()
    namespace.zone("first")
    namespace.zone("kept")
    await namespace.until_available("first", "kept")
    await namespace.delete("kept")
    body = namespace.deleting("main", "StorageCluster")
    releasing = asyncio.create_task(namespace.controller.cluster_released(body))
    await asyncio.sleep(0.3)  # looks
    assert not releasing.done()
    assert namespace.conditions("first")["Available"] == "True"

    await namespace.delete("first")

    await asyncio.wait_for(releasing, 10)
    assert namespace.tables() == []
    assert namespace.tables("storagenodes") == []


async def test_a_cluster_with_delete_waits_also_for_zones_that_the_watch_has_not_shown(
    namespace: Namespace,
) -> None:
    """The next operator sees the cluster's deletion before it sees any Zone."""
    addresses = namespace.addresses()
    namespace.declare("StorageCluster", "main", addresses=addresses, deletionPolicy="Delete")
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    await namespace.controller.close()
    namespace.controller = namespace._make()
    namespace.controller.start()
    body = namespace.deleting("main", "StorageCluster")
    zones = path_of("default", "zones")
    namespace.api.requests.clear()

    releasing = asyncio.create_task(namespace.controller.cluster_released(body))
    await until(
        lambda: releasing.done() or namespace.api.requests.count(("GET", zones)) >= 2, "looked at"
    )

    led = namespace.led("first")
    assert led is not None
    assert not led.deleting
    releasing.cancel()


# --- pause ------------------------------------------------------------------------------------


async def test_what_is_declared_of_a_paused_zone_waits_and_failover_goes_on(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")

    namespace.zone("first", PAUSED)
    await until(lambda: namespace.conditions("first").get("Paused") == "True", "paused")
    namespace.zone("first", PAUSED, replicas=2)
    await namespace.world.agents[NAMES[0]].die()
    rows = namespace.world.agents[NAMES[1]].rows
    await until(lambda: all(r.replicas[0] != NAMES[0] for r in rows.values()), "failover")
    led = namespace.led("first")
    assert led is not None
    assert led.replicas == 3
    status = namespace.api.objects[namespace.path("Zone", "first")]["status"]
    assert status["observedGeneration"] == 1

    namespace.zone("first", replicas=2)

    await until(lambda: getattr(namespace.led("first"), "replicas", 0) == 2, "acted upon")
    await until(lambda: "Paused" not in namespace.conditions("first"), "paused no more")


async def test_a_zone_that_is_new_and_paused_is_not_created(namespace: Namespace) -> None:
    namespace.start()
    namespace.zone("first", PAUSED)

    await until(lambda: namespace.conditions("first").get("Paused") == "True", "paused")
    assert namespace.conditions("first")["Accepted"] == "False"
    assert namespace.led("first") is None

    namespace.zone("first")
    await namespace.until_available("first")


async def test_a_paused_zone_is_not_deleted(namespace: Namespace) -> None:
    namespace.start()
    namespace.zone("first", PAUSED)
    namespace.zone("first")
    await namespace.until_available("first")
    body = namespace.api.objects[namespace.path("Zone", "first")]
    deleting = {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    paused = {**body, "metadata": {**deleting, "annotations": PAUSED}}

    releasing = asyncio.create_task(namespace.controller.zone_released(paused))
    await until(lambda: namespace.conditions("first").get("Paused") == "True", "paused")
    led = namespace.led("first")
    assert led is not None
    assert not led.deleting

    namespace.controller.zone_seen({**body, "metadata": deleting})
    async with asyncio.timeout(10):
        await releasing


async def test_addresses_of_a_paused_cluster_stay_in_force_also_under_the_next_master(
    namespace: Namespace,
) -> None:
    namespace.start()
    namespace.zone("first")
    await namespace.until_available("first")
    everyone = namespace.addresses()

    namespace.declare("StorageCluster", "main", PAUSED, addresses=everyone[:2])
    await until(lambda: "Paused" in namespace.conditions("main", "StorageCluster"), "paused")
    assert namespace.conditions("first").get("FullyReplicated") == "True"
    await namespace.restart()
    await until(lambda: namespace.led("first") is not None, "led")
    runner = namespace.controller._led["main"].runner
    await until(lambda: len(runner.status().nodes) == 3 and not runner.unreached(), "all are here")

    assert list(runner._dialing.declared) == everyone
    assert not any(node.state == "Draining" for node in runner.status().nodes)

    namespace.declare("StorageCluster", "main", addresses=everyone[:2])
    await until(lambda: list(runner._dialing.declared) == everyone[:2], "acted upon")
