"""How kopf shows the namespace to the controller: watches, one daemon per zone, one finaliser.

kopf runs only in the process that holds the lease.  It keeps nothing in our objects but the
finaliser: progress and last-seen states stay in memory, since every loop looks at the whole state.
"""

import asyncio
import logging
from typing import Any

import kopf

from quorate.wire.resource import GROUP, VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.declared.controller import OBSERVE_S, Controller
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, MandateLost

_log = logging.getLogger("quorate.handlers")
_TRANSIENT = (ApiRefused, ApiUnclear, MandateLost)


class _NoProgress(kopf.ProgressStorage):
    """Handlers here never leave progress behind."""

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
    """Nothing here is decided by what has changed."""

    def fetch(self, *, body: kopf.Body) -> None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        return None


def make_settings() -> kopf.OperatorSettings:
    """How kopf is to behave."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = names.FINALIZER
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 5
    # A watch that a lost connection left silent is begun again after this long.
    settings.watching.server_timeout = 60
    settings.watching.client_timeout = 70
    settings.background.cancellation_polling = 1
    settings.background.instant_exit_timeout = 2
    settings.process.ultimate_exiting_timeout = None  # our own end is bounded already
    return settings


def make_registry(controller: Controller, api: KubeApi, namespace: str) -> kopf.OperatorRegistry:
    """All handlers, bound to one controller."""
    registry = kopf.OperatorRegistry()
    clusters = (GROUP, VERSION, StorageCluster.plural)
    zones = (GROUP, VERSION, Zone.plural)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        api.session.headers.update(api.access.headers())
        return kopf.AiohttpSession(
            server=api.access.server, default_namespace=namespace, aiohttp_session=api.session
        )

    @kopf.on.event(*clusters, registry=registry)
    async def cluster_changed(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            await controller.cluster_gone(str(body.metadata.name))
        else:
            await controller.cluster_seen(dict(body))

    @kopf.daemon(*zones, registry=registry, initial_delay=0)
    async def lead_zone(body: kopf.Body, stopped: kopf.DaemonStopped, **_: Any) -> None:
        told: dict[str, Any] | None = None
        while not stopped:
            try:
                told = await controller.lead_zone(dict(body), told)
            except _TRANSIENT as error:
                _log.warning("zone %s: %s; again soon", body.metadata.name, error)
            await stopped.wait(OBSERVE_S)

    @kopf.on.delete(*zones, registry=registry, backoff=1)
    async def delete_zone(body: kopf.Body, **_: Any) -> None:
        told: dict[str, Any] | None = None
        while True:
            try:
                if await controller.is_zone_released(dict(body)):
                    return
                told = await controller.lead_zone(dict(body), told)
            except _TRANSIENT as error:
                _log.warning("zone %s: %s; again soon", body.metadata.name, error)
            await asyncio.sleep(OBSERVE_S / 2)

    return registry
