"""Judges the end of a validation's Job: the result that its pods told, or why there is none."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.facts.errors import WireError
from quorate.wire.jobs.validation_result import (
    ValidationResult,
    ValidationVerdict,
    decode_result,
)
from quorate.wire.resource import shortened
from quorate_operator.jobs.validation_job import CONTAINER

Json = Mapping[str, Any]


def has_ended(job: Json) -> bool:
    """Return whether the Job is complete or has failed: no pod of it will run any more."""
    return any(_is_true(job, kind) for kind in ("Complete", "Failed"))


def result_of(job: Json, pods: Sequence[Json], not_started: str = "") -> ValidationResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    A difference that any pod has proven outweighs what the last one says.  `not_started`: what kept
    its pod from running when it was last seen, if none ran; a late Job's pods are deleted.
    """
    ends = sorted(filter(None, map(_end_of, pods)), key=lambda end: str(end.get("finishedAt", "")))
    results = [_told(end) for end in ends]
    for result in results:
        if result is not None and result.verdict is ValidationVerdict.DIFFER:
            return result
    if results and results[-1] is not None and not _is_late(job):
        return results[-1]
    return unproven(_why(job, ends, not_started))


def unproven(reason: str) -> ValidationResult:
    """Return the result of a run that has told none."""
    return ValidationResult(ValidationVerdict.COULD_NOT_TELL, reasons=(reason,))


def _why(job: Json, ends: Sequence[Json], not_started: str) -> str:
    """Return why the Job has no result, with the way out."""
    if _is_late(job):
        allowed = job.get("spec", {}).get("activeDeadlineSeconds")
        if not_started:
            return f"within deadlineSeconds ({allowed}) {not_started}"
        return (
            f"it was not done within deadlineSeconds ({allowed}): allow it more, or a lower level"
        )
    if not ends:
        said = _condition(job, "Failed").get("message") or "its pods are gone"
        return f"its Job has no result: {said}"
    last = ends[-1]
    if last.get("reason") == "OOMKilled":
        return "its pod needed more memory than its limit: give it more (resources)"
    lines = str(last.get("message") or "").strip().splitlines()
    said = f": {shortened(lines[-1].strip())}" if lines else ""
    return f"its pod ended with exit code {last.get('exitCode')} and no result{said}"


def _told(end: Json) -> ValidationResult | None:
    try:
        return decode_result(str(end.get("message") or ""))
    except WireError:
        return None


def _end_of(pod: Json) -> Json | None:
    """Return how the pod's container ended; None if it has not."""
    for each in pod.get("status", {}).get("containerStatuses") or ():
        if each.get("name") == CONTAINER:
            ended: Json | None = (each.get("state") or {}).get("terminated")
            return ended
    return None


def _is_late(job: Json) -> bool:
    return _condition(job, "Failed").get("reason") == "DeadlineExceeded"


def _is_true(job: Json, kind: str) -> bool:
    return _condition(job, kind).get("status") == "True"


def _condition(job: Json, kind: str) -> Json:
    found = job.get("status", {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})
