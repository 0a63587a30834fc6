"""The master's work on the declared objects of one namespace: clusters, zones, their status.

    watches (handlers.py) --objects--> bodies, keys --\\
    one look per led cluster and pass --what changed--> queue --> workers: make it so, tell it

The watches and the looks put keys into one queue.  A worker looks at the whole state of a key's
object (level, not edge), so a missed event costs only a short delay.  Workers and looks yield to
the event loop after every object, so the runners, on which ownership depends, wait for one object
at most.  Requests for objects have their own connections.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from quorate.protocol.settings import ProtocolSettings
from quorate.wire.jobs.zone_history import ZoneHistory
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator.declared.acceptance import pause_of
from quorate_operator.declared.declared_zone import DeclaredZone, declared
from quorate_operator.declared.deleting.release import Release
from quorate_operator.declared.deleting.reread import Reread, Rereads
from quorate_operator.declared.kinds import Key, Kind
from quorate_operator.declared.lead_again import LeadAgain
from quorate_operator.declared.led_cluster import LedClusters
from quorate_operator.declared.led_zone import declare_zone, led_zone
from quorate_operator.declared.runs.last_exports import ExportTimes
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.runs import Runs
from quorate_operator.declared.runs.validations import ZoneVerdict
from quorate_operator.declared.unreadable_cluster import Readings, tell_unreadable
from quorate_operator.declared.watched_cluster import WatchedCluster, known_status
from quorate_operator.kube.api import (
    ApiRefused,
    ApiUnclear,
    KubeApi,
    MandateLost,
    OtherObject,
    path_of,
)
from quorate_operator.kube.secret import cluster_secret
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.mastership.decisions import About, Decisions, tell_all
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.kubernetes import KubernetesMetastore
from quorate_operator.owned.client_services import DeclaredNames
from quorate_operator.owned.owned_objects import OwnedObjects
from quorate_operator.process.defects import in_words, report_defect
from quorate_operator.process.keyed_queue import KeyedQueue
from quorate_operator.process.mandate import Mandate
from quorate_operator.process.metrics import Led, Metrics

_log = logging.getLogger("quorate.controller")

LOOK_S = 0.5
WORKERS = 8
"""Number of objects processed at a time; workers mostly wait for the API server."""
RELEASE_S = 0.5
"""Seconds between looks at an object that is being deleted."""
ANEW_S = 300.0
"""Seconds between comparisons of all objects with the status written: a user may have edited it."""

Body = Mapping[str, Any]


class Controller:
    """Leads the clusters of one namespace; exists while this process is the master."""

    def __init__(
        self,
        ownership_api: KubeApi,
        objects_api: KubeApi,
        namespace: str,
        identity: str,
        mandate: Mandate,
        settings: ProtocolSettings,
        metrics: Metrics,
        on_failed: Callable[[str], None],
        watches: SharedWatches,
        owned_watches: SharedWatches,
        owned_api: KubeApi | None = None,
        on_master_failed: Callable[[str], None] = lambda why: None,
        validation_image: str = "",
    ) -> None:
        """`objects_api`: for everything but ownership.  `watches`: of the metastores' objects.
        `owned_watches`: of managed agents' objects.  `owned_api`: for these; default `objects_api`.

        `on_failed`: called with a sentence if a task that all clusters need has ended by a defect,
        or the mandate is lost; this process must then end.  `on_master_failed`: called if a defect
        has ended the master of one cluster, which is led again later.  `validation_image`: of the
        pods of runs; empty: none can be run.
        """
        self._ownership_api = ownership_api
        self._api = objects_api
        self._namespace = namespace
        self._identity = identity
        self._mandate = mandate
        self._settings = settings
        self._metrics = metrics
        self._watches = watches
        self._led = LedClusters[WatchedCluster]()
        self._clusters: dict[str, Body] = {}
        self._readings = Readings()
        self._zones: dict[str, DeclaredZone] = {}
        self._abouts: dict[str, About] = {}
        self._releasing: dict[str, asyncio.Event] = {}
        """By uid of a StorageCluster that is being deleted; set when the object may go."""
        self._pauses = LeadAgain(self._lead_again)
        self._to_lead_again: set[str] = set()
        self._refused: dict[Key, str] = {}
        """Object -> why work at it failed last: a refusal by the API server, or a defect."""
        self._queue = KeyedQueue[Key](lambda: random.uniform(0.8, 1.2))
        self._owned = OwnedObjects(
            owned_api or objects_api,
            namespace,
            owned_watches,
            DeclaredNames(self._clusters, self._zones),
            lambda name: self._queue.add(Key(Kind.CLUSTER, name)),
            on_failed,
        )
        kinds = {
            Kind.CLUSTER: Reread(
                StorageCluster, self._clusters.get, self.cluster_seen, self.cluster_gone
            ),
            Kind.ZONE: Reread(Zone, self._zone_body, self.zone_seen, self.zone_gone),
        }
        self._rereads = Rereads(objects_api, namespace, kinds)
        self._release = Release(
            ownership_api,
            objects_api,
            namespace,
            self._led,
            self._owned.claims,
            self._rereads.is_unchanged,
        )
        self._runs = Runs(
            objects_api,
            namespace,
            self._led_zone,
            validation_image,
            lambda zone: self._queue.add(Key(Kind.ZONE, zone)),
            self._history,
            metrics.runs_ended,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._on_failed = on_failed
        self._on_master_failed = on_master_failed

    def start(self) -> None:
        """Begin to work; call it once all existing clusters have been seen."""
        self._start_task(self._begin())

    async def close(self) -> None:
        """Stop: nothing is written or sent any more, whatever the watches still see."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        self._queue.close()
        self._runs.counts.close()
        await asyncio.gather(*tasks, self._owned.close(), return_exceptions=True)
        await self._led.close()
        self._pauses.close()  # a master may end with a defect until here

    @property
    def queued(self) -> int:
        """The number of objects that wait for a worker."""
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether the namespace has no objects and no work is left."""
        has_objects = self._clusters or self._zones or self._led or self._runs
        return not has_objects and self._queue.is_idle

    @property
    def decides(self) -> bool:
        """Whether at least one cluster has a master that no defect has ended."""
        return any(not led.runner.has_failed for led in self._led.values())

    def clusters(self) -> list[Led]:
        """Return every led cluster."""
        return self._led.statuses(self._namespace)

    def verdicts(self) -> list[tuple[str, str, str, ZoneVerdict]]:
        """Return namespace, cluster, zone and latest verdict of every zone that was validated."""
        return [
            (self._namespace, zone.cluster, name, verdict)
            for name, zone in sorted(self._zones.items())
            if (verdict := self._runs.validations.verdict(zone)) is not None
        ]

    def export_times(self) -> list[tuple[str, str, str, ExportTimes]]:
        """Return namespace, cluster and name of every zone, and when it was backed up last."""
        return [
            (self._namespace, zone.cluster, name, self._runs.export_times(zone))
            for name, zone in sorted(self._zones.items())
        ]

    def problems(self) -> list[str]:
        """Return a sentence for each cluster not led and each object that cannot be processed."""
        refused = [
            f"{kind} {self._namespace}/{name}: {why}" for (kind, name), why in self._refused.items()
        ]
        return self._led.problems() + refused + self._owned.problems()

    def owns_no_claim(self, uid: str) -> bool:
        """Return whether the StorageCluster is known to own no claim.  Any thread may call it."""
        return self._owned.claims.owns_none(uid)

    # --- what the watches see --------------------------------------------------------------------

    def cluster_seen(self, body: Body) -> None:
        """Handle a StorageCluster that is new or changed."""
        name = body["metadata"]["name"]
        before = self._clusters.get(name)
        if before is not None and _uid(before) != _uid(body):
            self._doubt(Key(Kind.CLUSTER, name))
            return
        self._clusters[name] = body
        if before is None or declared(before) != declared(body):
            self._queue.add(Key(Kind.CLUSTER, name))

    def cluster_gone(self, name: str, uid: str) -> None:
        """Handle the deletion of a StorageCluster; a later one of that name stays."""
        if (waiting := self._releasing.pop(uid, None)) is not None:
            waiting.set()
        self._rereads.forget(uid)
        self._readings.forget(uid)
        known = self._clusters.get(name)
        if known is not None and _uid(known) == uid:
            del self._clusters[name]
            self._note_emptiness()
            self._queue.add(Key(Kind.CLUSTER, name))

    def zone_seen(self, body: Body) -> None:
        """Handle a Zone that is new or changed."""
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        known = self._zones.get(name)
        if known is not None and known.uid != uid:
            self._doubt(Key(Kind.ZONE, name))
            return
        if known is None:
            known = self._zones[name] = DeclaredZone(body)
            self._note_about(uid, known)
            self._queue.add(Key(Kind.ZONE, name))
        elif known.update(body):
            self._queue.add(Key(Kind.ZONE, name))
        self._runs.counts.zone_seen(name, known.cluster)

    def zone_gone(self, name: str, uid: str) -> None:
        """Handle the deletion of a Zone."""
        known, key = self._zones.get(name), Key(Kind.ZONE, name)
        self._rereads.forget(uid)
        if known is not None and known.uid == uid:
            del self._zones[name]
            known.released.set()
            self._runs.counts.zone_gone(name)
            self._forget(key)
            if self._rereads.is_doubted(key):
                self._queue.add(key)
            self._note_emptiness()
        self._abouts = {each: about for each, about in self._abouts.items() if about.uid != uid}
        for cluster in self._led:
            self._queue.add(Key(Kind.CLUSTER, cluster))  # its status names zones with kept data

    def run_seen(self, kind: Kind, body: Body) -> None:
        """Handle an object of this kind, one of a run or a schedule, that is new or changed."""
        if self._runs.seen(kind, body):
            self._queue.add_in_turn(Key(kind, body["metadata"]["name"]))

    def run_gone(self, kind: Kind, name: str, uid: str) -> None:
        """Handle the deletion of such an object; a later one of that name stays."""
        if self._runs.is_another(kind, name, uid):
            return
        is_left = self._runs.gone(kind, name)
        self._forget(Key(kind, name))
        if is_left:
            self._queue.add(Key(kind, name))

    def _forget(self, key: Key) -> None:
        self._queue.forget(key)
        self._refused.pop(key, None)

    def _doubt(self, key: Key) -> None:
        """Ask the API server which object has this name."""
        self._rereads.doubt(key)
        self._queue.add(key)

    def _zone_body(self, name: str) -> Body | None:
        known = self._zones.get(name)
        return known.body if known is not None else None

    def _note_emptiness(self) -> None:
        if not (self._clusters or self._zones):
            self._release.all_gone()

    def _note_about(self, zone_id: str, declared_zone: DeclaredZone) -> None:
        """Relate whatever concerns zone `zone_id`, such as its Events, to this object."""
        about = About(Zone.kind_name(), declared_zone.name, declared_zone.uid)
        if self._abouts.get(zone_id) != about:
            self._abouts[zone_id] = about
            self._queue.add(Key(Kind.CLUSTER, declared_zone.cluster))

    def _is_waiting(self, cluster: str) -> bool:
        body = self._clusters.get(cluster)
        released = self._releasing.get(_uid(body)) if body is not None else None
        return released is not None and not released.is_set()

    async def cluster_released(self, body: Body) -> None:
        """Wait until a StorageCluster that is being deleted may go, or is gone."""
        name, uid = body["metadata"]["name"], _uid(body)
        self.cluster_seen(body)
        await self._rereads.settled(Key(Kind.CLUSTER, name))
        known = self._clusters.get(name)
        if known is not None and _uid(known) == uid:
            released = self._releasing.setdefault(uid, asyncio.Event())
            self._queue.add(Key(Kind.CLUSTER, name))
            await released.wait()

    async def zone_released(self, body: Body) -> None:
        """Wait until a Zone that is being deleted may go, or is gone."""
        name, uid = body["metadata"]["name"], _uid(body)
        self.zone_seen(body)
        await self._rereads.settled(Key(Kind.ZONE, name))
        known = self._zones.get(name)
        if known is not None and known.uid == uid:
            self._queue.add(Key(Kind.ZONE, name))
            await known.released.wait()

    # --- looks -----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Lead the clusters before any zone: a zone's status says whether its cluster exists."""
        for key in [Key(Kind.CLUSTER, name) for name in self._clusters]:
            await self._work_at(key)
        for _ in range(WORKERS):
            self._start_task(self._work())
        self._start_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        anew_s = loop.time() + ANEW_S
        while True:
            await asyncio.sleep(LOOK_S)
            began_s = time.perf_counter()
            for name, led in list(self._led.items()):
                try:
                    self._look_at(name, led)
                except Exception as error:
                    led.runner.fail(error)
                await asyncio.sleep(0)
            self._metrics.pass_seconds.observe(time.perf_counter() - began_s)
            if loop.time() >= anew_s:
                anew_s = loop.time() + ANEW_S
                self._compare_all()

    def _look_at(self, name: str, led: WatchedCluster) -> None:
        change = led.look()
        if change.all_zones:
            self._add_zones_of(name)
        else:
            for uid in change.zones:
                if (about := self._abouts.get(uid)) is not None:
                    self._queue.add_in_turn(Key(Kind.ZONE, about.name))
        sees_zones = led.sees_zones(asyncio.get_running_loop().time())
        if sees_zones or change.cluster or led.is_recovery_over:
            self._queue.add_in_turn(Key(Kind.CLUSTER, name))
        if led.decisions or led.untold:
            self._queue.add_in_turn(Key(Kind.EVENTS, name))

    def _add_zones_of(self, cluster: str) -> None:
        for name, zone in self._zones.items():
            if zone.cluster == cluster:
                self._queue.add(Key(Kind.ZONE, name))

    def _compare_all(self) -> None:
        for led in self._led.values():
            led.told = None
        for zone in self._zones.values():
            zone.told = None
        for kind, known in ((Kind.CLUSTER, self._clusters), (Kind.ZONE, self._zones)):
            for name in known:
                self._queue.add(Key(kind, name))

    # --- work ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            await self._work_at(await self._queue.take())

    async def _work_at(self, key: Key) -> None:
        result, about = "done", f"{key.kind} {self._namespace}/{key.name}"
        try:
            match key.kind:
                case Kind.CLUSTER:
                    await self._reconcile_cluster(key.name)
                case Kind.ZONE:
                    await self._reconcile_zone(key.name)
                case Kind.EVENTS:
                    await self._tell_decisions(key.name)
                case kind:
                    again_s = await self._runs.reconcile(kind, key.name)
                    if again_s is not None:
                        self._queue.add_later(key, again_s)
        except (ApiRefused, ApiUnclear, MandateLost) as error:
            result = "failed"
            if isinstance(error, ApiRefused) and not error.is_conflict:
                self._refused[key] = str(error)
                self._release.note(error)
            again_s = self._queue.failed(key)
            _log.warning("%s: %s; retrying in %.1f s", about, error, again_s)
        except Exception as error:  # one object's defect must not stop all others
            result = "failed"
            self._refused[key] = f"a defect: {in_words(error)}; see the log"
            again_s = self._queue.failed(key)
            _log.exception("%s: a defect; retrying in %.1f s", about, again_s)
        else:
            self._refused.pop(key, None)
            self._queue.done(key)
        self._metrics.reconciles.labels(key.kind.value, result).inc()
        await asyncio.sleep(0)

    def _start_task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(partial(report_defect, log=_log, on_failed=self._on_failed))

    # --- clusters --------------------------------------------------------------------------------

    async def _reconcile_cluster(self, name: str) -> None:
        await self._rereads.look(Key(Kind.CLUSTER, name), self._is_waiting(name))
        body, led = self._clusters.get(name), self._led.get(name)
        is_other = led is not None and body is not None and led.cluster.metadata.uid != _uid(body)
        if body is None or is_other or name in self._to_lead_again:
            self._to_lead_again.discard(name)
            if body is None or is_other:
                self._pauses.forget(name)
            if led is not None:
                await self._led.end(name)  # its agents keep their data
                self._add_zones_of(name)
            body = self._clusters.get(name)
        if body is None:
            return
        if body["metadata"].get("deletionTimestamp") is not None:
            released = self._releasing.get(_uid(body))
            if released is None or released.is_set():
                self._owned.let_go(name)
                return
            has_zones = any(zone.cluster == name for zone in self._zones.values())
            if await self._release.may_cluster_go(body, has_zones):
                released.set()
                return
            self._queue.add_later(Key(Kind.CLUSTER, name), RELEASE_S)
        led, (cluster, why) = self._led.get(name), self._readings.read(body)
        if cluster is None:
            await self._tell_cluster(body, why, led)
            return
        if led is None:
            told = known_status(body)
            led = self._lead(cluster.model_copy(update={"status": told}))
        pause = pause_of(StorageCluster.kind_name(), cluster.metadata)
        if bool(pause) != bool(led.pause):
            self._add_zones_of(name)
        before = led.named
        led.managed = self._owned.see(cluster, led.runner, pause)
        if led.named != before:
            self._add_zones_of(name)
        led.declare(cluster, pause)
        if led.is_recovery_over:
            await led.end_recovery()
            self._add_zones_of(name)  # kept data is found by name now, and other zones are new
        if led.is_seen:  # until then the previous status stays
            await self._tell_cluster(body, why, led)

    def _lead(self, cluster: StorageCluster) -> WatchedCluster:
        name = cluster.metadata.name
        decisions = Decisions()
        told_term = cluster.status.master.term
        metastore = KubernetesMetastore(self._ownership_api, self._namespace, name, told_term)
        runner = Runner(
            name,
            metastore,
            mandate=self._mandate,
            settings=self._settings,
            metrics=self._metrics,
            namespace=self._namespace,
            secret=partial(
                cluster_secret, self._ownership_api, self._namespace, name, metastore.note_new
            ),
            on_event=decisions.add,
            on_failed=self._on_failed,
            on_defect=lambda why: self._failed_in(name, why),
            on_overtaken=lambda why: self._pauses.overtaken(name),
            recovering=lambda: metastore.recovering,
            rebuilds=True,
            changes=partial(metastore.changes, self._watches),
        )
        now_s = asyncio.get_running_loop().time()
        led = self._led[name] = WatchedCluster(
            cluster, runner, decisions, now_s, metastore.end_recovery
        )
        runner.start()
        self._add_zones_of(name)
        return led

    def _failed_in(self, name: str, why: str) -> None:
        self._pauses.failed(name, why)
        self._on_master_failed(why)

    def _lead_again(self, name: str) -> None:
        self._to_lead_again.add(name)
        self._queue.add(Key(Kind.CLUSTER, name))

    async def _tell_cluster(self, body: Body, why: str, led: WatchedCluster | None) -> None:
        """Write its status.  `why`: it cannot be read; `led`: None if it is not led."""
        name, api, namespace = body["metadata"]["name"], self._api, self._namespace
        try:
            if led is not None and not why:
                await led.tell(api, namespace, self._identity, self._abouts, body)
                return
            told = await tell_unreadable(api, namespace, body, why, led, self._identity)
        except OtherObject:
            self._doubt(Key(Kind.CLUSTER, name))
            return
        if self._clusters.get(name) is body:  # the watch may show the status much later
            self._clusters[name] = told

    async def _tell_decisions(self, name: str) -> None:
        led = self._led.get(name)
        if led is None:
            return
        now_s = asyncio.get_running_loop().time()
        led.take_decisions(self._abouts, self._namespace, now_s)
        path = f"/api/v1/namespaces/{self._namespace}/events"
        await tell_all(led.untold, lambda body: self._api.create(path, body))

    # --- zones -----------------------------------------------------------------------------------

    async def _reconcile_zone(self, name: str) -> None:
        """Make the led zone equal to its declaration; write its status if that has changed."""
        declared_zone = self._zones.get(name)
        is_waiting = declared_zone is not None and declared_zone.is_waiting
        await self._rereads.look(Key(Kind.ZONE, name), is_waiting)
        declared_zone = self._zones.get(name)
        if declared_zone is None or declared_zone.released.is_set():
            return
        led = self._led.get(declared_zone.cluster)
        pause = declared_zone.pause or (led.pause if led is not None else "")
        if declared_zone.is_deleting:
            if await self._release.may_zone_go(declared_zone, pause):
                declared_zone.released.set()
                return
            self._queue.add_later(Key(Kind.ZONE, name), RELEASE_S)
        is_declared = declared_zone.cluster in self._clusters
        status = declare_zone(declared_zone, led, pause, self._note_about, is_declared)
        status = self._runs.completed(declared_zone, status)
        self._runs.events.tell_kept(name)
        if led is not None and not led.is_seen:
            return  # until the first look the previous status stays
        wait_s = declared_zone.wait_s(status)
        if wait_s:
            self._queue.add_later(Key(Kind.ZONE, name), wait_s)
            return
        if not declared_zone.is_told:
            fresh, path = declared_zone.fresh, path_of(self._namespace, Zone.plural, name)
            try:
                await self._api.set_status(path, fresh, uid=declared_zone.uid)
            except OtherObject:
                self._doubt(Key(Kind.ZONE, name))
                return
            except ApiRefused as refused:
                if refused.status != 404:
                    raise
                return  # the watch will report the deletion
            declared_zone.was_told(fresh)
        await self._runs.clear_up(name)

    def _history(self, name: str) -> ZoneHistory | None:
        """Return what is known of the past of the zone of that name."""
        zone, led = self._zones.get(name), self._led_zone(name)
        if zone is None or not isinstance(led, LedZone):
            return None
        return self._runs.history(zone, self._led[zone.cluster].last_day(led.uid))

    def _led_zone(self, name: str) -> LedZone | str:
        """Return the zone of that name as it is led, or a sentence on what is waited for."""
        return led_zone(name, self._zones, self._led, self._abouts)


def _uid(body: Body) -> str:
    return str(body["metadata"]["uid"])
