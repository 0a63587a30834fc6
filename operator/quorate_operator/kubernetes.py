"""The operator on Kubernetes: stands for election, leads while it holds the lease, then ends.

A standby runs nothing but its election.  A process that lost the lease ends instead of standing
again, so that its unfinished work ends with it.

    STANDBY --lease--> MASTER --lost--> writes stop --> exit 3
        MASTER --SIGTERM--> writes stop --> lease released --> exit 0
        MASTER --defect in what all clusters need, or of each cluster's
           master--> writes stop --> lease released --> exit 1
"""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Mapping

from aiohttp import web

from quorate.facts.addresses import join_address
from quorate.protocol.settings import ProtocolSettings
from quorate.wire.master_term import MasterTerm
from quorate_link.garbage import keep_collecting
from quorate_operator import names
from quorate_operator.declared.controller import Controller
from quorate_operator.declared.handlers import NEEDED
from quorate_operator.declared.handlers import WATCHED as DECLARED
from quorate_operator.declared.served_namespaces import ServedNamespaces
from quorate_operator.declared.watching import Watches
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi
from quorate_operator.kube.kinds import known_kinds, unknown_kinds
from quorate_operator.kube.pace import Pace
from quorate_operator.kube.scope import Scope
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.kube.token_bucket import OBJECTS, TokenBucket
from quorate_operator.kube.traffic import Traffic
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.mastership.election_thread import ElectionThread
from quorate_operator.metastores import kubernetes as metastore
from quorate_operator.owned import apply as owned
from quorate_operator.owned.owned_objects import REQUESTS
from quorate_operator.process.health import add_health
from quorate_operator.process.loop_watch import LoopWatch
from quorate_operator.process.mandate import CannotLead
from quorate_operator.process.metrics import Led, Metrics
from quorate_operator.process.stopping import Stopping

_log = logging.getLogger("quorate.kubernetes")

LEADING = (*NEEDED, *metastore.WATCHED, MasterTerm.plural)
"""Kinds without which no cluster can be led: declared ones, and those of ownership."""
EXIT_LOST = 3
KINDS_S = 2.0
LAG_MAX_S = 10.0
WATCH_AGE_MAX_S = 180.0
"""Three times the interval at which an idle watch is begun again."""


