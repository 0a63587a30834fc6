"""Keeps the Kubernetes objects of managed clusters as desired, apart from the ownership of data.

    controller --see--> cluster, runner --\\
    shared watches, a look a second -------> queue --> workers: list, decide, apply, prune, replace

Its queue, workers, connections and request limits are its own: whatever the API server does with
these objects, rows are written and the lease is renewed as before.  A worker looks at the whole
state, so a missed event costs only a short delay.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from quorate.planning.absence.disruption import Disruption
from quorate.protocol.messages.events import Event, Reason
from quorate.wire.managed_agents import COPIED_LABELS
from quorate.wire.storage_cluster import PodProblem, StorageCluster, StorageClusterSpec
from quorate_operator import names
from quorate_operator.kube.api import (
    ApiRefused,
    ApiThrottled,
    ApiUnclear,
    KubeApi,
    MandateLost,
)
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.mastership.runner import Runner
from quorate_operator.owned.agent_names import (
    Agents,
    address,
    choose_agents,
    pod_name,
    service_name,
    stateful_set_name,
    untold_agents,
)
from quorate_operator.owned.apply import Applier, Failure, is_silent_again, looked_at_again
from quorate_operator.owned.budget import Budget, NoEvictionNow, no_eviction_now
from quorate_operator.owned.children import (
    client_service_name,
    desired_children,
    has_same_port,
)
from quorate_operator.owned.claim_owners import ClaimOwners
from quorate_operator.owned.client_services import (
    DeclaredNames,
    services_of_others,
    unnamed_zones,
)
from quorate_operator.owned.external_listener import ZonePort, external_addresses
from quorate_operator.owned.kube_nodes import (
    KubeNodes,
    cordoned_agents,
    failure_domains,
    pod_facts,
)
from quorate_operator.owned.pod_states import Trouble, ended_processes, losing_agents, trouble
from quorate_operator.owned.restarts import (
    Restart,
    gone_agents,
    next_restart,
    replacement_waits_for,
)
from quorate_operator.owned.volumes import Growth, growth
from quorate_operator.process.defects import in_words, report_defect
from quorate_operator.process.keyed_queue import KeyedQueue

_log = logging.getLogger("quorate.owned")

REQUESTS = (10.0, 60)
"""Requests per second and burst; status, Events and ownership have limits of their own."""
WORKERS = 2
LOOK_S = 1.0
ANEW_S = 60.0
"""Seconds until a cluster without a seen change is looked at again."""
OBJECTS = "its objects"
"""The part of a cluster that a worker takes care of."""
ASKED_S = 10.0
"""Seconds in which a new master hears from all agents that run, and learns of all Zones."""
ORPHAN = "orphan"
"""The API server's finalizer of what was deleted with --cascade=orphan: its objects stay."""
NO_EVICTION_TOLD_S = 20.0
"""Seconds without an allowed eviction until an Event tells it: a restart takes less."""

Json = dict[str, Any]


class ManagedView(NamedTuple):
    """The state of a managed cluster's objects, as of the declared `spec`.

    `refused`: the API server's sentence about an object that could not be made; `waits_for`: what
    the replacement of pods waits for, empty if a refused object holds it up; `unreachable`: agent
    -> why external clients cannot reach it, None without an external listener; `no_eviction`: why
    no pod may be evicted, None if one may.
    """

    agents: Agents
    addresses: list[str]
    pods: list[PodProblem]
    refused: str
    waits_for: str
    spec: StorageClusterSpec
    unreachable: dict[str, str] | None = None
    domainless: dict[str, str] | None = None
    """Agent -> why its failure domain is not known.  None without pods, or if agents learn the
    label's value without the operator."""
    named: frozenset[str] = frozenset()
    """Zones to which a Service leads, or none can: their agents listen on different ports."""
    growth: Growth = Growth()
    """Why volumes are smaller than declared."""
    no_eviction: NoEvictionNow | None = None
    losing: Mapping[str, Trouble] = MappingProxyType({})
    """Agent whose pod holds a claim that is being deleted -> what to do."""
    unnamed: Mapping[str, str] = MappingProxyType({})
    """Zone whose client Service another cluster or somebody else has -> why."""
    untold: str = ""
    """Why agents that leave stay dialed: it is not known yet what they have."""


