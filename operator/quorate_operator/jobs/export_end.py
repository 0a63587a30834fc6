"""Judges the end of a Job that exports or imports: what its pods told, or why there is nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from quorate.wire.exports.export_result import ExportResult, RunOutcome, decode_export_result
from quorate_operator.jobs.backup_job import BACKUP
from quorate_operator.jobs.job_end import result_of_job, told

Json = Mapping[str, Any]


def export_result(
    job: Json, pods: Sequence[Json], container: str, not_started: str = ""
) -> ExportResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    What any pod has completed is there, whatever another one told, unless that one has read it and
    found it damaged.
    """
    ends = [each for each in told(pods, container, decode_export_result) if each is not None]
    damaged = next((each for each in ends if each.damaged), None)
    if damaged is not None:
        return _with_deleted(damaged, ends)
    found = result_of_job(job, pods, container, decode_export_result, _is_complete, not_started)
    return _with_deleted(unknown(found) if isinstance(found, str) else found, ends)


def backup_result(job: Json, pods: Sequence[Json], not_started: str = "") -> ExportResult:
    """Return the result of a ZoneBackup's Job that has ended.

    That there is no good export is only known if the last pod has found none of its run: one that
    is gone, with its node or evicted, may have exported.  The Job does not count each of those.
    """
    result = export_result(job, pods, BACKUP.component, not_started)
    ended = len(told(pods, BACKUP.component, decode_export_result))
    failed = int((job.get("status") or {}).get("failed") or 0)
    if result.outcome is not RunOutcome.FAILED or result.damaged:
        return result
    if result.absent and failed <= ended:  # else one that is gone may have been the last
        return result
    reason = f"another pod may have made one; one said: {result.reason}"
    return msgspec.structs.replace(result, outcome=RunOutcome.UNKNOWN, reason=reason)


def _with_deleted(result: ExportResult, ends: Sequence[ExportResult]) -> ExportResult:
    """Return the result with what has become of older exports, which each pod may have deleted."""
    deleted = dict.fromkeys(folder for each in ends for folder in each.deleted)
    kept = dict.fromkeys(folder for each in ends for folder in each.kept)
    halves = dict.fromkeys(folder for each in ends for folder in each.half_deleted)
    return msgspec.structs.replace(
        result,
        deleted=tuple(deleted),
        kept=tuple(each for each in kept if each not in deleted),
        half_deleted=tuple(each for each in halves if each not in deleted),
        undeleted=ends[-1].undeleted if ends else "",
    )


def _is_complete(result: ExportResult) -> bool:
    return result.outcome is RunOutcome.COMPLETE


def unknown(reason: str) -> ExportResult:
    """Return the result of a run that has told none."""
    return ExportResult(RunOutcome.UNKNOWN, reason=reason)
