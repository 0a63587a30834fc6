"""The DataValidations of one namespace: how each is run, and the result that counts for a zone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from quorate.protocol.messages.events import Reason
from quorate.wire.jobs.data_validation import (
    DataValidation,
    DataValidationStatus,
    OutvotedCopyStatus,
    ValidationLevel,
)
from quorate.wire.jobs.job_run import RunPhase
from quorate.wire.jobs.scheduled_data_validation import ScheduledDataValidation
from quorate.wire.jobs.validation_result import (
    ValidationMode,
    ValidationResult,
    ValidationVerdict,
)
from quorate.wire.jobs.zone_history import ZoneHistory
from quorate.wire.schema.resource import Condition
from quorate.wire.zone import ZoneComparison, ZoneStatus
from quorate_operator import names
from quorate_operator.declared.declared_zone import DeclaredZone
from quorate_operator.declared.runs.job_runs import JobRuns, ended_condition, zone_of
from quorate_operator.declared.runs.last_exports import is_time
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.scheduled_run import ScheduledRun, schedule_of
from quorate_operator.declared.runs.zone_events import ZoneEvents
from quorate_operator.jobs.job import Copies, Work
from quorate_operator.jobs.validation_end import result_of, unproven
from quorate_operator.jobs.validation_job import VALIDATION, validation_work
from quorate_operator.kube.api import KubeApi
from quorate_operator.process.clock import rfc3339

Body = Mapping[str, Any]

_REASONS = {
    ValidationVerdict.AGREE: (Reason.COPIES_AGREE, "Normal"),
    ValidationVerdict.DIFFER: (Reason.COPIES_DIFFER, "Warning"),
    ValidationVerdict.COULD_NOT_TELL: (Reason.COPIES_UNPROVEN, "Warning"),
}
_AGREES = {
    ValidationVerdict.AGREE: "True",
    ValidationVerdict.DIFFER: "False",
    ValidationVerdict.COULD_NOT_TELL: "Unknown",
}
_AGREE, _DIFFER = ValidationVerdict.AGREE, ValidationVerdict.DIFFER
_DEPTH = {each: at for at, each in enumerate(ValidationLevel)}


class ZoneVerdict(NamedTuple):
    """The result of a DataValidation that has finished."""

    ended: str
    """RFC 3339; results are ordered by this."""
    validation: str
    verdict: ValidationVerdict
    message: str
    classes: Mapping[str, int]
    level: ValidationLevel = ValidationLevel.ROWS
    is_remembered: bool = False
    """Whether the status of the Zone is all that is known of it."""
    zone_uid: str = ""
    """The id of the zone's data; empty: of the Zone that remembers it, or not known."""
    began: str = ""
    """RFC 3339; empty: not known."""

    def replaces(self, earlier: "ZoneVerdict | None") -> bool:
        """Return whether this one counts instead of one that ended earlier.

        A proven difference counts until copies are compared at that level, or a deeper one, and
        found to differ again, or to be equal after it was proven: copies that were read before
        may have been damaged since.
        """
        if earlier is None or earlier.verdict is not _DIFFER:
            return True
        if self.verdict is _AGREE and (self.began or self.ended) < earlier.ended:
            return False
        return self.is_proven and _DEPTH[self.level] >= _DEPTH[earlier.level]

    @property
    def is_proven(self) -> bool:
        """Whether something is proven."""
        return self.verdict is not ValidationVerdict.COULD_NOT_TELL

    @property
    def about(self) -> str:
        """The beginning of a message about it."""
        return f"DataValidation {self.validation}, {self.ended}: "


