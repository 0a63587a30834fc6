"""The custom resource ZoneRestore: one run that imports an export into a zone and compares them."""

from typing import ClassVar

from pydantic import Field

from quorate.wire.exports.export_run import EXPORT_COLUMNS, ExportRunStatus
from quorate.wire.jobs.export_place import EncryptionKeyRef, ExportPlace
from quorate.wire.jobs.job_run import ReadingRun, run_once_rule
from quorate.wire.schema.resource import Integer, Resource, Rule, name_rule


class ZoneRestoreSpec(ReadingRun):
    """One import into a zone of any number of partitions; it is run once."""

    source: ExportPlace
    """The place of the export."""
    encryption_key_secret_ref: EncryptionKeyRef | None = None
    """The key with which the export is encrypted.  Absent: it is in the clear.  One is refused that
    is not as this says."""
    into_non_empty: bool = False
    """Also if the zone has keys: these stay as they are, and only keys that it lacks are written.
    Without it a zone with keys is left alone."""

    rules: ClassVar[tuple[Rule, ...]] = (run_once_rule("ZoneRestore"),)


class ZoneRestoreStatus(ExportRunStatus):
    """The result of the run.  Complete: the zone has every row, but those that had expired, and
    those of keys that were to stay as they are.  Failed, Unknown: as the message says, nothing was
    written, or the zone has only a part and is not Available."""

    keys_kept: Integer | None = None
    """Keys of the export that had another row in the zone, which stayed (intoNonEmpty).  Absent:
    the outcome is not Complete, or the pod did not count them."""
    rows_expired: Integer | None = None
    """Rows of the export that had expired, and were left out.  Absent: the outcome is not
    Complete, or the pod did not count them."""


class ZoneRestore(Resource):
    """One run that imports an export into a zone and compares them row by row, in Jobs."""

    plural = "zonerestores"
    short_name = "zr"
    has_status = True
    printer_columns = EXPORT_COLUMNS
    rules = (name_rule("ZoneRestore"),)

    spec: ZoneRestoreSpec
    status: ZoneRestoreStatus = Field(default_factory=ZoneRestoreStatus)
