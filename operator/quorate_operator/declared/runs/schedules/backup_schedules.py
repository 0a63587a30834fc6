"""The ScheduledZoneBackups of one namespace, and the lists of their exports."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from quorate.facts.errors import WireError
from quorate.protocol.messages.events import Reason
from quorate.wire.exports.export_result import RunOutcome
from quorate.wire.exports.scheduled_zone_backup import (
    ListedBackup,
    ScheduledZoneBackup,
    ScheduledZoneBackupSpec,
    ScheduledZoneBackupStatus,
    backed_up,
)
from quorate.wire.exports.zone_backup import BackupRun, ZoneBackup, ZoneBackupStatus
from quorate.wire.jobs.job_run import RunPhase
from quorate_operator.declared.runs.last_exports import is_time, time_of
from quorate_operator.declared.runs.scheduled_run import ScheduledRun, due_of
from quorate_operator.declared.runs.schedules.cron import BadSchedule, last_but_one
from quorate_operator.declared.runs.schedules.retention import (
    REMOVED,
    UNSEEN,
    Deletions,
    folder_name,
    folder_of,
    listed_anew,
    newest_verified,
    to_delete,
)
from quorate_operator.declared.runs.schedules.schedules import SUSPENDED, Schedules, text_of
from quorate_operator.declared.runs.zone_events import RunEvent, ZoneEvents
from quorate_operator.kube.api import KubeApi


class _PlaceIn(NamedTuple):
    """A run that begins, and the exports of its schedule.

    `new`: its own export, as it will be.  `created`: when the run was, by the API server.
    """

    spec: ScheduledZoneBackupSpec
    listed: list[ListedBackup]
    new: ListedBackup
    created: datetime


class BackupSchedules(Schedules[ScheduledZoneBackupStatus]):
    """The ScheduledZoneBackups of one namespace.

    `runs`: returns the ZoneBackups that are there of the schedule with this uid, the oldest first.
    `last_seen`: returns a ZoneBackup as it was seen last, also if it is gone.  `events`: of the
    namespace.
    """

    kind = ScheduledZoneBackup
    run_kind = ZoneBackup

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        runs: Callable[[str], list[ScheduledRun]],
        last_seen: Callable[[str], ScheduledRun | None],
        events: ZoneEvents,
    ) -> None:
        super().__init__(ScheduledZoneBackupStatus, api, namespace)
        self._due: dict[str, tuple[str, datetime]] = {}
        """By name of a schedule that is not suspended: its zone, and its last but one time."""
        self._suspended: dict[str, datetime] = {}
        """By name: the last time at which a schedule was suspended, as far as this process knows.
        Its status tells that only until the next time."""
        self._runs_of = runs
        self._last_seen = last_seen
        self._events = events

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its runs go with it, their exports stay."""
        super().gone(name)
        self._due.pop(name, None)
        self._suspended.pop(name, None)

    async def reconcile(self, name: str, now: datetime | None = None) -> float | None:
        """Create what is due, remove what is too old; return the seconds until the next look."""
        now = now or datetime.now(UTC)
        self._note_due(name, now)
        return await super().reconcile(name, now)

    def due(self, zone: str) -> str:
        """Return the last but one time at which a schedule was to back the zone up; of several
        schedules the latest; empty: there is none.

        A verified backup that began later is there, unless two runs in succession were not made or
        have failed.  Of a schedule that an earlier version could read and this one cannot it is the
        first time at which it did not run.
        """
        now = datetime.now(UTC)
        found = [time for of, time in self._due.values() if of == zone and time <= now]
        return text_of(max(found)) if found else ""

    def is_scheduled(self, zone: str) -> bool:
        """Return whether a schedule that is not suspended makes backups of the zone."""
        return zone in backed_up(self._bodies.values())

    def _note_due(self, name: str, now: datetime) -> None:
        self._due.pop(name, None)
        body = self._bodies.get(name)
        if body is not None:
            last = self._status(body)
            if last.message.endswith(SUSPENDED) and is_time(last.last_schedule_time):
                self._suspended[name] = time_of(last.last_schedule_time)
        try:
            schedule = ScheduledZoneBackup.parse_stored(body) if body is not None else None
            if schedule is None or schedule.spec.suspend:
                return
            due = last_but_one(schedule.spec.schedule, schedule.spec.time_zone, now)
        except (WireError, BadSchedule):
            self._note_missed(name)
            return
        created = schedule.metadata.creation_timestamp
        if due is None or not created or due < datetime.fromisoformat(created):
            return
        if name not in self._suspended or due > self._suspended[name]:
            self._due[name] = schedule.spec.template.spec.zone_ref.name, due

    def _note_missed(self, name: str) -> None:
        """Note when one that cannot be read (any more) was to run next, as its status tells."""
        body = self._bodies[name]
        following = self._status(body).next_schedule_time
        try:
            zone = str(body["spec"]["template"]["spec"]["zoneRef"]["name"])
        except (KeyError, TypeError):
            return
        if is_time(following):
            self._due[name] = zone, time_of(following)

    def to_delete(
        self, schedule: str, run: ZoneBackup, zone_uid: str, in_use: Collection[str] = ()
    ) -> list[str]:
        """Return the folders that the pod of `run` deletes once its own export is verified.

        `schedule`: the uid of its ScheduledZoneBackup.  `in_use`: places that are read.  Empty
        where the schedule is not known yet, or is suspended.
        """
        found = self._place_in(schedule, run, zone_uid)
        if found is None or found.spec.suspend:
            return []
        old = to_delete(found.listed, found.new, found.spec.retention, found.created, in_use)
        return [folder_of(each) for each in old]

    def base_of(self, schedule: str, run: ZoneBackup, zone_uid: str) -> str:
        """Return the folder of the export from which the pod of `run` takes rows; empty: of none.

        `schedule`: the uid of its ScheduledZoneBackup.
        """
        found = self._place_in(schedule, run, zone_uid)
        if found is None or not found.spec.incremental:
            return ""
        base = newest_verified(found.listed, found.new, found.created)
        return folder_of(base) if base is not None else ""

    def _place_in(self, schedule: str, run: ZoneBackup, zone_uid: str) -> _PlaceIn | None:
        """Return a run among the exports of its schedule; None: the schedule is not known yet."""
        bodies = self._bodies.values()
        body = next((each for each in bodies if each["metadata"]["uid"] == schedule), None)
        due, created = due_of(run.metadata.name), run.metadata.creation_timestamp
        if body is None or due is None or not created:
            return None
        try:
            spec = ScheduledZoneBackup.parse_stored(body).spec
        except WireError:
            return None
        new = ListedBackup(
            run=run.metadata.name,
            place=run.spec.destination.text,
            time=text_of(due),
            outcome=RunOutcome.COMPLETE.value,
            zone_uid=zone_uid,
        )
        listed = _listed(self._status(body), self._runs_of(schedule), [])
        return _PlaceIn(spec, listed, new, datetime.fromisoformat(created))

    def _runs(self, schedule: str) -> list[ScheduledRun]:
        return self._runs_of(schedule)

    def _spec_of_run(self, schedule: ScheduledZoneBackup, due: datetime) -> BackupRun:
        """Return the spec of the run of this time, with a folder of its own."""
        spec = schedule.spec.template.spec
        destination = spec.destination.inside(folder_name(schedule.metadata.name, due))
        return spec.model_copy(update={"destination": destination})

    def _more(
        self,
        schedule: ScheduledZoneBackup,
        status: ScheduledZoneBackupStatus,
        runs: Sequence[ScheduledRun],
        vanished: Sequence[str],
    ) -> dict[str, Any]:
        removed = [self._vanished(schedule, name) for name in vanished]
        backups = _listed(status, runs, [each for each in removed if each is not None])
        there = [each for each in backups if not each.deleted_by]
        verified = [each.place for each in there if each.outcome == RunOutcome.COMPLETE]
        ended = [each.status.completion_time for each in runs if each.is_good]
        return {
            "backups": backups,
            "last_verified": verified[-1] if verified else "",
            "last_successful_time": max([status.last_successful_time, *ended]),
        }

    def _vanished(self, schedule: ScheduledZoneBackup, name: str) -> ListedBackup | None:
        """Return the export of a ZoneBackup that was deleted, by what was seen of it last."""
        seen, due = self._last_seen(name), due_of(name)
        if seen is not None and seen.schedule != schedule.metadata.uid:
            seen = None
        ended = _listed_run(seen) if seen is not None else None
        if ended is not None or due is None:
            return ended
        return ListedBackup(
            run=name,
            place=self._spec_of_run(schedule, due).destination.text,
            time=text_of(due),
            outcome=REMOVED if seen is not None else UNSEEN,
        )

    def _has_run(self, status: ScheduledZoneBackupStatus, run: str) -> bool:
        return run in [each.run for each in status.backups]

    def _skipped(self, schedule: ScheduledZoneBackup, message: str) -> None:
        about = f"{schedule.kind_name()} {schedule.metadata.name}: {message}"
        series = f"times of {schedule.metadata.uid}"
        skipped = RunEvent(Reason.BACKUP_SKIPPED, "Warning", about, series)
        self._events.tell(schedule.spec.template.spec.zone_ref.name, [skipped])


