"""The status of a ZoneBackup or ZoneRestore that has ended."""

from collections.abc import Mapping
from typing import Any, TypeVar

from quorate.wire.exports.export_result import ExportResult, RunOutcome
from quorate.wire.exports.export_run import ExportRunStatus
from quorate.wire.jobs.job_run import RunPhase
from quorate_operator import names
from quorate_operator.declared.runs.job_runs import ended_condition
from quorate_operator.process.clock import rfc3339

Status = TypeVar("Status", bound=ExportRunStatus)


def finished_export(
    status: Status, body: Mapping[str, Any], result: ExportResult, message: str
) -> Status:
    """Return the status of a run that has this result; `message`: the same in a sentence."""
    is_there, outcome = result.outcome is RunOutcome.COMPLETE, result.outcome.value
    finished = ended_condition(body, names.CONDITION_FINISHED, "True", outcome, message)
    return status.model_copy(
        update={
            "phase": RunPhase.FINISHED,
            "outcome": result.outcome,
            "message": message,
            "completion_time": rfc3339(),
            "percent": None,
            "export_id": result.export_id or status.export_id,
            "rows": result.rows if is_there else result.rows or None,
            "bytes": result.bytes if is_there else result.bytes or None,
            "digest": result.digest,
            "encryption_key_id": result.encryption_key_id,
            "conditions": [finished],
        }
    )