class Validations(JobRuns[DataValidationStatus]):
    """The DataValidations of one namespace.

    `on_result`: called with the name of a zone whose verdict is new.  `history`: returns what is
    known of the past of the zone of that name, for the report.
    """

    kind = DataValidation
    work = VALIDATION
    reasons = _REASONS

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_end: Callable[[str, str], None],
        events: ZoneEvents,
        on_result: Callable[[str], None],
        history: Callable[[str], ZoneHistory | None],
    ) -> None:
        super().__init__(DataValidationStatus, api, namespace, find, image, on_end, events)
        self._history = history
        self._on_result = on_result
        self._verdicts: dict[str, tuple[str, ZoneVerdict]] = {}
        """By name of a finished one: its zone's name, and its result."""
        self._proven: dict[tuple[str, ValidationLevel], ZoneVerdict] = {}
        """By the zone's name and the level: the last difference that a deleted one has proven."""
        self._runs: dict[str, ScheduledRun] = {}

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its Job goes with it.

        Not that it has proven a difference.
        """
        super().gone(name)
        self._runs.pop(name, None)
        zone, told = self._verdicts.pop(name, ("", None))
        if told is None:
            return
        if told.verdict is not ValidationVerdict.DIFFER:
            self._on_result(zone)
            return
        about = zone, told.level
        known = self._proven.get(about)
        if known is None or known.ended <= told.ended:
            self._proven[about] = told

    def verdict(self, zone: DeclaredZone) -> ZoneVerdict | None:
        """Return the result that counts for a Zone, None: none is known but by its condition."""
        return _counting_now(self._known(zone, zone.known_status.zone_id))

    def completed(self, zone: DeclaredZone, status: ZoneStatus) -> ZoneStatus:
        """Return a Zone's status with the condition CopiesAgree, and what it is made of."""
        known = self._known(zone, status.zone_id)
        status = status.model_copy(update={"comparisons": _comparisons(known) or None})
        return with_copies_agree(status, zone.known_status, _counting_now(known))

    def _known(self, zone: DeclaredZone, zone_uid: str) -> list[ZoneVerdict]:
        """Return the results of a Zone with these data, the first one first; an earlier one of its
        name has others."""
        found = [told for of, told in self._verdicts.values() if of == zone.name]
        found += [told for (of, _), told in self._proven.items() if of == zone.name]
        found = [each for each in found if each.zone_uid in ("", zone_uid)]
        ends = {(each.validation, each.ended) for each in found}
        remembered = _remembered(zone.known_status, found)
        # A found result tells more: an earlier version did not write when a result began.
        known = [each for each in remembered if (each.validation, each.ended) not in ends]
        known += found
        known = [each for each in known if each.ended >= zone.since]
        return sorted(known, key=lambda each: each.ended)

    def runs(self, schedule: str) -> list[ScheduledRun]:
        """Return the runs that are there of the ScheduledDataValidation with this uid, the oldest
        first."""
        return sorted(each for each in self._runs.values() if each.schedule == schedule)

    def _note_run(self, body: Body, status: DataValidationStatus) -> None:
        schedule, name = (
            schedule_of(body, ScheduledDataValidation.kind_name()),
            body["metadata"]["name"],
        )
        if not schedule:
            return
        verdict = status.verdict or ("" if status.phase is not RunPhase.REFUSED else status.phase)
        created = str(body["metadata"].get("creationTimestamp") or "")
        is_good = status.verdict is ValidationVerdict.AGREE
        self._runs[name] = ScheduledRun(created, name, schedule, str(verdict), is_good)

    def _work_of(self, body: Body, run: DataValidation, copies: Copies, led: LedZone) -> Work:
        return validation_work(run, copies, self._history(run.spec.zone_ref.name))

    def _doing(self, status: DataValidationStatus) -> str:
        return "its pod reads the copies"

    def _begun(self, run: DataValidation, led: LedZone, job: Body) -> dict[str, object]:
        return {"zone_uid": led.uid}

    async def _ended(
        self,
        body: Body,
        status: DataValidationStatus,
        job: Body,
        pods: list[Body],
        not_started: str,
    ) -> DataValidationStatus:
        result, zone = result_of(job, pods, not_started), zone_of(body)
        led = self._find(zone)
        uids = {status.zone_uid, result.zone_uid, led.uid if isinstance(led, LedZone) else ""}
        if len(uids - {""}) > 1:
            why = f"Zone {zone} was replaced by another one meanwhile, which has other data"
            result = msgspec.structs.replace(unproven(why), zone_uid=result.zone_uid)
        return finished_status(status, body, result, rfc3339())

    async def _lost(
        self, body: Body, status: DataValidationStatus, why: str
    ) -> DataValidationStatus:
        return finished_status(status, body, unproven(why), rfc3339())

    def _outcome(self, status: DataValidationStatus) -> ValidationVerdict:
        return status.verdict or ValidationVerdict.COULD_NOT_TELL

    def _note(self, body: Body, status: DataValidationStatus) -> None:
        """Keep the result of a finished object, and which schedule has created it."""
        name = body["metadata"]["name"]
        self._note_run(body, status)
        if status.verdict is None or not is_time(status.completion_time):
            return
        level = (body.get("spec") or {}).get("level")
        told = ZoneVerdict(
            status.completion_time,
            name,
            status.verdict,
            status.message,
            status.classes,
            next((each for each in ValidationLevel if each == level), ValidationLevel.ROWS),
            zone_uid=status.zone_uid,
            began=status.start_time if is_time(status.start_time) else "",
        )
        if self._verdicts.get(name) != (zone_of(body), told):
            self._verdicts[name] = zone_of(body), told
            self._on_result(zone_of(body))


