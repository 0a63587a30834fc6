"""What a master on Kubernetes keeps of its namespace: clusters led, zones wanted, status told.

The watches (handlers.py) hand in what they saw; everything here looks at the whole state each time
(level, not edge), so an event that was missed costs a moment and nothing else.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import pydantic

from quorate.facts.errors import WireError
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.status import ClusterStatus
from quorate.wire.storage_cluster import StorageCluster, StorageClusterStatus
from quorate.wire.zone import Zone, ZoneStatus
from quorate_operator.declared.acceptance import accept
from quorate_operator.declared.object_status import cluster_status, refused_zone_status, zone_status
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, MandateLost, path_of
from quorate_operator.mastership.decisions import About, Decisions, tell_all
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.kubernetes import KubernetesMetastore
from quorate_operator.process.clock import rfc3339
from quorate_operator.process.mandate import Mandate
from quorate_operator.process.metrics import Metrics

_log = logging.getLogger("quorate.controller")

OBSERVE_S = 0.5
UNDECLARED_S = 15.0
UNTOLD_MAX = 1000

Body = Mapping[str, Any]
S = TypeVar("S", StorageClusterStatus, ZoneStatus)


class LedCluster:
    """One StorageCluster with its runner."""

    def __init__(self, cluster: StorageCluster, runner: Runner, decisions: Decisions) -> None:
        self.cluster = cluster
        self.runner = runner
        self.decisions = decisions
        self.told: dict[str, Any] | None = None
        self.untold: deque[dict[str, Any]] = deque(maxlen=UNTOLD_MAX)
        """Events that are still to be created; the oldest go first when the API server is away."""
        self.task: asyncio.Task[None] | None = None


class Controller:
    """Exists while this process is the master."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        identity: str,
        mandate: Mandate,
        settings: ProtocolSettings,
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._mandate = mandate
        self._settings = settings
        self._metrics = metrics
        self._led: dict[str, LedCluster] = {}
        self._zones: dict[str, About] = {}
        self._closed = False
        self.failed = asyncio.Event()
        """A task, or a master, has ended by what nobody foresaw: this process must end."""
        self.failure = ""
        """Why, as a sentence."""

    # --- clusters --------------------------------------------------------------------------------

    async def cluster_seen(self, body: Body) -> None:
        """A StorageCluster is there, new or changed."""
        if self._closed:
            return
        try:
            cluster = StorageCluster.parse(body).model_copy(
                update={"status": _known(StorageClusterStatus, body)}
            )
        except WireError as error:
            _log.error("%s: not led as it is", error)
            return
        name, uid = cluster.metadata.name, cluster.metadata.uid
        led = self._led.get(name)
        if led is not None and led.cluster.metadata.uid != uid:
            await self.cluster_gone(name)
            led = None
        if cluster.metadata.deletion_timestamp is not None:
            return
        if led is None:
            decisions = Decisions()
            runner = Runner(
                name,
                KubernetesMetastore(self._api, self._namespace, name, uid),
                mandate=self._mandate,
                settings=self._settings,
                metrics=self._metrics,
                on_event=decisions.add,
                on_failed=self._fail,
                on_overtaken=self._fail,  # the process that leads next counts on
            )
            led = self._led[name] = LedCluster(cluster, runner, decisions)
            runner.start()
            led.task = asyncio.get_running_loop().create_task(self._keep_telling(led))
            led.task.add_done_callback(self._task_ended)
        led.cluster = cluster
        led.runner.set_addresses(cluster.spec.addresses)

    async def cluster_gone(self, name: str) -> None:
        """A StorageCluster was deleted: its agents keep what they have, nobody leads them."""
        led = self._led.pop(name, None)
        if led is not None:
            await _stop(led)

    async def close(self) -> None:
        """Write and send nothing more, whatever the watches still see."""
        self._closed = True
        led, self._led = list(self._led.values()), {}
        await asyncio.gather(*(_stop(each) for each in led))

    def clusters(self) -> list[tuple[str, ClusterStatus]]:
        """Every led cluster with its status."""
        return [(name, led.runner.status()) for name, led in sorted(self._led.items())]

    def problems(self) -> list[str]:
        """Why clusters are not led."""
        return [
            f"cluster {name}: {led.runner.problem}"
            for name, led in sorted(self._led.items())
            if led.runner.problem
        ]

    async def _keep_telling(self, led: LedCluster) -> None:
        looked_at = -UNDECLARED_S
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(OBSERVE_S)
            try:
                await self._tell_cluster(led)
                await self._tell_decisions(led)
                if loop.time() - looked_at >= UNDECLARED_S and led.runner.is_leading:
                    looked_at = loop.time()
                    await self._delete_undeclared(led)
            except (ApiRefused, ApiUnclear, MandateLost) as error:
                _log.warning("cluster %s: %s; again soon", led.cluster.metadata.name, error)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a defect: %r", error, exc_info=error)
            self._fail(f"stopped by a defect: {type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why
        self.failed.set()

    async def _tell_cluster(self, led: LedCluster) -> None:
        status = cluster_status(
            led.cluster,
            led.runner.status(),
            self._identity,
            led.runner.unreached(),
            led.runner.problem,
            rfc3339(),
        )
        told = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if told != led.told:
            path = path_of(self._namespace, StorageCluster.plural, led.cluster.metadata.name)
            await self._api.set_status(path, told)
            led.told = told
            led.cluster = led.cluster.model_copy(update={"status": status})

    async def _tell_decisions(self, led: LedCluster) -> None:
        metadata = led.cluster.metadata
        about = About(StorageCluster.kind_name(), metadata.name, metadata.uid)
        now_s = asyncio.get_running_loop().time()
        led.untold += led.decisions.take(about, self._zones, self._namespace, rfc3339(), now_s)
        path = f"/api/v1/namespaces/{self._namespace}/events"
        await tell_all(led.untold, lambda body: self._api.create(path, body))

    async def _delete_undeclared(self, led: LedCluster) -> None:
        """A zone that is led and has no object was deleted while nobody was there to see it."""
        known = led.runner.known_zones()
        if not known:
            return
        zones = self._api.list(path_of(self._namespace, Zone.plural))
        declared = {zone["metadata"]["uid"] async for zone in zones}
        for uid, record in known.items():
            if uid not in declared and not record.deleting:
                _log.warning("zone %s (%s) has no object: deleting its data", record.name, uid)
                led.runner.set_zone(msgspec.structs.replace(record, deleting=True))

    # --- zones -----------------------------------------------------------------------------------

    async def lead_zone(self, body: Body, told: dict[str, Any] | None) -> dict[str, Any]:
        """Make what is led equal to what `body` declares, and tell its status when it differs from
        `told`, which is answered anew.  Raises ApiRefused, ApiUnclear, MandateLost."""
        try:
            zone = Zone.parse(body)
        except WireError as error:
            status = refused_zone_status(body["metadata"]["generation"], str(error), rfc3339())
        else:
            status = self._led_status(zone.model_copy(update={"status": _known(ZoneStatus, body)}))
        fresh: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if fresh != told:
            await self._api.set_status(
                path_of(self._namespace, Zone.plural, body["metadata"]["name"]), fresh
            )
        return fresh

    def _led_status(self, zone: Zone) -> ZoneStatus:
        uid, cluster = zone.metadata.uid, zone.spec.cluster_ref.name
        self._zones[uid] = About(Zone.kind_name(), zone.metadata.name, uid)
        led = self._led.get(cluster)
        runner = led.runner if led is not None else None
        record = runner.known_zone(uid) if runner is not None else None
        acceptance = accept(zone, runner is not None, record)
        if runner is not None and acceptance.record is not None:
            runner.set_zone(acceptance.record)
        seen = runner.zone_status(uid) if runner is not None else None
        nodes = runner.status().nodes if runner is not None else ()
        problem = runner.problem if runner is not None else ""
        return zone_status(zone, acceptance, seen, nodes, problem, rfc3339())

    async def is_zone_released(self, body: Body) -> bool:
        """Whether a Zone that is being deleted may go: its data is gone wherever an agent is
        online, or its cluster's object is gone, so that nobody reaches the agents through it.  What
        the metastore has of it is then collected with the objects that own it."""
        metadata, uid = body["metadata"], body["metadata"]["uid"]
        name = body["spec"]["clusterRef"]["name"]
        led = self._led.get(name)
        if led is None:
            if await self._exists(StorageCluster.plural, name):
                return False  # not led yet
            _log.info("zone %s: StorageCluster %s is gone: released", metadata["name"], name)
            return True
        try:
            record = accept(Zone.parse(body), True, None).record
        except WireError:
            record = None
        if record is not None:
            led.runner.set_zone(record)
        elif uid in led.runner.known_zones():
            known = led.runner.known_zones()[uid]
            led.runner.set_zone(msgspec.structs.replace(known, deleting=True))
        if not led.runner.is_zone_gone(uid):
            return False
        led.runner.forget_zone(uid)
        self._zones.pop(uid, None)
        return True

    async def _exists(self, plural: str, name: str) -> bool:
        try:
            await self._api.get(path_of(self._namespace, plural, name))
        except ApiRefused as refused:
            if refused.status == 404:
                return False
            raise
        return True


async def _stop(led: LedCluster) -> None:
    if led.task is not None:
        led.task.cancel()
        await asyncio.gather(led.task, return_exceptions=True)
    await led.runner.stop()


def _known(kind: type[S], body: Body) -> S:
    """The status an object has; an empty one where another version wrote it."""
    try:
        return kind.model_validate(body.get("status") or {})
    except pydantic.ValidationError:
        return kind()