class _Seen:
    """One managed cluster that is led."""

    def __init__(self, cluster: StorageCluster, runner: Runner, applier: Applier) -> None:
        self.cluster = cluster
        self.runner = runner
        self.applier = applier
        self.budget = Budget(applier)
        self.pause = ""
        self.view: ManagedView | None = None
        self.gone: set[str] = set()
        self.looked: object = None
        """The state that its objects depend on, as of the last look or the last work."""
        self.following: asyncio.Task[None] | None = None
        self.tell_no_eviction_s: float | None = None
        """When an Event is due that says why no pod may be evicted; None if none is."""
        self.defects: dict[str, str] = {}
        """Part of its care -> the defect with which that ended last."""
        self.asking_until_s: float | None = None
        """Until when its new master hears from agents; None until it leads."""
        self.failure = ""
        """The request because of which the last work is repeated; empty if it is not."""

    @contextmanager
    def catching(self, part: str) -> Iterator[None]:
        """Note and log a defect in this part of the care: other clusters' care goes on.

        The same defect again is not logged again.
        """
        try:
            yield
        except Exception as error:
            defect = in_words(error)
            if self.defects.get(part) != defect:
                _log.exception("cluster %s: a defect in %s", self.cluster.metadata.name, part)
            self.defects[part] = defect
        else:
            self.defects.pop(part, None)


