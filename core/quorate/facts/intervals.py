"""A set of counters kept as ranges.

Ranges may be added in any order and may overlap: the same members always give an equal value.
Bounds are inclusive.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """A set of integers as sorted, disjoint, non-adjacent inclusive ranges."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int) -> bool:
        """Add first..last (nothing if last < first). Return whether any of them was new."""
        if last < first:
            return False
        firsts, lasts = self._firsts, self._lasts
        left = bisect_left(lasts, first - 1)
        right = bisect_right(firsts, last + 1)
        if left == right:
            firsts.insert(left, first)
            lasts.insert(left, last)
            return True
        if right == left + 1 and firsts[left] <= first and last <= lasts[left]:
            return False
        first = min(first, firsts[left])
        last = max(last, lasts[right - 1])
        firsts[left:right] = [first]
        lasts[left:right] = [last]
        return True

    def remove(self, first: int, last: int) -> None:
        """Remove first..last (nothing if last < first)."""
        if last < first:
            return
        kept: list[tuple[int, int]] = []
        for low, high in self:
            if high < first or low > last:
                kept.append((low, high))
                continue
            if low < first:
                kept.append((low, first - 1))
            if high > last:
                kept.append((last + 1, high))
        self._firsts = [low for low, _ in kept]
        self._lasts = [high for _, high in kept]

    def __contains__(self, value: int) -> bool:
        index = bisect_left(self._lasts, value)
        return index < len(self._lasts) and self._firsts[index] <= value

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(tuple(self._firsts), tuple(self._lasts), strict=True))

    def is_empty(self) -> bool:
        """Return whether the set has no members. `bool` of it is ambiguous: TypeError."""
        return not self._firsts

    def __bool__(self) -> bool:
        raise TypeError("use is_empty(): the truth of an interval set is ambiguous")

    def __eq__(self, other: object) -> bool:  # which also makes it unhashable: it is mutable
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    def copy(self) -> "IntervalSet":
        """Return an independent copy."""
        other = IntervalSet()
        other._firsts = self._firsts[:]
        other._lasts = self._lasts[:]
        return other

    def end_of_prefix(self, start: int) -> int:
        """Return the highest n such that the set has all of start+1..n, or `start`."""
        index = bisect_left(self._lasts, start + 1)
        if index < len(self._lasts) and self._firsts[index] <= start + 1:
            return self._lasts[index]
        return start

    def cut_below(self, value: int) -> None:
        """Remove everything up to and including `value`."""
        firsts, lasts = self._firsts, self._lasts
        index = bisect_right(lasts, value)
        del firsts[:index]
        del lasts[:index]
        if firsts and firsts[0] <= value:
            firsts[0] = value + 1

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of first..last that are not in the set."""
        missing: list[tuple[int, int]] = []
        at = first
        for low, high in self:
            if high < at:
                continue
            if low > last:
                break
            if low > at:
                missing.append((at, low - 1))
            at = high + 1
        if at <= last:
            missing.append((at, last))
        return missing

    def count(self) -> int:
        """Return how many integers are in the set."""
        return sum(high - low + 1 for low, high in self)

    def max(self) -> int:
        """Return the highest member; 0 if the set is empty."""
        return self._lasts[-1] if self._lasts else 0
