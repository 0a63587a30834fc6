"""The namespaces that one operator serves: one controller each, isolated from the others.

A refused right, a quota or the deletion of one namespace cannot affect clusters of another.  A
controller is made when the first object of its namespace is seen, and ends when the last one is
gone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.declared.controller import Controller
from quorate_operator.declared.deleting.shown_objects import ShownObject, ShownObjects
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.last_exports import ExportTimes
from quorate_operator.declared.runs.validations import ZoneVerdict
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, MandateLost, path_of
from quorate_operator.kube.scope import Scope, place_text
from quorate_operator.process.defects import report_defect
from quorate_operator.process.metrics import Led, Metrics

_log = logging.getLogger("quorate.namespaces")

RELIST_S = 1.0
RELIST_MAX_S = 15.0
"""Longest pause between attempts to list: a right given back may go unnoticed so long."""
COMPARE_S = 300.0
"""Seconds between comparisons of the objects known with those that are there."""
SWEEP_S = 5.0
"""Seconds between closings of controllers whose namespaces have no objects."""

Body = Mapping[str, Any]


class ServedNamespaces:
    """Controllers by namespace; exists while this process is the master.

    `make`: makes the controller of a namespace.  `on_failed`: called with a sentence if a task has
    ended unexpectedly; this process must then end.
    """

    def __init__(
        self,
        scope: Scope,
        make: Callable[[str], Controller],
        api: KubeApi,
        metrics: Metrics,
        on_failed: Callable[[str], None],
    ) -> None:
        self._scope = scope
        self._make = make
        self._api = api
        self._on_failed = on_failed
        self._controllers: dict[str, Controller] = {}
        self._listed: set[str] = set()
        self._unlisted: dict[str, str] = {}
        self._shown = ShownObjects(api, scope)
        self._tasks: list[asyncio.Task[None]] = []
        metrics.observe_queue(lambda: sum(each.queued for each in self._controllers.values()))
        metrics.observe_verdicts(self.verdicts)
        metrics.observe_exports(self.export_times)

    def start(self) -> None:
        """Start listing clusters, comparing what is known, and closing idle controllers."""
        loop = asyncio.get_running_loop()
        works = [self._list(place) for place in self._scope.places]
        works += [self._keep_comparing(), self._keep_sweeping()]
        self._tasks = [loop.create_task(work) for work in works]
        for task in self._tasks:
            task.add_done_callback(partial(report_defect, log=_log, on_failed=self._on_failed))

    async def close(self) -> None:
        """Stop: nothing is written or sent any more, whatever the watches still see."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listed.clear()
        await asyncio.gather(*(each.close() for each in self._controllers.values()))

    @property
    def decides(self) -> bool:
        """Whether at least one cluster has a master that no defect has ended."""
        return any(each.decides for each in self._controllers.values())

    def clusters(self) -> list[Led]:
        """Return every led cluster."""
        return [each for _, known in sorted(self._controllers.items()) for each in known.clusters()]

    def verdicts(self) -> list[tuple[str, str, str, ZoneVerdict]]:
        """Return namespace, cluster, zone and latest verdict of every zone that was validated."""
        return [each for _, known in sorted(self._controllers.items()) for each in known.verdicts()]

    def export_times(self) -> list[tuple[str, str, str, ExportTimes]]:
        """Return namespace, cluster and name of every zone, and when it was backed up last."""
        controllers = [known for _, known in sorted(self._controllers.items())]
        return [each for known in controllers for each in known.export_times()]

    def problems(self) -> list[str]:
        """Return a sentence for each place not listed, cluster not led and object not processed."""
        problems = list(self._unlisted.values())
        for _, controller in sorted(self._controllers.items()):
            problems += controller.problems()
        return problems

    def of(self, namespace: str) -> Controller:
        """Return the controller of a namespace that is served; make it if needed."""
        known = self._controllers.get(namespace)
        if known is None:
            known = self._controllers[namespace] = self._make(namespace)
            if self._scope.place_of(namespace) in self._listed:
                known.start()
        return known

    # --- what the watches see --------------------------------------------------------------------

    def cluster_seen(self, body: Body) -> None:
        """Handle a StorageCluster that is new or changed."""
        self._shown.seen(Kind.CLUSTER, body)
        self.of(body["metadata"]["namespace"]).cluster_seen(body)

    def cluster_gone(self, body: Body) -> None:
        """Handle the deletion of a StorageCluster."""
        self._shown.gone(Kind.CLUSTER, body)
        metadata = body["metadata"]
        self.of(metadata["namespace"]).cluster_gone(metadata["name"], metadata["uid"])

    def zone_seen(self, body: Body) -> None:
        """Handle a Zone that is new or changed."""
        self._shown.seen(Kind.ZONE, body)
        self.of(body["metadata"]["namespace"]).zone_seen(body)

    def zone_gone(self, body: Body) -> None:
        """Handle the deletion of a Zone."""
        self._shown.gone(Kind.ZONE, body)
        metadata = body["metadata"]
        self.of(metadata["namespace"]).zone_gone(metadata["name"], metadata["uid"])

    def run_seen(self, kind: Kind, body: Body) -> None:
        """Handle an object of this kind, one of a run or a schedule, that is new or changed."""
        self._shown.seen(kind, body)
        self.of(body["metadata"]["namespace"]).run_seen(kind, body)

    def run_gone(self, kind: Kind, body: Body) -> None:
        """Handle the deletion of such an object."""
        self._shown.gone(kind, body)
        metadata = body["metadata"]
        self.of(metadata["namespace"]).run_gone(kind, metadata["name"], metadata["uid"])

    async def cluster_released(self, body: Body) -> None:
        """Wait until a StorageCluster that is being deleted may go."""
        await self.of(body["metadata"]["namespace"]).cluster_released(body)

    async def zone_released(self, body: Body) -> None:
        """Wait until a Zone that is being deleted may go."""
        await self.of(body["metadata"]["namespace"]).zone_released(body)

    def owns_no_claim(self, body: Body) -> bool:
        """Return whether this StorageCluster is known to own no claim.  Any thread may call it."""
        metadata = body["metadata"]
        controller = self._controllers.get(metadata["namespace"])
        return controller is not None and controller.owns_no_claim(metadata["uid"])

    # --- which controllers there are -------------------------------------------------------------

    async def _list(self, place: str) -> None:
        """Show the clusters of `place`, then start its controllers.

        A zone's status says whether its cluster exists, so clusters come first.
        """
        pause_s = RELIST_S
        while True:
            try:
                async for item in self._api.list(path_of(place, StorageCluster.plural)):
                    # Items of a list come without their kind.
                    kind = StorageCluster.kind_name()
                    self.cluster_seen({**item, "apiVersion": API_VERSION, "kind": kind})
                break
            except (ApiRefused, ApiUnclear, MandateLost) as error:
                self._unlisted[place] = f"{place_text(place)}: clusters cannot be listed: {error}"
                _log.warning("%s; retrying in %g s", self._unlisted[place], pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RELIST_MAX_S)
        self._unlisted.pop(place, None)
        self._listed.add(place)
        for namespace, controller in self._controllers.items():
            if self._scope.place_of(namespace) == place:
                controller.start()

    async def _keep_comparing(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_S)
            for place in self._scope.places:
                async for missed in self._shown.missed(place):
                    _log.info("%s %s/%s is gone: no watch told it", *missed[:3])
                    self._missed(missed)

    def _missed(self, missed: ShownObject) -> None:
        body = {"metadata": missed._asdict()}
        match missed.kind:
            case Kind.CLUSTER:
                self.cluster_gone(body)
            case Kind.ZONE:
                self.zone_gone(body)
            case kind:
                self.run_gone(kind, body)

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for namespace, controller in list(self._controllers.items()):
                if controller.is_idle:
                    del self._controllers[namespace]
                    await controller.close()
