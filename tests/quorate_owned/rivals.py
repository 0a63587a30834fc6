"""Managed clusters of one namespace that serve a zone of one name; none of their pods runs."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import ZoneReady
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate_lone_master.world import LoneMaster
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.mastership.runner import Runner
from quorate_operator.owned.client_services import DeclaredNames
from quorate_operator.owned.owned_objects import ManagedView, OwnedObjects
from quorate_owned.facts import IMAGE
from quorate_owned.managed import LoneRunner

Json = dict[str, Any]
ZONE = "library"
SERVICE = "library-clients"
AGENTS = ("agent-1", "agent-2", "agent-3")
MANAGED = {"replicas": 0, "image": IMAGE, "storage": {"size": "1Gi"}}


class DeclaredFor(NamedTuple):
    """A declared Zone, as far as OwnedObjects asks for one."""

    cluster: str


def manifest(name: str, **metadata: Any) -> Json:
    """Return a StorageCluster without pods."""
    return {
        "apiVersion": API_VERSION,
        "kind": "StorageCluster",
        "metadata": {"name": name, "generation": 1, **metadata},
        "spec": {"managed": MANAGED},
    }


class Rivals:
    """`bodies`: the StorageClusters as they are stored."""

    def __init__(self, api: KubeApi, namespace: str, watches: SharedWatches, *bodies: Json) -> None:
        self.api = api
        self.namespace = namespace
        self._watches = watches
        self.clusters = {body["metadata"]["name"]: body for body in bodies}
        self.zones: dict[str, DeclaredFor] = {}
        self.worlds = {
            name: LoneMaster(nodes=AGENTS, client_ports=dict.fromkeys(AGENTS, (7200, 7299)))
            for name in self.clusters
        }
        self.runners = {name: LoneRunner(world) for name, world in self.worlds.items()}
        self.failures: list[str] = []
        self.owned = self._make()

    def _make(self) -> OwnedObjects:
        declared = DeclaredNames(self.clusters, self.zones)
        return OwnedObjects(
            self.api,
            self.namespace,
            self._watches,
            declared,
            lambda name: None,
            self.failures.append,
        )

    async def restart(self) -> None:
        """Another operator begins, whose watch has not shown a Zone yet."""
        await self.owned.close()
        self.zones = {}
        self.owned = self._make()

    def declare(self, cluster: str) -> None:
        """A Zone is declared for this cluster, whose agents serve it at once."""
        self.zones[ZONE] = DeclaredFor(cluster)
        self.serve(cluster)

    def retain(self) -> None:
        """The Zone is deleted and its data is kept."""
        del self.zones[ZONE]

    def serve(self, cluster: str) -> None:
        world, zone = self.worlds[cluster], ZoneRecord(f"uid-in-{cluster}", ZONE, 12, 3)
        world.master.set_zone(zone, world.now)
        world.pass_time(1_000)
        for agent in AGENTS:
            world.master.receive(agent, ZoneReady(zone.uid, 7200), world.now)

    def erase(self, cluster: str) -> None:
        """The data of the zone is deleted, and with it the zone."""
        world = self.worlds[cluster]
        world.master.set_zone(
            ZoneRecord(f"uid-in-{cluster}", ZONE, 12, 3, deleting=True), world.now
        )
        world.pass_time(1_000)

    def see(self, cluster: str) -> ManagedView | None:
        """The cluster is led; return what is known of its objects."""
        body = {**self.clusters[cluster]}
        runner = cast(Runner, self.runners[cluster])
        return self.owned.see(StorageCluster.parse_stored(body), runner)

    def why(self, cluster: str) -> str:
        """Why no Service leads to the zone's data in this cluster; empty if one does."""
        view = self.see(cluster)
        return view.unnamed.get(ZONE, "") if view is not None else ""

    def is_named(self, cluster: str) -> bool:
        view = self.see(cluster)
        return view is not None and ZONE in view.named

    async def service(self) -> Json:
        """Return the Service of the zone; empty if there is none."""
        return (await self._services()).get(SERVICE, {})

    async def _services(self) -> dict[str, Json]:
        path = f"/api/v1/namespaces/{self.namespace}/services"
        return {each["metadata"]["name"]: each async for each in self.api.list(path)}

    async def leads_to(self) -> tuple[str, ...]:
        """Return the clusters that the Service selects and whose label and owner it has."""
        found = await self.service()
        if not found:
            return ()
        metadata = found["metadata"]
        owners = sorted(each["name"] for each in metadata["ownerReferences"])
        label = "quorate.io/cluster"
        return found["spec"]["selector"][label], metadata["labels"][label], *owners

    async def until_leads_to(self, cluster: str) -> None:
        """Wait until the Service is this cluster's alone; empty: until there is none."""
        wanted = (cluster,) * 3 if cluster else ()
        deadline = time.monotonic() + 20
        while (found := await self.leads_to()) != wanted:
            assert time.monotonic() < deadline, (wanted, found, self._facts())
            await asyncio.sleep(0.02)

    async def until_gone(self, service: str) -> None:
        deadline = time.monotonic() + 60
        while service in await self._services():
            assert time.monotonic() < deadline, (service, self._facts())
            await asyncio.sleep(0.02)

    async def until(self, is_so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < deadline, (what, self._facts())
            await asyncio.sleep(0.02)

    def _facts(self) -> object:
        return {name: self.see(name) for name in self.runners}, self.failures
