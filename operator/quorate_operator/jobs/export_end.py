"""Judges the end of a Job that exports or imports: what its pods told, or why there is nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.wire.jobs.export_result import ExportResult, RunOutcome, decode_export_result
from quorate_operator.jobs.job_end import result_of_job, told

Json = Mapping[str, Any]


def export_result(
    job: Json, pods: Sequence[Json], container: str, not_started: str = ""
) -> ExportResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    What any pod has completed is there, whatever another one told, unless that one has read it and
    found it damaged.
    """
    for each in told(pods, container, decode_export_result):
        if each is not None and each.damaged:
            return each
    found = result_of_job(job, pods, container, decode_export_result, _is_complete, not_started)
    return unknown(found) if isinstance(found, str) else found


def _is_complete(result: ExportResult) -> bool:
    return result.outcome is RunOutcome.COMPLETE


def unknown(reason: str) -> ExportResult:
    """Return the result of a run that has told none."""
    return ExportResult(RunOutcome.UNKNOWN, reason=reason)
