"""Decides whether a StorageCluster or a Zone that is being deleted may go.

With deletionPolicy Delete its data is deleted first, wherever an agent is online.  Each question
continues that deletion; the caller asks until the answer is yes.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from quorate.facts.zone import ZoneRecord
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.declared.declared_zone import DeclaredZone, cluster_of
from quorate_operator.declared.deleting.termination import Termination
from quorate_operator.declared.deletion import (
    erasable,
    erases,
    is_freed,
    is_held,
    kept_ids,
)
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.led_cluster import LedClusters
from quorate_operator.declared.unreadable_cluster import read_cluster
from quorate_operator.declared.watched_cluster import WatchedCluster
from quorate_operator.kube.api import ApiRefused, KubeApi, find, path_of
from quorate_operator.metastores.kubernetes import KubernetesMetastore
from quorate_operator.owned.claim_owners import ClaimOwners

_log = logging.getLogger("quorate.controller")

Body = Mapping[str, Any]


class Release:
    """Judges the objects of one namespace.

    `ownership_api`: for everything in the metastore; `claims`: those of managed agents, which may
    be deleted with the cluster's object; `is_unchanged`: reads an object again and returns whether
    it is as users had declared it.
    """

    def __init__(
        self,
        ownership_api: KubeApi,
        objects_api: KubeApi,
        namespace: str,
        led: LedClusters[WatchedCluster],
        claims: ClaimOwners,
        is_unchanged: Callable[[Kind, Body], Awaitable[bool]],
    ) -> None:
        self._ownership_api = ownership_api
        self._api = objects_api
        self._namespace = namespace
        self._led = led
        self._claims = claims
        self._is_unchanged = is_unchanged
        self._termination = Termination(objects_api, namespace)

    def note(self, refused: ApiRefused) -> None:
        """Take a refusal by the API server: it may show that the namespace is being deleted."""
        self._termination.note(refused)

    def all_gone(self) -> None:
        """Note that no object is left: later objects are of a namespace that was created again."""
        self._termination.is_over()

    async def may_cluster_go(self, body: Body, has_zones: bool) -> bool:
        """Return whether a StorageCluster may go; with Delete, delete all its data first.

        That begins when no Zone is declared in it.  `has_zones`: whether the watch has shown one.
        """
        name = body["metadata"]["name"]
        is_kept = is_freed(body) or not erases(body) or not is_held(body)
        if is_kept:
            await self._keep_volumes(body)
        begins = not has_zones and self._begins_with_cluster(name)
        if is_kept or await self._termination.is_under_way(anew=begins):
            _log.info(
                "cluster %s/%s: its object is deleted, its data is kept", self._namespace, name
            )
            return True
        led = self._led.get(name)
        if led is None or not led.runner.is_leading or led.pause or has_zones:
            return False
        # The watch may lag behind, especially if this process has just begun to lead.
        if self._begins_with_cluster(name) and (
            await self._has_zones(name) or not await self._is_unchanged(Kind.CLUSTER, body)
        ):
            return False
        if not led.erase_all_but((), "is deleted"):
            return False
        if not await self._is_unchanged(Kind.CLUSTER, body):
            return False
        cluster = read_cluster(body)[0] or led.cluster
        await self._led.end(name)
        await KubernetesMetastore(self._ownership_api, self._namespace, name).erase()
        await self._claims.set_owned(cluster, True)
        return True

    async def may_zone_go(self, zone: DeclaredZone, pause: str) -> bool:
        """Return whether a Zone may go; with Delete, delete its data first.

        If its cluster's object is gone, the agents are out of reach and its data is kept with the
        cluster's.  A paused Zone stays.
        """
        where = f"{self._namespace}/{zone.name}"
        body = zone.body
        is_kept = is_freed(body) or not (erases(body) or pause) or not is_held(body)
        begins = not pause and self._begins_with_zone(zone)
        if is_kept or await self._termination.is_under_way(anew=begins):
            _log.info("zone %s: its object is deleted, its data is kept", where)
            return True
        if pause:
            return False
        led = self._led.get(zone.cluster)
        if led is None:
            if await self._has_cluster(zone.cluster):
                return False  # not led yet
            _log.info("zone %s: StorageCluster %s is gone: released", where, zone.cluster)
            return True
        if self._begins_with_zone(zone) and not await self._is_unchanged(Kind.ZONE, body):
            return False
        record = _erasable(zone, led)
        if not led.is_erased(record):
            return False
        if record is None:
            self._warn_of_kept(zone, led)
        return True

    async def _keep_volumes(self, body: Body) -> None:
        """Keep the claims of managed agents, unless the whole namespace is being deleted."""
        name, uid = body["metadata"]["name"], str(body["metadata"]["uid"])
        cluster, led = read_cluster(body)[0], self._led.get(name)
        if cluster is None and led is not None:
            cluster = led.cluster
        try:
            if cluster is not None:
                await self._claims.set_owned(cluster, False)
            elif (body.get("spec") or {}).get("managed") is not None:
                await self._claims.free_all(name, uid)
        except ApiRefused:  # the operator's rights may be deleted already
            if not await self._termination.is_under_way(anew=True):
                raise

    def _begins_with_cluster(self, name: str) -> bool:
        """Return whether the deletion of a cluster's data would begin now, not continue."""
        led = self._led.get(name)
        if led is None or not led.runner.is_leading or led.pause:
            return False
        known = led.runner.known_zones()
        return not known or not all(record.deleting for record in known.values())

    def _begins_with_zone(self, zone: DeclaredZone) -> bool:
        """Return whether the deletion of a Zone's data would begin now, not continue."""
        led = self._led.get(zone.cluster)
        if led is None or not led.runner.is_leading:
            return False
        record = _erasable(zone, led)
        return record is not None and not record.deleting

    def _warn_of_kept(self, zone: DeclaredZone, led: WatchedCluster) -> None:
        """Say that a Zone with Delete goes, and data under its name stays that was never its own.

        The StorageCluster's status names that data.
        """
        kept = kept_ids(zone.uid, zone.name, led.runner.known_zones())
        if kept:
            _log.warning(
                "zone %s/%s: its object is deleted; data of zones of this name is kept, because it"
                " is not known to be its own: %s: to delete one, declare the Zone as it was, with"
                " the annotation %s and deletionPolicy: Delete, and delete it",
                *(self._namespace, zone.name, ", ".join(kept), names.ANNOTATION_ZONE_ID),
            )

    async def _has_zones(self, cluster: str) -> bool:
        """Return whether the API server has a Zone that is declared in this cluster."""
        zones = self._api.list(path_of(self._namespace, Zone.plural))
        return any([cluster_of(zone) == cluster async for zone in zones])

    async def _has_cluster(self, name: str) -> bool:
        path = path_of(self._namespace, StorageCluster.plural, name)
        return await find(self._api, path) is not None


def _erasable(zone: DeclaredZone, led: WatchedCluster) -> ZoneRecord | None:
    told = zone.known_status.zone_id
    return erasable(zone.body, told, zone.zone, led.runner.known_zones())
