"""The custom resource ScheduledZoneBackup: ZoneBackups by a schedule, each in its own folder.

Of the exports that it made it keeps a list in its status; `retention` says which of them the pod of
the next ZoneBackup deletes, once that one is verified.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from quorate.facts.errors import WireError
from quorate.wire.exports.zone_backup import BackupRun
from quorate.wire.jobs.schedule import NAME_LENGTH_MAX, ScheduleSpec, ScheduleStatus
from quorate.wire.managed_agents import Labels
from quorate.wire.schema.resource import Integer, Part, Resource, Rule, Text, name_rule

KEEP_MAX = 500
LISTED_MAX = 600
"""Exports in the status: as many as may be kept, and some that are still to be deleted."""
AGE_MAX_DAYS = 3650
FOLDER_MAX = 400
"""Characters of the place, to which each run adds a folder."""
_PATH = "self.spec.destination.persistentVolumeClaim"
_URL = "self.spec.destination.s3"


class BackupTemplate(Part):
    """The ZoneBackups that are created."""

    labels: Labels = Field(default_factory=dict)
    """Labels of each ZoneBackup, besides the operator's."""
    spec: BackupRun
    """Its spec.  The destination is a place of this schedule alone, in which each ZoneBackup gets a
    folder: NAME-YYYYMMDDTHHMMSSZ, in UTC."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",
            f"(!has({_PATH}) || {_PATH}.path.size() <= {FOLDER_MAX})"
            f" && (!has({_URL}) || {_URL}.url.size() <= {FOLDER_MAX})",
            f"destination: write a path or url of at most {FOLDER_MAX} characters, as each run adds"
            " a folder to it",
            lambda new, _: new.spec.destination.length <= FOLDER_MAX,
        ),
    )


class Retention(Part):
    """The exports of the schedule that are kept, besides that of the run that deletes.  The newest
    one that is verified always is."""

    keep_last: Annotated[Integer, Field(ge=1, le=KEEP_MAX)]
    """The number of verified exports that are kept; older ones are deleted.  The export of the run
    that deletes does not count, so that a place has one more."""
    max_age_days: Annotated[Integer, Field(ge=1, le=AGE_MAX_DAYS)] | None = None
    """Of these, one that is older is deleted, too; in one run never more than remain, and never the
    newest.  Absent: age does not matter."""


class ScheduledZoneBackupSpec(ScheduleSpec):
    """When a zone is exported, where to, and which exports are kept."""

    retention: Retention | None = None
    """Which exports are kept.  Absent: all.  One is deleted only by the pod of a newer ZoneBackup
    of this schedule, after that one has read its own export back; exports that failed or are not
    known to be good go with them, if a newer verified one stays.  While the schedule is suspended
    nothing is deleted."""
    incremental: bool = False
    """Each export takes the rows of the newest verified one of the schedule that is there, and from
    the agents only the updates since.  Every export is whole all the same.  Partitions of which
    that is not possible are read whole."""
    template: BackupTemplate
    """What is created."""


class ListedBackup(Part):
    """An export of the schedule."""

    run: Text
    """The ZoneBackup that made it; the object may be gone."""
    place: Text
    """Its place: CLAIM:FOLDER, or an s3:// URL."""
    time: Text
    """The time in the schedule, RFC 3339."""
    outcome: Text
    """Complete: it was read back.  Failed, Unknown, Refused: as its ZoneBackup ended.  Removed: its
    ZoneBackup was deleted before it ended, or its manifest.json and not all of its files.  Unseen:
    its ZoneBackup was deleted, and it is not known how it ended; it is never deleted."""
    zone_uid: Text = ""
    """The id of the zone's data: that of another Zone of the same name has another one."""
    export_id: Text = ""
    """Its id, as in its manifest.json."""
    rows: Integer | None = None
    """Its rows."""
    bytes: Integer | None = None
    """Bytes of their keys and values."""
    deleted_by: Text = ""
    """The ZoneBackup whose pod has deleted it."""
    undeleted_by: Text = ""
    """The ZoneBackup whose pod was to delete it and could not; others are deleted first."""


class ScheduledZoneBackupStatus(ScheduleStatus):
    """The state of the schedule, and the exports that it made."""

    last_successful_time: Text = ""
    """When the last ZoneBackup ended whose export was read back, RFC 3339."""
    last_verified: Text = ""
    """The place of the newest export that was read back."""
    backups: list[ListedBackup] = Field(default_factory=list, max_length=LISTED_MAX)
    """The exports of the schedule, the oldest first."""


class ScheduledZoneBackup(Resource):
    """ZoneBackups that are created by a schedule, and how many of their exports are kept."""

    plural = "scheduledzonebackups"
    short_name = "szb"
    has_status = True
    printer_columns = (
        ("Zone", "string", ".spec.template.spec.zoneRef.name"),
        ("Schedule", "string", ".spec.schedule"),
        ("Time zone", "string", ".spec.timeZone"),
        ("Suspend", "boolean", ".spec.suspend"),
        ("Last", "date", ".status.lastScheduleTime"),
        ("Successful", "date", ".status.lastSuccessfulTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("ScheduledZoneBackup", NAME_LENGTH_MAX),)

    spec: ScheduledZoneBackupSpec
    status: ScheduledZoneBackupStatus = Field(default_factory=ScheduledZoneBackupStatus)


def backed_up(bodies: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the zones of which schedules make backups: those that are valid, and not suspended."""
    specs = []
    for body in bodies:
        try:
            specs.append(ScheduledZoneBackup.parse_stored(body).spec)
        except WireError:
            continue  # it is told to be invalid, and makes none
    return {each.template.spec.zone_ref.name for each in specs if not each.suspend}
