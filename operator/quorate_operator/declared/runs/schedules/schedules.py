"""Creates runs by the schedules of one kind and namespace, and removes old ones.

A time of the schedule is dealt with once: then it is `lastScheduleTime`.  The run that it creates
has the minute in its name, so of two operators that create it one gets a conflict.  (A CronJob
would make Jobs; its pod would need rights at the API server to create the runs instead.)
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import pydantic

from quorate.facts.errors import WireError
from quorate.wire.jobs.job_run import JobRun, RunPhase
from quorate.wire.jobs.schedule import ConcurrencyPolicy, ScheduleSpec, ScheduleStatus
from quorate.wire.schema.resource import API_VERSION, Condition, Metadata, Part, Resource
from quorate.wire.schema.unknown_fields import without_unknown
from quorate_operator import names
from quorate_operator.declared.runs.scheduled_run import ScheduledRun, run_name, schedule_of
from quorate_operator.declared.runs.schedules.cron import BadSchedule, last_and_next
from quorate_operator.kube.api import ApiRefused, KubeApi, is_same, path_of, set_own_status

_log = logging.getLogger("quorate.schedules")

LOOK_S = 30.0
"""Seconds between looks at a schedule, at the longest: its runs may have finished meanwhile."""
LOOK_S_MIN = 1.0
CLOCKS_DIFFER = timedelta(minutes=10)
"""How far two clocks may differ.  A time that is further ahead is of a clock that was wrong."""
SUSPENDED = "not run: suspended"
"""Ends the message about a time at which a schedule was suspended."""
_FINAL = [phase.value for phase in RunPhase if phase.is_final]

Body = Mapping[str, Any]
Status = TypeVar("Status", bound=ScheduleStatus)


class Template(Protocol):
    """The object that a schedule creates."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of each run."""

    @property
    def spec(self) -> JobRun:
        """The spec of each run."""


class Schedule(Protocol):
    """An object that creates runs."""

    @classmethod
    def kind_name(cls) -> str:
        """Return its kind."""

    @property
    def metadata(self) -> Metadata:
        """Its metadata."""

    @property
    def spec(self) -> Any:
        """When runs are created, and the template."""


class Due(NamedTuple):
    """The decision about one due time."""

    creates: bool
    replaces: bool
    message: str


class Dealt(NamedTuple):
    """The decision about one due time.

    `made`: its run; empty: none was created.  `replaced`: the runs that were deleted for it.
    `refused`: why its run could not be created; it is tried again.
    """

    message: str
    made: str = ""
    replaced: Sequence[str] = ()
    is_skipped: bool = False
    refused: ApiRefused | None = None


