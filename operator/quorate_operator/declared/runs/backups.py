"""The ZoneBackups of one namespace: how each is run, and its result in a sentence."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from quorate.protocol.messages.events import Reason
from quorate.wire.exports.export_result import ExportResult, RunOutcome, made_of_base
from quorate.wire.exports.scheduled_zone_backup import ScheduledZoneBackup
from quorate.wire.exports.zone_backup import ZoneBackup, ZoneBackupStatus
from quorate.wire.jobs.job_run import RunPhase
from quorate_operator.declared.runs.exports_in_use import places_in_use
from quorate_operator.declared.runs.finished_export import finished_export
from quorate_operator.declared.runs.job_runs import JobRuns, zone_of
from quorate_operator.declared.runs.last_exports import LastExports
from quorate_operator.declared.runs.noted_import import prove_note, sentence
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.scheduled_run import ScheduledRun, schedule_of
from quorate_operator.declared.runs.writers import Writers, arguments_of
from quorate_operator.declared.runs.zone_events import RunEvent, ZoneEvents
from quorate_operator.jobs.backup_job import BACKUP, ZONE_UID, backup_work
from quorate_operator.jobs.export_end import backup_result, unknown
from quorate_operator.jobs.job import Copies, JobOwner, Work
from quorate_operator.kube.api import KubeApi

Body = Mapping[str, Any]
ToDelete = Callable[[str, ZoneBackup, str, Collection[str]], list[str]]
BaseOf = Callable[[str, ZoneBackup, str], str]

GONE_MAX = 1000
"""Objects that were deleted and are remembered as they were."""

_REASONS = {
    RunOutcome.COMPLETE: (Reason.EXPORTED, "Normal"),
    RunOutcome.FAILED: (Reason.EXPORT_FAILED, "Warning"),
    RunOutcome.UNKNOWN: (Reason.EXPORT_UNKNOWN, "Warning"),
}

_AGAIN = "with the same place if that has no manifest.json, else with another one"
"""Files without a manifest are deleted by the next export into the same place."""


class Backups(JobRuns[ZoneBackupStatus]):
    """The ZoneBackups of one namespace.

    `writers`: the runs beside which none is to run.  `on_result`: called with the name of a zone
    that has another verified backup.  `to_delete`: returns the folders that the pod of a ZoneBackup
    deletes once its own export is verified; it gets the uid of the schedule, the ZoneBackup, the id
    of the zone's data and the places that are read.  `base_of`: returns the folder of the export
    from which the pod takes rows; empty: of none.
    """

    kind = ZoneBackup
    work = BACKUP
    reasons = _REASONS
    asks_all = True

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_end: Callable[[str, str], None],
        events: ZoneEvents,
        writers: Writers,
        on_result: Callable[[str], None],
        to_delete: ToDelete = lambda schedule, run, uid, in_use: [],
        base_of: BaseOf = lambda schedule, run, uid: "",
    ) -> None:
        super().__init__(ZoneBackupStatus, api, namespace, find, image, on_end, events)
        self._writers = writers
        self.last = LastExports(on_result, begins=True)
        self._to_delete = to_delete
        self._base_of = base_of
        self._runs: dict[str, ScheduledRun] = {}
        self._gone: dict[str, ScheduledRun] = {}
        """Those that were deleted, the first one first."""
        self._in_use: Collection[str] = ()

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its Job goes with it, its export stays."""
        super().gone(name)
        run = self._runs.pop(name, None)
        if run is not None:
            self._gone[name] = run
            while len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]

    def last_seen(self, name: str) -> ScheduledRun | None:
        """Return the run of a schedule of this name as it was seen last, also if it is gone."""
        return self._runs.get(name) or self._gone.get(name)

    def runs(self, schedule: str) -> list[ScheduledRun]:
        """Return the runs that are there of the ScheduledZoneBackup with this uid, the oldest
        first."""
        return sorted(
            (each for each in self._runs.values() if each.schedule == schedule),
            key=lambda each: (each.created, each.name),
        )

    def _note(self, body: Body, status: ZoneBackupStatus) -> None:
        """Keep the last verified one of each zone, and those that a schedule has created."""
        name, schedule = body["metadata"]["name"], _schedule_of(body)
        self.last.note(name, zone_of(body), status)
        if not schedule:
            return
        outcome: str = status.outcome or ""
        if status.phase is RunPhase.REFUSED:
            outcome = status.phase
        created = str(body["metadata"].get("creationTimestamp") or "")
        is_good = status.outcome is RunOutcome.COMPLETE
        self._runs[name] = ScheduledRun(created, name, schedule, str(outcome), is_good, status)

    async def _begin(self, body: Body, run: JobOwner, led: LedZone) -> Body | str:
        """Make the Job, unless rows are being imported: an export would have a part of them."""
        async with self._writers.beginning:
            begun = await prove_note(self._api, self._namespace, led)
            if begun is not None:
                return sentence(run.spec.zone_ref.name, begun)
            self._in_use = await places_in_use(self._api, self._namespace, self._find)
            return await super()._begin(body, run, led)

    def _work_of(self, body: Body, run: ZoneBackup, copies: Copies, led: LedZone) -> Work:
        schedule = _schedule_of(body)
        if not schedule:
            return backup_work(run, copies)
        old = self._to_delete(schedule, run, copies.uid, self._in_use)
        return backup_work(run, copies, schedule, old, self._base_of(schedule, run, copies.uid))

    def _doing(self, status: ZoneBackupStatus) -> str:
        return "its pod exports the zone, then reads the export back"

    def _begun(self, run: ZoneBackup, led: LedZone, job: Body) -> dict[str, object]:
        said = arguments_of(job["spec"]["template"], BACKUP)
        of = [each.removeprefix(ZONE_UID) for each in said if each.startswith(ZONE_UID)]
        return {"place": run.spec.destination.text, "zone_uid": of[0] if of else led.uid}

    async def _ended(
        self, body: Body, status: ZoneBackupStatus, job: Body, pods: list[Body], not_started: str
    ) -> ZoneBackupStatus:
        result = backup_result(job, pods, not_started)
        if result.outcome is not RunOutcome.COMPLETE:
            return _finished(status, body, result)
        zone = zone_of(body)
        led, begun = self._find(zone), None
        if isinstance(led, LedZone):
            begun = await prove_note(self._api, self._namespace, led)
        elif not await self._writers.is_gone(led, zone):
            return status.model_copy(update={"message": led})
        beside = await self._writers.import_beside(zone, job)
        if not beside and begun is not None and not await self._writers.only_waits(begun):
            # A person has noted it, or an earlier operator: ours waits for ZoneBackups.
            beside = sentence(zone, begun)
        if beside:
            reason = f"while it ran, {beside}: it may have a part of the rows"
            result = msgspec.structs.replace(result, outcome=RunOutcome.FAILED, reason=reason)
        elif self._is_replaced(led, status):
            reason = f"Zone {zone} was replaced by another one meanwhile: it may have rows of that"
            result = msgspec.structs.replace(result, outcome=RunOutcome.FAILED, reason=reason)
        return _finished(status, body, result)

    def _is_replaced(self, led: LedZone | str, status: ZoneBackupStatus) -> bool:
        """Return whether the zone has other data than when the run began."""
        return isinstance(led, LedZone) and status.zone_uid not in ("", led.uid)

    async def _lost(self, body: Body, status: ZoneBackupStatus, why: str) -> ZoneBackupStatus:
        return _finished(status, body, unknown(why))

    def _outcome(self, status: ZoneBackupStatus) -> RunOutcome:
        return status.outcome or RunOutcome.UNKNOWN

    def _more_events(self, status: ZoneBackupStatus) -> list[RunEvent]:
        if not status.undeleted:
            return []
        return [RunEvent(Reason.EXPORTS_NOT_DELETED, "Warning", status.undeleted)]


