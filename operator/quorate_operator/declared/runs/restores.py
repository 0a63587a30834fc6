"""The ZoneRestores of one namespace: how each is run, in two Jobs, and its result in a sentence.

    Waiting --check made--> Running --it may begin--> noted at the Zone --import made--> Running
                                    --it may not--> Finished: Failed, nothing is written
    Running --import complete--> the note is removed --> Finished: Complete
            --another end--> Finished: Failed, Unknown; the note stays: the zone is not Available

Each step can be done again by another operator: the note has the object's uid, the Jobs its name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from quorate.protocol.messages.events import Reason
from quorate.wire.jobs.export_result import ExportResult, RunOutcome
from quorate.wire.jobs.zone_restore import ZoneRestore, ZoneRestoreStatus
from quorate.wire.zone import RESTORING, Restoring, Zone
from quorate_operator.declared.runs.finished_export import finished_export
from quorate_operator.declared.runs.job_runs import JobRefused, JobRuns, zone_of
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.jobs.export_end import export_result, unknown
from quorate_operator.jobs.job import Copies, Work
from quorate_operator.jobs.restore_job import (
    CHECK,
    CONTINUES,
    RESTORE,
    check_work,
    import_work,
    note_of,
)
from quorate_operator.kube.api import KubeApi, path_of

Body = Mapping[str, Any]

_REASONS = {
    RunOutcome.COMPLETE: (Reason.IMPORTED, "Normal"),
    RunOutcome.FAILED: (Reason.IMPORT_FAILED, "Warning"),
    RunOutcome.UNKNOWN: (Reason.IMPORT_UNKNOWN, "Warning"),
}


class Restores(JobRuns[ZoneRestoreStatus]):
    """The ZoneRestores of one namespace."""

    kind = ZoneRestore
    work = CHECK

    def __init__(
        self, api: KubeApi, namespace: str, find: Callable[[str], LedZone | str], image: str
    ) -> None:
        super().__init__(ZoneRestoreStatus, api, namespace, find, image)

    def _work_of(self, run: ZoneRestore, copies: Copies, led: LedZone) -> Work:
        begun, zone = _note_at(led), run.spec.zone_ref.name
        if begun is not None and begun.place != run.spec.source.text:
            raise JobRefused(
                f"Zone {zone}: an import of {begun.place} has begun and is not done: create a"
                " ZoneRestore of that one until it is, or delete the zone",
                is_final=True,
            )
        return check_work(run, copies, begun)

    def _begun(self, run: ZoneRestore) -> dict[str, object]:
        return {"place": run.spec.source.text}

    def _doing(self, status: ZoneRestoreStatus) -> str:
        if _is_check(status):
            return "its pod looks at the export and the zone"
        return "its pod imports the rows, then compares the zone with the export"

    async def _ended(
        self, body: Body, status: ZoneRestoreStatus, job: Body, pods: list[Body], not_started: str
    ) -> ZoneRestoreStatus:
        result = export_result(job, pods, RESTORE.component, not_started)
        if not _is_check(status):
            return await self._imported(body, status, result)
        if result.outcome is not RunOutcome.COMPLETE:
            return _not_begun(body, status, result.reason)
        led = self._find(zone_of(body))
        copies = self._copies(led) if isinstance(led, LedZone) else None
        if not isinstance(led, LedZone) or copies is None:
            return status  # until the zone is led again
        restore = ZoneRestore.parse_stored(body)
        begun = _note_at(led)
        mine = note_of(restore, result.export_id, begun)
        if begun != mine:
            if begun is not None and (begun.place, begun.export_id or mine.export_id) != mine[:2]:
                other = f"an import of another export, of {begun.place}, has begun meanwhile"
                return _not_begun(body, status, other)
            if begun is None and _continues(job):
                return _not_begun(body, status, "another import has ended well meanwhile")
            await self._note_import(led, mine.text)
        try:
            waits = await self._make(restore, led, import_work(restore, copies, mine))
        except JobRefused as refused:
            return _part(body, status, ExportResult(RunOutcome.FAILED, reason=str(refused)))
        if waits:
            return status.model_copy(update={"message": waits})
        return status.model_copy(
            update={
                "job": RESTORE.job_name(restore.metadata.name),
                "export_id": result.export_id,
                "percent": None,
                "message": "its pod is being started",
            }
        )

    async def _imported(
        self, body: Body, status: ZoneRestoreStatus, result: ExportResult
    ) -> ZoneRestoreStatus:
        """Return the status after the import; remove the note if the zone is whole."""
        if result.outcome is not RunOutcome.COMPLETE:
            return _part(body, status, result)
        led = self._find(zone_of(body))
        if not isinstance(led, LedZone):
            return status  # until the zone is led again
        begun = _note_at(led)
        if begun is not None:
            if begun != note_of(ZoneRestore.parse_stored(body), status.export_id, begun):
                reason = f"another import, of {begun.place}, has begun meanwhile"
                return _part(body, status, ExportResult(RunOutcome.FAILED, reason=reason))
            await self._note_import(led, None)
        message = f"the zone has all rows of {status.place}: {result.rows} were compared"
        return finished_export(status, body, result, message)

    async def _note_import(self, led: LedZone, text: str | None) -> None:
        """Note the import at the Zone, or remove the note, if the object is as it was seen."""
        metadata = led.body["metadata"]
        path = path_of(self._namespace, Zone.plural, metadata["name"])
        await self._api.annotate(path, {RESTORING: text}, metadata["resourceVersion"])

    def _lost(self, body: Body, status: ZoneRestoreStatus, why: str) -> ZoneRestoreStatus:
        if _is_check(status):
            return _not_begun(body, status, why)
        return _part(body, status, unknown(why))

    def _reason(self, status: ZoneRestoreStatus) -> tuple[Reason, str]:
        return _REASONS[status.outcome or RunOutcome.UNKNOWN]


def _note_at(led: LedZone) -> Restoring | None:
    """Return the import that has begun at the Zone, as the watch shows it."""
    return Restoring.parse((led.body["metadata"].get("annotations") or {}).get(RESTORING, ""))


def _is_check(status: ZoneRestoreStatus) -> bool:
    return status.job.endswith(f"-{CHECK.suffix}")


def _continues(job: Body) -> bool:
    """Return whether the check was of an import that had begun."""
    [container] = job["spec"]["template"]["spec"]["containers"]
    return CONTINUES in container["args"]


def _not_begun(body: Body, status: ZoneRestoreStatus, reason: str) -> ZoneRestoreStatus:
    message = f"nothing is imported from {status.place}: {reason}"
    result = ExportResult(RunOutcome.FAILED, reason=reason)
    return finished_export(status, body, result, message)


def _part(body: Body, status: ZoneRestoreStatus, result: ExportResult) -> ZoneRestoreStatus:
    message = (
        f"the zone may have only a part of {status.place}, and is not Available: {result.reason};"
        " create another ZoneRestore of the same source, and it goes on, or delete the zone"
    )
    return finished_export(status, body, result, message)
