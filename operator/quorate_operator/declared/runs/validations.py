"""Runs the DataValidations of one namespace: each is one Job, with the result in its status.

    nothing, Waiting --Job made--> Running --Job ended--> Finished: Agree, Differ, CouldNotTell
                     --> Refused: it cannot be read

The Job has the object's name, so of two operators that make it one gets a conflict and follows the
Job of the other.  A Job is asked for every FOLLOW_S while it runs, and its pod for how far it is.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import pydantic

from quorate.facts.errors import WireError
from quorate.protocol.messages.events import Event, Reason
from quorate.wire.jobs.data_validation import (
    DataValidation,
    DataValidationStatus,
    OutvotedCopyStatus,
    ValidationLevel,
    ValidationPhase,
)
from quorate.wire.jobs.scheduled_data_validation import ScheduledDataValidation
from quorate.wire.jobs.validation_result import ValidationResult, ValidationVerdict
from quorate.wire.resource import Condition
from quorate.wire.unknown_fields import without_unknown
from quorate.wire.zone import ZoneStatus
from quorate_operator import names
from quorate_operator.declared.declared_zone import DeclaredZone
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.jobs.job_progress import percent_at, running_at
from quorate_operator.jobs.validation_end import has_ended, result_of, unproven
from quorate_operator.jobs.validation_job import Copies, job_name, job_of
from quorate_operator.kube.api import ApiRefused, KubeApi, find, path_of
from quorate_operator.owned.apply import is_owned
from quorate_operator.owned.pod_states import trouble
from quorate_operator.process.clock import rfc3339

_log = logging.getLogger("quorate.validations")

FOLLOW_S = 2.0
"""Seconds between looks at a Job, and at a zone that is not led yet."""
REFUSED_S = 30.0
"""Seconds before a Job that was refused is tried again."""
NO_IMAGE = (
    "this operator was given no image for validations: set validation.image.repository of the"
    " chart, or start it with --validation-image"
)

Body = Mapping[str, Any]

_PHASE = ValidationPhase
_REASONS = {
    ValidationVerdict.AGREE: (Reason.COPIES_AGREE, "Normal"),
    ValidationVerdict.DIFFER: (Reason.COPIES_DIFFER, "Warning"),
    ValidationVerdict.COULD_NOT_TELL: (Reason.COPIES_UNPROVEN, "Warning"),
}
_AGREES = {
    ValidationVerdict.AGREE: "True",
    ValidationVerdict.DIFFER: "False",
    ValidationVerdict.COULD_NOT_TELL: "Unknown",
}


_NOT_RUNNING = "its pod is not running"
_DEPTH = {each: at for at, each in enumerate(ValidationLevel)}


class JobRefused(Exception):
    """The API server refuses a Job; `is_final`: it would refuse it again."""

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class ZoneVerdict(NamedTuple):
    """The result of a DataValidation that has finished."""

    ended: str
    """RFC 3339; results are ordered by this."""
    validation: str
    verdict: ValidationVerdict
    message: str
    classes: Mapping[str, int]
    level: ValidationLevel = ValidationLevel.ROWS

    def replaces(self, earlier: "ZoneVerdict | None") -> bool:
        """Return whether this one counts instead of an earlier one.

        A proven difference counts until copies are found equal, at that level or a deeper one.
        """
        if earlier is None or earlier.verdict is not ValidationVerdict.DIFFER:
            return True
        is_deep = _DEPTH[self.level] >= _DEPTH[earlier.level]
        agrees = self.verdict is ValidationVerdict.AGREE and is_deep
        return agrees or self.verdict is ValidationVerdict.DIFFER


class ScheduledRun(NamedTuple):
    """A DataValidation that a schedule has created."""

    created: str
    """RFC 3339."""
    name: str
    schedule: str
    """Uid of the ScheduledDataValidation."""
    verdict: str
    """Empty until it is finished; Refused if it was not run."""


class Validations:
    """The DataValidations of one namespace.

    `find`: returns the led zone of that name, or a sentence on what is waited for.  `image`: of the
    pods; empty: none can be made.  `on_result`: called with the name of a zone whose verdict is
    new.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_result: Callable[[str], None],
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._find = find
        self._image = image
        self._on_result = on_result
        self._bodies: dict[str, Body] = {}
        """Those that are not finished."""
        self._addresses: dict[str, tuple[str, str]] = {}
        """By name of one that runs: the uid of its Job, and where its pod tells how far it is."""
        self._verdicts: dict[str, tuple[str, ZoneVerdict]] = {}
        """By name of a finished one: its zone's name, and its result."""
        self._runs: dict[str, ScheduledRun] = {}
        self._over: set[str] = set()
        """Uids of those that this process has finished: the watch may show them as they were."""

    def __bool__(self) -> bool:
        """Whether any object is still to be run or followed."""
        return bool(self._bodies)

    def seen(self, body: Body) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        status = _status_of(body)
        self._note_run(body, status)
        if status.phase is not None and status.phase.is_final:
            self._bodies.pop(name, None)
            self._note(name, body, status)
            return False
        if uid in self._over or body["metadata"].get("deletionTimestamp"):
            return False
        self._bodies[name] = body
        return True

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its Job goes with it.

        Not that it has proven a difference.
        """
        self._bodies.pop(name, None)
        self._addresses.pop(name, None)
        self._runs.pop(name, None)
        zone, told = self._verdicts.get(name, ("", None))
        if told is not None and told.verdict is not ValidationVerdict.DIFFER:
            del self._verdicts[name]
            self._on_result(zone)

    def verdict(self, zone: DeclaredZone) -> ZoneVerdict | None:
        """Return the result that counts for a Zone; an earlier one of its name has others."""
        found = [told for of, told in self._verdicts.values() if of == zone.name]
        counts: ZoneVerdict | None = None
        for told in sorted(found, key=lambda each: each.ended):
            if told.ended >= zone.since and told.replaces(counts):
                counts = told
        return counts

    def completed(self, zone: DeclaredZone, status: ZoneStatus) -> ZoneStatus:
        """Return a Zone's status with the condition CopiesAgree."""
        return with_copies_agree(status, zone.known_status, self.verdict(zone))

    def runs(self, schedule: str) -> list[ScheduledRun]:
        """Return the runs that are there of the ScheduledDataValidation with this uid, the oldest
        first."""
        return sorted(each for each in self._runs.values() if each.schedule == schedule)

    def _note_run(self, body: Body, status: DataValidationStatus) -> None:
        metadata = body["metadata"]
        owner = next((each for each in metadata.get("ownerReferences") or () if _made(each)), None)
        if owner is None:
            return
        verdict = status.verdict or ("" if status.phase is not _PHASE.REFUSED else status.phase)
        created = str(metadata.get("creationTimestamp") or "")
        self._runs[metadata["name"]] = ScheduledRun(
            created, metadata["name"], owner["uid"], str(verdict)
        )

    async def reconcile(self, name: str) -> float | None:
        """Run or follow an object; return the seconds until it is to be looked at again.

        None: it has ended.  Raises the API's errors.
        """
        body = self._bodies.get(name)
        if body is None:
            return None
        status = _status_of(body)
        if status.phase is _PHASE.RUNNING:
            return await self._follow(body, status)
        try:
            validation = DataValidation.parse_stored(body)
        except WireError as error:
            await self._tell(body, DataValidationStatus(phase=_PHASE.REFUSED, message=str(error)))
            return None
        led = self._find(validation.spec.zone_ref.name) if self._image else NO_IMAGE
        if isinstance(led, LedZone):
            try:
                led = await self._begin(validation, led)
            except JobRefused as refused:
                phase = _PHASE.REFUSED if refused.is_final else _PHASE.WAITING
                await self._tell(body, DataValidationStatus(phase=phase, message=str(refused)))
                return None if refused.is_final else REFUSED_S
        if led:
            await self._tell(body, DataValidationStatus(phase=_PHASE.WAITING, message=led))
            return FOLLOW_S
        begun = DataValidationStatus(
            phase=_PHASE.RUNNING,
            message="its pod is being started",
            start_time=rfc3339(),
            job=job_name(name),
        )
        _log.info("datavalidation %s/%s: Job %s", self._namespace, name, begun.job)
        await self._tell(body, begun)
        return FOLLOW_S

    async def _begin(self, validation: DataValidation, led: LedZone) -> str:
        """Make the Job; return "", or what it waits for."""
        record = led.runner.known_zone(led.uid)
        online = [each.address for each in led.runner.status().nodes if each.online]
        if record is None or not online:
            return f"no agent of StorageCluster {led.cluster} is online"
        copies = Copies(led.cluster, tuple(sorted(online)), record.partitions, record.replicas)
        try:
            await self._api.create(self._jobs(), job_of(validation, copies, self._image))
        except ApiRefused as refused:
            if refused.status == 409:
                return await self._whose(validation)
            if refused.is_passing:
                raise
            is_final = refused.status in (400, 422)
            way = ": create another DataValidation" if is_final else ""
            raise JobRefused(f"its Job is refused: {refused}{way}", is_final) from refused
        return ""

    async def _whose(self, validation: DataValidation) -> str:
        """Return "" if the Job that is there is this object's, else what is waited for."""
        name = job_name(validation.metadata.name)
        job = await find(self._api, f"{self._jobs()}/{name}")
        if job is not None and is_owned(job, validation.metadata.uid):
            return ""
        return f"Job {name} of another object is still there: it is waited for, or delete it"

    async def _follow(self, body: Body, status: DataValidationStatus) -> float | None:
        """Look at the Job; return the seconds until it is to be looked at again."""
        metadata = body["metadata"]
        job = await find(self._api, f"{self._jobs()}/{status.job}")
        if job is None or not is_owned(job, metadata["uid"]):
            lost = f"Job {status.job} was deleted before its result was read"
            await self._finish(body, status, unproven(lost))
            return None
        is_over, runs = has_ended(job), (job.get("status") or {}).get("ready")
        pods = [] if runs and not is_over else await self._pods(metadata["name"], job)
        if is_over:
            not_started = status.message if status.message.startswith(_NOT_RUNNING) else ""
            await self._finish(body, status, result_of(job, pods, not_started))
            return None
        message = "its pod reads the copies" if runs else _waiting(pods)
        percent = await self._percent(metadata["name"], job) if runs else None
        await self._tell(body, status.model_copy(update={"message": message, "percent": percent}))
        return FOLLOW_S

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
        found = self._api.list(path, f"{names.LABEL_VALIDATION}={name}")
        return [pod async for pod in found if is_owned(pod, job["metadata"]["uid"])]

    async def _finish(
        self, body: Body, status: DataValidationStatus, result: ValidationResult
    ) -> None:
        """Write the result; tell it as an event and to the zone."""
        finished = finished_status(status, body, result, rfc3339())
        await self._tell(body, finished)
        name, zone = body["metadata"]["name"], _zone_of(body)
        self._bodies.pop(name, None)
        self._addresses.pop(name, None)
        self._over.add(body["metadata"]["uid"])
        self._note(name, body, finished)
        led = self._find(zone)
        if isinstance(led, LedZone):
            reason, kind = _REASONS[result.verdict]
            about = f"DataValidation {name}: {finished.message}"
            led.runner.tell([Event(led.uid, None, reason, about, kind)])
        _log.info("datavalidation %s/%s: %s", self._namespace, name, finished.message)

    def _note(self, name: str, body: Body, status: DataValidationStatus) -> None:
        """Keep the result of a finished object."""
        if status.verdict is None or not _is_time(status.completion_time):
            return
        level = (body.get("spec") or {}).get("level")
        told = ZoneVerdict(
            status.completion_time,
            name,
            status.verdict,
            status.message,
            status.classes,
            next((each for each in ValidationLevel if each == level), ValidationLevel.ROWS),
        )
        if self._verdicts.get(name) != (_zone_of(body), told):
            self._verdicts[name] = _zone_of(body), told
            self._on_result(_zone_of(body))

    async def _tell(self, body: Body, status: DataValidationStatus) -> None:
        """Write the status if it has changed."""
        if _status_of(body) == status:
            return
        name = body["metadata"]["name"]
        fresh = status.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        path = path_of(self._namespace, DataValidation.plural, name)
        stored = await self._api.set_status(path, fresh)
        if status.phase is _PHASE.REFUSED:
            self._bodies.pop(name, None)
        elif name in self._bodies:
            self._bodies[name] = stored

    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._namespace}/jobs"


