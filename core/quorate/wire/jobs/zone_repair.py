"""The custom resource ZoneRepair: one run that plans the repair of keys that differ, or does it."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field

from quorate.wire.jobs.export_place import ExportPlace
from quorate.wire.jobs.job_run import JobStatus, ReadingRun, run_once_rule
from quorate.wire.jobs.repair_result import RepairOutcome, RepairStrategy
from quorate.wire.schema.resource import Conditions, Integer, Part, Resource, Rule, Text, name_rule


class RepairLevel(enum.StrEnum):
    """The depth to which copies are compared for a plan."""

    DIGEST = "Digest"
    ROWS = "Rows"


class RepairPlan(Part):
    """The plan of an earlier dry run, as a person has read it."""

    source: ExportPlace
    """The place of the plan: status.place of the dry run."""
    digest: Annotated[Text, Field(pattern="^[0-9a-f]{64}$")]
    """The SHA-256 of its file: status.planDigest of the dry run.  Another file is refused."""


class ZoneRepairSpec(ReadingRun):
    """A plan for the keys of a zone that differ, or its execution; it is run once."""

    strategy: RepairStrategy | None = None
    """For a new plan, the row that a key gets.  LWW: that was written last.  PRIMARY: the
    primary's.  RELATIVE_MAJORITY: that more copies have than any other.  REMOVE: none.  CHECK_ONLY:
    the difference is only reported."""
    level: RepairLevel = RepairLevel.ROWS
    """For a new plan.  Digest: digests that agents keep, and rows where they differ.  Rows: every
    row of every copy, by Spark in the pod, which needs 2Gi of memory or more (resources)."""
    dry_run: bool = True
    """Nothing is changed: a plan is made.  false: a plan is executed."""
    destination: ExportPlace | None = None
    """The place of a new plan, which has none yet."""
    plan: RepairPlan | None = None
    """The plan that is executed, of an earlier dry run."""
    without_review: bool = False
    """With dryRun: false and without a plan: a new plan is made and executed at once, though no
    person has read it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        run_once_rule("ZoneRepair"),
        Rule(
            "",
            "has(self.plan) != has(self.destination)",
            "write destination, for a new plan, or plan, that is executed: one of them",
            lambda new, _: (new.plan is None) != (new.destination is None),
            shows_value=False,
        ),
        Rule(
            "strategy",
            "has(self.plan) != has(self.strategy)",
            "write strategy for a new plan, and none with plan, which has its own",
            lambda new, _: (new.plan is None) != (new.strategy is None),
        ),
        Rule(
            "level",
            "!has(self.plan) || self.level == 'Rows'",
            "write no level with plan, which was made at its own",
            lambda new, _: new.plan is None or new.level is RepairLevel.ROWS,
        ),
        Rule(
            "dryRun",
            "!has(self.plan) || !self.dryRun",
            "with plan write dryRun: false: the plan is made, and is executed",
            lambda new, _: new.plan is None or not new.dry_run,
        ),
        Rule(
            "withoutReview",
            "self.withoutReview == (!self.dryRun && !has(self.plan))",
            "write withoutReview: true to execute a new plan that no person has read (dryRun:"
            " false), and never else",
            lambda new, _: new.without_review == (not new.dry_run and new.plan is None),
        ),
        Rule(
            "strategy",
            "self.dryRun || !has(self.strategy) || self.strategy != 'CHECK_ONLY'",
            "CHECK_ONLY changes nothing: write dryRun: true, or another strategy",
            lambda new, _: new.dry_run or new.strategy is not RepairStrategy.CHECK_ONLY,
        ),
    )

    @property
    def place(self) -> ExportPlace:
        """The place of the plan."""
        found = self.plan.source if self.plan is not None else self.destination
        assert found is not None
        return found


class ZoneRepairStatus(JobStatus):
    """The result of the run."""

    outcome: RepairOutcome | None = None
    """Planned: a plan was made, nothing is changed.  NothingToRepair: no key differs.  Repaired:
    every key of the plan is.  Incomplete: at least one is not.  Failed: nothing was changed.
    Unknown: the pods have told nothing."""
    place: Text = ""
    """The place of the plan: CLAIM:FOLDER, or an s3:// URL.  Its file is repair-plan.parquet."""
    plan_digest: Text = ""
    """The SHA-256 of the plan's file, which another ZoneRepair quotes to execute it."""
    planned: dict[str, Integer] = Field(default_factory=dict)
    """Keys of the plan, by what it does with them: write, remove, irreparable."""
    keys: dict[str, Integer] = Field(default_factory=dict)
    """Keys of a plan that was executed.  repaired: a quorum of the copies has the planned row.
    changed: written since the plan, and left alone.  failed: not written.  unknown: perhaps
    written, without a quorum by now.  irreparable: the strategy decides nothing."""
    reasons: list[Text] = Field(default_factory=list)
    """Why it failed, or why another plan may be needed; the first few."""
    conditions: Conditions = Field(default_factory=list)
    """Finished."""


class ZoneRepair(Resource):
    """One run that plans how keys whose copies differ get the same row again, or does it, in a
    Job."""

    plural = "zonerepairs"
    short_name = "zrp"
    has_status = True
    printer_columns = (
        ("Zone", "string", ".spec.zoneRef.name"),
        ("Strategy", "string", ".spec.strategy"),
        ("Dry run", "boolean", ".spec.dryRun"),
        ("Phase", "string", ".status.phase"),
        ("Percent", "integer", ".status.percent"),
        ("Outcome", "string", ".status.outcome"),
        ("Place", "string", ".status.place"),
        ("Finished", "date", ".status.completionTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("ZoneRepair"),)

    spec: ZoneRepairSpec
    status: ZoneRepairStatus = Field(default_factory=ZoneRepairStatus)
