"""Declared objects in an API server in memory, and the controllers that lead them."""

import asyncio
from base64 import b64encode
from typing import Any

from quorate.facts.zone import ZoneRecord
from quorate.protocol.settings import DEFAULTS
from quorate.wire.crds import KINDS
from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.memory_api import MemoryApi, NoWatches
from quorate_loopback.runner_world import World
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until
from quorate_operator import names
from quorate_operator.declared.controller import Controller
from quorate_operator.declared.kinds import Kind
from quorate_operator.kube.api import path_of
from quorate_operator.process.mandate import Always
from quorate_operator.process.metrics import Metrics

Json = dict[str, Any]


class Namespace:
    """Declared objects, and the controllers that lead them one after the other."""

    def __init__(self, world: World, name: str = "default", api: MemoryApi | None = None) -> None:
        self.name = name
        self.world = world
        for agent in world.agents.values():  # rows are kept elsewhere than in the world's metastore
            agent._check = lambda table: None
        self.api = api or MemoryApi()
        texts = {k: b64encode(v.encode()).decode() for k, v in SECRET.texts().items()}
        secret = {"metadata": {"name": "main-quorate"}, "data": texts}
        self.api.put(f"/api/v1/namespaces/{name}/secrets/main-quorate", secret)
        self.metrics = Metrics()
        self.failures: list[str] = []
        self.validation_image = "quorate-spark:1"
        self.controller = self._make()
        self.declare("StorageCluster", "main", external={"addresses": self.addresses()})

    def _make(self) -> Controller:
        self.metrics = Metrics()
        api = self.api.as_api
        return Controller(
            api,
            api,
            self.name,
            "me",
            Always(),
            DEFAULTS,
            self.metrics,
            self.failures.append,
            NoWatches(),
            NoWatches(),
            validation_image=self.validation_image,
        )

    def addresses(self) -> list[str]:
        return [agent.address for agent in self.world.agents.values()]

    def start(self) -> None:
        """Show it what there is, as the watches do, and lead."""
        for body in list(self.api.objects.values()):
            self.show(body)
        self.controller.start()

    async def restart(self) -> None:
        await self.controller.close()
        self.controller = self._make()
        self.start()

    def show(self, body: Json) -> None:
        if body.get("kind") == "StorageCluster":
            self.controller.cluster_seen(body)
        elif body.get("kind") == "Zone":
            self.controller.zone_seen(body)
        elif body.get("kind", "").lower() in [*Kind]:
            self.controller.run_seen(Kind(body["kind"].lower()), body)

    def declare(
        self, kind: str, name: str, annotations: Json | None = None, *, uid: str = "", **spec: Any
    ) -> None:
        """Create or change an object; the watch shows it."""
        path = self.path(kind, name)
        before = self.api.objects.get(path, {"metadata": {"generation": 0}, "spec": {}})
        generation = before["metadata"]["generation"] + (before["spec"] != spec)
        metadata = {
            "name": name,
            "namespace": self.name,
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
        """Ask for its deletion; return the object as the watch then shows it."""
        path = self.path(kind, name)
        body = self.api.objects[path]
        metadata = {
            **body["metadata"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": [names.FINALIZER],
        }
        return self.api.put(path, {**body, "metadata": metadata})

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
        plurals = {each.kind_name(): each.plural for each in KINDS}
        return path_of(self.name, plurals[kind], name)

    def conditions(self, name: str, kind: str = "Zone") -> dict[str, str]:
        status = self.api.objects[self.path(kind, name)].get("status", {})
        return {each["type"]: each["status"] for each in status.get("conditions", [])}

    def led(self, name: str) -> ZoneRecord | None:
        led = self.controller._led.get("main")
        return led.runner.known_zone(f"uid-of-{name}") if led is not None else None

    def online(self, zone: str) -> int:
        """The number of agents of the zone's cluster that are online."""
        found = self.controller._led_zone(zone)
        return 0 if isinstance(found, str) else sum(n.online for n in found.runner.status().nodes)

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
