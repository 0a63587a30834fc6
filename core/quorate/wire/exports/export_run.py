"""The status that a ZoneBackup and a ZoneRestore share: the end of a run with an export."""

from pydantic import Field

from quorate.wire.exports.export_result import RunOutcome
from quorate.wire.jobs.job_run import JobStatus
from quorate.wire.schema.resource import Conditions, Integer, Text

EXPORT_COLUMNS = (
    ("Zone", "string", ".spec.zoneRef.name"),
    ("Phase", "string", ".status.phase"),
    ("Percent", "integer", ".status.percent"),
    ("Outcome", "string", ".status.outcome"),
    ("Rows", "integer", ".status.rows"),
    ("Place", "string", ".status.place"),
    ("Finished", "date", ".status.completionTime"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


class ExportRunStatus(JobStatus):
    """How far a run with an export is, and how it ended."""

    outcome: RunOutcome | None = None
    """Complete: it is done, and was compared.  Failed: it is not done, or not whole.  Unknown: the
    pods have told nothing."""
    place: Text = ""
    """The place of the export: CLAIM:FOLDER, or an s3:// URL."""
    export_id: Text = ""
    """The id of the export, which its manifest.json has."""
    rows: Integer | None = None
    """Rows that were exported, or imported."""
    bytes: Integer | None = None
    """Bytes of their keys and values."""
    digest: Text = ""
    """The digest of these rows: the same in the export and in a zone into which it is imported.
    Empty if the export is encrypted."""
    encryption_key_id: Text = ""
    """The id of the key with which the export is encrypted; empty: it is in the clear."""
    conditions: Conditions = Field(default_factory=list)
    """Finished."""
