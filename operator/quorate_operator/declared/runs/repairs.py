"""The ZoneRepairs of one namespace: how each is run, and its result in a sentence.

One that writes waits until no other run writes into the zone, and none begins while it runs
(writers).  Neither it nor a dry run begins while rows are imported: copies of a part of the rows
say nothing.
"""

from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any

import msgspec

from quorate.protocol.messages.events import Reason
from quorate.wire.jobs.job_run import RunPhase
from quorate.wire.jobs.repair_result import RepairOutcome, RepairResult
from quorate.wire.jobs.zone_repair import ZoneRepair, ZoneRepairStatus
from quorate_operator import names
from quorate_operator.declared.runs.job_runs import JobRuns, ended_condition, zone_of
from quorate_operator.declared.runs.noted_import import prove_note, sentence
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.writers import NotOfThisZone, Writers
from quorate_operator.declared.runs.zone_events import ZoneEvents
from quorate_operator.jobs.job import Copies, JobOwner, Work
from quorate_operator.jobs.repair_end import repair_result, unknown
from quorate_operator.jobs.repair_job import REPAIR, repair_work
from quorate_operator.kube.api import KubeApi
from quorate_operator.process.clock import rfc3339

Body = Mapping[str, Any]

_REASONS = {
    RepairOutcome.PLANNED: (Reason.REPAIR_PLANNED, "Normal"),
    RepairOutcome.NOTHING_TO_REPAIR: (Reason.REPAIR_PLANNED, "Normal"),
    RepairOutcome.REPAIRED: (Reason.REPAIRED, "Normal"),
    RepairOutcome.INCOMPLETE: (Reason.REPAIR_INCOMPLETE, "Warning"),
    RepairOutcome.FAILED: (Reason.REPAIR_FAILED, "Warning"),
    RepairOutcome.UNKNOWN: (Reason.REPAIR_UNKNOWN, "Warning"),
}


class Repairs(JobRuns[ZoneRepairStatus]):
    """The ZoneRepairs of one namespace.  `writers`: it and its siblings that write."""

    kind = ZoneRepair
    work = REPAIR
    reasons = _REASONS

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_end: Callable[[str, str], None],
        events: ZoneEvents,
        writers: Writers,
    ) -> None:
        super().__init__(ZoneRepairStatus, api, namespace, find, image, on_end, events)
        self._writers = writers

    async def _begin(self, body: Body, run: JobOwner, led: LedZone) -> Body | str:
        assert isinstance(run, ZoneRepair)
        async with self._writers.beginning:
            waits = "" if run.spec.dry_run else await self._writers.waits_for(run, led)
            if waits:
                return waits
            begun = await prove_note(self._api, self._namespace, led)
            if begun is not None:
                return sentence(run.spec.zone_ref.name, begun)
            return await super()._begin(body, run, led)

    def _work_of(self, body: Body, run: ZoneRepair, copies: Copies, led: LedZone) -> Work:
        return repair_work(run, copies)

    def _begun(self, run: ZoneRepair, led: LedZone, job: Body) -> dict[str, object]:
        return {"place": run.spec.place.text}

    def _doing(self, status: ZoneRepairStatus) -> str:
        return "its pod compares the copies for a plan, or executes one"

    async def _ended(
        self, body: Body, status: ZoneRepairStatus, job: Body, pods: list[Body], not_started: str
    ) -> ZoneRepairStatus:
        writes = _writes(body)
        result = repair_result(job, pods, writes, not_started)
        if writes:
            try:
                led = await self._writers.zone_of_job(zone_of(body), job)
            except NotOfThisZone as gone:
                reasons = (str(gone), *result.reasons)
                result = msgspec.structs.replace(
                    result, outcome=RepairOutcome.UNKNOWN, reasons=reasons
                )
                return _finished(status, body, result)
            if isinstance(led, str):
                return status.model_copy(update={"message": led})
            await prove_note(self._api, self._namespace, led)
        return _finished(status, body, result)

    async def _lost(self, body: Body, status: ZoneRepairStatus, why: str) -> ZoneRepairStatus:
        return _finished(status, body, unknown(why))

    def _outcome(self, status: ZoneRepairStatus) -> RepairOutcome:
        return status.outcome or RepairOutcome.UNKNOWN


def _writes(body: Body) -> bool:
    return (body.get("spec") or {}).get("dryRun") is False


def _finished(status: ZoneRepairStatus, body: Body, result: RepairResult) -> ZoneRepairStatus:
    message, outcome = _sentence(status.place, body, result), result.outcome
    finished = ended_condition(body, names.CONDITION_FINISHED, "True", outcome.value, message)
    return status.model_copy(
        update={
            "phase": RunPhase.FINISHED,
            "outcome": outcome,
            "message": message,
            "completion_time": rfc3339(),
            "percent": None,
            "plan_digest": result.digest,
            "planned": dict(result.planned),
            "keys": dict(result.keys),
            "reasons": list(result.reasons),
            "conditions": [finished],
        }
    )


def _sentence(place: str, body: Body, result: RepairResult) -> str:
    """Return the result in a sentence, with the command that comes next."""
    metadata, zone = body["metadata"], zone_of(body)
    at = f"--namespace {metadata['namespace']}"
    look = f"whether all copies agree now: kubectl quorate validate {zone} {at}"
    total = sum(result.planned.values())
    why = "; ".join(result.reasons)
    more = f"; {why}" if why else ""
    match result.outcome:
        case RepairOutcome.PLANNED:
            said = f"{total} keys differ ({_counts(result.planned)}), and nothing is changed"
            if not any(result.planned.get(each) for each in ("write", "remove")):
                return f"{said}: the strategy decides nothing; the plan is in {place}{more}"
            return (
                f"{said}: read the plan in {place}, then execute it: kubectl quorate repair"
                f" {zone} --execute {quote(metadata['name'])} {at}{more}"
            )
        case RepairOutcome.NOTHING_TO_REPAIR:
            return "no key differs: there is nothing to repair, and no plan"
        case RepairOutcome.REPAIRED:
            return f"all {total} keys of the plan are repaired; {look}{more}"
        case RepairOutcome.INCOMPLETE:
            return (
                f"{result.keys.get('repaired', 0)} of {total} keys of the plan are repaired"
                f" ({_counts(result.keys)}): the log of its Job names them; make another plan;"
                f" {look}{more}"
            )
        case RepairOutcome.FAILED:
            if result.digest:
                return f"nothing is changed; the plan with {total} keys is in {place}: {why}"
            return f"nothing is changed, and no plan was made or executed: {why}"
        case RepairOutcome.UNKNOWN if not _writes(body):
            return (
                f"whether there is a plan in {place} is not known: {why}; nothing is changed:"
                " create another ZoneRepair, with another destination"
            )
        case RepairOutcome.UNKNOWN:
            known = f" (as far as is known: {_counts(result.keys)})" if result.keys else ""
            return (
                f"keys of the plan in {place} may be repaired, or not{known}: {why}; make another"
                f" plan, and keys that are repaired are not in it; {look}"
            )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
