"""Creates DataValidations by the ScheduledDataValidations of one namespace, and removes old ones.

A time of the schedule is dealt with once: then it is `lastScheduleTime`.  The run that it creates
has the minute in its name, so of two operators that create it one gets a conflict.  (A CronJob
would make Jobs; its pod would need rights at the API server to create DataValidations instead.)
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pydantic

from quorate.facts.errors import WireError
from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.scheduled_data_validation import (
    ConcurrencyPolicy,
    ScheduledDataValidation,
    ScheduledDataValidationStatus,
)
from quorate.wire.jobs.validation_result import ValidationVerdict
from quorate.wire.resource import API_VERSION, Condition
from quorate.wire.unknown_fields import without_unknown
from quorate_operator import names
from quorate_operator.declared.runs.cron import BadSchedule, last_and_next
from quorate_operator.declared.runs.validations import ScheduledRun, Validations
from quorate_operator.kube.api import ApiRefused, KubeApi, path_of

_log = logging.getLogger("quorate.schedules")

LOOK_S = 30.0
"""Seconds between looks at a schedule, at the longest: its runs may have finished meanwhile."""
LOOK_S_MIN = 1.0

Body = Mapping[str, Any]


class Due(NamedTuple):
    """The decision about one due time."""

    creates: bool
    replaces: bool
    message: str


class Schedules:
    """The ScheduledDataValidations of one namespace; `validations`: its DataValidations."""

    def __init__(self, api: KubeApi, namespace: str, validations: Validations) -> None:
        self._api = api
        self._namespace = namespace
        self._validations = validations
        self._bodies: dict[str, Body] = {}
        self._told: dict[str, ScheduledDataValidationStatus] = {}
        """By uid: the status as last written: what the watch shows may be older."""

    def __bool__(self) -> bool:
        """Whether there is any object."""
        return bool(self._bodies)

    def seen(self, body: Body) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        name = body["metadata"]["name"]
        before, self._bodies[name] = self._bodies.get(name), body
        return before is None or _declared(before) != _declared(body)

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its DataValidations go with it."""
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
        status = self._told.get(body["metadata"]["uid"]) or _status_of(body)
        try:
            schedule = ScheduledDataValidation.parse_stored(body)
            spec = schedule.spec
            due, following = last_and_next(spec.schedule, spec.time_zone, now)
        except (WireError, BadSchedule) as error:
            await self._tell(body, status.model_copy(update=_accepted(body, status, str(error))))
            return None
        runs = self._validations.runs(body["metadata"]["uid"])
        active = [each.name for each in runs if not each.verdict]
        active += await self._unseen(status, [each.name for each in runs])
        update: dict[str, Any] = _accepted(body, status, "")
        since = _time_of(status.last_schedule_time or str(body["metadata"]["creationTimestamp"]))
        if due is not None and due > since:
            is_there = run_of(schedule, due)["metadata"]["name"] in [each.name for each in runs]
            judged = judge(schedule, due, now, [] if is_there else active)
            if judged.replaces:
                for each in active:
                    await self._delete(each)
                active = []
            if judged.creates:
                made = await self._create(schedule, due)
                active.append(made)
                update["last_run"] = made
            update |= {"last_schedule_time": _text_of(due), "message": judged.message}
            _log.info("%s/%s: %s", self._namespace, name, judged.message)
        await self._tell(body, status.model_copy(update={**update, "active": active}))
        for old in too_old(schedule, runs):
            await self._delete(old)
        wait_s = (following - now).total_seconds() if following is not None else LOOK_S
        return min(max(wait_s + 0.01, LOOK_S_MIN), LOOK_S)

    async def _unseen(self, status: ScheduledDataValidationStatus, seen: list[str]) -> list[str]:
        """Return runs that another operator left unfinished and that this one was not told yet."""
        unseen = {*status.active} - {*seen}
        if not unseen:
            return []
        there = self._api.list(path_of(self._namespace, DataValidation.plural))
        return sorted(unseen & {each["metadata"]["name"] async for each in there})

    async def _create(self, schedule: ScheduledDataValidation, due: datetime) -> str:
        """Create the run of this time; return its name."""
        body = run_of(schedule, due)
        try:
            await self._api.create(path_of(self._namespace, DataValidation.plural), body)
        except ApiRefused as refused:
            if refused.status != 409:  # another operator has created it
                raise
        return str(body["metadata"]["name"])

    async def _delete(self, name: str) -> None:
        try:
            await self._api.delete(path_of(self._namespace, DataValidation.plural, name))
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    async def _tell(self, body: Body, status: ScheduledDataValidationStatus) -> None:
        """Write the status if it has changed."""
        uid, name = body["metadata"]["uid"], body["metadata"]["name"]
        if (self._told.get(uid) or _status_of(body)) == status:
            return
        fresh = status.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        path = path_of(self._namespace, ScheduledDataValidation.plural, name)
        await self._api.set_status(path, fresh)
        self._told[uid] = status


