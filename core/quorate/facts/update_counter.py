"""The updates of a partition that a copy holds: its LWM, its HWM and the ranges between.

Source: Ignite 2, "update counter structure"; docs/protocol.md, section 2. LWM: every update up to
it is held, in the terms of the lineage. HWM: the highest counter reserved, as far as the copy was
told. Updates may arrive in any order, overlapping and repeated, and of more than one term: until a
term is adopted, the copy cannot know which of two updates with the same counter will last.
"""

from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import EMPTY_LINEAGE, Lineage


class UpdateCounter:
    """Counter state of one copy. `above[term]`: ranges held above LWM."""

    __slots__ = ("above", "hwm", "lineage", "lwm")

    def __init__(self, lwm: int = 0, hwm: int = 0, lineage: Lineage = EMPTY_LINEAGE) -> None:
        self.lwm = lwm
        self.hwm = hwm
        self.lineage = lineage
        self.above: dict[int, IntervalSet] = {}

    def reserve(self) -> int:
        """Reserve the counter above all that are held or reserved, and return it."""
        start = self.hwm
        if start < self.lwm:
            start = self.lwm
        if self.above:
            start = max(start, self.highest_held())
        self.hwm = start + 1
        return self.hwm

    def hold(self, term: int, first: int, last: int) -> bool:
        """Note first..last of `term` as held; LWM stays. Return whether any of them is new."""
        if first <= self.lwm:
            end = min(last, self.lwm)
            if not (self.lineage.is_divergent(term, first) or self.lineage.is_divergent(term, end)):
                first = end + 1
        if last < first:
            return False
        ranges = self.above.get(term)
        if ranges is None:
            ranges = self.above[term] = IntervalSet()
        return ranges.add(first, last)

    def next_held(self) -> tuple[int, int] | None:
        """Return (term, last): the held updates of one term that follow LWM in the lineage.

        None if there are none.
        """
        term = self.lineage.term_at(self.lwm + 1)
        if term is None or term not in self.above:
            return None
        last = self.above[term].end_of_prefix(self.lwm)
        if last == self.lwm:
            return None
        return term, self.lineage.stretches(self.lwm + 1, last)[0][1]

    def advance(self, term: int, last: int) -> None:
        """Move LWM to `last` over held updates of `term`, as returned by `next_held`."""
        self.lwm = last
        ranges = self.above[term]
        ranges.cut_below(last)
        if ranges.is_empty():
            del self.above[term]

    def highest_held(self) -> int:
        """Return the highest counter held."""
        return max([self.lwm, *(ranges.max() for ranges in self.above.values())])

    def held(self) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """Return the held ranges above LWM by term, in order of term."""
        return tuple((term, tuple(self.above[term])) for term in sorted(self.above))

    def held_under(self, lineage: Lineage, prefix: int) -> IntervalSet:
        """Return the held counters that `lineage` keeps, if it agrees with our rows to `prefix`."""
        return kept_under(lineage, prefix, self.held())


def kept_under(
    lineage: Lineage, prefix: int, held: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
) -> IntervalSet:
    """Return 1..`prefix` and those of `held` that are not divergent against `lineage`."""
    kept = IntervalSet([(1, prefix)])
    for term, ranges in held:
        for first, last in ranges:
            for low, high in lineage.stretches(first, last):
                if not lineage.is_divergent(term, low):
                    kept.add(low, high)
    return kept


def check_primary_counter(counter: UpdateCounter) -> None:
    """Raise InvariantError if HWM is below LWM (I-2: it never is on a primary)."""
    if counter.hwm < counter.lwm:
        raise InvariantError(f"HWM {counter.hwm} below LWM {counter.lwm}")
