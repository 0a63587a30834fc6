"""A metastore in memory that is slow, conflicts, and sometimes does not say what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from quorate.protocol.metastore import Key, ShardKey, Value
from quorate_sim.world import MS, World

if TYPE_CHECKING:
    from quorate_sim.checks import Checks

Outcome = Literal["written", "conflict", "unknown"]


class SimMetastore:
    """Objects under compare-and-set.  Every request takes a while, the answer another."""

    def __init__(self, world: World, checks: Checks, trouble: float) -> None:
        self.world = world
        self.checks = checks
        self.trouble = trouble
        self.objects: dict[Key, tuple[Value, int]] = {}
        self.in_flight: list[Value] = []
        self.master_terms = 0
        self._revision = 0

    def _delay(self) -> int:
        return self.world.random.randrange(1 * MS, 8 * MS)

    def write(
        self,
        key: Key,
        value: Value | None,
        expected: int | None,
        answer: Callable[[Outcome, int], None],
    ) -> None:
        """Write when the object is at `expected`; `answer` may hear that nobody knows."""
        lost = self.world.chance(self.trouble)
        late = lost and self.world.chance(0.3)
        never = lost and not late and self.world.chance(0.5)
        if value is not None:
            self.in_flight.append(value)

        def apply() -> None:
            if value is not None:
                self.in_flight.remove(value)
            if never:
                return
            outcome, revision = self._apply(key, value, expected)
            if not lost:
                self.world.after(self._delay(), lambda: answer(outcome, revision))

        delay = self._delay()
        self.world.after(delay + (self.world.random.randrange(2000) * MS if late else 0), apply)
        if lost:
            self.world.after(delay + 50 * MS, lambda: answer("unknown", 0))

    def _apply(self, key: Key, value: Value | None, expected: int | None) -> tuple[Outcome, int]:
        present = self.objects.get(key)
        if (present[1] if present else None) != expected:
            return "conflict", 0
        self._revision += 1
        if value is None:
            self.objects.pop(key, None)
            return "written", 0
        if isinstance(key, ShardKey):
            self.checks.rows_written(present[0] if present else (), value)
        self.objects[key] = (value, self._revision)
        return "written", self._revision

    def read(self, key: Key, answer: Callable[[Value | None, int | None], None]) -> None:
        """One object as of some moment before the answer."""

        def apply() -> None:
            value, revision = self.objects.get(key, (None, None))
            self.world.after(self._delay(), lambda: answer(value, revision))

        self.world.after(self._delay(), apply)

    def load(self, answer: Callable[[dict[Key, tuple[Value, int]]], None]) -> None:
        """Everything as of some moment before the answer."""

        def apply() -> None:
            objects = dict(self.objects)
            self.world.after(self._delay(), lambda: answer(objects))

        self.world.after(self._delay(), apply)

    def acquire_master_term(self) -> int:
        """Count one more holder of the mastership."""
        self.master_terms += 1
        return self.master_terms
