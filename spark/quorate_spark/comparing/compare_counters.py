"""Judges whether the counters and lineages of a partition's copies agree, over several readings.

Pure.  Copies are read one after another while writes go on, so two copies rarely show the same LWM.
Therefore each of them must *reach* the first reading:

    the first reading in which all copies match (row version, term, adopted) sets the target,
    the highest counter any copy knows of.  A copy passes once its LWM is at the target: it then
    holds, without a gap, everything that any copy had known of.

    READING --all LWMs at the target, lineages alike-----> AGREE
    READING --all LWMs at the target, lineages differ----> DIFFER (lineage)
    READING --owner, row version or term changed---------> READING, with a new target
    at the end of the wait: a copy below the target whose LWM moved -> UNKNOWN (still catching up),
    whose LWM stood still -> DIFFER (lwm, or hwm if no copy holds the counters in between), or
    UNKNOWN if this target is too young: then a write may be on its way; also if the process of the
    copy catches up in other partitions: then this one may wait for its turn.

The target includes a write that a primary has reserved and not yet stored.  Either it is stored
soon, or its term ends, which sets a new target.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from quorate.facts.intervals import IntervalSet
from quorate_spark.copies import CopySeen
from quorate_spark.verdict import CopyChange, CopyCounters, CounterDifference


@dataclass(frozen=True, slots=True)
class Settled:
    """The copies agree on every counter up to each other's LWM.

    `target`: the highest counter that any of them knew of in the first comparable reading.
    """

    copies: tuple[CopySeen, ...]
    target: int

    @property
    def settled_upto(self) -> int:
        """The lowest LWM: every copy holds all updates up to it."""
        return min(copy.state.lwm for copy in self.copies)

    def is_of(self, copies: Sequence[CopySeen]) -> bool:
        """Return whether these are the same copies, with the same owners, terms and processes."""
        return _owner_facts(copies) == _owner_facts(self.copies)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The partition cannot be judged yet; `reason` says why.

    `is_final`: no later reading can change that.  `changes`: see Verdict.
    """

    reason: str
    is_final: bool = False
    changes: tuple[CopyChange, ...] = ()


Judgement = Settled | Unsettled | CounterDifference