def finished_status(
    status: DataValidationStatus, body: Body, result: ValidationResult, time: str
) -> DataValidationStatus:
    """Return the status of a run that has this result."""
    level = (body.get("spec") or {}).get("level")
    message = sentence(result, has_keys=level != ValidationLevel.COUNTERS)
    reason, generation = result.verdict.value, body["metadata"].get("generation")

    def condition(kind: str, is_so: str, why: str) -> Condition:
        return Condition(
            type=kind,
            status=is_so,
            reason=why,
            message=message,
            last_transition_time=time,
            observed_generation=generation,
        )

    return status.model_copy(
        update={
            "phase": _PHASE.FINISHED,
            "verdict": result.verdict,
            "message": message,
            "completion_time": time,
            "percent": None,
            "classes": dict(result.classes),
            "partitions": result.partitions,
            "copies": result.copies,
            "settled_keys": result.settled_keys,
            "unsettled_keys": result.unsettled_keys,
            "differing_keys": result.differing_keys,
            "reasons": list(result.reasons),
            "outvoted": [
                OutvotedCopyStatus(partition=each.partition, node=each.node)
                for each in result.outvoted
            ],
            "conditions": [
                condition(names.CONDITION_FINISHED, "True", "JobEnded"),
                condition(names.CONDITION_COPIES_AGREE, _AGREES[result.verdict], reason),
            ],
        }
    )


