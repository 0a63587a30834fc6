"""The ZoneRestores of one namespace: how each is run, in two Jobs, and its result in a sentence.

    Waiting --no other run writes, no ZoneBackup runs, check made--> Running
    Running --check is old, nothing is noted--> another check made; Finished: Failed after many
            --it may begin, no ZoneBackup runs--> noted at the Zone, and in the zone's record
            --still no ZoneBackup runs--> noted as begun, import made
            --one does--> the note is taken back
            --it may not, or the check is lost--> Finished: Failed, nothing is written
    Running --import complete--> the note is removed --> Finished: Complete
            --another end--> Finished: Failed, Unknown; the note stays: the zone is not Available
            --the Zone is another one, or gone--> Finished: Failed

A note before which there was none says that the import has not begun until just before its Job is
made.  Such a note is removed if the run ends, or is deleted; if no operator saw that, by the next
one.  Each step can be done again by another operator: the note has the object's uid, the Jobs its
name.  Both Jobs have the uid of the Zone that the check was made for.  Of one zone one run that
writes runs at a time (writers), so that the check of one is not from before the import of another.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from quorate.protocol.messages.events import Reason
from quorate.wire.exports.export_result import ExportResult, RunOutcome
from quorate.wire.exports.zone_restore import ZoneRestore, ZoneRestoreStatus
from quorate.wire.restoring import RESTORING, Restoring
from quorate_operator.declared.runs import job_runs
from quorate_operator.declared.runs.exports_in_use import waits_for_deletion
from quorate_operator.declared.runs.finished_export import finished_export
from quorate_operator.declared.runs.job_runs import JobRefused, JobRuns, zone_of
from quorate_operator.declared.runs.last_exports import LastExports, is_time, time_of
from quorate_operator.declared.runs.noted_import import (
    annotated_import,
    is_in_record,
    note_again,
    note_import,
    noted_import,
    prove_note,
    sentence,
)
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.writers import NotOfThisZone, Writers, arguments_of, ended_at
from quorate_operator.declared.runs.zone_events import ZoneEvents
from quorate_operator.jobs.export_end import export_result, unknown
from quorate_operator.jobs.job import Copies, JobOwner, Work
from quorate_operator.jobs.restore_job import (
    CHECK,
    CONTINUES,
    RESTORE,
    check_work,
    import_work,
    later_checks,
    note_of,
    run_word,
)
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, find
from quorate_operator.owned.apply import is_owned
from quorate_operator.process.clock import rfc3339

Body = Mapping[str, Any]

_REASONS = {
    RunOutcome.COMPLETE: (Reason.IMPORTED, "Normal"),
    RunOutcome.FAILED: (Reason.IMPORT_FAILED, "Warning"),
    RunOutcome.UNKNOWN: (Reason.IMPORT_UNKNOWN, "Warning"),
}
FRESH_S = 60
"""Seconds for which a check says that the zone is empty; clients may write at any time."""
_GIVE_UP = "delete the zone with its data (deletionPolicy: Delete)"


class Restores(JobRuns[ZoneRestoreStatus]):
    """The ZoneRestores of one namespace.

    `writers`: it and its siblings that write.  `on_result`: called with the name of a zone that has
    another verified restore.
    """

    kind = ZoneRestore
    work = CHECK
    reasons = _REASONS
    asks_all = True

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        find: Callable[[str], LedZone | str],
        image: str,
        on_end: Callable[[str, str], None],
        events: ZoneEvents,
        writers: Writers,
        on_result: Callable[[str], None],
    ) -> None:
        super().__init__(ZoneRestoreStatus, api, namespace, find, image, on_end, events)
        self._writers = writers
        self.last = LastExports(on_result, begins=False)
        self._open: dict[str, tuple[str, str]] = {}
        """By name of one that has not ended: its uid, and its zone."""
        self._left: dict[str, dict[str, str]] = {}
        """By name of those that were deleted: uid -> the zone whose note is to be removed."""
        self._unclear: set[str] = set()
        """Uids of those whose note was the first, and whose Job another object may have the name
        of: it could not be looked at."""
        self._unmade: set[str] = set()
        """Uids of those whose note says, or may say, that the import has begun, although its Job
        was not made: the note could not be changed back."""

    def __bool__(self) -> bool:
        """Whether any object is still to be run or followed, or has left a note."""
        return super().__bool__() or bool(self._left)

    def gone(self, name: str) -> None:
        """Forget an object that was deleted; its Jobs go with it."""
        super().gone(name)
        if name in self._open:
            uid, zone = self._open.pop(name)
            self._left.setdefault(name, {})[uid] = zone

    def has_left(self, name: str) -> bool:
        """Return whether one that was deleted may have left a note that is to be removed."""
        return name in self._left

    async def reconcile(self, name: str) -> float | None:
        """Run or follow an object, or remove the note that a deleted one has left."""
        await self._clear_left(name)
        again_s = await super().reconcile(name)
        return job_runs.FOLLOW_S if again_s is None and name in self._left else again_s

    async def _clear_left(self, name: str) -> None:
        """Remove the notes of deleted objects of this name, unless their zones are waited for."""
        for uid, zone in [*self._left.get(name, {}).items()]:
            async with self._writers.beginning:
                if await self._take_back(uid, zone, self._find(zone)):
                    continue
            self._unmade.discard(uid)
            self._unclear.discard(uid)
            del self._left[name][uid]
        if not self._left.get(name):
            self._left.pop(name, None)

    async def clear_up(self, zone: str) -> None:
        """Remove a note of an import that was not made if its object is not there any more.

        It may have been deleted while no operator was there.
        """
        led = self._find(zone)
        begun = annotated_import(led.body) if isinstance(led, LedZone) else None
        if not isinstance(led, LedZone) or begun is None or not begun.not_begun:
            return
        async with self._writers.beginning:
            if await self._writers.has_no_restore(begun):
                await note_import(self._api, self._namespace, led, None)

    def _note(self, body: Body, status: ZoneRestoreStatus) -> None:
        name, zone = body["metadata"]["name"], zone_of(body)
        self.last.note(name, zone, status)
        if status.phase is not None and status.phase.is_final:
            self._open.pop(name, None)
            self._unmade.discard(body["metadata"]["uid"])
            self._unclear.discard(body["metadata"]["uid"])
        else:
            self._open[name] = body["metadata"]["uid"], zone

    async def _begin(self, body: Body, run: JobOwner, led: LedZone) -> Body | str:
        assert isinstance(run, ZoneRestore)
        async with self._writers.beginning:
            waits = await self._writers.waits_for(run, led)
            waits = waits or await waits_for_deletion(
                self._api, self._namespace, run.spec.source.text
            )
            waits = waits or await self._writers.waits_for_backup(run.spec.zone_ref.name)
            if waits:
                return waits
            await prove_note(self._api, self._namespace, led)
            return await super()._begin(body, run, led)

    def _work_of(self, body: Body, run: ZoneRestore, copies: Copies, led: LedZone) -> Work:
        begun, zone = noted_import(led), run.spec.zone_ref.name
        if begun is not None and begun.place != run.spec.source.text:
            raise JobRefused(
                f"{sentence(zone, begun)}: create a ZoneRestore of that place until it is, or"
                f" {_GIVE_UP}",
                is_final=True,
            )
        return check_work(run, copies, begun)

    def _begun(self, run: ZoneRestore, led: LedZone, job: Body) -> dict[str, object]:
        return {"place": run.spec.source.text}

    def _keeps_end(self, status: ZoneRestoreStatus) -> bool:
        return not _is_check(status)  # of long ago it says nothing about the zone

    def _doing(self, status: ZoneRestoreStatus) -> str:
        if _is_check(status):
            return "its pod looks at the export and the zone"
        return "its pod imports the rows, then compares the zone with the export"

    async def _ended(
        self, body: Body, status: ZoneRestoreStatus, job: Body, pods: list[Body], not_started: str
    ) -> ZoneRestoreStatus:
        result = export_result(job, pods, RESTORE.component, not_started)
        is_check = _is_check(status)
        if is_check and result.outcome is not RunOutcome.COMPLETE:
            return _not_begun(body, status, result.reason)
        try:
            led = await self._writers.zone_of_job(zone_of(body), job)
        except NotOfThisZone as gone:
            if is_check:
                return _not_begun(body, status, str(gone))
            return _not_here(body, status, str(gone))
        if isinstance(led, str):
            return _waiting(status, led)
        if is_check:
            async with self._writers.beginning:
                return await self._may_begin(body, status, job, result, led)
        return await self._imported(body, status, result, led)

    async def _may_begin(
        self, body: Body, status: ZoneRestoreStatus, job: Body, result: ExportResult, led: LedZone
    ) -> ZoneRestoreStatus:
        """Return the status after a good check: the import is noted, and its Job made."""
        copies = self._copies(led)
        if copies is None:
            return _waiting(status, f"no agent of StorageCluster {led.cluster} is online")
        restore = ZoneRestore.parse_stored(body)
        uid, zone = restore.metadata.uid, zone_of(body)
        begun, is_first = noted_import(led), not _continues(job)
        mine = note_of(restore, result.export_id, begun)
        not_begun = _before(mine)
        noted, why_not = annotated_import(led.body), ""
        if begun is not None and (begun.place, begun.export_id or mine.export_id) != mine[:2]:
            why_not = f"an import of another export, of {begun.place}, has begun meanwhile"
        elif begun is None and not is_first:
            why_not = "another import has ended well meanwhile"
        if why_not:
            await prove_note(self._api, self._namespace, led)
            return _not_begun(body, status, why_not)
        if await self._has_import(body):  # an operator that ended before it told so has made it
            return _importing(body, status, result.export_id)
        if waits := await self._writers.waits_for_backup(zone):
            if is_first:
                waits = await self._take_back(uid, zone, led) or waits
            return _waiting(status, waits)
        if begun is None and not mine.into_non_empty and not _is_fresh(job):
            await prove_note(self._api, self._namespace, led)
            return await self._look_again(body, status, job, led, copies)
        if noted not in (mine, not_begun):
            first = not_begun if begun is None else mine
            led = await note_import(self._api, self._namespace, led, first.text)
        if not is_in_record(led, mine):
            return _waiting(status, "the import is being noted in the record of the zone")
        made, led = await self._make_import(restore, led, copies, mine)
        if isinstance(made, JobRefused):
            if not made.is_final:
                raise made
            if is_first:
                return await self._without_import(body, status, str(made), led)
            failed = ExportResult(RunOutcome.FAILED, reason=str(made))
            return _part(body, status, failed)
        if isinstance(made, str):
            return _waiting(status, made)
        return _importing(body, status, result.export_id)

    async def _make_import(
        self, restore: ZoneRestore, led: LedZone, copies: Copies, mine: Restoring
    ) -> tuple[Body | str | JobRefused, LedZone]:
        """Note that the import begins, and make its Job; if none is made, note that it has not.

        Return the Job, what it waits for, or why it is refused; and the Zone as it is now.
        """
        uid, work = restore.metadata.uid, import_work(restore, copies, mine)
        is_first = annotated_import(led.body) == _before(mine)
        is_first |= uid in self._unmade or uid in self._unclear
        try:
            job = await self._manifest(restore, led, work)
        except JobRefused as refused:
            return refused, led
        if isinstance(job, str):
            return job, led
        try:
            led = await note_import(self._api, self._namespace, led, mine.text)
        except ApiUnclear:
            if is_first:
                self._unmade.add(uid)
            raise
        self._unmade.discard(uid)
        try:
            posted = await self._post(restore, job)
        except JobRefused as refused:
            return refused, await self._note_again(uid, led, mine) if is_first else led
        except ApiRefused:
            if is_first:
                await self._note_again(uid, led, mine)
            raise
        if is_first:
            self._unclear.add(uid)
        made = posted if posted is not None else await self._whose(restore, work)
        self._unclear.discard(uid)
        if isinstance(made, str) and is_first:
            led = await self._note_again(uid, led, mine)
        return made, led

    async def _note_again(self, uid: str, led: LedZone, mine: Restoring) -> LedZone:
        """Note again that an import has not begun; if that fails, the next look tries it."""
        self._unmade.add(uid)
        led = await note_again(self._api, self._namespace, led, mine, _before(mine))
        self._unmade.discard(uid)
        return led

    def _is_removable(self, note: Restoring | None, uid: str) -> bool:
        """Return whether a note is of this object, and no import of it has begun."""
        if note is None or note.run != run_word(uid):
            return False
        return note.not_begun or uid in self._unmade

    async def _look_again(
        self, body: Body, status: ZoneRestoreStatus, job: Body, led: LedZone, copies: Copies
    ) -> ZoneRestoreStatus:
        """Return the status after a check that was read late: the zone may have got keys since."""
        restore = ZoneRestore.parse_stored(body)
        again = await self._next_check(restore, status, copies)
        if again is None:
            why = (
                f"its last check, too, was read late: it ended at {ended_at(job)}, by the"
                f" operator's clock it is {rfc3339()} now, and the zone may have got keys since:"
                " create another ZoneRestore, or set the clocks if they differ"
            )
            return _not_begun(body, status, why)
        try:
            made = await self._make(restore, led, again)
        except JobRefused as refused:
            if not refused.is_final:
                raise
            return _not_begun(body, status, str(refused))
        if isinstance(made, str):
            return _waiting(status, made)
        message = "its check is old, so another pod looks at the export and the zone"
        name = again.job_name(restore.metadata.name)
        return status.model_copy(update={"job": name, "percent": None, "message": message})

    async def _next_check(
        self, restore: ZoneRestore, status: ZoneRestoreStatus, copies: Copies
    ) -> Work | None:
        """Return the work of the next pod that looks; None: there were too many.

        A Job of another object may have the name of the next one: it is passed over.
        """
        work = check_work(restore, copies, None)
        for suffix in later_checks(restore, status.job):
            again = work._replace(suffix=suffix)
            job = await find(self._api, f"{self._jobs()}/{again.job_name(restore.metadata.name)}")
            if job is None or is_owned(job, restore.metadata.uid):
                return again
        return None

    async def _has_import(self, body: Body) -> bool:
        """Return whether the Job that imports was made."""
        metadata = body["metadata"]
        job = await find(self._api, f"{self._jobs()}/{RESTORE.job_name(metadata['name'])}")
        return job is not None and is_owned(job, metadata["uid"])

    async def _take_back(self, uid: str, zone: str, led: LedZone | str) -> str:
        """Remove the note of an import that was not made; return what that waits for.

        `led`: the zone as it was found.  `beginning` is held.  Raises ApiRefused if the Zone is not
        as it was seen.
        """
        if isinstance(led, LedZone):
            begun = annotated_import(led.body)
            if self._is_removable(begun, uid):
                await note_import(self._api, self._namespace, led, None)
            else:
                await prove_note(self._api, self._namespace, led)
        elif not await self._writers.is_gone(led, zone):
            return led
        return ""

    async def _without_import(
        self, body: Body, status: ZoneRestoreStatus, why: str, led: LedZone | str
    ) -> ZoneRestoreStatus:
        """Return the status of one that ends before its import is made; `beginning` is held.

        Its note is removed, or the message says how a person removes it.
        """
        uid, zone = body["metadata"]["uid"], zone_of(body)
        begun = annotated_import(led.body) if isinstance(led, LedZone) else None
        is_removable = self._is_removable(begun, uid)
        if waits := await self._take_back(uid, zone, led):
            return _waiting(status, waits)
        if begun is None or begun.run != run_word(uid) or is_removable:
            return _not_begun(body, status, why)
        return _not_begun(body, status, why, _still_noted(body))

    async def _imported(
        self, body: Body, status: ZoneRestoreStatus, result: ExportResult, led: LedZone
    ) -> ZoneRestoreStatus:
        """Return the status after the import; remove the note if the zone is whole."""
        begun = annotated_import(led.body)
        mine = note_of(ZoneRestore.parse_stored(body), status.export_id, begun)
        if result.outcome is RunOutcome.COMPLETE and begun == mine:
            await note_import(self._api, self._namespace, led, None)
        else:
            await prove_note(self._api, self._namespace, led)
            if result.outcome is not RunOutcome.COMPLETE:
                return _part(body, status, result, is_noted=begun is not None)
            if begun is not None:
                reason = f"another import, of {begun.place}, has begun meanwhile"
                return _part(body, status, ExportResult(RunOutcome.FAILED, reason=reason))
        counts = {"keys_kept": result.keys_kept, "rows_expired": result.rows_expired}
        message = _sentence(status.place, result)
        return finished_export(status.model_copy(update=counts), body, result, message)

    async def _lost(self, body: Body, status: ZoneRestoreStatus, why: str) -> ZoneRestoreStatus:
        if _is_check(status):
            async with self._writers.beginning:
                if not await self._has_import(body):
                    led = self._find(zone_of(body))
                    return await self._without_import(body, status, why, led)
            led = self._find(zone_of(body))
            if isinstance(led, str):
                return _waiting(status, led)
            begun = annotated_import(led.body)
            return _importing(body, status, begun.export_id if begun is not None else "")
        led = self._find(zone_of(body))
        is_noted = isinstance(led, str) or annotated_import(led.body) is not None
        return _part(body, status, unknown(why), is_noted)

    def _outcome(self, status: ZoneRestoreStatus) -> RunOutcome:
        return status.outcome or RunOutcome.UNKNOWN


def _is_check(status: ZoneRestoreStatus) -> bool:
    return status.job.endswith(f"-{CHECK.suffix}")


def _is_fresh(job: Body) -> bool:
    """Return whether a check has ended just now, so that an empty zone is still empty.

    A time that is not known, or is in the future, is no proof of that.
    """
    ended = ended_at(job)
    if not is_time(ended):
        return False
    return abs((datetime.now(UTC) - time_of(ended)).total_seconds()) <= FRESH_S


def _before(mine: Restoring) -> Restoring:
    """Return the note of an import until its Job is made, if there was no import before it."""
    return mine._replace(not_begun=True)


def _continues(job: Body) -> bool:
    """Return whether the check was of an import that had begun."""
    return CONTINUES in arguments_of(job["spec"]["template"], CHECK)


def _waiting(status: ZoneRestoreStatus, why: str) -> ZoneRestoreStatus:
    return status.model_copy(update={"message": why})


def _importing(body: Body, status: ZoneRestoreStatus, export_id: str) -> ZoneRestoreStatus:
    """Return the status of one whose import was made."""
    update = {
        "job": RESTORE.job_name(body["metadata"]["name"]),
        "export_id": export_id,
        "percent": None,
        "message": "its pod is being started",
    }
    return status.model_copy(update=update)


def _still_noted(body: Body) -> str:
    """Return how a note is removed of which it is not known whether it was the first."""
    zone, namespace = zone_of(body), body["metadata"]["namespace"]
    return (
        f"; Zone {zone} is still noted as not whole, because an earlier import may have left a part"
        " of the rows: create another ZoneRestore of the same source, or, if there was no earlier"
        f" one, remove the note: kubectl annotate zone {zone} {RESTORING}- --namespace {namespace}"
    )


def _not_begun(
    body: Body, status: ZoneRestoreStatus, reason: str, more: str = ""
) -> ZoneRestoreStatus:
    message = f"nothing is imported from {status.place}: {reason}{more}"
    result = ExportResult(RunOutcome.FAILED, reason=reason)
    return finished_export(status, body, result, message)


def _not_here(body: Body, status: ZoneRestoreStatus, reason: str) -> ZoneRestoreStatus:
    message = (
        f"{reason}; data that is kept of it may have only a part of {status.place}: a Zone that"
        f" gets this data is to be given up: {_GIVE_UP}"
    )
    return finished_export(status, body, ExportResult(RunOutcome.FAILED, reason=reason), message)


def _sentence(place: str, result: ExportResult) -> str:
    """Return the result of an import with a good end, in words."""
    if result.keys_kept is None or result.rows_expired is None:
        return (
            f"the zone has {result.rows} rows of {place} as exported, which were compared; its pod,"
            " of an earlier version, did not tell how many keys had another row, which stayed, and"
            " how many rows had expired"
        )
    if not result.keys_kept and not result.rows_expired:
        return f"the zone has all rows of {place}: {result.rows} were compared"
    return (
        f"the zone has {result.rows} rows of {place} as exported, which were compared;"
        f" {result.keys_kept} keys had another row, which stayed, and {result.rows_expired} rows"
        " had expired"
    )


def _part(
    body: Body, status: ZoneRestoreStatus, result: ExportResult, is_noted: bool = True
) -> ZoneRestoreStatus:
    """Return the status of an import without a good end; `is_noted`: the Zone says so."""
    state = "and is not Available" if is_noted else "and no note says so: it may be Available"
    message = (
        f"the zone may have only a part of {status.place}, {state}: {result.reason}; create"
        f" another ZoneRestore of the same source, and it goes on, or {_GIVE_UP}"
    )
    return finished_export(status, body, result, message)