class OwnedObjects:
    """The objects of the clusters of one namespace.

    `watches`: of the kinds of these objects.  `declared`: its StorageClusters and Zones.
    `on_change`: called with a cluster's name if its status may change.  `on_failed`: called with a
    sentence if a defect has ended a task that all clusters need, so the process must end.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        watches: SharedWatches,
        declared: DeclaredNames,
        on_change: Callable[[str], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._watches = watches
        self._declared = declared
        self._on_change = on_change
        self._on_failed = on_failed
        self._seen: dict[str, _Seen] = {}
        self._orphaning: set[str] = set()
        """Uids of StorageClusters that are deleted so that their objects stay."""
        self._queue = KeyedQueue[str](lambda: random.uniform(0.8, 1.2))
        self._nodes = KubeNodes(api, self._look_at_all)
        self._tasks: list[asyncio.Task[None]] = []
        self.claims = ClaimOwners(api, namespace)

    async def close(self) -> None:
        """Stop: nothing is written any more."""
        tasks = [*self._tasks, *(each.following for each in self._seen.values() if each.following)]
        for task in tasks:
            task.cancel()
        self._queue.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks = []
        self._seen = {}

    def see(self, cluster: StorageCluster, runner: Runner, pause: str = "") -> ManagedView | None:
        """Maintain the objects of a led cluster as declared here, if it is managed.

        Return what is known of them: None before the first look, and if agents are external.
        """
        if ORPHAN in cluster.metadata.finalizers:
            self._orphaning.add(cluster.metadata.uid)
        if cluster.spec.managed is None or cluster.metadata.uid in self._orphaning:
            self._drop(cluster.metadata.name)
            return None
        if not self._tasks:
            work = [self._work() for _ in range(WORKERS)]
            work += [self._keep_looking(), self._keep_budgets(), self._nodes.follow()]
            self._tasks = [self._begin(each) for each in work]
        name = cluster.metadata.name
        seen = self._seen.get(name)
        if seen is None or seen.runner is not runner:
            self._drop(name)
            seen = self._seen[name] = _Seen(cluster, runner, Applier(self._api, self._namespace))
            seen.following = self._begin(self._follow(name))
            self._queue.add(name)
        elif (seen.cluster.spec, seen.pause) != (cluster.spec, pause):
            self._queue.add(name)
        seen.cluster, seen.pause = cluster, pause
        return seen.view

    def let_go(self, name: str) -> None:
        """Stop the care of a StorageCluster that is being deleted: Kubernetes has its objects now.

        Objects that were applied once more would have an owner that is gone, and be deleted.
        """
        self._drop(name)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(partial(report_defect, log=_log, on_failed=self._on_failed))
        return task

    def problems(self) -> list[str]:
        """Return a sentence for each part of a cluster's care that ends with a defect or fails."""
        found = []
        for name, seen in self._seen.items():
            about = f"storagecluster {self._namespace}/{name}"
            found += [
                f"{about}: a defect in {part}: {defect}; the log says where"
                for part, defect in seen.defects.items()
            ]
            if seen.failure:
                found.append(f"{about}: {OBJECTS}: {seen.failure}")
        return found

    def _drop(self, name: str) -> None:
        seen = self._seen.pop(name, None)
        if seen is not None and seen.following is not None:
            seen.following.cancel()
            self._look_at_unnamed()
        self._nodes.forget(name)
        self._queue.forget(name)

    # --- what makes a cluster be looked at -------------------------------------------------------

    async def _follow(self, name: str) -> None:
        async with aclosing(self._watches.follow(self._namespace, name)) as changes:
            async for _ in changes:
                self._queue.add_in_turn(name)

    def _look_at_unnamed(self) -> None:
        """Look at clusters that lack a client Service: its name may be free now."""
        for name, seen in self._seen.items():
            if seen.view is not None and seen.view.unnamed:
                self._queue.add_in_turn(name)

    def _look_at_all(self) -> None:
        for name in self._seen:
            self._queue.add_in_turn(name)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for name, seen in list(self._seen.items()):
                with seen.catching("looks at the rows"):
                    self._look_at(name, seen)
                await asyncio.sleep(0)

    def _look_at(self, name: str, seen: _Seen) -> None:
        if seen.runner.is_stopped:
            self._drop(name)
            return
        _tell_no_eviction(seen)
        looked = _facts(seen, self._declared)
        if looked != seen.looked:
            seen.looked = looked
            self._queue.add_in_turn(name)

    async def _keep_budgets(self) -> None:
        """Lower budgets at once if they allow too much.

        A worker that looks at everything takes seconds while the API server is slow, and a pod
        could be evicted meanwhile.
        """
        while True:
            await asyncio.sleep(LOOK_S)
            for name, seen in list(self._seen.items()):
                with seen.catching("its disruption budget"):
                    await self._lower_budget(name, seen)

    async def _lower_budget(self, name: str, seen: _Seen) -> None:
        judge = partial(self._judgement, name, seen)
        now = judge()
        if now is None or not seen.budget.must_be_lowered(now):
            return
        try:
            await seen.budget.write(seen.cluster, judge)
        except (ApiRefused, ApiUnclear, MandateLost) as error:
            _log.warning("budget of cluster %s: %s", name, error)

    def _judgement(self, name: str, seen: _Seen) -> Disruption | None:
        """Return what may be away now, by the rows; None if this master no longer decides."""
        if seen.cluster.spec.managed is None or not self._is_current(name, seen):
            return None
        return seen.runner.disruption(seen.gone)

    # --- work ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            name = await self._queue.take()
            try:
                await self._reconcile(name)
            except (ApiRefused, ApiUnclear, MandateLost) as error:
                again_s = self._queue.failed(name)
                _log.warning("objects of cluster %s: %s; retrying in %.1f s", name, error, again_s)
                if name in self._seen and not isinstance(error, MandateLost):
                    self._seen[name].failure = str(error)
            except Exception as error:  # one cluster's defect must not stop the others' care
                again_s = self._queue.failed(name)
                _log.exception("objects of cluster %s: retrying in %.1f s", name, again_s)
                if name in self._seen:
                    self._seen[name].defects[OBJECTS] = in_words(error)
            else:
                self._queue.done(name)
                if name in self._seen:
                    self._seen[name].defects.pop(OBJECTS, None)
                    self._seen[name].failure = ""
                    self._queue.add_later(name, ANEW_S)

    async def _reconcile(self, name: str) -> None:
        seen = self._seen.get(name)
        managed = seen.cluster.spec.managed if seen is not None else None
        if seen is None or managed is None or not seen.runner.is_leading:
            return  # the next look will see that it leads
        cluster = seen.cluster
        there = await seen.applier.present(f"{names.LABEL_CLUSTER}={name}")
        claims = there["PersistentVolumeClaim"]
        await self.claims.free(seen.cluster, [*claims.values()])
        sets = _by_agent(there["StatefulSet"])
        pods: dict[str, Json | None] = {
            agent: there["Pod"].get(pod_name(name, agent)) for agent in sets
        }
        members = seen.runner.status().nodes
        registered = {node.name for node in members}
        if not self._is_current(name, seen):
            return
        nodes = await self._nodes.of_pods(name, pods.values())
        domains = failure_domains(managed.failure_domain_label, pods, nodes)
        of_pods = pod_facts(pods, nodes, _by_agent(claims))
        seen.runner.take_node_facts(
            cordoned_agents(pods, nodes), domains.known, of_pods, ended_processes(pods)
        )
        gone = seen.gone = gone_agents(pods)
        disruption = seen.runner.disruption(gone)
        seen.looked = _facts(seen, self._declared)
        agents = choose_agents(managed.replicas, {*sets, *registered}, seen.runner.load())
        losing = losing_agents(name, agents.staying, pods, claims)
        untold = untold_agents(agents, gone, disruption, _is_asking(seen))
        in_use = {*registered, *disruption.protected, *untold.agents}
        removed = [agent for agent in agents.leaving if agent not in in_use]
        zones = _zone_ports(seen.runner)
        unnamed: dict[str, str] = {}
        if not seen.pause:
            unnamed = await unnamed_zones(
                name, zones, self._declared, there["Service"], seen.applier
            )
        restart, unreachable = Restart(), None
        if managed.external_listener is not None and not seen.pause:
            given = [zone for zone in zones if zone.port]
            outside = external_addresses(
                cluster, agents.staying, given, there["Service"], there["Pod"]
            )
            seen.runner.set_external(outside.hosts, outside.ports)
            unreachable = outside.missing
        if not self._is_current(name, seen):
            return
        wanted: list[Json] = []
        if not seen.pause:
            wanted = desired_children(cluster, agents, removed, zones, claims, unnamed, losing)
        # First: no eviction may be allowed by a judgement older than the other requests.
        failed = await self._write_budget(name, seen, there["PodDisruptionBudget"])
        may_write = partial(self._is_current, name, seen)
        unmade = await seen.applier.apply(wanted, there, may_write)
        unnamed |= services_of_others(zones, unmade)
        failed += unmade.values()
        services = {("Service", client_service_name(zone.zone)) for zone in zones}
        of_services = [unmade[each] for each in services & unmade.keys()]  # no pod needs them
        if not seen.pause and not is_silent_again(failed):
            deleted, undeleted = await seen.applier.prune(
                wanted, there, cluster.metadata.uid, may_write
            )
            failed += undeleted
            if deleted:
                self._look_at_unnamed()
        is_silent = is_silent_again(failed)
        is_held_up = is_silent or any(each not in of_services for each in failed)
        if not seen.pause and not is_silent:
            staying = {agent: sets[agent] for agent in agents.staying if agent in sets}
            if agents.run and staying.keys() == {*agents.staying} and not is_held_up:
                kept = {agent: why.message for agent, why in losing.items()}
                if _is_asking(seen):
                    for agent in staying.keys() - registered - gone - kept.keys():
                        kept[agent] = f"agent {agent} is not registered yet"
                restart = next_restart(
                    {agent: pods[agent] for agent in staying},
                    staying,
                    lambda restarted: seen.runner.disruption(gone, restarted),
                    kept,
                )
            elif losing and not agents.run:
                restart = Restart("", losing[min(losing)].message)
            pod = pods.get(restart.agent)
            if pod is not None and self._is_current(name, seen):
                _log.info("cluster %s: replacing the pod of %s", name, restart.agent)
                failure = await seen.applier.delete("Pod", pod)
                failed += [failure] if failure is not None else []
                is_held_up |= failure is not None
        needs_operator = managed.failure_domain_label not in COPIED_LABELS
        refused = next((str(each) for each in failed if not each.is_conflict), "")
        waits_for = replacement_waits_for(name, restart, seen.applier.changed)
        if is_held_up:  # pods were not looked at
            waits_for = "" if refused else waits_for or looked_at_again(failed)
        view = ManagedView(
            agents=agents,
            addresses=[
                address(name, self._namespace, agent)
                for agent in (*agents.staying, *untold.undeclared(members))
            ],
            pods=_problems(name, agents, pods, claims, losing),
            refused=refused,
            waits_for=waits_for,
            spec=cluster.spec,
            unreachable=unreachable,
            domainless=domains.missing if needs_operator and agents.run else None,
            named=_named(zones, seen.applier, there["Service"]) - unnamed.keys(),
            growth=growth(
                _staying_claims(name, agents, claims), managed.storage.size, seen.applier.ungrown
            ),
            no_eviction=no_eviction_now(name, disruption, pods, claims) if agents.run else None,
            losing=losing,
            unnamed=unnamed,
            untold=untold.why,
        )
        if view != seen.view:
            _note_no_eviction(seen, view)
            _tell_losing(seen, view)
            seen.view = view
            self._on_change(name)
        for failure in failed:
            if failure.is_passing:
                raise failure

    async def _write_budget(
        self, name: str, seen: _Seen, present: Mapping[str, Json]
    ) -> list[Failure]:
        """Write the budget; return the failure, as `Applier.apply` does."""
        judge = partial(self._judgement, name, seen)
        try:
            await seen.budget.write(seen.cluster, judge, present.get(service_name(name)))
        except ApiThrottled:
            raise
        except (ApiRefused, ApiUnclear) as error:
            return [error]
        return []

    def _is_current(self, name: str, seen: _Seen) -> bool:
        """Return whether the cluster is still led as it was when its state was read."""
        return self._seen.get(name) is seen and seen.runner.is_leading


