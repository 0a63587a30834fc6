"""All objects of one namespace of which each is a run, or a schedule of runs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import Counter

from quorate.wire.jobs.known_history import history_of
from quorate.wire.jobs.zone_history import ZoneHistory
from quorate.wire.zone import ZoneStatus
from quorate.wire.zone_day import ZoneDay
from quorate_operator.declared.declared_zone import DeclaredZone
from quorate_operator.declared.kinds import Kind
from quorate_operator.declared.runs.backups import Backups
from quorate_operator.declared.runs.job_runs import JobRuns
from quorate_operator.declared.runs.last_exports import ExportTimes, is_before, with_last_exports
from quorate_operator.declared.runs.recoveries import LedZone, Recoveries
from quorate_operator.declared.runs.repairs import Repairs
from quorate_operator.declared.runs.restores import Restores
from quorate_operator.declared.runs.schedules.backup_schedules import BackupSchedules
from quorate_operator.declared.runs.schedules.schedules import Schedules
from quorate_operator.declared.runs.schedules.validation_schedules import ValidationSchedules
from quorate_operator.declared.runs.validations import Validations
from quorate_operator.declared.runs.writers import Writers
from quorate_operator.declared.runs.zone_events import ZoneEvents
from quorate_operator.kube.api import KubeApi
from quorate_operator.process.clock import rfc3339
from quorate_operator.process.run_counts import RunCounts


class Runs:
    """The runs of one namespace, by kind.

    `find`: returns the led zone of that name, or a sentence on what is waited for.  `image`: of the
    pods; empty: none can be made.  `on_result`: called with the name of a zone whose verdict,
    last backup or last restore is new.  `history`: returns what is known of the past of the zone
    of that name.  `ended`: the metric of runs that have ended.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_result: Callable[[str], None],
        history: Callable[[str], ZoneHistory | None],
        ended: Counter,
    ) -> None:
        self.events = ZoneEvents(find)
        self.validations = Validations(
            api,
            namespace,
            find,
            image,
            self._on_end(Kind.VALIDATION),
            self.events,
            on_result,
            history,
        )
        writers = Writers(api, namespace, find)
        self.backups = Backups(
            api,
            namespace,
            find,
            image,
            self._on_end(Kind.BACKUP),
            self.events,
            writers,
            on_result,
            lambda *asked: self.backup_schedules.to_delete(*asked),
            lambda *asked: self.backup_schedules.base_of(*asked),
        )
        self.restores = Restores(
            api, namespace, find, image, self._on_end(Kind.RESTORE), self.events, writers, on_result
        )
        self.backup_schedules = BackupSchedules(
            api, namespace, self.backups.runs, self.backups.last_seen, self.events
        )
        self._of: dict[Kind, Recoveries | JobRuns[Any] | Schedules[Any]] = {
            Kind.RECOVERY: Recoveries(api, namespace, find),
            Kind.VALIDATION: self.validations,
            Kind.SCHEDULE: ValidationSchedules(api, namespace, self.validations),
            Kind.BACKUP: self.backups,
            Kind.BACKUP_SCHEDULE: self.backup_schedules,
            Kind.RESTORE: self.restores,
            Kind.REPAIR: Repairs(
                api, namespace, find, image, self._on_end(Kind.REPAIR), self.events, writers
            ),
        }
        self._uids: dict[tuple[Kind, str], str] = {}
        outcomes: dict[str, Iterable[str]] = {
            kind: each.reasons for kind, each in self._of.items() if isinstance(each, JobRuns)
        }
        self.counts = RunCounts(ended, namespace, outcomes)

    def _on_end(self, kind: Kind) -> Callable[[str, str], None]:
        return lambda zone, outcome: self.counts.run_ended(kind, zone, outcome)

    def completed(self, zone: DeclaredZone, status: ZoneStatus) -> ZoneStatus:
        """Return a Zone's status with what its runs have found."""
        status = self.validations.completed(zone, status)
        return with_last_exports(zone, status, self.backups.last, self.restores.last)

    def export_times(self, zone: DeclaredZone) -> ExportTimes:
        """Return when a Zone was backed up and restored last, and when it was to be."""
        told = with_last_exports(zone, ZoneStatus(), self.backups.last, self.restores.last)
        due = self.backup_schedules.due(zone.name)
        return ExportTimes(
            told.last_backup.time if told.last_backup is not None else "",
            told.last_restore.time if told.last_restore is not None else "",
            "" if is_before(due, zone) else due,
            *self.backups.last.figures(zone.name, told.last_backup),
        )

    def history(self, zone: DeclaredZone, day: ZoneDay | None) -> ZoneHistory:
        """Return what is known of a Zone's past.  `day`: its last 24 hours."""
        told = with_last_exports(zone, ZoneStatus(), self.backups.last, self.restores.last)
        told = told.model_copy(update={"last_day": day})
        return history_of(told, rfc3339(), self.backup_schedules.is_scheduled(zone.name))

    async def clear_up(self, zone: str) -> None:
        """Remove what a deleted run has left at the Zone of this name.  Raises the API's errors."""
        await self.restores.clear_up(zone)

    def __bool__(self) -> bool:
        """Whether any object is still to be run, or is a schedule."""
        return any(self._of.values())

    def seen(self, kind: Kind, body: Mapping[str, Any]) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        name, uid = body["metadata"]["name"], str(body["metadata"]["uid"])
        # Its predecessor's deletion may be told later, or never.
        has_left = self.is_another(kind, name, uid) and self.gone(kind, name)
        self._uids[kind, name] = uid
        return self._of[kind].seen(body) or has_left

    def is_another(self, kind: Kind, name: str, uid: str) -> bool:
        """Return whether the object of this name that was seen last is not the one of this uid."""
        return self._uids.get((kind, name), uid) != uid

    def gone(self, kind: Kind, name: str) -> bool:
        """Forget an object that was deleted; return whether there is something to clear up."""
        self._uids.pop((kind, name), None)
        self._of[kind].gone(name)
        return kind is Kind.RESTORE and self.restores.has_left(name)

    async def reconcile(self, kind: Kind, name: str) -> float | None:
        """Run an object, if it can be; return the seconds until it is to be looked at again.

        None: there is nothing more to do.  Raises the API's errors.
        """
        return await self._of[kind].reconcile(name)