class KubernetesOperator:
    """One operator process, which leads the clusters of its scope while it holds the Lease."""

    def __init__(
        self,
        access: KubeAccess,
        scope: Scope,
        settings: ProtocolSettings,
        election: ElectionSettings,
        validation_image: str = "",
    ) -> None:
        self.metrics = Metrics()
        self.identity = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._access = access
        self._scope = scope
        self._settings = settings
        self._validation_image = validation_image
        self._watch = LoopWatch()
        self._election = ElectionThread(
            access,
            scope.lease_namespace,
            self.identity,
            election,
            self._watch,
            self.metrics.api_requests,
        )
        self._traffic = Traffic(self.metrics.api_requests)
        late_s = election.late_ms / 1000
        self._pace = Pace(lambda: self._election.lease_age_s() > late_s)
        self._ownership_api = self._make_api(TokenBucket(), rank=0)
        self._objects_api = self._make_api(TokenBucket(*OBJECTS), rank=1)
        self._owned_api = self._make_api(TokenBucket(*REQUESTS), rank=2)
        self._served: ServedNamespaces | None = None
        self._watches: Watches | None = None
        self._ownership_watches = self._make_watches(self._ownership_api, metastore.WATCHED)
        self._owned_watches = self._make_watches(self._owned_api, owned.WATCHED)
        self._failing = asyncio.Event()
        self._failure = ""
        self._waits_for = ""
        self._is_leading = False
        self.metrics.is_master.set_function(lambda: self._is_leading and self._election.holds())
        self.metrics.observe_vitals(
            self._election.lease_age_s,
            self._watch.lag_s,
            self._traffic.watch_ages_s,
            lambda: self._pace.limit,
        )

    def _make_api(self, bucket: TokenBucket, rank: int) -> KubeApi:
        return KubeApi(self._access, self._election, self._traffic, bucket, self._pace, rank)

    def _make_watches(self, api: KubeApi, kinds: Mapping[str, str]) -> SharedWatches:
        return SharedWatches(api, self._scope, kinds, names.LABEL_CLUSTER, self._fail)

    def clusters(self) -> list[Led]:
        """See Observed."""
        return self._served.clusters() if self._served is not None else []

    def unhealthy(self) -> str:
        """See Observed.  A blocked event loop cannot answer at all, which fails the probe."""
        lag_s = self._watch.lag_s()
        if lag_s > LAG_MAX_S:
            return f"the event loop is {lag_s:.0f} s late"
        if self._election.lost_reason:
            return f"the lease is lost: {self._election.lost_reason}"
        if not self._is_leading:
            return ""
        if not self._election.holds():
            return f"the lease was renewed {self._election.lease_age_s():.0f} s ago: it has lapsed"
        for (place, plural), age_s in self._traffic.watch_ages_s().items():
            if plural not in DECLARED or age_s <= WATCH_AGE_MAX_S:
                continue
            # A refused watch is retried, and /readyz reports it.
            if self._watches is None or not self._watches.is_failing(place):
                which = f"{plural} in namespace {place}" if place else plural
                return f"the watch of {which} has shown no sign of life for {age_s:.0f} s"
        return ""

    def process_not_ready(self) -> str:
        """See Observed.  What one namespace lacks is no reason to hold up a drain or an upgrade."""
        return self._waits_for or self.unhealthy()

    def not_ready(self) -> str:
        """See Observed.  A standby is ready: it does all it should."""
        problems = [self._waits_for] if self._waits_for else []
        shared = self._ownership_watches, self._owned_watches
        for each in (self._watches, *shared, self._served):
            problems += each.problems() if each is not None else []
        return "; ".join(problems)

    async def run(self, stop: Stopping, health: tuple[str | None, int] | None) -> int:
        """Run until `stop` or the loss of the lease; return the exit code.

        `health`: host and port of the probes, /readyz and /metrics; host None: every address.
        """
        web_runner = await self._serve_health(*health) if health is not None else None
        stopping = asyncio.create_task(stop.wait())
        beating = asyncio.create_task(self._watch.run())
        collecting = asyncio.create_task(keep_collecting())
        waiting = asyncio.create_task(self._wait_for_kinds())
        try:
            await _first_of(waiting, stopping)
            if not stopping.done():
                await self._stand(stopping)
        finally:
            await _cancel(waiting, stopping)
            await self._election.stop()
            await _cancel(beating, collecting)
            if web_runner is not None:
                await web_runner.cleanup()
            for api in (self._ownership_api, self._objects_api, self._owned_api):
                await api.close()
        return EXIT_LOST if self._election.lost_reason else 0

    async def _stand(self, stopping: asyncio.Task[bool]) -> None:
        self._election.start()
        election = asyncio.create_task(self._election.ended.wait())
        acquired = asyncio.create_task(self._election.acquired.wait())
        try:
            await _first_of(election, stopping, acquired)
            if acquired.done() and not stopping.done():
                await self._lead(election, stopping)
        finally:
            await _cancel(election, acquired)

    async def _wait_for_kinds(self) -> None:
        """Wait until the API server knows the kinds without which a master cannot lead.

        Kinds of runs are not among them: an operator of a later version has more of these.
        """
        while True:
            try:
                known = await known_kinds(self._objects_api)
                self._waits_for = unknown_kinds(known, LEADING)
            except (ApiRefused, ApiUnclear) as error:
                self._waits_for = str(error)
            if not self._waits_for:
                return
            _log.warning("%s", self._waits_for)
            await asyncio.sleep(KINDS_S)

    async def _lead(self, election: asyncio.Task[bool], stopping: asyncio.Task[bool]) -> None:
        served = self._served = ServedNamespaces(
            self._scope, self._make_controller, self._objects_api, self.metrics, self._fail
        )
        watches = self._watches = Watches(
            served,
            lambda: KubeApi(self._access, self._election, self._traffic),
            self._traffic,
            self._fail,
        )
        served.start()
        watches.start(self._scope.places)
        self._is_leading = True
        failing = asyncio.create_task(self._failing.wait())
        try:
            await _first_of(election, stopping, failing)
        finally:
            await _cancel(failing)
            # Ownership first: after this the runners write and send nothing.
            await served.close()
            await self._ownership_watches.close()
            await self._owned_watches.close()
            self._is_leading = False
            # Before the watches end: they can no longer write, so the next master need not wait for
            # them.
            await self._election.stop()
            await watches.stop()
        if self._failure and not self._election.lost_reason:
            raise CannotLead(f"{self._failure}; see the log")

    def _make_controller(self, namespace: str) -> Controller:
        return Controller(
            self._ownership_api,
            self._objects_api,
            namespace,
            self.identity,
            self._election,
            self._settings,
            self.metrics,
            self._fail,
            self._ownership_watches,
            self._owned_watches,
            self._owned_api,
            self._master_failed,
            self._validation_image,
        )

    def _master_failed(self, why: str) -> None:
        """Give up the lease if a defect has ended every cluster's master.

        A process that decides nothing must not keep it.
        """
        if self._served is None or not self._served.decides:
            self._fail(why)

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why
        self._failing.set()

    async def _serve_health(self, host: str | None, port: int) -> web.AppRunner:
        app = web.Application()
        add_health(app, self)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        found = ", ".join(join_address(*each[:2]) for each in runner.addresses)
        _log.info("health and metrics on %s", found)
        return runner


async def _first_of(*tasks: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _cancel(*tasks: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
