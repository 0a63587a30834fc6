"""The custom resource DataValidation: one run that finds out whether all copies of a zone agree."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field

from quorate.wire.jobs.validation_result import ValidationVerdict
from quorate.wire.managed_agents import FreeForm, Labels, PodAdditions
from quorate.wire.resource import Conditions, Integer, Part, Resource, Rule, Text, name_rule
from quorate.wire.zone import ObjectName

DEADLINE_S = 6 * 3600
DEADLINE_MAX_S = 30 * 24 * 3600
TTL_S = 24 * 3600
TTL_MIN_S = 600
"""The operator has so long to read the result from the pod."""
TTL_MAX_S = 365 * 24 * 3600


class ValidationLevel(enum.StrEnum):
    """How deeply copies are compared."""

    COUNTERS = "Counters"
    DIGEST = "Digest"
    ROWS = "Rows"


class KeyNames(enum.StrEnum):
    """How the report names keys."""

    ESCAPED = "Escaped"
    HASHED = "Hashed"


class ValidationPhase(enum.StrEnum):
    """How far the run of a DataValidation is."""

    WAITING = "Waiting"
    """The zone is not led yet, or is paused; or the Job cannot be made."""
    RUNNING = "Running"
    """Its Job was made."""
    FINISHED = "Finished"
    """It has ended; `verdict` says how."""
    REFUSED = "Refused"
    """It was not run."""

    @property
    def is_final(self) -> bool:
        """Whether the object is not looked at any more."""
        return self in (ValidationPhase.FINISHED, ValidationPhase.REFUSED)


class ValidationRun(Part):
    """What is compared, and with what."""

    zone_ref: ObjectName
    """The Zone, in the same namespace."""
    level: ValidationLevel = ValidationLevel.ROWS
    """Counters: positions and lineages, no rows.  Digest: digests that agents keep, and rows where
    they differ.  Rows: every row of every copy, by Spark in the pod."""
    keys: KeyNames = KeyNames.ESCAPED
    """How the report, which is the log of the pod, names keys that differ.  Escaped: as they are,
    unprintable bytes escaped.  Hashed: the first 16 hex digits of their SHA-256."""
    deadline_seconds: Annotated[Integer, Field(ge=10, le=DEADLINE_MAX_S)] = DEADLINE_S
    """How long the run may take; then it is ended, and the verdict is CouldNotTell."""
    ttl_seconds_after_finished: Annotated[Integer, Field(ge=TTL_MIN_S, le=TTL_MAX_S)] = TTL_S
    """How long the Job, its pod and their log are kept after the end.  The DataValidation with the
    result stays."""
    resources: FreeForm = Field(default_factory=dict)
    """Requests and limits of the container, as in a pod.  Rows: give it 2Gi of memory or more."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes that the pod may run on."""
    tolerations: list[FreeForm] = Field(default_factory=list, max_length=100)
    """Taints that the pod tolerates, as in a pod."""
    pod_template: PodAdditions | None = None
    """Additions to the pod."""


class DataValidationSpec(ValidationRun):
    """One comparison of all copies of a zone, while clients write; it is run once."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",
            "self == oldSelf",
            "spec cannot be changed: a DataValidation is run once; create another one",
            lambda new, old: bool(new == old),
        ),
    )


class OutvotedCopyStatus(Part):
    """A copy that a majority of its partition's copies contradicts."""

    partition: Integer
    """The partition."""
    node: Text
    """The agent that has the copy."""


class DataValidationStatus(Part):
    """The result of the run."""

    phase: ValidationPhase | None = None
    """Waiting, Running, Finished, or Refused: it was not run."""
    verdict: ValidationVerdict | None = None
    """Agree: everything could be judged, and nothing differs.  Differ: at least one difference is
    proven.  CouldNotTell: no difference is proven, and something could not be judged."""
    message: Text = ""
    """The same in a sentence, with what to do next."""
    start_time: Text = ""
    """When the Job was made, RFC 3339."""
    completion_time: Text = ""
    """When the result was read, RFC 3339."""
    percent: Integer | None = None
    """While it runs: how much of the copies is read.  Absent until its pod tells it."""
    job: Text = ""
    """The Job, in the same namespace.  The log of its pod is the whole report, as JSON."""
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
        ("Phase", "string", ".status.phase"),
        ("Percent", "integer", ".status.percent"),
        ("Verdict", "string", ".status.verdict"),
        ("Finished", "date", ".status.completionTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("DataValidation"),)

    spec: DataValidationSpec
    status: DataValidationStatus = Field(default_factory=DataValidationStatus)