def _listed(
    status: ScheduledZoneBackupStatus,
    runs: Sequence[ScheduledRun],
    removed: Sequence[ListedBackup],
) -> list[ListedBackup]:
    """Return the exports of a schedule; `removed`: of ZoneBackups that were deleted."""
    finished = [made for each in runs if (made := _listed_run(each)) is not None]
    told = Deletions(
        {folder: each.name for each in runs for folder in _status(each).deleted},
        {folder: each.name for each in runs for folder in _status(each).kept},
        {folder for each in runs for folder in _status(each).half_deleted},
    )
    return listed_anew([*status.backups, *removed], finished, told)


def _status(run: ScheduledRun) -> ZoneBackupStatus:
    status: ZoneBackupStatus = run.status
    return status


def _listed_run(run: ScheduledRun) -> ListedBackup | None:
    """Return the export of a finished run; None: it has none."""
    status: ZoneBackupStatus = run.status
    due = due_of(run.name)
    if status.phase is not RunPhase.FINISHED or due is None:
        return None
    return ListedBackup(
        run=run.name,
        place=status.place,
        time=text_of(due),
        outcome=(status.outcome or RunOutcome.UNKNOWN).value,
        zone_uid=status.zone_uid,
        export_id=status.export_id,
        rows=status.rows,
        bytes=status.bytes,
    )
