"""Judges the end of a Job that exports or imports: what its pods told, or why there is nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.wire.jobs.export_result import ExportResult, RunOutcome, decode_export_result
from quorate_operator.jobs.job_end import told, why_untold

Json = Mapping[str, Any]


def export_result(
    job: Json, pods: Sequence[Json], container: str, not_started: str = ""
) -> ExportResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    What any pod has completed is there, whatever another one told.
    """
    results = told(pods, container, decode_export_result)
    for result in results:
        if result is not None and result.outcome is RunOutcome.COMPLETE:
            return result
    if results and results[-1] is not None:
        return results[-1]
    return unknown(why_untold(job, pods, container, not_started))


def unknown(reason: str) -> ExportResult:
    """Return the result of a run that has told none."""
    return ExportResult(RunOutcome.UNKNOWN, reason=reason)
