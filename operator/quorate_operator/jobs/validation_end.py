"""Judges the end of a validation's Job: the result that its pods told, or why there is none."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.wire.jobs.validation_result import (
    ValidationResult,
    ValidationVerdict,
    decode_result,
)
from quorate_operator.jobs.job_end import is_late, told, why_untold
from quorate_operator.jobs.validation_job import VALIDATION

Json = Mapping[str, Any]


def result_of(job: Json, pods: Sequence[Json], not_started: str = "") -> ValidationResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    A difference that any pod has proven outweighs what the last one says.
    """
    container = VALIDATION.component
    results = told(pods, container, decode_result)
    for result in results:
        if result is not None and result.verdict is ValidationVerdict.DIFFER:
            return result
    if results and results[-1] is not None and not is_late(job):
        return results[-1]
    return unproven(why_untold(job, pods, container, not_started, ", or a lower level"))


def unproven(reason: str) -> ValidationResult:
    """Return the result of a run that has told none."""
    return ValidationResult(ValidationVerdict.COULD_NOT_TELL, reasons=(reason,))