class CounterWatch:
    """The readings of one partition so far."""

    __slots__ = (
        "_caught_up_at_s",
        "_first",
        "_first_at_s",
        "_identity",
        "_judgement",
        "_last",
        "_last_at_s",
        "_target",
        "partition",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self._identity: tuple[object, ...] = ()
        self._first: tuple[CopySeen, ...] = ()
        self._first_at_s = 0.0
        self._last: tuple[CopySeen, ...] = ()
        self._last_at_s = 0.0
        self._target = 0
        self._caught_up_at_s: dict[tuple[str, int], float] = {}
        self._judgement: Judgement = Unsettled(f"partition {partition}: was not read")

    def observe(self, copies: Sequence[CopySeen], now_s: float) -> Judgement:
        """Take one reading of all copies, hottest first; return the judgement so far."""
        self._judgement = self._judge(tuple(copies), now_s)
        return self._judgement

    def catching_up_since(self, since_s: float) -> set[tuple[str, int]]:
        """Return the processes of which a copy that was behind has advanced since then."""
        return {process for process, at_s in self._caught_up_at_s.items() if at_s >= since_s}

    def conclude(
        self, standstill_s: float, catching_up: Collection[tuple[str, int]] = ()
    ) -> Judgement:
        """Return the judgement after the wait: a copy that stood still below the target differs.

        `standstill_s`: for how long it must have been read to stand still.  `catching_up`: the
        processes that advanced copies of other partitions in that time.
        """
        if not isinstance(self._judgement, Unsettled) or not self._first:
            return self._judgement
        behind = [copy for copy in self._last if copy.state.lwm < self._target]
        lwm_at_first = {copy.node: copy.state.lwm for copy in self._first}
        moving = [copy for copy in behind if copy.state.lwm > lwm_at_first[copy.node]]
        if moving:
            return Unsettled(
                f"partition {self.partition}: "
                + ", ".join(
                    f"{copy.node} still catches up (LWM {lwm_at_first[copy.node]}, then"
                    f" {copy.state.lwm}, of {self._target})"
                    for copy in moving
                )
            )
        if self._last_at_s - self._first_at_s < standstill_s:
            return Unsettled(
                f"{self._judgement.reason} (its copies were comparable for less than"
                f" {standstill_s:g} s)"
            )
        waiting = [copy for copy in behind if copy.process in catching_up]
        if waiting:
            return Unsettled(
                f"partition {self.partition}: "
                + ", ".join(
                    f"{copy.node} stays at LWM {copy.state.lwm} of {self._target}, and its agent"
                    " still catches up in other partitions"
                    for copy in waiting
                )
            )
        return self._difference_of(behind)

    def _judge(self, copies: tuple[CopySeen, ...], now_s: float) -> Judgement:
        reason = why_not_comparable(self.partition, copies)
        if reason is not None:
            self._identity, self._first, self._last = (), (), ()
            return Unsettled(reason)
        identity = _owner_facts(copies)
        if identity != self._identity:
            self._identity, self._first, self._first_at_s = identity, copies, now_s
            self._target = max(known_counter(copy) for copy in copies)
        else:
            for before, copy in zip(self._last, copies, strict=True):
                if before.state.lwm < min(copy.state.lwm, self._target):
                    self._caught_up_at_s[copy.process] = now_s
        self._last, self._last_at_s = copies, now_s
        behind = [copy for copy in copies if copy.state.lwm < self._target]
        if behind:
            return Unsettled(
                f"partition {self.partition}: LWM of "
                + ", ".join(f"{copy.node} at {copy.state.lwm}" for copy in behind)
                + f", of {self._target}"
            )
        return lineage_difference(self.partition, copies) or Settled(copies, self._target)

    def _difference_of(self, behind: list[CopySeen]) -> CounterDifference:
        """Return the difference: stalled copies lack what others (lwm) or none (hwm) hold."""
        highest = max(copy.state.lwm for copy in self._last)
        if all(copy.state.lwm == highest for copy in self._last) and not any(
            copy.state.above for copy in self._last
        ):
            knows = max(self._last, key=known_counter)
            return CounterDifference(
                self.partition,
                "hwm",
                f"{knows.node} knows of counters up to {known_counter(knows)}, every copy's LWM"
                f" stays at {highest}",
                tuple(map(counters_of, self._last)),
            )
        return CounterDifference(
            self.partition,
            "lwm",
            "; ".join(_standstill(copy, self._target) for copy in behind),
            tuple(map(counters_of, self._last)),
        )


def why_not_comparable(partition: int, copies: Sequence[CopySeen]) -> str | None:
    """Return why the copies of one reading cannot be compared yet; None if they can."""
    if not copies:
        return f"partition {partition}: no agent owns a copy"
    first = copies[0].state
    for copy in copies[1:]:
        if copy.state.version != first.version:
            return (
                f"partition {partition}: {copies[0].node} knows row version {first.version},"
                f" {copy.node} {copy.state.version}: ownership is changing"
            )
        if copy.state.term != first.term:
            return (
                f"partition {partition}: {copies[0].node} is in term {first.term}, {copy.node} in"
                f" {copy.state.term}: its primary is being activated"
            )
    for copy in copies:
        if not copy.state.adopted:
            return (
                f"partition {partition}: {copy.node} has not adopted term {copy.state.term} yet:"
                " the copy is being repaired"
            )
    indices = [copy.state.replica_index for copy in copies]
    if indices != list(range(len(copies))):
        return (
            f"partition {partition}: of the agents asked, some own replica indices"
            f" {', '.join(map(str, indices))} and none those between: an owner is away, or was not"
            " named"
        )
    return None


def known_counter(copy: CopySeen) -> int:
    """Return the highest counter that the copy knows of."""
    state = copy.state
    return max(state.lwm, state.hwm, *(last for _, last in state.above), 0)


def lineage_difference(partition: int, copies: Sequence[CopySeen]) -> CounterDifference | None:
    """Return where two adopted copies differ in a counter's term, up to the lower LWM, if so."""
    for index, copy in enumerate(copies):
        for other in copies[index + 1 :]:
            upto = min(copy.state.lwm, other.state.lwm)
            agreed = copy.state.lineage.agreed_prefix(other.state.lineage, upto)
            if agreed < upto:
                return CounterDifference(
                    partition,
                    "lineage",
                    f"{copy.node} and {other.node} agree up to counter {agreed} only:"
                    f" {agreed + 1} is of term {copy.state.lineage.term_at(agreed + 1)} at one and"
                    f" {other.state.lineage.term_at(agreed + 1)} at the other",
                    tuple(map(counters_of, copies)),
                )
    return None


def counters_of(copy: CopySeen) -> CopyCounters:
    """Return the copy's counter state as a report shows it."""
    state = copy.state
    return CopyCounters(
        copy.node,
        state.replica_index,
        state.version,
        state.term,
        state.lwm,
        state.hwm,
        state.above,
        (state.lineage.base_term, state.lineage.base_counter),
        tuple((entry.term, entry.first) for entry in state.lineage.entries),
    )


def _owner_facts(copies: Sequence[CopySeen]) -> tuple[object, ...]:
    return tuple(copy.owner_facts for copy in copies)


def _standstill(copy: CopySeen, target: int) -> str:
    missing = IntervalSet(copy.state.above).gaps(copy.state.lwm + 1, target)
    ranges = ", ".join(
        f"{first}" if first == last else f"{first} to {last}" for first, last in missing
    )
    return f"{copy.node} stays at LWM {copy.state.lwm} of {target} and lacks {ranges}"
