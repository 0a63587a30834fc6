"""A managed cluster beside a master that has its rows, an API server in memory, and a kubelet."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from quorate.facts.partition_row import majority
from quorate.facts.topology import PodFacts
from quorate.facts.zone import ZoneRecord
from quorate.planning.absence.choose_leavers import ClusterLoad
from quorate.planning.absence.disruption import Disruption
from quorate.protocol.master.disruption import cluster_load
from quorate.protocol.messages.events import Event
from quorate.protocol.status import ClusterStatus
from quorate.wire.storage_cluster import StorageCluster
from quorate_lone_master.world import LoneMaster
from quorate_loopback.memory_api import MemoryApi, MemoryWatches
from quorate_operator.kube.api import path_of
from quorate_operator.mastership.runner import Runner
from quorate_operator.owned.agent_names import address
from quorate_operator.owned.client_services import DeclaredNames
from quorate_operator.owned.owned_objects import ManagedView, OwnedObjects
from quorate_owned.facts import managed_cluster
from quorate_owned.kubelet import Kubelet

ZONE = ZoneRecord("uid-2", "cart", 12, 3)
Json = dict[str, Any]


class LoneRunner:
    """What owned objects ask of a runner, answered by a master without links."""

    is_leading = True
    is_stopped = False
    is_recovering = False

    def __init__(self, world: LoneMaster) -> None:
        self._world = world
        self.before: list[list[str]] = []
        """Whom the replacements that were asked about followed."""
        self.told: list[Event] = []

    def status(self) -> ClusterStatus:
        return self._world.master.status()

    def known_zones(self) -> dict[str, ZoneRecord]:
        return {uid: zone.record for uid, zone in self._world.master.zones.items()}

    def set_external(self, hosts: dict[str, str], ports: dict[str, dict[str, int]]) -> None:
        self._world.master.places.tell(hosts, ports)

    def take_node_facts(
        self,
        cordoned: Collection[str],
        domains: Mapping[str, str],
        pods: Mapping[str, PodFacts],
        ended: Mapping[str, Collection[str]],
    ) -> None:
        self._world.master.keep_primaries_off(cordoned, self._world.now)
        self._world.master.places.tell_all(domains, pods)
        self._world.master.processes_ended(ended)

    def load(self) -> ClusterLoad:
        return cluster_load(self._world.master.agents, self._world.master.zones.values())

    def tell(self, events: Sequence[Event]) -> None:
        self.told += events

    def disruption(self, gone: Any = (), restarted: Any = ()) -> Disruption:
        self.before.append(sorted(restarted))
        return self._world.master.disruption(gone, restarted)


class Managed:
    """One managed cluster with its master, API server and kubelet."""

    def __init__(self) -> None:
        self.world = LoneMaster(nodes=())
        self.api = MemoryApi()
        self.kubelet = Kubelet(self.api, self.world)
        self.failures: list[str] = []
        self.owned = OwnedObjects(
            self.api.as_api,
            "shop",
            MemoryWatches(self.api.as_api),
            DeclaredNames({}, {}),
            lambda name: None,
            self.failures.append,
        )
        self.runner = LoneRunner(self.world)
        self.spec: Json = {}
        self.pause = ""
        self.fewest_spare = 99

    def declare(self, policy: str = "", **spec: Any) -> None:
        self.spec = {**self.spec, **spec}
        self.cluster = managed_cluster(deletion_policy=policy, **self.spec)
        metadata = {"name": "main", "uid": self.cluster.metadata.uid}
        path = path_of("shop", StorageCluster.plural, "main")
        if path not in self.api.objects:
            self.api.put(path, {"metadata": metadata})
        self.see()

    def see(self) -> ManagedView | None:
        return self.owned.see(self.cluster, cast(Runner, self.runner), self.pause)

    def refused(self) -> str:
        """The view's sentence about an object that could not be made."""
        view = self.see()
        assert view is not None
        return view.refused

    def is_ready(self) -> bool:
        view = self.see()
        return view is not None and not view.pods

    def place_zone(self) -> None:
        self.world.master.set_zone(ZONE, self.world.now)
        self.world.pass_time(1_000)

    def kinds(self, plural: str) -> list[str]:
        return sorted(at.rpartition("/")[2] for at in self.api.objects if f"/{plural}/" in at)

    def budget(self) -> Json:
        at = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/main-agents"
        return dict(self.api.objects[at]["spec"])

    def may_be_away(self) -> int:
        """How many of the agents that rows name, by the budget."""
        spec = self.budget()
        named = [each["values"] for each in spec["selector"].get("matchExpressions", [])]
        return sum(map(len, named)) - int(spec["minAvailable"])

    async def until(self, is_so: Callable[[], object], what: str) -> None:
        """Let kubelet and master go on until something is so."""
        deadline = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < deadline, (what, self.see(), self.world.master.status())
            self.kubelet.step()
            self._drain_undialed()
            self._note_spare()
            await asyncio.sleep(0.004)

    def _drain_undialed(self) -> None:
        """As the runner does with agents whose address is taken back."""
        view, master = self.see(), self.world.master
        if view is None:
            return
        for name in [n for n, each in master.agents.items() if each.record is not None]:
            held = any(zone.names(name) for zone in master.zones.values())
            undialed = address("main", "shop", name) not in view.addresses
            if undialed and not held:
                master.forget(name, self.world.now)
            elif undialed != master.agents[name].drain_wanted:
                master.drain(name, undialed, self.world.now)
        self.world.write()

    def _note_spare(self) -> None:
        """How many voters the worst partition has beyond a majority."""
        zone = self.world.master.zones.get(ZONE.uid)
        for part in zone.parts.values() if zone is not None else ():
            there = [v for v in part.row.voters if zone and zone.nodes.holder(v.node)]
            owning = [v for v in there if v.node in part.row.owners]
            spare = len(owning) - majority(len(part.row.voters))
            self.fewest_spare = min(self.fewest_spare, spare)

    @property
    def registered(self) -> list[str]:
        return sorted(node.name for node in self.runner.status().nodes if node.online)