def _problems(
    cluster: str,
    agents: Agents,
    pods: Mapping[str, Json | None],
    claims: Mapping[str, Json],
    losing: Mapping[str, Trouble],
) -> list[PodProblem]:
    """Return pods that are to run and do not, and those of `losing` agents.

    `pods`: by agent; `claims`: by name.
    """
    found = [
        losing.get(agent)
        or trouble(
            pod_name(cluster, agent),
            pods.get(agent),
            claims.get(stateful_set_name(cluster, agent)),
        )
        for agent in (agents.staying if agents.run else losing)
    ]
    return [
        PodProblem(name=each.pod, reason=each.reason, message=each.message[:1000])
        for each in found
        if each is not None
    ]


def _named(
    zones: Sequence[ZonePort], applier: Applier, services: Mapping[str, Json]
) -> frozenset[str]:
    """Return the zones to which a Service leads, or none can."""
    return frozenset(
        zone.zone
        for zone in zones
        if not has_same_port(zone)
        or client_service_name(zone.zone) in services
        or applier.has("Service", client_service_name(zone.zone))
    )


def _staying_claims(cluster: str, agents: Agents, claims: Mapping[str, Json]) -> dict[str, Json]:
    """Return the claims of the agents that are to stay, by name."""
    made = [stateful_set_name(cluster, agent) for agent in agents.staying]
    return {name: claims[name] for name in made if name in claims}


