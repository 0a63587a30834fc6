"""The operator without Kubernetes: takes declared objects, leads clusters, returns their status.

There is one process, which holds its folder's lock, so there is no election.  `reconcile` compares
everything declared with everything led and may be called at any time; it is called after each
change and regularly.
"""

import asyncio
import logging
import math
import os
import socket
import sqlite3
from collections.abc import Collection
from pathlib import Path

import msgspec

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import (
    Conflict,
    MetastoreUnavailable,
    OutcomeUnknown,
    ShardKey,
    ZoneKey,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.wire.schema.names import NAME_LENGTH_MAX
from quorate.wire.storage_cluster import StorageCluster, StorageClusterStatus
from quorate.wire.zone import Zone, ZoneStatus, manifest_of
from quorate_link.secret import make_secret
from quorate_operator.declared.acceptance import Acceptance, accept, pause_of
from quorate_operator.declared.declared_zone import read_status
from quorate_operator.declared.history.last_day import Stored
from quorate_operator.declared.led_cluster import LedCluster, LedClusters
from quorate_operator.declared.object_status import Seen, cluster_status, zone_status
from quorate_operator.declared.watched_cluster import known_status
from quorate_operator.embedded.objects import Object, ObjectStore
from quorate_operator.mastership.runner import STARTING, Runner
from quorate_operator.metastores.backups import EVERY_S, FIRST_S, way_out
from quorate_operator.metastores.sqlite import (
    SqliteMetastore,
    noted_zone_names,
    recovering_clusters,
)
from quorate_operator.metastores.sqlite_file import EmbeddedStore
from quorate_operator.process.clock import rfc3339
from quorate_operator.process.mandate import Always, CannotLead
from quorate_operator.process.metrics import Led, Metrics

_log = logging.getLogger("quorate.embedded")

RECONCILE_S = 0.2
OVERTAKEN_MAX = 5
"""How often a cluster is led again because its agents know a later mastership.  Two operators with
metastores of their own would overtake each other for ever."""
OVERTAKEN_PAUSE_S = 0.5
"""Seconds before the first time; doubled each time."""
OBSERVE_S = 1.0
CLUSTERS = StorageCluster.plural
ZONES = Zone.plural

Status = StorageClusterStatus | ZoneStatus


def secret_file(secrets: Path, cluster: str) -> Path:
    """Return the path of a cluster's secret, made when the cluster is led or agents are started."""
    return secrets / f"{cluster}.json"


class Embedded:
    """The embedded operator: its objects, its led clusters and its metastore."""

    def __init__(self, store: EmbeddedStore, settings: ProtocolSettings, secrets: Path) -> None:
        """`secrets`: the folder of the clusters' secrets."""
        self.objects = ObjectStore(store)
        self.metrics = Metrics()
        self.identity = f"{socket.gethostname()}/{os.getpid()}"
        self._store = store
        self._settings = settings
        self._secrets = secrets
        self._led = LedClusters[LedCluster]()
        self._overtaken: dict[str, int] = {}
        self._to_lead_again: set[str] = set()
        self._told: dict[str, Status] = {}  # by uid
        self._kept_days: dict[str, Stored] = {}
        """By uid of a zone: its last day as it was stored last."""
        self._observed_at = 0.0
        self._backing_up: asyncio.Task[None] | None = None
        self._recovering: frozenset[str] = frozenset()
        self._names_before: dict[str, dict[str, str]] = {}
        """By recovering cluster: the names of the zones that the replaced file declared, by uid."""
        self._loop_task: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Read what was declared and lead it."""
        await self.objects.load()
        self._recovering = await recovering_clusters(self._store)
        for cluster in self._recovering:
            self._names_before[cluster] = await noted_zone_names(self._store, cluster)
        self.metrics.is_master.set(1)
        self._failed = asyncio.get_running_loop().create_future()
        self._loop_task = asyncio.get_running_loop().create_task(self._keep_reconciling())
        self._backing_up = asyncio.get_running_loop().create_task(self._keep_backing_up())

    async def wait_failed(self) -> None:
        """Wait for a failure and raise it: reconciling, backing up or a master has ended with an
        error.

        The process must then end.
        """
        all_of_it = (self._loop_task, self._backing_up, self._failed)
        waited_for = [each for each in all_of_it if each is not None]
        ended, _ = await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        for each in ended:
            each.result()

    def _runner_failed(self, why: str) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(CannotLead(f"{why}; see the log"))

    def _runner_overtaken(self, cluster: str) -> None:
        """Lead the cluster again in a new mastership, counted above those its agents know."""
        times = self._overtaken[cluster] = self._overtaken.get(cluster, 0) + 1
        if times > OVERTAKEN_MAX:
            runner = self._led[cluster].runner
            runner.problem += (
                f"; this happened {times} times: stop the other operator that leads these agents,"
                " if there is one, and start this one again"
            )
            _log.error("cluster %s: %s", cluster, runner.problem)
            return
        pause_s = OVERTAKEN_PAUSE_S * 2 ** (times - 1)
        asyncio.get_running_loop().call_later(pause_s, self._lead_again, cluster)

    def _lead_again(self, cluster: str) -> None:
        self._to_lead_again.add(cluster)
        self.changed()

    async def close(self) -> None:
        """Stop leading; what was declared is kept."""
        is_led = not self.not_ready()
        tasks = [task for task in (self._loop_task, self._backing_up) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._keep_days()
        await self._led.close()
        try:
            if is_led:
                await self._back_up()
        finally:
            await self._store.close()

    def stop_telling(self) -> None:
        """Answer all requests that wait for events now."""
        for led in self._led.values():
            led.runner.events.close()

    def changed(self) -> None:
        """Reconcile now: something was declared."""
        self._wake.set()

    def runner(self, cluster: str) -> Runner | None:
        """Return the runner that leads `cluster`, None if it is not led."""
        led = self._led.get(cluster)
        return led.runner if led is not None else None

    def clusters(self) -> list[Led]:
        """See Observed."""
        return self._led.statuses("")

    def unhealthy(self) -> str:
        """Return "": a failure here ends the process (`wait_failed`)."""
        return ""

    def process_not_ready(self) -> str:
        """Return "", for the same reason."""
        return ""

    def not_ready(self) -> str:
        """Return why a declared cluster is not led or is blocked; empty if all is well."""
        return "; ".join(self._led.problems())

    # --- reconciling ------------------------------------------------------------------------------

    async def _keep_reconciling(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.reconcile()
            except (Conflict, OutcomeUnknown, MetastoreUnavailable) as error:
                _log.warning("not reconciled: %s; retrying soon", error)
            try:
                async with asyncio.timeout(RECONCILE_S):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _keep_backing_up(self) -> None:
        """Back up soon after the start, then each hour; `close` makes the last backup."""
        await asyncio.sleep(FIRST_S)
        while True:
            # A metastore by which a cluster cannot be led may be older than the last backup.
            if not self.not_ready():
                await self._back_up()
            await asyncio.sleep(EVERY_S)

    async def _back_up(self) -> None:
        try:
            _log.info("backup of the metastore: %s", await self._store.back_up())
        except (OSError, sqlite3.Error) as error:
            _log.warning("no backup of the metastore: %s", error)

    async def reconcile(self) -> None:
        """Make what is led equal to what is declared."""
        clusters = {
            made["metadata"]["name"]: self.objects.parsed(StorageCluster, made)
            for made in self.objects.list(CLUSTERS)
        }
        ended, self._to_lead_again = self._to_lead_again & set(self._led), set()
        await self._led.end(*sorted(ended | (set(self._led) - set(clusters))))
        for name, cluster in sorted(clusters.items()):
            if name not in self._led:
                told = known_status(self.objects.get(CLUSTERS, name) or {})
                as_told = cluster.model_copy(update={"status": told})
                self._led[name] = LedCluster(as_told, self._make_runner(name))
                self._led[name].runner.start()
            led = self._led[name]
            led.declare(cluster, _pause(cluster))
            if not led.pause:  # a pause keeps in force what was acted on last
                acted_on = {
                    "addresses": [*led.addresses],
                    "observedGeneration": cluster.metadata.generation,
                }
                await self.objects.keep_status(CLUSTERS, name, cluster.metadata.uid, acted_on)
        for made in self.objects.list(ZONES):
            await self._reconcile_zone(self.objects.parsed(Zone, made))
            await self._keep_day(made)
        for name, led in self._led.items():
            if led.runner.is_recovering:
                await self._declare_recovered(name, led.runner)
        declared = {made["metadata"]["uid"] for made in self.objects.list(ZONES)}
        for led in self._led.values():
            if not led.runner.is_recovering and not led.pause:
                led.erase_all_but(declared, "no longer declares it")
        self._observe()

    def _make_runner(self, cluster: str) -> Runner:
        return Runner(
            cluster,
            SqliteMetastore(self._store, cluster),
            mandate=Always(),
            settings=self._settings,
            metrics=self.metrics,
            secret=lambda: asyncio.to_thread(make_secret, secret_file(self._secrets, cluster)),
            on_failed=self._runner_failed,
            on_overtaken=lambda why: self._runner_overtaken(cluster),
            way_out=lambda: way_out(self._store.folder),
            recovering=lambda: cluster in self._recovering,
        )

    async def _declare_recovered(self, cluster: str, runner: Runner) -> None:
        """Declare again the zones that agents have told; end the recovery when nothing more is
        expected.

        From then on, the zones are those that users declare. Zones keep the names that the replaced
        file gave them. A zone that has the name of such a one waits until every agent has told
        everything: only then is it known whether the name is free.
        """
        is_complete = runner.has_recovered  # before the zones, so that none is missing of them
        declared = {made["metadata"]["uid"] for made in self.objects.list(ZONES)}
        before = self._names_before.get(cluster, {})
        taken = {name for uid, name in before.items() if uid not in declared}
        known = runner.known_zones()
        for uid in sorted(known, key=lambda uid: (uid not in before, uid)):
            name = before.get(uid, known[uid].name)
            if uid in declared or (uid not in before and name in taken and not is_complete):
                continue
            # The name may have been declared anew meanwhile.
            wanted = name, _with_suffix(name, uid[:8]), _with_suffix(name, uid)
            made = await self.objects.restore(ZONES, wanted, manifest_of(known[uid], cluster), uid)
            if made is not None:
                name = made["metadata"]["name"]
                _log.info("zone %s (%s) is declared again: agents have it", name, uid)
        if is_complete:
            await SqliteMetastore(self._store, cluster).end_recovery()
            runner.end_recovery()
            self._recovering -= {cluster}
            self._names_before.pop(cluster, None)
            _log.info("cluster %s: every agent has told what it has, all of it is led", cluster)

    def kept_name(self, name: str) -> str:
        """Return why a Zone of this name cannot be made now, empty if it can: the name is kept for
        a zone of a replaced file, of which no agent has told yet."""
        zones = {
            made["metadata"]["name"]: made["metadata"]["uid"] for made in self.objects.list(ZONES)
        }
        if name in zones:
            return ""
        for cluster in sorted(self._recovering):
            before = self._names_before.get(cluster, {})
            if self.objects.get(CLUSTERS, cluster) is not None and any(
                kept == name and uid not in zones.values() for uid, kept in before.items()
            ):
                return (
                    f"Zone {name}: metadata.name: the replaced file of StorageCluster {cluster} had"
                    " a Zone of this name, and agents that may have its data have not told what"
                    " they have: start them, or use another name"
                )
        return ""

    async def _reconcile_zone(self, zone: Zone) -> None:
        uid, cluster = zone.metadata.uid, zone.spec.cluster_ref.name
        led = self._led.get(cluster)
        is_deleting = zone.metadata.deletion_timestamp is not None
        pause = _zone_pause(zone, led)
        if led is not None and not is_deleting:
            led.declare_zone(zone, uid, pause)
        elif is_deleting and not pause:
            if led is None:
                await self._erase(cluster, uid)
            elif not led.is_erased(led.runner.known_zone(uid)):
                return
            await self.objects.remove(ZONES, zone.metadata.name)
            _log.info("zone %s is deleted", zone.metadata.name)

    async def _keep_day(self, made: Object, is_last: bool = False) -> None:
        """Store failovers and missing copies of a zone for the next operator, if there are others
        than before.  `is_last`: there is no later time for it."""
        uid, name = made["metadata"]["uid"], made["metadata"]["name"]
        led = self._led.get(made["spec"]["clusterRef"]["name"])
        present = self.objects.get(ZONES, name)
        if led is None or present is None or present["metadata"]["uid"] != uid:
            return
        now_s = math.inf if is_last else asyncio.get_running_loop().time()
        due = led.day_due(uid, self._kept_days.get(uid, Stored()), now_s)
        day = led.last_day(uid) if due is not None else None
        if due is not None and day is not None:
            told = ZoneStatus(last_day=day).model_dump(
                mode="json", by_alias=True, exclude_defaults=True
            )
            await self.objects.keep_status(ZONES, name, uid, told)
            self._kept_days[uid] = due

    async def _keep_days(self) -> None:
        """Store the last days of all zones before this operator ends."""
        try:
            for made in self.objects.list(ZONES):
                await self._keep_day(made, is_last=True)
        except OutcomeUnknown as error:
            _log.warning("failovers of the last minutes are not stored: %s", error)

    async def _erase(self, cluster: str, uid: str) -> None:
        """Remove a zone's records if no master leads its cluster: its agents are out of reach.

        They keep its data, so what they have is compared with the records anew when they are back.
        """
        metastore = SqliteMetastore(self._store, cluster)
        found = await metastore.load()
        for key, stored in found.items():
            if isinstance(stored.value, NodeRecord) and stored.value.unrecorded is not None:
                open_again = msgspec.structs.replace(stored.value, unrecorded=None)
                await metastore.write(key, open_again, stored.revision)
        for key, stored in found.items():
            if isinstance(key, ShardKey | ZoneKey) and key.uid == uid:
                await metastore.write(key, None, stored.revision)

    def accept(self, zone: Zone, clusters_declared_too: Collection[str] = ()) -> Acceptance:
        """Judge a zone beside everything declared and `clusters_declared_too`."""
        cluster = zone.spec.cluster_ref.name
        led = self._led.get(cluster)
        known = led.runner.known_zone(zone.metadata.uid) if led is not None else None
        # Not judged by the runner, which starts only after the declaration.
        exists = self.objects.get(CLUSTERS, cluster) is not None
        return accept(zone, exists or cluster in clusters_declared_too, known)

    # --- what is answered -------------------------------------------------------------------------

    def with_status(self, made: Object) -> Object:
        """Return an object as users see it, with its status."""
        status = self._status(made)
        return {**made, "status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}

    def _status(self, made: Object) -> Status:
        uid = made["metadata"]["uid"]
        before: dict[str, Status] = {"status": self._told[uid]} if uid in self._told else {}
        if made["kind"] == StorageCluster.kind_name():
            cluster = self.objects.parsed(StorageCluster, made)
            before = before or {"status": known_status(made)}
            self._told[uid] = self._cluster_status(cluster.model_copy(update=before))
        else:
            zone = self.objects.parsed(Zone, made)
            before = before or {"status": read_status(made.get("status") or {})}
            self._told[uid] = self._zone_status(zone.model_copy(update=before))
        return self._told[uid]

    def _observe(self) -> None:
        """Make all statuses every OBSERVE_S, so that conditions know when they changed."""
        now = asyncio.get_running_loop().time()
        if now - self._observed_at < OBSERVE_S:
            return
        self._observed_at = now
        declared = [*self.objects.list(CLUSTERS), *self.objects.list(ZONES)]
        uids = {made["metadata"]["uid"] for made in declared}
        self._told = {uid: told for uid, told in self._told.items() if uid in uids}
        self._kept_days = {uid: kept for uid, kept in self._kept_days.items() if uid in uids}
        for made in declared:
            self._status(made)

    def _cluster_status(self, cluster: StorageCluster) -> StorageClusterStatus:
        led = self._led.get(cluster.metadata.name)
        if led is None:
            pause, dialed = _pause(cluster), cluster.status.addresses
            return cluster_status(
                cluster, Seen(problem=STARTING), self.identity, rfc3339(), pause, dialed
            )
        # Declared first, so that new addresses are among those awaited.
        led.declare(cluster, _pause(cluster))
        return led.status(cluster, self.identity)

    def _zone_status(self, zone: Zone) -> ZoneStatus:
        led, uid = self._led.get(zone.spec.cluster_ref.name), zone.metadata.uid
        if led is None:
            return zone_status(zone, self.accept(zone), None, Seen(), rfc3339())
        led.look()
        # Declared first, so that a changed zone is not described as before the change.
        pause = _zone_pause(zone, led)
        return led.zone_status(zone, uid, led.declare_zone(zone, uid, pause), pause)


def _pause(cluster: StorageCluster) -> str:
    return pause_of(StorageCluster.kind_name(), cluster.metadata)


def _zone_pause(zone: Zone, led: LedCluster | None) -> str:
    """Return why the zone is paused, by its own annotation or its cluster's; empty if it is not."""
    own = pause_of(Zone.kind_name(), zone.metadata)
    return own or (led.pause if led is not None else "")


def _with_suffix(name: str, suffix: str) -> str:
    """Return the name of a zone with a suffix, shortened to a length that a zone's name may have.

    A longer name would be refused at each attempt, and end the recovery with an error.
    """
    return f"{name[: NAME_LENGTH_MAX - len(suffix) - 1].rstrip('-')}-{suffix}"