def _finished(status: ZoneBackupStatus, body: Body, result: ExportResult) -> ZoneBackupStatus:
    done = finished_export(status, body, result, _sentence(status.place, result))
    return done.model_copy(
        update={
            "deleted": list(result.deleted),
            "kept": list(result.kept),
            "half_deleted": list(result.half_deleted),
            "undeleted": result.undeleted,
            "base": result.base,
            "partitions_from_base": result.partitions_from_base,
            "partitions_read_whole": result.partitions_read_whole,
        }
    )


def _schedule_of(body: Body) -> str:
    """Return the uid of the ScheduledZoneBackup that created the object; empty: none has."""
    return schedule_of(body, ScheduledZoneBackup.kind_name())


def _sentence(place: str, result: ExportResult) -> str:
    """Return the result in a sentence, with what to do next."""
    if result.outcome is RunOutcome.COMPLETE:
        old = len(result.deleted)
        more = (
            f"; {old} older export{'s' if old > 1 else ''} of the schedule deleted" if old else ""
        )
        key = result.encryption_key_id
        how = f", encrypted with key {key}," if key else ""
        made = f"{result.rows} rows are exported to {place}{how} and were read back"
        return f"{made}{_of_base(result)}{more}"
    if result.outcome is RunOutcome.FAILED:
        return (
            f"there is no good export in {place}: {result.reason}; create another ZoneBackup,"
            f" {_AGAIN}"
        )
    return (
        f"whether there is an export in {place} is not known: {result.reason}; read it back by"
        f" `quorate verify`, or create another ZoneBackup, {_AGAIN}"
    )


def _of_base(result: ExportResult) -> str:
    """Return what came from an earlier export, in words; empty: none was given."""
    taken, whole = result.partitions_from_base, result.partitions_read_whole
    if taken is None or whole is None:
        return ""
    return f"; {made_of_base('an earlier export', taken, whole, result.read_whole)}"