def finished_status(
    status: DataValidationStatus, body: Body, result: ValidationResult, time: str
) -> DataValidationStatus:
    """Return the status of a run that has this result."""
    spec = body.get("spec") or {}
    message = sentence(result, has_keys=spec.get("level") != ValidationLevel.COUNTERS)
    reason = result.verdict.value
    return status.model_copy(
        update={
            "phase": RunPhase.FINISHED,
            "verdict": result.verdict,
            "mode": result.mode,
            "zone_uid": status.zone_uid or result.zone_uid,
            "message": message,
            "completion_time": time,
            "percent": None,
            "classes": dict(result.classes),
            "partitions": result.partitions,
            "copies": result.copies,
            "settled_keys": result.settled_keys,
            "unsettled_keys": result.unsettled_keys,
            "differing_keys": result.differing_keys,
            "reasons": list(result.reasons),
            "outvoted": [
                OutvotedCopyStatus(partition=each.partition, node=each.node)
                for each in result.outvoted
            ],
            "conditions": [
                ended_condition(body, names.CONDITION_FINISHED, "True", "JobEnded", message),
                ended_condition(
                    body, names.CONDITION_COPIES_AGREE, _AGREES[result.verdict], reason, message
                ),
            ],
        }
    )


def sentence(result: ValidationResult, has_keys: bool = True) -> str:
    """Return the result in a sentence, with what to do next."""
    compared = f"{result.copies} copies of {result.partitions} partitions"
    if result.verdict is ValidationVerdict.AGREE:
        unsettled = result.unsettled_keys
        more = f", {unsettled} more were written meanwhile" if unsettled else ""
        if result.mode is ValidationMode.IDLE:
            more = ", and nothing was written meanwhile"
        if not has_keys:
            return f"all {compared} agree in their counters{more}"
        return f"all {compared} agree; {result.settled_keys} keys were compared{more}"
    if result.verdict is ValidationVerdict.COULD_NOT_TELL:
        return (
            f"could not tell whether all copies agree: {'; '.join(result.reasons) or 'no reason'}"
        )
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(result.classes.items()))
    said = f"copies differ ({counts})"
    if not result.outvoted:
        return (
            f"{said}: the log of its Job names them; no majority contradicts a copy, so repair the"
            " keys by a ZoneRepair, or have a client write them again"
        )
    first = result.outvoted[0]
    more = f" and {len(result.outvoted) - 1} more" if len(result.outvoted) > 1 else ""
    return (
        f"{said}; the others contradict the copy of partition {first.partition} on {first.node}"
        f"{more}: have it made anew by a ZoneRecovery with action Restart and erase"
    )