def _note_no_eviction(seen: _Seen, view: ManagedView) -> None:
    """Schedule one Event for each period in which no pod may be evicted, if it lasts."""
    if view.no_eviction is None:
        seen.tell_no_eviction_s = None
    elif seen.view is None or seen.view.no_eviction is None:
        seen.tell_no_eviction_s = asyncio.get_running_loop().time() + NO_EVICTION_TOLD_S


def _tell_no_eviction(seen: _Seen) -> None:
    due_s = seen.tell_no_eviction_s
    if due_s is None or asyncio.get_running_loop().time() < due_s:
        return
    seen.tell_no_eviction_s = None
    if seen.view is not None and seen.view.no_eviction is not None:
        message = f"no pod of an agent may be evicted: {seen.view.no_eviction.message}"
        seen.runner.tell([Event("", None, Reason.EVICTIONS_REFUSED, message, "Warning")])


def _tell_losing(seen: _Seen, view: ManagedView) -> None:
    """Tell once of each claim that is being deleted while its agent runs."""
    before = seen.view.losing if seen.view is not None else {}
    seen.runner.tell(
        [
            Event("", None, Reason.CLAIM_TERMINATING, f"agent {agent}: {why.message}", "Warning")
            for agent, why in view.losing.items()
            if agent not in before
        ]
    )


def _by_agent(objects: Mapping[str, Json]) -> dict[str, Json]:
    found = {
        each["metadata"].get("labels", {}).get(names.LABEL_AGENT): each for each in objects.values()
    }
    return {agent: each for agent, each in found.items() if agent}


def _zone_ports(runner: Runner) -> list[ZonePort]:
    return [
        ZonePort(record.name, record.ports, record.uid, record.port)
        for record in runner.known_zones().values()
        if not record.deleting and record.ports
    ]


def _facts(seen: _Seen, declared: DeclaredNames) -> tuple[object, ...]:
    """Return everything that the desired objects of a cluster depend on, besides its spec."""
    runner, zones = seen.runner, _zone_ports(seen.runner)
    owners = [declared.cluster_of(zone.zone) for zone in zones]
    disruption = runner.disruption(seen.gone)
    return runner.is_leading, disruption, zones, owners, _is_asking(seen)


def _is_asking(seen: _Seen) -> bool:
    """Return whether agents may still tell copies and zones that the master does not know."""
    now_s = asyncio.get_running_loop().time()
    if seen.asking_until_s is None and seen.runner.is_leading:
        seen.asking_until_s = now_s + ASKED_S
    is_new = seen.asking_until_s is None or now_s < seen.asking_until_s
    return is_new or seen.runner.is_recovering
