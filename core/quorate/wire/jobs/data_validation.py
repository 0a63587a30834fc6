"""The custom resource DataValidation: one run that finds out whether all copies of a zone agree."""

import enum
from typing import ClassVar

from pydantic import Field

from quorate.wire.jobs.export_place import ClaimPlace
from quorate.wire.jobs.job_run import DividedRun, JobStatus, run_once_rule
from quorate.wire.jobs.validation_result import ValidationMode, ValidationVerdict
from quorate.wire.schema.resource import Conditions, Integer, Part, Resource, Rule, Text, name_rule


class ValidationLevel(enum.StrEnum):
    """How deeply copies are compared."""

    COUNTERS = "Counters"
    DIGEST = "Digest"
    ROWS = "Rows"


class KeyNames(enum.StrEnum):
    """How the report names keys."""

    ESCAPED = "Escaped"
    HASHED = "Hashed"


class ReportPlace(Part):
    """Where reports are kept."""

    persistent_volume_claim: ClaimPlace
    """A folder of a volume, which the pod must be able to write.  Nothing in it is ever deleted."""


class ValidationRun(DividedRun):
    """What is compared, and with what.  Level Rows: give the pod 2Gi of memory or more."""

    level: ValidationLevel = ValidationLevel.ROWS
    """Counters: positions and lineages, and no rows (in mode Idle one of each primary, which lists
    open transactions).  Digest: digests that agents keep, and rows where
    they differ.  Rows: every row of every copy, by Spark in the pod, which needs 2Gi of memory or
    more (resources)."""
    mode: ValidationMode = ValidationMode.LIVE
    """Live: clients may write meanwhile; keys that they write are not compared.  Idle: for a zone
    that is quiet, as before an upgrade.  Agree then also says that nothing was written while it
    ran; if a partition was written to, or its copies moved, the verdict is CouldNotTell."""
    keys: KeyNames = KeyNames.ESCAPED
    """How the report, which is the log of the pod, names keys that differ.  Escaped: as they are,
    unprintable bytes escaped.  Hashed: the first 16 hex digits of their SHA-256."""
    report: ReportPlace | None = None
    """A folder that gets the report as JSON and as a page, beside being the log of the pod.  Runs
    with the same folder tell what has changed since the last one, and the trends of the last 30."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *DividedRun.rules,
        Rule(
            "executors",
            "self.executors == 0 || self.level == 'Rows'",
            "write 0, or level: Rows: other levels read too little to divide it",
            lambda new, _: new.executors == 0 or new.level is ValidationLevel.ROWS,
        ),
    )


class DataValidationSpec(ValidationRun):
    """One comparison of all copies of a zone; it is run once."""

    rules: ClassVar[tuple[Rule, ...]] = (*ValidationRun.rules, run_once_rule("DataValidation"))


class OutvotedCopyStatus(Part):
    """A copy that a majority of its partition's copies contradicts."""

    partition: Integer
    """The partition."""
    node: Text
    """The agent that has the copy."""


class DataValidationStatus(JobStatus):
    """The result of the run."""

    verdict: ValidationVerdict | None = None
    """Agree: everything could be judged, and nothing differs.  Differ: at least one difference is
    proven.  CouldNotTell: no difference is proven, and something could not be judged."""
    mode: ValidationMode | None = None
    """The mode in which the pod ran.  Absent: no pod has told it, or the operator or the pod is of
    an earlier version, which validates in mode Live."""
    zone_uid: Text = ""
    """The id of the zone's data: that of another Zone of the same name has another one, for which
    this result does not count.  Absent: the operator was of an earlier version."""
    classes: dict[str, Integer] = Field(default_factory=dict)
    """How many differ, by class.  Partitions: counter, lineage, gap; skipped: not judged.  Keys:
    keyCounter, value, size, expiry, missing, other; one key may be of several."""
    partitions: Integer | None = None
    """Partitions that were compared."""
    copies: Integer | None = None
    """Copies that were compared."""
    settled_keys: Integer | None = None
    """Keys that were compared."""
    unsettled_keys: Integer | None = None
    """Keys that were written meanwhile: nothing is proven about them."""
    differing_keys: Integer | None = None
    """Keys that differed, read twice."""
    reasons: list[Text] = Field(default_factory=list)
    """Why something could not be judged; the first few."""
    outvoted: list[OutvotedCopyStatus] = Field(default_factory=list)
    """Copies that a majority contradicts, the first few: a ZoneRecovery with action Restart and
    erase has them made anew."""
    conditions: Conditions = Field(default_factory=list)
    """Finished, CopiesAgree."""


class DataValidation(Resource):
    """One run that finds out whether all copies of a zone agree, in a Job."""

    plural = "datavalidations"
    short_name = "dv"
    has_status = True
    printer_columns = (
        ("Zone", "string", ".spec.zoneRef.name"),
        ("Level", "string", ".spec.level"),
        ("Mode", "string", ".spec.mode"),
        ("Phase", "string", ".status.phase"),
        ("Percent", "integer", ".status.percent"),
        ("Verdict", "string", ".status.verdict"),
        ("Finished", "date", ".status.completionTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("DataValidation"),)

    spec: DataValidationSpec
    status: DataValidationStatus = Field(default_factory=DataValidationStatus)
