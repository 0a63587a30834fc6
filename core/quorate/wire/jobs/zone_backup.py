"""The custom resource ZoneBackup: one run that exports a zone and reads the export back."""

from typing import ClassVar

from pydantic import Field

from quorate.wire.jobs.export_place import ExportPlace
from quorate.wire.jobs.export_result import RunOutcome
from quorate.wire.jobs.job_run import JobRun, JobStatus, run_once_rule
from quorate.wire.resource import Conditions, Integer, Resource, Rule, Text, name_rule


class ZoneBackupSpec(JobRun):
    """One export of a zone, while clients write; it is run once."""

    destination: ExportPlace
    """The place of the export: empty, or new."""

    rules: ClassVar[tuple[Rule, ...]] = (run_once_rule("ZoneBackup"),)


class ZoneBackupStatus(JobStatus):
    """The result of the run."""

    outcome: RunOutcome | None = None
    """Complete: the export is there, and was read back.  Failed: it is not, or it is not as it was
    written.  Unknown: the pod has told nothing, so the export may be there."""
    place: Text = ""
    """The place of the export: CLAIM:FOLDER, or an s3:// URL."""
    export_id: Text = ""
    """The id of the export, which its manifest.json has."""
    rows: Integer | None = None
    """Rows in the export."""
    bytes: Integer | None = None
    """Bytes of their keys and values."""
    digest: Text = ""
    """The digest of all rows; a zone into which they are imported has the same."""
    conditions: Conditions = Field(default_factory=list)
    """Finished."""


class ZoneBackup(Resource):
    """One run that exports a zone to a volume or a bucket and reads the export back, in a Job."""

    plural = "zonebackups"
    short_name = "zb"
    has_status = True
    printer_columns = (
        ("Zone", "string", ".spec.zoneRef.name"),
        ("Phase", "string", ".status.phase"),
        ("Percent", "integer", ".status.percent"),
        ("Outcome", "string", ".status.outcome"),
        ("Rows", "integer", ".status.rows"),
        ("Place", "string", ".status.place"),
        ("Finished", "date", ".status.completionTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("ZoneBackup"),)

    spec: ZoneBackupSpec
    status: ZoneBackupStatus = Field(default_factory=ZoneBackupStatus)
