"""The custom resource ZoneBackup: one run that exports a zone and reads the export back."""

from typing import ClassVar

from pydantic import Field

from quorate.wire.exports.export_run import EXPORT_COLUMNS, ExportRunStatus
from quorate.wire.jobs.export_place import EncryptionKeyRef, ExportPlace
from quorate.wire.jobs.job_run import DividedRun, run_once_rule
from quorate.wire.schema.resource import Integer, Resource, Rule, Text, name_rule


class BackupRun(DividedRun):
    """The zone that is exported, and where to."""

    destination: ExportPlace
    """The place of the export: empty, or new."""
    encryption_key_secret_ref: EncryptionKeyRef | None = None
    """The key that encrypts the export.  Absent: it is in the clear."""


class ZoneBackupSpec(BackupRun):
    """One export of a zone, while clients write; it is run once."""

    rules: ClassVar[tuple[Rule, ...]] = (*BackupRun.rules, run_once_rule("ZoneBackup"))


class ZoneBackupStatus(ExportRunStatus):
    """The result of the run.  Complete: the export is there, and was read back.  Failed: it is not,
    or it is not as it was written.  Unknown: the pod has told nothing, so the export may be there.
    """

    zone_uid: Text = ""
    """The id of the zone's data: that of another Zone of the same name has another one."""
    deleted: list[Text] = Field(default_factory=list)
    """Folders of older exports of its schedule that its pod has deleted."""
    kept: list[Text] = Field(default_factory=list)
    """Folders of older exports that were to be deleted and are still there, or a part of them."""
    half_deleted: list[Text] = Field(default_factory=list)
    """Of these, those whose manifest.json is deleted, so that they are no exports any more."""
    base: Text = ""
    """The id of the earlier export from which rows were taken; empty: of none."""
    partitions_from_base: Integer | None = None
    """Partitions that are made of that export and of the updates since.  Absent: no earlier export
    was given."""
    partitions_read_whole: Integer | None = None
    """Partitions whose rows were all read of the agents although an earlier export was given."""
    undeleted: Text = ""
    """Why older exports of its schedule that were to be deleted are still there."""


class ZoneBackup(Resource):
    """One run that exports a zone to a volume or a bucket and reads the export back, in a Job."""

    plural = "zonebackups"
    short_name = "zb"
    has_status = True
    printer_columns = EXPORT_COLUMNS
    rules = (name_rule("ZoneBackup"),)

    spec: ZoneBackupSpec
    status: ZoneBackupStatus = Field(default_factory=ZoneBackupStatus)