def with_copies_agree(
    status: ZoneStatus, before: ZoneStatus, verdict: ZoneVerdict | None
) -> ZoneStatus:
    """Return a Zone's status with the condition CopiesAgree.

    `before`: the status as last written; without any verdict its condition stays.
    """
    known = made = _condition(before)
    if verdict is not None and not _is_told(verdict, known):
        is_so = _AGREES[verdict.verdict]
        is_same = known is not None and known.status == is_so
        made = Condition(
            type=names.CONDITION_COPIES_AGREE,
            status=is_so,
            reason=verdict.verdict.value,
            message=f"{verdict.about}{verdict.message}",
            last_transition_time=(
                known.last_transition_time if known is not None and is_same else verdict.ended
            ),
            observed_generation=status.observed_generation,
        )
    if made is None:
        return status
    return status.model_copy(update={"conditions": [*status.conditions, made]})


def _is_told(verdict: ZoneVerdict, known: Condition | None) -> bool:
    """Return whether a Zone's condition says this, or more than is known by this operator."""
    if known is None:
        return False
    if verdict.verdict is ValidationVerdict.DIFFER:
        # It counts also if a later one of a level that is less deep was seen first.
        return verdict.is_remembered and known.status == _AGREES[verdict.verdict]
    return verdict.ended < known.last_transition_time


def _condition(status: ZoneStatus) -> Condition | None:
    kind = names.CONDITION_COPIES_AGREE
    return next((each for each in status.conditions if each.type == kind), None)


def _counting(known: Sequence[ZoneVerdict]) -> ZoneVerdict | None:
    """Return the result that counts; `known`: the first one first.

    Of several differences that no later result replaces, it is that of the deepest level.
    """
    differences: list[ZoneVerdict] = []
    for told in known:
        differences = [each for each in differences if not told.replaces(each)]
        if told.verdict is _DIFFER:
            differences.append(told)
    # Each difference has replaced those of its level, so the first one left is the deepest.
    return next(iter(differences or known[-1:]), None)


def _counting_now(known: Sequence[ZoneVerdict]) -> ZoneVerdict | None:
    """Return the result that counts; None: none is known but by the Zone's condition."""
    counts = _counting(known)
    if counts is None or not counts.is_remembered:
        return counts
    return counts if counts.verdict is _DIFFER else None


def _comparisons(known: Sequence[ZoneVerdict]) -> list[ZoneComparison]:
    """Return the proven result of each level that counts; `known`: the first one first.

    That all agree is not taken from a condition alone, which does not tell at which level.
    """
    proven = [
        each for each in known if each.is_proven and (each.validation or each.verdict is _DIFFER)
    ]
    return [
        ZoneComparison(
            level=level,
            verdict=each.verdict,
            time=each.ended,
            began=each.began,
            run=each.validation,
        )
        for level in ValidationLevel
        if (each := _counting([told for told in proven if told.level is level])) is not None
    ]


def _remembered(before: ZoneStatus, found: Sequence[ZoneVerdict]) -> list[ZoneVerdict]:
    """Return the results that a Zone's status tells; `found`: what is known besides."""
    told = [_told_by(each) for each in before.comparisons or ()]
    if told:
        return [each for each in told if each is not None]
    # An earlier version has written the condition alone, which does not tell the level.
    condition = _condition(before)
    if condition is None or not is_time(condition.last_transition_time):
        return []
    verdicts = {_AGREES[each]: each for each in (_AGREE, _DIFFER)}
    verdict = verdicts.get(condition.status)
    is_found = any(condition.message.startswith(each.about) for each in found)
    if verdict is None or (verdict is _DIFFER and is_found):
        return []
    time, said = condition.last_transition_time, condition.message
    return [ZoneVerdict(time, "", verdict, said, {}, ValidationLevel.ROWS, is_remembered=True)]


def _told_by(comparison: ZoneComparison) -> ZoneVerdict | None:
    """Return what was proven; None: a later version has written it in its own words."""
    level = next((each for each in ValidationLevel if each == comparison.level), None)
    verdict = next((each for each in (_AGREE, _DIFFER) if each == comparison.verdict), None)
    if level is None or verdict is None or not is_time(comparison.time):
        return None
    said = "all copies agree" if verdict is _AGREE else "copies differ"
    return ZoneVerdict(
        comparison.time,
        comparison.run,
        verdict,
        said,
        {},
        level,
        is_remembered=True,
        began=comparison.began if is_time(comparison.began) else "",
    )
