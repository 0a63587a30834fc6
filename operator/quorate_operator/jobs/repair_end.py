"""Judges the end of a repair's Job: what its pods told, or why there is nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from quorate.wire.jobs.repair_result import RepairOutcome, RepairResult, decode_repair_result
from quorate_operator.jobs.job_end import result_of_job, told
from quorate_operator.jobs.repair_job import REPAIR

Json = Mapping[str, Any]


def repair_result(
    job: Json, pods: Sequence[Json], writes: bool, not_started: str = ""
) -> RepairResult:
    """Return the result of a Job that has ended.  `pods`: those of it that are still there.

    All that any pod has done is done, whatever another one told.  That nothing was changed by a
    run that writes is only known if its last pod has found so (`untouched`): of a pod that was lost
    with its node, or evicted, nothing may be left here.
    """
    found = result_of_job(job, pods, REPAIR.component, decode_repair_result, _is_good, not_started)
    if isinstance(found, str):
        return unknown(found)
    if not writes or found.outcome is not RepairOutcome.FAILED:
        return found
    ended = len(told(pods, REPAIR.component, decode_repair_result))
    failed = int((job.get("status") or {}).get("failed") or 0)
    if found.untouched and failed <= ended:  # else one that is gone may have been the last
        return found
    return msgspec.structs.replace(found, outcome=RepairOutcome.UNKNOWN)


def _is_good(result: RepairResult) -> bool:
    return result.outcome.is_good


def unknown(reason: str) -> RepairResult:
    """Return the result of a run that has told none."""
    return RepairResult(RepairOutcome.UNKNOWN, reasons=(reason,))
