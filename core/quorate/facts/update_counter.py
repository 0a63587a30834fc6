"""Which updates of a partition a copy holds: low and high watermark and the ranges between.

Source: Ignite 2, "update counter structure".  LWM: every update up to it is held.  HWM: the highest
counter reserved.  Updates may arrive in any order, overlapping and repeated.
"""

from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet


class UpdateCounter:
    """Counter state of one copy.  Ranges are (start, delta): start is the last counter before."""

    __slots__ = ("_above", "hwm", "lwm")

    def __init__(self, lwm: int = 0, hwm: int = 0) -> None:
        self.lwm = lwm
        self.hwm = hwm
        self._above = IntervalSet()

    def reserve(self, delta: int = 1) -> int:
        """Reserve `delta` counters; the last counter before them.  Never reissues a held one."""
        start = max(self.hwm, self.lwm, self._above.max())
        self.hwm = start + delta
        return start

    def update(self, start: int, delta: int) -> bool:
        """Hold start+1..start+delta.  False when all of them were held already."""
        first, last = max(start + 1, self.lwm + 1), start + delta
        if last < first or not self._above.add(first, last):
            return False
        lwm = self._above.end_of_prefix(self.lwm)
        if lwm != self.lwm:
            self.lwm = lwm
            self._above.cut_below(lwm)
        return True

    def finalize(self) -> list[tuple[int, int]]:
        """Close every gap as no-ops (Ignite 2's finalizeUpdateCounters); the gaps, inclusive.

        Afterwards HWM is not below LWM.
        """
        top = self._above.max()
        gaps = self._above.gaps(self.lwm + 1, top) if top else []
        if top:
            self.lwm = top
            self._above = IntervalSet()
        self.hwm = max(self.hwm, self.lwm)
        return gaps

    def activate(self, upto: int) -> None:
        """LWM = HWM = `upto`, as an activation found it; what lies above is forgotten."""
        self.lwm = self.hwm = upto
        self._above = IntervalSet()

    @property
    def out_of_order(self) -> list[tuple[int, int]]:
        """Held ranges above LWM as (start, delta)."""
        return [(first - 1, last - first + 1) for first, last in self._above]

    @property
    def is_sequential(self) -> bool:
        """Whether nothing is held above LWM."""
        return self._above.is_empty()

    def missing(self, upto: int) -> list[tuple[int, int]]:
        """Inclusive ranges up to `upto` that are not held."""
        return self._above.gaps(self.lwm + 1, upto)


def check_primary_counter(counter: UpdateCounter) -> None:
    """I-2: on a primary HWM is never below LWM."""
    if counter.hwm < counter.lwm:
        raise InvariantError(f"HWM {counter.hwm} below LWM {counter.lwm}")