def sentence(result: ValidationResult, has_keys: bool = True) -> str:
    """Return the result in a sentence, with what to do next."""
    compared = f"{result.copies} copies of {result.partitions} partitions"
    if result.verdict is ValidationVerdict.AGREE:
        if not has_keys:
            return f"all {compared} agree in their counters"
        unsettled = result.unsettled_keys
        more = f", {unsettled} more were written meanwhile" if unsettled else ""
        return f"all {compared} agree; {result.settled_keys} keys were compared{more}"
    if result.verdict is ValidationVerdict.COULD_NOT_TELL:
        return (
            f"could not tell whether all copies agree: {'; '.join(result.reasons) or 'no reason'}"
        )
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(result.classes.items()))
    said = f"copies differ ({counts})"
    if not result.outvoted:
        return (
            f"{said}: the log of its Job names them; no majority contradicts a copy, so have a"
            " client write the keys again"
        )
    first = result.outvoted[0]
    more = f" and {len(result.outvoted) - 1} more" if len(result.outvoted) > 1 else ""
    return (
        f"{said}; the others contradict the copy of partition {first.partition} on {first.node}"
        f"{more}: have it made anew by a ZoneRecovery with action Restart and erase"
    )


def with_copies_agree(
    status: ZoneStatus, before: ZoneStatus, verdict: ZoneVerdict | None
) -> ZoneStatus:
    """Return a Zone's status with the condition CopiesAgree.

    `before`: the status as last written; without any verdict its condition stays.
    """
    kind = names.CONDITION_COPIES_AGREE
    known = next((each for each in before.conditions if each.type == kind), None)
    made = known
    is_older = (
        known is not None and verdict is not None and verdict.ended < known.last_transition_time
    )
    if verdict is not None and not is_older:
        is_so = _AGREES[verdict.verdict]
        is_same = known is not None and known.status == is_so
        made = Condition(
            type=kind,
            status=is_so,
            reason=verdict.verdict.value,
            message=f"DataValidation {verdict.validation}, {verdict.ended}: {verdict.message}",
            last_transition_time=(
                known.last_transition_time if known is not None and is_same else verdict.ended
            ),
            observed_generation=status.observed_generation,
        )
    if made is None:
        return status
    return status.model_copy(update={"conditions": [*status.conditions, made]})


def _waiting(pods: list[Body]) -> str:
    """Return why no pod runs yet."""
    for pod in pods:
        found = trouble(pod["metadata"]["name"], pod, None)
        if found is not None and not _has_ended(pod):
            return f"{_NOT_RUNNING}: {found.reason}: {found.message}"
    return "its pod is being started"


def _has_ended(pod: Body) -> bool:
    """Return whether all containers of the pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _made(owner: Body) -> bool:
    """Return whether this owner is the schedule that created the object."""
    is_schedule = owner.get("kind") == ScheduledDataValidation.kind_name()
    return is_schedule and bool(owner.get("controller"))


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _zone_of(body: Body) -> str:
    return str(((body.get("spec") or {}).get("zoneRef") or {}).get("name", ""))


def _status_of(body: Body) -> DataValidationStatus:
    """Return the status without fields of a later version; empty if it cannot be read."""
    try:
        told = without_unknown(DataValidationStatus, body.get("status") or {}).body
        return DataValidationStatus.model_validate(told)
    except pydantic.ValidationError:
        return DataValidationStatus()
