"""Runs the objects of one kind and namespace of which each is one Job, its result in its status.

    nothing, Waiting --Job made--> Running --Job ended--> Finished
                     --> Refused: it cannot be read

The Job has the object's name, so of two operators that make it one gets a conflict and follows the
Job of the other.  A Job is asked for every FOLLOW_S while it runs, and its pod for how far it is.
"""

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import pydantic

from quorate.facts.errors import WireError
from quorate.protocol.messages.events import Reason
from quorate.wire.jobs.job_run import JobStatus, RunPhase
from quorate.wire.schema.resource import Condition, Resource
from quorate.wire.schema.unknown_fields import without_unknown
from quorate_operator import names
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.zone_events import RunEvent, ZoneEvents
from quorate_operator.jobs.executors import ExecutorsTooLarge, executors_of, with_executors
from quorate_operator.jobs.job import Copies, JobOwner, Work, job_of
from quorate_operator.jobs.job_end import JobEnd, has_ended, read_end
from quorate_operator.jobs.job_progress import percent_at, running_at
from quorate_operator.kube.api import ApiRefused, KubeApi, find, is_same, path_of, set_own_status
from quorate_operator.owned.apply import is_owned
from quorate_operator.owned.pod_states import is_ending, trouble
from quorate_operator.process.clock import rfc3339

_log = logging.getLogger("quorate.runs")

FOLLOW_S = 2.0
"""Seconds between looks at a Job, and at a zone that is not led yet."""
REFUSED_S = 30.0
"""Seconds before a Job that was refused is tried again."""
NO_IMAGE = (
    "this operator was given no image for this: set validation.image.repository of the"
    " chart, or start it with --validation-image"
)

Body = Mapping[str, Any]
Status = TypeVar("Status", bound=JobStatus)

_NOT_RUNNING = "its pod is not running"