class Schedules(ABC, Generic[Status]):
    """The schedules of one kind and namespace."""

    kind: ClassVar[type[Resource]]
    run_kind: ClassVar[type[Resource]]

    def __init__(self, status_kind: type[Status], api: KubeApi, namespace: str) -> None:
        self._status_kind = status_kind
        self._api = api
        self._namespace = namespace
        self._bodies: dict[str, Body] = {}
        self._told: dict[str, Status] = {}
        """By uid: the status as last written: what the watch shows may be older."""

    def __bool__(self) -> bool:
        """Whether there is any object."""
        return bool(self._bodies)

    def seen(self, body: Body) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        name = body["metadata"]["name"]
        before, self._bodies[name] = self._bodies.get(name), body
        if before is not None and not is_same(before, body):
            self._told.pop(before["metadata"]["uid"], None)
        return before is None or _declared(before) != _declared(body)

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its runs go with it."""
        body = self._bodies.pop(name, None)
        if body is not None:
            self._told.pop(body["metadata"]["uid"], None)

    async def reconcile(self, name: str, now: datetime | None = None) -> float | None:
        """Create what is due, remove what is too old; return the seconds until the next look.

        None: there is nothing more to do until the object changes.  Raises the API's errors.
        """
        body, now = self._bodies.get(name), now or datetime.now(UTC)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        status = self._status(body)
        try:
            schedule: Any = self.kind.parse_stored(body)
            spec = schedule.spec
            due, following = last_and_next(spec.schedule, spec.time_zone, now)
        except (WireError, BadSchedule) as error:
            await self._tell(body, status.model_copy(update=_accepted(body, status, str(error))))
            return None
        runs = self._runs(body["metadata"]["uid"])
        active = [each.name for each in runs if not each.outcome]
        unseen = await self._unseen(schedule, status, [each.name for each in runs])
        active += sorted(name for name, has_ended in unseen.items() if not has_ended)
        ended = {each.name for each in runs if each.outcome}
        ended |= {name for name, has_ended in unseen.items() if has_ended}
        update: dict[str, Any] = _accepted(body, status, "")
        following_time = text_of(following) if following is not None else ""
        update["next_schedule_time"] = "" if spec.suspend else following_time
        vanished = {*status.active} - {*active} - ended
        since = _since(status, str(body["metadata"]["creationTimestamp"]), now)
        refused: ApiRefused | None = None
        if due is not None and due > since:
            dealt = await self._deal(
                schedule, status, due, now, [each.name for each in runs], active
            )
            active = [each for each in active if each not in dealt.replaced]
            vanished |= {*dealt.replaced}
            if dealt.made:
                update["last_run"] = dealt.made
                if dealt.made not in active and dealt.made not in ended:
                    active.append(dealt.made)
            if dealt.is_skipped:
                self._skipped(schedule, dealt.message)
            refused, update["message"] = dealt.refused, dealt.message
            if refused is None:
                update["last_schedule_time"] = text_of(due)
            _log.info("%s/%s: %s", self._namespace, name, dealt.message)
        update |= {"active": active, **self._more(schedule, status, runs, sorted(vanished))}
        await self._tell(body, status.model_copy(update=update))
        for old in too_old(spec, runs):
            await self._delete(old)
        if refused is not None:
            raise refused
        wait_s = (following - now).total_seconds() if following is not None else LOOK_S
        return min(max(wait_s + 0.01, LOOK_S_MIN), LOOK_S)

    # --- what the kinds differ in ----------------------------------------------------------------

    @abstractmethod
    def _runs(self, schedule: str) -> list[ScheduledRun]:
        """Return the runs that are there of the schedule with this uid, the oldest first."""

    def _spec_of_run(self, schedule: Any, due: datetime) -> JobRun:
        """Return the spec of the run of this time."""
        template: Template = schedule.spec.template
        return template.spec

    def _more(
        self, schedule: Any, status: Status, runs: Sequence[ScheduledRun], vanished: Sequence[str]
    ) -> dict[str, Any]:
        """Return more of the status.  `vanished`: runs that were deleted before they ended."""
        return {}

    def _has_run(self, status: Status, run: str) -> bool:
        """Return whether a run that is not there any more is known to have ended."""
        return False

    def _skipped(self, schedule: Any, message: str) -> None:
        """Take note of a time at which no run was created, though the schedule is not suspended."""

    # --- its runs --------------------------------------------------------------------------------

    async def _deal(
        self,
        schedule: Any,
        status: Status,
        due: datetime,
        now: datetime,
        runs: Sequence[str],
        active: Sequence[str],
    ) -> Dealt:
        """Create the run of this time, unless it is not to be, or is there.

        Runs that it replaces are deleted once it is created: else a refusal would leave none.
        """
        spec, run, time = schedule.spec, run_name(schedule.metadata.name, due), text_of(due)
        is_there = run in runs  # the operator that created it ended before it told so
        if not is_there and self._has_run(status, run):
            return Dealt(f"{time}: not run: {run} has run before")
        others = [each for each in active if each != run]
        if is_there and spec.concurrency_policy is not ConcurrencyPolicy.REPLACE:
            others = []
        judged = judge(spec, due, due if is_there else now, others)
        not_yet = f"{time}: not created yet: "
        was_refused = status.message.startswith(not_yet)
        if not judged.creates:
            why = f": {status.message.removeprefix(not_yet)}" if was_refused else ""
            return Dealt(f"{judged.message}{why}", is_skipped=not spec.suspend)
        try:
            made = await self._create(schedule, due)
        except ApiRefused as refused:
            if refused.is_passing:
                raise
            return Dealt(f"{not_yet}{refused}", is_skipped=not was_refused, refused=refused)
        if not made:
            taken = f"{self.run_kind.kind_name()} {run} of another is there"
            return Dealt(f"{time}: not run: {taken}", is_skipped=True)
        replaced = others if judged.replaces else []
        for each in replaced:
            await self._delete(each)
        return Dealt(judged.message, made, replaced)

    async def _unseen(self, schedule: Schedule, status: Status, seen: list[str]) -> dict[str, bool]:
        """Return whether it has ended, by name of each run that another operator left unfinished
        and that this one was not told yet."""
        unseen = {*status.active} - {*seen}
        if not unseen:
            return {}
        there = self._api.list(path_of(self._namespace, self.run_kind.plural))
        return {
            each["metadata"]["name"]: str((each.get("status") or {}).get("phase")) in _FINAL
            async for each in there
            if each["metadata"]["name"] in unseen and self._is_of(each, schedule)
        }

    def _is_of(self, run: Body, schedule: Schedule) -> bool:
        return schedule_of(run, self.kind.kind_name()) == schedule.metadata.uid

    async def _create(self, schedule: Schedule, due: datetime) -> str:
        """Create the run of this time; return its name, or "" if another object has it."""
        body = run_of(schedule, due, self.run_kind, self._spec_of_run(schedule, due))
        try:
            await self._api.create(path_of(self._namespace, self.run_kind.plural), body)
        except ApiRefused as refused:
            if refused.status != 409:
                raise
            runs = path_of(self._namespace, self.run_kind.plural)
            found = self._api.list(runs, name=body["metadata"]["name"])
            there = [each async for each in found]
            if not there:  # it was deleted meanwhile
                raise
            if not self._is_of(there[0], schedule):  # else another operator has created it
                return ""
        return str(body["metadata"]["name"])

    async def _delete(self, name: str) -> None:
        try:
            await self._api.delete(path_of(self._namespace, self.run_kind.plural, name))
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    async def _tell(self, body: Body, status: Status) -> None:
        """Write the status if it has changed."""
        if self._status(body) == status:
            return
        fresh = status.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        path = path_of(self._namespace, self.kind.plural, name)
        stored = await set_own_status(self._api, path, uid, fresh)
        if is_same(self._bodies.get(name), body):
            if stored is None:  # it was deleted, and the watch has not told it yet
                self.gone(name)
            else:
                self._told[uid] = status

    def _status(self, body: Body) -> Status:
        """Return the status as last written, without fields of a later version; empty if it cannot
        be read."""
        told = self._told.get(body["metadata"]["uid"])
        if told is not None:
            return told
        try:
            known = without_unknown(self._status_kind, body.get("status") or {}).body
            return self._status_kind.model_validate(known)
        except pydantic.ValidationError:
            return self._status_kind()


def judge(spec: ScheduleSpec, due: datetime, now: datetime, active: list[str]) -> Due:
    """Return what becomes of the time `due`; `active`: runs that are not finished."""
    time = text_of(due)
    if spec.suspend:
        return Due(False, False, f"{time}: {SUSPENDED}")
    late_s = (now - due).total_seconds()
    if late_s > spec.starting_deadline_seconds:
        missed = f"not created within startingDeadlineSeconds ({spec.starting_deadline_seconds})"
        return Due(False, False, f"{time}: not run: it was {missed}")
    if active and spec.concurrency_policy is ConcurrencyPolicy.FORBID:
        return Due(False, False, f"{time}: not run: {active[0]} is not finished")
    replaces = bool(active) and spec.concurrency_policy is ConcurrencyPolicy.REPLACE
    instead = f" in place of {', '.join(active)}" if replaces else ""
    return Due(True, replaces, f"{time}: run{instead}")


def run_of(schedule: Schedule, due: datetime, kind: type[Resource], spec: Part) -> dict[str, Any]:
    """Return the run of this kind and time."""
    metadata = schedule.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": kind.kind_name(),
        "metadata": {
            "name": run_name(metadata.name, due),
            "namespace": metadata.namespace,
            "labels": {**schedule.spec.template.labels, names.LABEL_SCHEDULE: metadata.name},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": schedule.kind_name(),
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }


def too_old(spec: ScheduleSpec, runs: Sequence[ScheduledRun]) -> list[str]:
    """Return the names of finished runs beyond the limits of the history; `runs`: oldest first."""
    good = [each.name for each in runs if each.outcome and each.is_good]
    others = [each.name for each in runs if each.outcome and not each.is_good]
    beyond = len(good) - spec.successful_runs_history_limit
    failed_beyond = len(others) - spec.failed_runs_history_limit
    return good[: max(beyond, 0)] + others[: max(failed_beyond, 0)]


def _accepted(body: Body, status: ScheduleStatus, problem: str) -> dict[str, Any]:
    """Return the update of the status that says whether the schedule can be read."""
    kind, is_so = names.CONDITION_ACCEPTED, str(not problem)
    known = next((each for each in status.conditions if each.type == kind), None)
    is_same = known is not None and known.status == is_so
    made = Condition(
        type=kind,
        status=is_so,
        reason=names.REASON_INVALID if problem else names.REASON_ACCEPTED,
        message=problem or "the schedule is in force",
        last_transition_time=(
            known.last_transition_time
            if known is not None and is_same
            else text_of(datetime.now(UTC))
        ),
        observed_generation=body["metadata"].get("generation"),
    )
    return {"conditions": [made]}


def _declared(body: Body) -> object:
    metadata = body["metadata"]
    return metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp")


def _since(status: ScheduleStatus, created: str, now: datetime) -> datetime:
    """Return the last time that was dealt with, unless a clock that was ahead has told it."""
    last = status.last_schedule_time
    if last and datetime.fromisoformat(last) <= now + CLOCKS_DIFFER:
        return datetime.fromisoformat(last)
    return datetime.fromisoformat(created)


def text_of(time: datetime) -> str:
    """Return a time as statuses have it: RFC 3339, UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
