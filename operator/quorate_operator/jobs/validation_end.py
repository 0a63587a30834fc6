"""Judges the end of a validation's Job: the result that its pods told, or why there is none."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.wire.jobs.validation_result import (
    ValidationResult,
    ValidationVerdict,
    decode_result,
)
from quorate_operator.jobs.job_end import result_of_job
from quorate_operator.jobs.validation_job import VALIDATION

Json = Mapping[str, Any]


def result_of(job: Json, pods: Sequence[Json], not_started: str = "") -> ValidationResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    A difference that any pod has proven outweighs what the last one says.
    """
    found = result_of_job(
        job,
        pods,
        VALIDATION.component,
        decode_result,
        _is_proven,
        not_started,
        ", or a lower level",
    )
    return unproven(found) if isinstance(found, str) else found


def _is_proven(result: ValidationResult) -> bool:
    return result.verdict is ValidationVerdict.DIFFER


def unproven(reason: str) -> ValidationResult:
    """Return the result of a run that has told none."""
    return ValidationResult(ValidationVerdict.COULD_NOT_TELL, reasons=(reason,))
