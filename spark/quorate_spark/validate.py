"""Finds out whether all copies of a zone agree, while writes go on.

1. Read the counters of all copies repeatedly until each copy has reached what any of them knew at
   first (`compare_counters`).  A copy that does not reach it differs.  Level counters ends here.
2. Level rows: c of each partition is the lowest LWM of that reading.  Read all rows of all copies
   and compare those that are settled (`compare_rows`, on Spark: `scan_rows`).
3. Repeat step 1 for what the copies know *now*.  A copy that changed its owner, row version, term
   or process meanwhile was not read as one copy: its partition starts over, a few times.
4. Read keys that differed again (`recheck`); those that differ in the same way are damaged.

In mode idle (`comparing.idle`) nothing may change from the first reading to the last: there is one
pass, whose step 3 looks for changes.  Step 4 is the same: a difference must be confirmed.

Level digest is level rows with another step 2 (`digest_scan`): digests first, and rows only where
these differ.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from quorate_spark.comparing.classes import count_classes
from quorate_spark.comparing.client_times import client_times
from quorate_spark.comparing.compare_counters import CounterWatch, Judgement, Settled, Unsettled
from quorate_spark.comparing.compare_rows import Again, Baseline, PartitionTally
from quorate_spark.comparing.idle import change_of, copy_being_filled, idle_watches
from quorate_spark.comparing.outvoted import votes_by_rows
from quorate_spark.copies import AgentTimes, CopySeen, Reading
from quorate_spark.passes.digest_scan import DigestScan
from quorate_spark.passes.executors import Led
from quorate_spark.passes.executors_watch import ExecutorsWatch
from quorate_spark.passes.scan_rows import RowScan, ScannedPartition, SparkRowScan
from quorate_spark.passes.spark_session import SparkMissing, own_spark
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Cluster, Unreadable, parse_addresses
from quorate_spark.reading.open_transactions import open_transactions
from quorate_spark.reading.recheck import recheck
from quorate_spark.reading.settle import ZoneCopies, settle
from quorate_spark.settings import Settings
from quorate_spark.verdict import (
    CopyChange,
    CounterDifference,
    KeyDifference,
    Level,
    Mode,
    Outcome,
    Verdict,
    answer_rate,
    could_not_tell,
)

REASONS_MAX = 20


def run_validation(
    zone: str,
    agents: Sequence[str],
    level: Level,
    *,
    work_dir: Path,
    cluster: Cluster,
    partitions: int = 0,
    replicas: int = 0,
    settings: Settings,
    progress: Progress | None = None,
    mode: Mode = Mode.LIVE,
    led: Led | None = None,
) -> Verdict:
    """Validate `zone` through the peer ports `agents`, with its own Spark for level rows.

    `work_dir` must exist and be used by this run only; the caller removes what Spark leaves there.
    `partitions` and `replicas`: see ZoneCopies.  `led`: executors that read the rows.  Outside
    conditions are never raised: a verdict says what could not be read or started.
    """
    cluster = cluster.counting()
    try:
        copies = ZoneCopies(zone, parse_addresses(",".join(agents)), cluster, partitions, replicas)
        if level is Level.COUNTERS:
            return Validation(copies, settings, progress, mode).run(None)
        if level is Level.DIGEST:
            digests = DigestScan(copies, settings, progress, mode)
            validation = Validation(copies, settings, mode=mode)
            verdict = validation.run(digests, level)
            return digests.figures_added(verdict, validation.confirmed_partitions)
        with own_spark(work_dir, led) as session:
            watch = None if led is None else ExecutorsWatch(led, work_dir)
            scan = SparkRowScan(session, zone, copies.agents, cluster, settings, progress, watch)
            return Validation(copies, settings, mode=mode).run(scan)
    except (Unreadable, SparkMissing) as error:
        way_out = " (--level digest works without)" if isinstance(error, SparkMissing) else ""
        unknown = could_not_tell(zone, level, f"{error}{way_out}")
        return msgspec.structs.replace(unknown, copies_expected=partitions * replicas, mode=mode)


class Validation:
    """One run; `run` is called once."""

    def __init__(
        self,
        copies: ZoneCopies,
        settings: Settings,
        progress: Progress | None = None,
        mode: Mode = Mode.LIVE,
    ) -> None:
        """`progress`: of level counters; with rows, it is the scan that tells it."""
        self._is_idle = mode is Mode.IDLE
        self._last_reading_from = 0.0
        self._progress = progress
        self._copies = copies
        self._settings = settings
        self._reading = Reading({}, (), ())
        self._first_times: Mapping[str, AgentTimes] = {}
        self._reasons: dict[int, str] = {}
        self._changes: dict[int, tuple[CopyChange, ...]] = {}
        self._counter_differences: dict[int, CounterDifference] = {}
        self._findings: dict[int, Finding] = {}

    def run(self, scan_rows: RowScan | None, level: Level = Level.ROWS) -> Verdict:
        """Compare counters, and with `scan_rows` also rows; `level` is then the level reported."""
        started = time.monotonic()
        whole_reason = ""
        try:
            settled = self._settle(None)
            first = self._reading
            self._first_times = first.times
            whole_reason = self._copies.absence(first)
            if self._is_idle:
                settled = self._without_unfinished(settled)
            if scan_rows is not None:
                self._compare_rows(settled, scan_rows)
            elif self._is_idle:
                self._settle(settled)
            if len((first.uids | self._reading.uids) - {""}) > 1:
                whole_reason = f"zone {self._copies.zone}: was created again while it ran"
                # A difference may be one between the two zones.
                self._findings.clear()
                self._counter_differences.clear()
        except Unreadable as error:
            whole_reason = str(error)
        if scan_rows is None:
            level = Level.COUNTERS
        return self._verdict(level, whole_reason, time.monotonic() - started)

    @property
    def confirmed_partitions(self) -> frozenset[int]:
        """The partitions of which a key is confirmed to differ, also those that no list names."""
        return frozenset(each for each, finding in self._findings.items() if finding.confirmed)

    def _settle(self, before: Mapping[int, Settled] | None) -> dict[int, Settled]:
        """Return the settled partitions; keep the reason or the difference of the others."""
        new_watch: Callable[[int], CounterWatch] = CounterWatch
        if self._is_idle:
            new_watch = idle_watches(self._copies.zone, before)
            if before is not None:
                time.sleep(max(self._last_reading_from - time.monotonic(), 0.0))
        self._reading, judgements = settle(
            self._copies, self._settings, before, self._progress, new_watch
        )
        if before is None:  # only now is the first reading over: agents may have been asked again
            self._last_reading_from = time.monotonic() + self._settings.idle_s
        settled: dict[int, Settled] = {}
        for partition, judgement in sorted(judgements.items()):
            self._take_in(partition, judgement)
            if isinstance(judgement, Settled):
                settled[partition] = judgement
        return settled

    def _take_in(self, partition: int, judgement: Judgement) -> None:
        self._reasons.pop(partition, None)
        self._changes.pop(partition, None)
        match judgement:
            case Unsettled(reason, changes=changes):
                self._reasons[partition] = reason
                if changes:
                    self._changes[partition] = changes
            case CounterDifference():
                self._counter_differences[partition] = judgement
            case Settled():
                pass

    def _without_unfinished(self, settled: dict[int, Settled]) -> dict[int, Settled]:
        """Return the partitions without an open transaction, of which no copy is being filled.

        For mode idle.  The reasons of the others are kept.
        """
        zone, strays = self._copies.zone, self._reading.strays
        primaries = {partition: each.copies[0] for partition, each in settled.items()}
        unfinished = open_transactions(primaries, zone, self._copies.cluster, self._settings)
        for partition in settled:
            if being_filled := copy_being_filled(zone, partition, strays):
                unfinished[partition] = being_filled
        for partition, unsettled in unfinished.items():
            self._take_in(partition, unsettled)
        return {each: settled[each] for each in settled if each not in unfinished}

    def _compare_rows(self, settled: dict[int, Settled], scan_rows: RowScan) -> None:
        """Run steps 2 to 4, again for the partitions that could not be judged."""
        for attempt in range(1 if self._is_idle else self._settings.passes_max):
            if attempt:
                reasons = dict(self._reasons)
                settled = self._settle(settled)
                # A partition that settles again is not yet compared again: the old reason stays
                # until then.
                self._reasons = reasons | self._reasons
            if not settled:
                return
            settled = self._compare_once(settled, scan_rows)

    def _compare_once(self, before: dict[int, Settled], scan_rows: RowScan) -> dict[int, Settled]:
        """Make one pass; return the partitions that need another one, and keep their reasons."""
        scanned = scan_rows(
            {partition: baseline_of(partition, s) for partition, s in before.items()}
        )
        after = self._settle(before)
        findings: dict[int, Finding] = {}
        with_candidates = sum(1 for r in scanned.values() if r.tally.differing and not r.problem)
        share = max(self._settings.rechecks_max // max(with_candidates, 1), 1)
        for partition, result in scanned.items():
            if partition not in after:
                continue  # its reason or its counter difference was kept
            reason = result.problem or _moved(
                partition, before[partition].copies, after[partition].copies
            )
            if not reason:
                try:
                    found = self._recheck(result, after[partition], share)
                except Unreadable as error:
                    reason = str(error)
                else:
                    findings[partition] = found
                    reason = found.reason
            if reason:
                self._reasons[partition] = reason
        self._keep_unmoved(findings, after)
        return {
            partition: settled
            for partition, settled in before.items()
            if partition in self._reasons
        }

    def _recheck(self, scanned: ScannedPartition, now: Settled, share: int) -> "Finding":
        """Read the keys that differed again, as many as `share` allows."""
        tally = scanned.tally
        finding = Finding(tally, scanned.suspicion)
        candidates = list(tally.candidates)
        if tally.highest is not None and tally.highest.winner[0] > now.target:
            # Above everything that any copy knows of now: it would never settle.
            candidates.insert(0, tally.highest)
            # While nothing is written, all that are above what copies know of are such keys.
            finding.never_given_out = tally.unsettled if self._is_idle else 1
        for candidate in candidates[:share]:
            copies = self._copies
            finding.count(recheck(candidate, now, copies.zone, copies.cluster, self._settings))
        if self._is_idle and finding.gone and not finding.suspicion:
            finding.suspicion = (
                f"partition {tally.baseline.partition}: {finding.gone} keys differed when they were"
                " first read and no more when they were read again, although no counter has changed"
            )
        return finding

    def _keep_unmoved(
        self, findings: Mapping[int, "Finding"], after: Mapping[int, Settled]
    ) -> None:
        """Keep findings whose copies are unchanged after they were read again."""
        if any(finding.confirmed for finding in findings.values()):
            self._reading = self._copies.read(self._settings)
        for partition, finding in findings.items():
            now = self._reading.owned.get(partition, ())
            before = after[partition].copies
            moved = self._moved(partition, before, now) if finding.confirmed else None
            if moved is not None:
                self._take_in(partition, moved)
            elif not finding.reason:
                self._findings[partition] = finding

    def _moved(
        self, partition: int, before: tuple[CopySeen, ...], after: tuple[CopySeen, ...]
    ) -> Unsettled | None:
        """Return how the copies changed so that two readings are not of the same ones."""
        if self._is_idle:
            return change_of(self._copies.zone, partition, before, after)
        reason = _moved(partition, before, after)
        return Unsettled(reason) if reason else None

    def _verdict(self, level: Level, whole_reason: str, seconds: float) -> Verdict:
        findings = self._findings.values()
        differences = [difference for finding in findings for difference in finding.confirmed]
        reasons = [whole_reason] if whole_reason else []
        reasons += [reason for _, reason in sorted(self._reasons.items())]
        if differences or self._counter_differences:
            outcome = Outcome.DIFFER
        else:
            outcome = Outcome.UNKNOWN if reasons else Outcome.AGREE
        owned, received = self._reading.owned, self._copies.cluster.received
        reads, writes = client_times(self._first_times, self._reading.times)
        votes = votes_by_rows(differences, self._copies.replicas)
        return Verdict(
            self._copies.zone,
            level,
            outcome,
            reasons=_bounded(reasons),
            notes=self._notes(),
            nodes=self._reading.nodes,
            partitions=len(owned),
            copies=sum(map(len, owned.values())),
            copies_expected=self._copies.partitions * self._copies.replicas,
            settled_keys=sum(f.tally.settled + f.gone for f in findings),
            unsettled_keys=sum(f.tally.unsettled - f.never_given_out for f in findings),
            differing_keys=sum(f.differing for f in findings),
            confirmed_keys=len(differences),
            counter_differences=tuple(d for _, d in sorted(self._counter_differences.items()))[
                : self._settings.differences_max
            ],
            differing_partitions=len(self._counter_differences),
            classes=count_classes(
                self._counter_differences.values(), differences, len(self._reasons)
            ),
            key_differences=tuple(differences[: self._settings.differences_max]),
            outvoted=votes.outvoted,
            undecided=votes.undecided,
            duration_ms=round(seconds * 1000),
            client_reads=reads,
            client_writes=writes,
            rows_compared=sum(finding.rows for finding in findings),
            zone_uid=_uid(self._reading),
            answered=answer_rate(received.bytes_of, seconds) if received.is_whole else None,
            mode=Mode.IDLE if self._is_idle else Mode.LIVE,
            changes=_whole_partitions(self._changes, self._settings.differences_max),
            changed_partitions=len(self._changes),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = []
        counts = sorted({len(copies) for copies in self._reading.owned.values()})
        if len(counts) > 1 and not self._copies.replicas:
            notes.append(f"partitions have between {counts[0]} and {counts[-1]} copies")
        if counts == [1]:
            notes.append("every partition has one copy only: there was nothing to compare it with")
        if self._reading.strays:
            notes.append(
                f"{len(self._reading.strays)} copies on nodes that do not own their partition were"
                " left out (being filled, or about to be deleted)"
            )
        gone = sum(finding.gone for finding in self._findings.values())
        if gone and not self._is_idle:
            notes.append(
                f"{gone} keys differed when they were first read and no more when they were read"
                " again (deleted or overwritten meanwhile)"
            )
        if self._changes:
            notes.append(
                "updates are writes of clients, of imports and of repairs, the steps of"
                " transactions, and the removal of keys that have expired"
            )
        return tuple(notes)


class Finding:
    """The findings of one pass in one partition, after its differing keys were read again.

    `suspicion`: see ScannedPartition.  `never_given_out`: how many unsettled keys have counters
    that no copy knows of, so that they differ; the one with the highest is read again.  In mode
    live only that one is counted, the others may have been written meanwhile.
    """

    __slots__ = ("confirmed", "gone", "never_given_out", "other", "suspicion", "tally")

    def __init__(self, tally: PartitionTally, suspicion: str = "") -> None:
        self.tally = tally
        self.suspicion = suspicion
        self.confirmed: list[KeyDifference] = []
        self.gone = 0
        self.other = 0
        self.never_given_out = 0

    def count(self, again: KeyDifference | Again) -> None:
        """Count one key that was read again."""
        if isinstance(again, KeyDifference):
            self.confirmed.append(again)
        elif again is Again.GONE:
            self.gone += 1
        else:
            self.other += 1

    @property
    def differing(self) -> int:
        """How many keys differed at first and were not found to be alike since."""
        return self.tally.differing + self.never_given_out - self.gone

    @property
    def rows(self) -> int:
        """How many rows were compared: keys times copies."""
        tally = self.tally
        keys = tally.settled + tally.unsettled + tally.differing
        return keys * len(tally.baseline.nodes)

    @property
    def reason(self) -> str:
        """Why the partition cannot be judged by this pass.

        Empty if it can: a difference is proven, or nothing is left to prove.
        """
        if self.confirmed:
            return ""
        if not self.differing:
            return self.suspicion
        return (
            f"partition {self.tally.baseline.partition}: {self.differing} keys differed when they"
            " were first read, and it could not be confirmed (too many of them, or overwritten)"
        )


def baseline_of(partition: int, settled: Settled) -> Baseline:
    """Return the baseline for rows that are read from now on."""
    nodes = tuple(copy.node for copy in settled.copies)
    return Baseline(partition, nodes, settled.settled_upto)


def _moved(partition: int, before: tuple[CopySeen, ...], after: tuple[CopySeen, ...]) -> str:
    if [copy.owner_facts for copy in before] == [copy.owner_facts for copy in after]:
        return ""
    return (
        f"partition {partition}: its copies changed owner, row version, term or process while they"
        f" were read ({_places(before)}; then {_places(after)})"
    )


def _uid(reading: Reading) -> str:
    """Return the zone's uid; empty: no agent tells it, or they tell of two zones."""
    uids = reading.uids - {""}
    return next(iter(uids)) if len(uids) == 1 else ""


def _places(copies: tuple[CopySeen, ...]) -> str:
    return (
        ", ".join(
            f"{copy.node} version {copy.state.version} term {copy.state.term}" for copy in copies
        )
        or "no copy"
    )


def _whole_partitions(
    changes: Mapping[int, tuple[CopyChange, ...]], most: int
) -> tuple[CopyChange, ...]:
    """Return the changes of the first partitions, at least of one, and of each all or none."""
    listed: list[CopyChange] = []
    for _, each in sorted(changes.items()):
        if listed and len(listed) + len(each) > most:
            break
        listed += each
    return tuple(listed)


def _bounded(reasons: list[str]) -> tuple[str, ...]:
    if len(reasons) <= REASONS_MAX:
        return tuple(reasons)
    return (*reasons[:REASONS_MAX], f"and {len(reasons) - REASONS_MAX} more of the kind")