class JobRefused(Exception):
    """The API server refuses a Job; `is_final`: it would refuse it again."""

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class JobRuns(ABC, Generic[Status]):
    """The objects of one kind and namespace.

    `find`: returns the led zone of that name, or a sentence on what is waited for.  `image`: of the
    pods; empty: none can be made.  `on_end`: called with the name of the zone of a run that has
    ended, and how.  `events`: of the namespace.
    """

    kind: ClassVar[type[Resource]]
    work: ClassVar[Work]
    reasons: ClassVar[Mapping[Any, tuple[Reason, str]]]
    """Each way in which a run may end, unless it is refused: the reason of the event about it, and
    its kind."""
    asks_all: ClassVar[bool] = False
    """Whether the pod is given agents that are away, too.  It then does without those that do not
    answer, and asks them again later."""

    def __init__(
        self,
        status_kind: type[Status],
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_end: Callable[[str, str], None],
        events: ZoneEvents,
    ) -> None:
        self._status_kind = status_kind
        self._api = api
        self._namespace = namespace
        self._find = find
        self._image = image
        self._on_end = on_end
        self._events = events
        self._bodies: dict[str, Body] = {}
        """Those that are not finished."""
        self._addresses: dict[str, tuple[str, str]] = {}
        """By name of one that runs: the uid of its Job, and where its pod tells how far it is."""
        self._over: dict[str, str] = {}
        """By name: the uid of one that this process has finished or refused: the watch may show it
        as it was."""

    def __bool__(self) -> bool:
        """Whether any object is still to be run or followed."""
        return bool(self._bodies)

    def seen(self, body: Body) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        status = self._status_of(body)
        self._note(body, status)
        if status.phase is not None and status.phase.is_final:
            self._bodies.pop(name, None)
            return False
        if uid == self._over.get(name) or body["metadata"].get("deletionTimestamp"):
            return False
        self._bodies[name] = body
        return True

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its Job goes with it."""
        self._bodies.pop(name, None)
        self._addresses.pop(name, None)
        self._over.pop(name, None)

    async def reconcile(self, name: str) -> float | None:
        """Run or follow an object; return the seconds until it is to be looked at again.

        None: it has ended.  Raises the API's errors.
        """
        body = self._bodies.get(name)
        if body is None:
            return None
        status = self._status_of(body)
        if status.phase is RunPhase.RUNNING:
            return await self._follow(body, status)
        try:
            run: Any = self.kind.parse_stored(body)
        except WireError as error:
            await self._tell(body, self._made(RunPhase.REFUSED, str(error)))
            return None
        led = self._find(zone_of(body)) if self._image else NO_IMAGE
        if not isinstance(led, LedZone):
            await self._tell(body, self._made(RunPhase.WAITING, led))
            return FOLLOW_S
        try:
            job = await self._begin(body, run, led)
        except JobRefused as refused:
            phase = RunPhase.REFUSED if refused.is_final else RunPhase.WAITING
            await self._tell(body, self._made(phase, str(refused)))
            return None if refused.is_final else REFUSED_S
        if isinstance(job, str):
            await self._tell(body, self._made(RunPhase.WAITING, job))
            return FOLLOW_S
        began = str(job["metadata"].get("creationTimestamp") or rfc3339())
        more = {"job": self.work.job_name(name), **self._begun(run, led, job)}
        begun = self._made(RunPhase.RUNNING, "its pod is being started").model_copy(
            update={"start_time": began, **more}
        )
        _log.info("%s: Job %s", self._about(name), begun.job)
        await self._tell(body, begun)
        return FOLLOW_S

    # --- what the kinds differ in ----------------------------------------------------------------

    @abstractmethod
    def _work_of(self, body: Body, run: Any, copies: Copies, led: LedZone) -> Work:
        """Return the work of the pod.  Raises JobRefused."""

    @abstractmethod
    async def _ended(
        self, body: Body, status: Status, job: Body, pods: list[Body], not_started: str
    ) -> Status:
        """Return the status of a run whose Job has ended; Running: it goes on by another Job, or
        waits for what its message says.

        `not_started`: what kept its pod from running when it was last seen.  Raises JobRefused if
        the other Job is refused for now.
        """

    @abstractmethod
    async def _lost(self, body: Body, status: Status, why: str) -> Status:
        """Return the status of a run whose Job is not there any more; Running: it goes on, or
        waits for what its message says."""

    @abstractmethod
    def _outcome(self, status: Status) -> enum.StrEnum:
        """Return how a finished run has ended, one of `reasons`."""

    @abstractmethod
    def _doing(self, status: Status) -> str:
        """Return the work of the pod, in a sentence."""

    def _more_events(self, status: Status) -> list[RunEvent]:
        """Return more events about a finished run."""
        return []

    def _keeps_end(self, status: Status) -> bool:
        """Return whether the end of the Job counts however long the zone is waited for."""
        return True

    def _begun(self, run: Any, led: LedZone, job: Body) -> dict[str, object]:
        """Return more of the status of a run whose Job was made, perhaps by an earlier operator and
        for an earlier Zone."""
        return {}

    def _note(self, body: Body, status: Status) -> None:
        """Note an object as it is now."""

    # --- the Job ---------------------------------------------------------------------------------

    async def _begin(self, body: Body, run: JobOwner, led: LedZone) -> Body | str:
        """Make the first Job; return it, or what it waits for.

        `run`: the object as parsed from `body`.  Another one of its name may be seen meanwhile.
        """
        copies = self._copies(led)
        if copies is None:
            return f"no agent of StorageCluster {led.cluster} is online"
        return await self._make(run, led, self._work_of(body, run, copies, led))

    def _copies(self, led: LedZone) -> Copies | None:
        """Return the copies of the zone; None: no agent is online."""
        record = led.runner.known_zone(led.uid)
        nodes, spec = led.runner.status().nodes, led.body.get("spec") or {}
        if record is None or not any(each.online for each in nodes):
            return None
        asked = {each.address for each in nodes if each.online or self.asks_all}
        return Copies(
            led.cluster,
            tuple(sorted(asked)),
            record.partitions,
            record.replicas,
            led.uid,
            spec,
            led.body["metadata"]["uid"],
        )

    async def _make(self, run: JobOwner, led: LedZone, work: Work) -> Body | str:
        """Make a Job; return the one that is there now, or what it waits for.

        Raises JobRefused.
        """
        job = await self._manifest(run, led, work)
        if isinstance(job, str):
            return job
        made = await self._post(run, job)
        return made if made is not None else await self._whose(run, work)

    async def _manifest(self, run: JobOwner, led: LedZone, work: Work) -> dict[str, Any] | str:
        """Return a Job that can be made, or what it waits for.  Raises JobRefused."""
        job = job_of(run, work, led.cluster, self._image)
        if not executors_of(run.spec):
            return job
        if not await self._may_lead():
            return (
                f"it has executors, and namespace {self._namespace} has no ServiceAccount"
                f" {names.DRIVER_ACCOUNT}: name the namespace in executors.namespaces of the"
                " chart, or apply examples/driver-role.yaml there"
            )
        try:
            return with_executors(job, run.spec, work, led.cluster, self._image)
        except ExecutorsTooLarge as error:
            raise JobRefused(f"its Job cannot be made: {error}", is_final=True) from error

    async def _post(self, run: JobOwner, job: dict[str, Any]) -> Body | None:
        """Make a Job and return it; None: there is one of its name.

        Raises JobRefused, and ApiRefused if it is refused for a moment only: nothing was made.
        """
        try:
            return await self._api.create(self._jobs(), job)
        except ApiRefused as refused:
            if refused.status == 409:
                return None
            if refused.is_passing:
                raise
            is_final = refused.status in (400, 422)
            way = f": create another {run.kind_name()}" if is_final else ""
            raise JobRefused(f"its Job is refused: {refused}{way}", is_final) from refused

    async def _may_lead(self) -> bool:
        """Return whether the ServiceAccount is there by which a pod leads executors."""
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts"
        accounts = self._api.list(path, name=names.DRIVER_ACCOUNT)
        return bool([each async for each in accounts])

    async def _whose(self, run: JobOwner, work: Work) -> Body | str:
        """Return the Job that is there if it is this object's, else what is waited for."""
        name = work.job_name(run.metadata.name)
        job = await find(self._api, f"{self._jobs()}/{name}")
        if job is not None and is_owned(job, run.metadata.uid):
            return job
        return f"Job {name} of another object is still there: it is waited for, or delete it"

    async def _follow(self, body: Body, status: Status) -> float | None:
        """Look at the Job; return the seconds until it is to be looked at again."""
        end = read_end(status.job_end)
        if end is not None:
            return await self._judge(body, status, end)
        metadata = body["metadata"]
        job = await find(self._api, f"{self._jobs()}/{status.job}")
        if job is None or not is_owned(job, metadata["uid"]):
            lost = f"Job {status.job} was deleted before its result was read"
            return await self._came(body, await self._lost(body, status, lost))
        is_over, runs = has_ended(job), (job.get("status") or {}).get("ready")
        pods = [] if runs and not is_over else await self._pods(metadata["name"], job)
        if is_over:
            not_started = status.message if status.message.startswith(_NOT_RUNNING) else ""
            return await self._judge(body, status, JobEnd(job, pods, not_started))
        message = self._doing(status) if runs else _waiting(pods, status.message)
        percent = await self._percent(metadata["name"], job) if runs else None
        await self._tell(body, status.model_copy(update={"message": message, "percent": percent}))
        return FOLLOW_S

    async def _judge(self, body: Body, status: Status, end: JobEnd) -> float | None:
        """Deal with the end of a Job; it is kept in the status where something is waited for."""
        try:
            ended = await self._ended(body, status, *end)
        except JobRefused as refused:
            kept = end.text if self._keeps_end(status) else ""
            update = {"message": str(refused), "job_end": kept}
            await self._tell(body, status.model_copy(update=update))
            return REFUSED_S
        waits = ended.phase is RunPhase.RUNNING and ended.job == status.job
        update = {"job_end": end.text if waits and self._keeps_end(status) else ""}
        return await self._came(body, ended.model_copy(update=update))

    async def _came(self, body: Body, status: Status) -> float | None:
        """Write the status of a run whose Job has ended or is lost, and that may go on."""
        if status.phase is RunPhase.RUNNING:
            await self._tell(body, status)
            return FOLLOW_S
        await self._finish(body, status)
        return None

    async def _percent(self, name: str, job: Body) -> int | None:
        """Return how far the Job's pod is; None if it does not tell."""
        uid = job["metadata"]["uid"]
        known, address = self._addresses.pop(name, ("", ""))
        if known != uid:
            address = running_at(await self._pods(name, job))
        percent = await percent_at(address) if address else None
        if percent is not None:  # else there may be another pod
            self._addresses[name] = uid, address
        return percent

    async def _pods(self, name: str, job: Body) -> list[Body]:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        found = self._api.list(path, f"{self.work.label}={name}")
        return [pod async for pod in found if is_owned(pod, job["metadata"]["uid"])]

    async def _finish(self, body: Body, finished: Status) -> None:
        """Write the result; tell it as an event."""
        if not await self._tell(body, finished):
            return
        name = body["metadata"]["name"]
        self._end(body)
        self._note(body, finished)
        outcome = self._outcome(finished)
        first = RunEvent(*self.reasons[outcome], finished.message)
        about = f"{self.kind.kind_name()} {name}"
        told = [
            each._replace(message=f"{about}: {each.message}")
            for each in (first, *self._more_events(finished))
        ]
        self._events.tell(zone_of(body), told)
        _log.info("%s: %s", self._about(name), finished.message)
        self._on_end(zone_of(body), outcome)

    async def _tell(self, body: Body, status: Status) -> bool:
        """Write the status if it has changed; return whether the object is still there."""
        if self._status_of(body) == status:
            return True
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        fresh = status.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        path = path_of(self._namespace, self.kind.plural, name)
        stored = await set_own_status(self._api, path, uid, fresh)
        if stored is None:
            self._drop(body)
            return False
        if status.phase is RunPhase.REFUSED:
            self._end(body)
            self._on_end(zone_of(body), RunPhase.REFUSED)
        elif self._is_known(body):
            self._bodies[name] = stored
        return True

    def _is_known(self, body: Body) -> bool:
        """Return whether the object is to be run or followed, not another one of its name."""
        return is_same(self._bodies.get(body["metadata"]["name"]), body)

    def _end(self, body: Body) -> None:
        """Run or follow the object never more, unless it was deleted already."""
        if self._is_known(body):
            self._over[body["metadata"]["name"]] = body["metadata"]["uid"]
            self._drop(body)

    def _drop(self, body: Body) -> None:
        """Run or follow the object no more."""
        if self._is_known(body):
            del self._bodies[body["metadata"]["name"]]
            self._addresses.pop(body["metadata"]["name"], None)

    def _made(self, phase: RunPhase, message: str) -> Status:
        return self._status_kind(phase=phase, message=message)

    def _status_of(self, body: Body) -> Status:
        """Return the status without fields of a later version; empty if it cannot be read."""
        try:
            told = without_unknown(self._status_kind, body.get("status") or {}).body
            return self._status_kind.model_validate(told)
        except pydantic.ValidationError:
            return self._status_kind()

    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._namespace}/jobs"

    def _about(self, name: str) -> str:
        return f"{self.kind.kind_name().lower()} {self._namespace}/{name}"


def ended_condition(body: Body, kind: str, is_so: str, why: str, message: str) -> Condition:
    """Return a condition of a run that has ended now."""
    return Condition(
        type=kind,
        status=is_so,
        reason=why,
        message=message,
        last_transition_time=rfc3339(),
        observed_generation=body["metadata"].get("generation"),
    )


def zone_of(body: Body) -> str:
    """Return the name of the zone that an object is about, even if it cannot be read."""
    return str(((body.get("spec") or {}).get("zoneRef") or {}).get("name", ""))


def _waiting(pods: list[Body], told: str) -> str:
    """Return why no pod runs yet; `told`: what was told of it before."""
    left = [pod for pod in pods if not _has_ended(pod) and not is_ending(pod)]
    for pod in left:
        found = trouble(pod["metadata"]["name"], pod, None)
        if found is not None:
            return f"{_NOT_RUNNING}: {found.reason}: {found.message}"
    if told.startswith(_NOT_RUNNING) and not left:
        return told  # the pods of a late Job are deleted before it is told to be late
    return "its pod is being started"


def _has_ended(pod: Body) -> bool:
    """Return whether all containers of the pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
