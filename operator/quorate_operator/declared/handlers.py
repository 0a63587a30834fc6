"""Shows declared objects to the controllers through kopf: watches, and one finaliser.

kopf runs only in the process that holds the Lease.  It stores nothing in objects but the finaliser,
and that only if their deletion waits for something.  It stores no progress and no last-seen state,
because every pass looks at the whole state.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

import kopf

from quorate.wire.schema.resource import GROUP, VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.declared.deletion import erases
from quorate_operator.declared.kinds import RUNS, Kind
from quorate_operator.declared.served_namespaces import ServedNamespaces
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.traffic import Traffic

NEEDED = (StorageCluster.plural, Zone.plural)
"""Declared kinds without which no cluster is led."""
WATCHED = (*NEEDED, *RUNS)
END_S = 5.0
_WATCHER = "watcher for "
"""The beginning of the names that kopf gives to the tasks of watches."""


class _NoProgress(kopf.ProgressStorage):
    """Stores nothing: handlers here never leave progress behind."""

    def fetch(self, *, key: str, body: kopf.Body) -> None:
        return None

    def store(self, *, key: str, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        return None

    def purge(self, *, key: str, body: kopf.Body, patch: kopf.Patch) -> None:
        return None

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class _NoDiffs(kopf.DiffBaseStorage):
    """Stores nothing: no decision here depends on what has changed."""

    def fetch(self, *, body: kopf.Body) -> None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        return None


def make_settings() -> kopf.OperatorSettings:
    """Return the settings of kopf."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = names.FINALIZER
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 5
    # Restarts a watch that a lost connection left silent.
    settings.watching.server_timeout = 60
    settings.watching.client_timeout = 70
    settings.background.cancellation_polling = 1
    settings.background.instant_exit_timeout = 2
    settings.process.ultimate_exiting_timeout = None  # this process bounds its own end
    return settings


def make_registry(
    served: ServedNamespaces,
    leading: asyncio.AbstractEventLoop,
    api: KubeApi,
    traffic: Traffic,
    place: str,
    watched: Collection[str] = WATCHED,
) -> kopf.OperatorRegistry:
    """Return the handlers of one place (a namespace; "": all of them).

    `leading`: the event loop that `served` belongs to; `traffic` is told of events.  `watched`: the
    kinds of runs that are not among these are left out.
    """
    registry = kopf.OperatorRegistry()
    clusters = (GROUP, VERSION, StorageCluster.plural)
    zones = (GROUP, VERSION, Zone.plural)

    def show(act: Callable[[dict[str, Any]], None], body: dict[str, Any]) -> None:
        leading.call_soon_threadsafe(act, body)

    async def wait(act: Callable[[Any], Coroutine[Any, Any, None]], body: kopf.Body) -> None:
        waiting = act(without_managed_fields(body))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(waiting, leading))

    def holds_cluster(body: kopf.Body, **_: Any) -> bool:
        return cluster_needs_finaliser(body, served.owns_no_claim(body))

    def holds_zone(body: kopf.Body, **_: Any) -> bool:
        return erases(body)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        api.session.headers.update(api.access.headers())
        return kopf.AiohttpSession(
            server=api.access.server,
            default_namespace=place or None,
            aiohttp_session=api.session,
        )

    @kopf.on.cleanup(registry=registry)
    async def end_watches(**_: Any) -> None:
        """End the watches that are left when one of them has failed.

        Later kopf cancels each together with the task whose end makes it begin again, and waits.
        """
        watching = {each for each in asyncio.all_tasks() if each.get_name().startswith(_WATCHER)}
        for task in watching:
            task.cancel()
        if watching:
            await asyncio.wait(watching, timeout=END_S)

    def changed(
        plural: str,
        event: kopf.RawEvent,
        gone: Callable[[dict[str, Any]], None],
        seen: Callable[[dict[str, Any]], None],
    ) -> None:
        traffic.watch_seen(place, plural)
        is_gone = event["type"] == "DELETED"
        show(gone if is_gone else seen, without_managed_fields(event["object"]))

    @kopf.on.event(*clusters, registry=registry)
    async def cluster_changed(event: kopf.RawEvent, **_: Any) -> None:
        changed(StorageCluster.plural, event, served.cluster_gone, served.cluster_seen)

    @kopf.on.event(*zones, registry=registry)
    async def zone_changed(event: kopf.RawEvent, **_: Any) -> None:
        changed(Zone.plural, event, served.zone_gone, served.zone_seen)

    def watch_runs(plural: str, kind: Kind) -> None:
        @kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"{kind}_changed")
        async def run_changed(event: kopf.RawEvent, **_: Any) -> None:
            changed(plural, event, partial(served.run_gone, kind), partial(served.run_seen, kind))

    for plural, kind in RUNS.items():
        if plural in watched:
            watch_runs(plural, kind)

    @kopf.on.delete(*clusters, registry=registry, backoff=1, when=holds_cluster)
    async def delete_cluster(body: kopf.Body, **_: Any) -> None:
        """Return when the object may go; kopf then removes the finaliser."""
        await wait(served.cluster_released, body)

    @kopf.on.delete(*zones, registry=registry, backoff=1, when=holds_zone)
    async def delete_zone(body: kopf.Body, **_: Any) -> None:
        """Return when the object may go; kopf then removes the finaliser."""
        await wait(served.zone_released, body)

    return registry


def cluster_needs_finaliser(body: Mapping[str, Any], owns_no_claim: bool) -> bool:
    """Return whether a StorageCluster needs the finaliser.

    It does if its policy is Delete, or if it has the finaliser already and claims made by an
    earlier version may go with it.  kopf removes it from all others, even while they are being
    deleted.
    """
    if erases(body):
        return True
    is_managed = (body.get("spec") or {}).get("managed") is not None
    has_it = names.FINALIZER in (body["metadata"].get("finalizers") or ())
    return is_managed and has_it and not owns_no_claim


def without_managed_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without `managedFields`, the longest part of it."""
    metadata = {name: each for name, each in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}
