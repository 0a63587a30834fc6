"""Judges whether a partition's copies are equal while nothing is written (mode idle).

Pure.  In an idle zone every copy of a partition has the same row version and term, has adopted that
term, and is at the same LWM, above which no copy knows of anything (docs/protocol.md, section 2).
So the first reading is the one that counts, and each later one must be the same:

    a later reading shows another counter, lineage, row version, term or process, or another copy
        -> UNKNOWN, for good: updates came, or a copy moved
    the first reading cannot be compared, or a copy is being filled -> UNKNOWN, for good
    a copy stays behind, or a gap stays open, until the end of the wait -> DIFFER, as in mode live
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from quorate.facts.copy_state import State
from quorate_spark.comparing.compare_counters import (
    CounterWatch,
    Judgement,
    Settled,
    Unsettled,
    counters_of,
    why_not_comparable,
)
from quorate_spark.copies import CopySeen
from quorate_spark.verdict import CopyChange

TOLD_MAX = 3
"""Copies that a sentence names."""


class IdleWatch(CounterWatch):
    """The readings of one partition in which nothing may change.

    `before`: a first reading that was made earlier; empty: the next one is the first.
    """

    __slots__ = ("_before", "_end", "_zone")

    def __init__(self, partition: int, zone: str, before: tuple[CopySeen, ...] = ()) -> None:
        super().__init__(partition)
        self._zone = zone
        self._before = before
        self._end: Unsettled | None = None

    def observe(self, copies: Sequence[CopySeen], now_s: float) -> Judgement:
        """Take one reading of all copies, hottest first; return the judgement so far."""
        now = tuple(copies)
        self._before = self._before or now
        self._end = self._end or self._why_never(now)
        return self._end or super().observe(now, now_s)

    def conclude(
        self, standstill_s: float, catching_up: Collection[tuple[str, int]] = ()
    ) -> Judgement:
        """Return the judgement after the wait: a copy that stood still below the target differs."""
        return self._end or super().conclude(standstill_s, catching_up)

    def _why_never(self, now: tuple[CopySeen, ...]) -> Unsettled | None:
        if changed := change_of(self._zone, self.partition, self._before, now):
            return changed
        reason = why_not_comparable(self.partition, now)
        return None if reason is None else Unsettled(reason, is_final=True)


def idle_watches(zone: str, before: Mapping[int, Settled] | None) -> Callable[[int], IdleWatch]:
    """Return what makes the watch of a partition, which must stay as it was `before`."""

    def watch(partition: int) -> IdleWatch:
        settled = (before or {}).get(partition)
        return IdleWatch(partition, zone, settled.copies if settled is not None else ())

    return watch


def change_of(
    zone: str, partition: int, before: Sequence[CopySeen], after: Sequence[CopySeen]
) -> Unsettled | None:
    """Return what has changed between two readings, copy by copy; None: nothing has."""
    was, now = ({copy.node: copy for copy in copies} for copies in (before, after))
    told: list[str] = []
    changes: list[CopyChange] = []
    came = False
    for node in dict.fromkeys([*was, *now]):
        old, new = was.get(node), now.get(node)
        if old is None or new is None:
            told.append(f"{node} has {'a copy' if old is None else 'no copy'} now")
        elif is_same(old, new):
            continue
        else:
            came |= not _has_same_updates(old, new)
            told.append(_difference(old, new))
        changes.append(
            CopyChange(
                partition,
                node,
                None if old is None else counters_of(old),
                None if new is None else counters_of(new),
            )
        )
    if not changes:
        return None
    more = f"; and {len(told) - TOLD_MAX} more" if len(told) > TOLD_MAX else ""
    what = "updates came" if came else "a copy moved or its agent was restarted"
    return Unsettled(
        f"partition {partition} of zone {zone}: {what} while it ran"
        f" ({'; '.join(told[:TOLD_MAX])}{more})",
        True,
        tuple(changes),
    )


def is_same(before: CopySeen, after: CopySeen) -> bool:
    """Return whether two readings show one copy, to which nothing was written between them."""
    return before.owner_facts == after.owner_facts and _has_same_updates(before, after)


def copy_being_filled(zone: str, partition: int, strays: Sequence[CopySeen]) -> Unsettled | None:
    """Return that a copy is being filled by an agent that does not own the partition yet, if so.

    What is about to be deleted is no copy any more.
    """
    being = [copy for copy in strays if copy.state.partition == partition and _is_filling(copy)]
    if not being:
        return None
    return Unsettled(
        f"partition {partition} of zone {zone}: not settled: a copy on {being[0].node} is being"
        " filled",
        is_final=True,
    )


def unfinished_transactions(zone: str, partition: int, count: int) -> Unsettled:
    """Return that transactions are not finished in the partition: more will be written."""
    what = "1 transaction is" if count == 1 else f"{count} transactions are"
    return Unsettled(
        f"partition {partition} of zone {zone}: not settled: {what} not finished (a part is"
        " prepared, or a decision is not forgotten yet)",
        is_final=True,
    )


def _is_filling(copy: CopySeen) -> bool:
    return copy.state.state == State.MOVING


def _has_same_updates(before: CopySeen, after: CopySeen) -> bool:
    old, new = before.state, after.state
    if (old.lwm, old.hwm, old.above) != (new.lwm, new.hwm, new.above):
        return False
    # Lineages are folded, which changes nothing of what they say.
    return old.lineage.agreed_prefix(new.lineage, old.lwm) >= old.lwm


def _difference(old: CopySeen, new: CopySeen) -> str:
    if (old.store, old.incarnation) != (new.store, new.incarnation):
        return f"{old.node} was restarted or replaced: {_counters(old)}, then {_counters(new)}"
    if old.owner_facts != new.owner_facts:
        return f"{old.node}: {_place(old)}, {_counters(old)}, then {_place(new)}, {_counters(new)}"
    return f"{old.node}: {_counters(old)}, then {_counters(new)}"


def _counters(copy: CopySeen) -> str:
    return f"LWM {copy.state.lwm} HWM {copy.state.hwm}"


def _place(copy: CopySeen) -> str:
    state = copy.state
    return f"replica {state.replica_index} version {state.version} term {state.term}"