def judge(
    schedule: ScheduledDataValidation, due: datetime, now: datetime, active: list[str]
) -> Due:
    """Return what becomes of the time `due`; `active`: runs that are not finished."""
    spec, time = schedule.spec, _text_of(due)
    if spec.suspend:
        return Due(False, False, f"{time}: not run: suspended")
    late_s = (now - due).total_seconds()
    if late_s > spec.starting_deadline_seconds:
        missed = f"no operator led for more than {spec.starting_deadline_seconds} s"
        return Due(False, False, f"{time}: not run: {missed} (startingDeadlineSeconds)")
    if active and spec.concurrency_policy is ConcurrencyPolicy.FORBID:
        return Due(False, False, f"{time}: not run: {active[0]} is not finished")
    replaces = bool(active) and spec.concurrency_policy is ConcurrencyPolicy.REPLACE
    instead = f" in place of {', '.join(active)}" if replaces else ""
    return Due(True, replaces, f"{time}: run{instead}")


def run_of(schedule: ScheduledDataValidation, due: datetime) -> dict[str, Any]:
    """Return the DataValidation of this time."""
    metadata, template = schedule.metadata, schedule.spec.template
    return {
        "apiVersion": API_VERSION,
        "kind": DataValidation.kind_name(),
        "metadata": {
            "name": f"{metadata.name}-{int(due.timestamp()) // 60}",
            "namespace": metadata.namespace,
            "labels": {**template.labels, names.LABEL_SCHEDULE: metadata.name},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": ScheduledDataValidation.kind_name(),
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": template.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True),
    }


def too_old(schedule: ScheduledDataValidation, runs: list[ScheduledRun]) -> list[str]:
    """Return the names of finished runs beyond the limits of the history; `runs`: oldest first."""
    agree = [each.name for each in runs if each.verdict == ValidationVerdict.AGREE]
    others = [each.name for each in runs if each.verdict not in ("", ValidationVerdict.AGREE)]
    spec = schedule.spec
    beyond = len(agree) - spec.successful_runs_history_limit
    failed_beyond = len(others) - spec.failed_runs_history_limit
    return agree[: max(beyond, 0)] + others[: max(failed_beyond, 0)]


def _accepted(body: Body, status: ScheduledDataValidationStatus, problem: str) -> dict[str, Any]:
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
            else _text_of(datetime.now(UTC))
        ),
        observed_generation=body["metadata"].get("generation"),
    )
    return {"conditions": [made]}


def _declared(body: Body) -> object:
    metadata = body["metadata"]
    return metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp")


def _time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text_of(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status_of(body: Body) -> ScheduledDataValidationStatus:
    """Return the status without fields of a later version; empty if it cannot be read."""
    try:
        told = without_unknown(ScheduledDataValidationStatus, body.get("status") or {}).body
        return ScheduledDataValidationStatus.model_validate(told)
    except pydantic.ValidationError:
        return ScheduledDataValidationStatus()
