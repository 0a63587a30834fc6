"""The custom resource ZoneRecovery: one decision of a person about partitions of a zone."""

import enum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate.wire.schema.resource import Integer, Part, Resource, Rule, Text, name_rule
from quorate.wire.zone import ObjectName

PARTITIONS_MAX = 1024
"""Partitions of one object: its status has a sentence on each."""

_FREE_OF_NODE = (RecoveryAction.CANCEL, RecoveryAction.REOPEN, RecoveryAction.REBUILD)


class RecoveryPhase(enum.StrEnum):
    """How far the run of a ZoneRecovery is."""

    WAITING = "Waiting"
    """The zone is not led yet, or is paused."""
    RUNNING = "Running"
    """It is being done."""
    SHOWN = "Shown"
    """It was a dry run: what it would do is told, and nothing is changed."""
    DONE = "Done"
    """It is done: the rows are written."""
    REFUSED = "Refused"
    """It was not done, for none of the partitions."""
    UNKNOWN = "Unknown"
    """It was decided, and nobody knows whether the rows are written."""

    @property
    def is_final(self) -> bool:
        """Whether the object is not looked at any more."""
        return self not in (RecoveryPhase.WAITING, RecoveryPhase.RUNNING)


def _each_once(partitions: list[int]) -> list[int]:
    """Raise ValueError if a partition is named twice; the API server does not look at that."""
    if len(set(partitions)) != len(partitions):
        raise ValueError("write each partition once")
    return partitions


class ZoneRecoverySpec(Part):
    """A decision; it is done once, for all of the partitions or for none."""

    zone_ref: ObjectName
    """The Zone, in the same namespace."""
    action: RecoveryAction
    """Cancel gives up running migrations; Reset narrows partitions whose majority is lost to one
    copy; Reopen has partitions whose every copy is gone for good begin again without data; Rebuild
    discards rows that are set aside as invalid, and makes them from what agents know; Restart has
    one copy promise and catch up anew."""
    partitions: Annotated[
        list[Annotated[Integer, Field(ge=0, le=16383)]],
        Field(min_length=1, max_length=PARTITIONS_MAX),
        AfterValidator(_each_once),
    ]
    """Numbers of the partitions, each once."""
    row_versions: list[Annotated[Integer, Field(ge=1)]] = Field(
        default_factory=list, max_length=PARTITIONS_MAX, json_schema_extra={"default": []}
    )
    """The versions of their rows that were seen, in the order of `partitions`: a row that has
    changed since refuses the whole.  Of a Rebuild: the numbers of the invalid rows.  Only a dry run
    may do without; its status tells them."""
    node: Annotated[Text, Field(max_length=253)] = ""
    """Reset: the agent with the copy to go on from; empty: the freshest that is known.  Restart:
    the agent whose copies are restarted."""
    erase: bool = False
    """Restart: the copy is dropped, and made anew."""
    dry_run: bool = True
    """The status says what would be done and what may be lost, and nothing is changed."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",
            "self == oldSelf",
            "spec cannot be changed: a ZoneRecovery is run once; create another one",
            lambda new, old: bool(new == old),
        ),
        Rule(
            "rowVersions",
            "size(self.rowVersions) == size(self.partitions) || "
            "(self.dryRun && size(self.rowVersions) == 0)",
            "write the version of each partition's row, in the order of partitions; a dry run "
            "tells them",
            lambda new, _: (
                len(new.row_versions) == len(new.partitions)
                or (new.dry_run and not new.row_versions)
            ),
        ),
        Rule(
            "node",
            "self.action in ['Reset', 'Restart'] || self.node == ''",
            "only Reset and Restart are about one agent: remove node",
            lambda new, _: new.action not in _FREE_OF_NODE or not new.node,
        ),
        Rule(
            "node",
            "self.action != 'Restart' || self.node != ''",
            "write the agent whose copies are to be restarted",
            lambda new, _: new.action is not RecoveryAction.RESTART or bool(new.node),
        ),
        Rule(
            "erase",
            "self.action == 'Restart' || !self.erase",
            "only Restart can erase a copy: remove erase",
            lambda new, _: new.action is RecoveryAction.RESTART or not new.erase,
        ),
    )


class RecoveredPartition(Part):
    """The effect on one partition, or the effect that it would have."""

    partition: Integer
    """Its number."""
    row_version: Integer
    """The version of its row before."""
    message: Text
    """The same in a sentence, with what may be lost."""


class ZoneRecoveryStatus(Part):
    """The result of the run."""

    phase: RecoveryPhase | None = None
    """Waiting, Running, or how it ended: Shown (a dry run), Done, Refused, Unknown."""
    message: Text = ""
    """The same in a sentence, with what to do next."""
    at: Text = ""
    """Since when, RFC 3339."""
    partitions: list[RecoveredPartition] = Field(default_factory=list)
    """The effect on each partition, or the effect that it would have."""
    refusals: list[Text] = Field(default_factory=list)
    """Why it was refused: a sentence for each partition that is concerned."""


class ZoneRecovery(Resource):
    """A person's decision about partitions that do not help themselves.  It is run once."""

    plural = "zonerecoveries"
    short_name = "zrec"
    has_status = True
    printer_columns = (
        ("Zone", "string", ".spec.zoneRef.name"),
        ("Action", "string", ".spec.action"),
        ("Dry run", "boolean", ".spec.dryRun"),
        ("Phase", "string", ".status.phase"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("ZoneRecovery"),)

    spec: ZoneRecoverySpec
    status: ZoneRecoveryStatus = Field(default_factory=ZoneRecoveryStatus)

    @property
    def asked(self) -> Recovery:
        """The decision as the master takes it."""
        spec = self.spec
        versions = spec.row_versions or [0] * len(spec.partitions)
        named = dict(zip(spec.partitions, versions, strict=True))
        return Recovery(spec.action, named, spec.node, spec.erase, spec.dry_run)


def recovery_status(
    phase: RecoveryPhase, message: str, at: str, answer: RecoveryAnswer
) -> ZoneRecoveryStatus:
    """The status of a run, with the master's answer."""
    return ZoneRecoveryStatus(
        phase=phase,
        message=message,
        at=at,
        partitions=[
            RecoveredPartition(
                partition=each.partition, row_version=each.version, message=each.sentence
            )
            for each in answer.partitions
        ],
        refusals=[*answer.refusals],
    )
