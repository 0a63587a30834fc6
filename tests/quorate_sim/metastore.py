"""The product's metastore in memory, made slow, conflicting and silent about what it did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import Conflict, Key, Revision, ShardKey, Stored, Value, ZoneKey
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_sim.world import MS, World

if TYPE_CHECKING:
    from quorate_sim.checks import Checks, Decided

T = TypeVar("T")
Outcome = Literal["written", "conflict", "unknown"]


def _done(call: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never waits answers: a dict needs no event loop."""
    try:
        call.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    raise AssertionError(f"{call} waits")


class SimMetastore:
    """Requests and answers take a while; some answers never come, some writes are very late."""

    def __init__(self, world: World, checks: Checks, trouble: float) -> None:
        self.world = world
        self.checks = checks
        self.trouble = trouble
        self.in_flight: list[Value] = []
        self.store = MemoryMetastore()
        self.master_term = 0
        """The number that was counted last."""
        self.recovering = False
        """It was lost: the next masters rebuild it, until one of them has."""
        self.ended: set[str] = set()
        """Zones whose record was deleted."""
        self._stalled: dict[str, list[Callable[[], None]]] = {}

    def lose(self, master_term: int) -> None:
        """All that it holds is gone, also what is on its way; masterships go on above this one."""
        self.store = MemoryMetastore()
        self.ended.clear()
        self.in_flight.clear()
        self.recovering = True
        self.acquire_master_term(master_term)

    def stored(self) -> dict[Key, Stored]:
        """Everything, as of now."""
        return _done(self.store.load())

    def value(self, key: Key) -> Value | None:
        """One object's value, as of now."""
        stored = _done(self.store.read(key))
        return stored.value if stored is not None else None

    def _delay(self) -> int:
        delay = self.world.random.randrange(1 * MS, 8 * MS)
        if self.world.chance(self.trouble * 0.2):
            delay += self.world.random.randrange(100, 1500) * MS
        return delay

    def cut(self, who: str) -> None:
        """Nothing that this master asks for gets through, nor any answer to it."""
        self._stalled.setdefault(who, [])

    def heal(self, who: str) -> None:
        """What it asked for goes on: also writes of whose answers it has despaired long ago."""
        for action in self._stalled.pop(who, []):
            self.world.after(self._delay(), action)

    def _pass(self, who: str, action: Callable[[], None]) -> None:
        """Do `action` for this master, once it is not cut off."""
        if who in self._stalled:
            self._stalled[who].append(action)
        else:
            action()

    def write(
        self,
        who: str,
        key: Key,
        value: Value | None,
        expected: Revision | None,
        known: Mapping[str, NodeRecord],
        zone: ZoneRecord | None,
        answer: Callable[[Outcome, Revision], None],
    ) -> None:
        """Write when the object is at `expected`; `answer` may hear that nobody knows.

        `known`, `zone`: the registrations that the master knows which decided this, and its record
        of the zone whose rows these are."""
        decided = self.checks.deciding(known, zone)
        cut_off = who in self._stalled
        lost = cut_off or self.world.chance(self.trouble)
        late = lost and self.world.chance(0.3)
        never = lost and not late and self.world.chance(0.5)
        if cut_off:
            late, never = True, False
        if value is not None:
            self.in_flight.append(value)
        store = self.store

        def apply() -> None:
            if self.store is not store:
                return  # it was lost meanwhile
            if value is not None:
                self.in_flight.remove(value)
            if never:
                return
            outcome, revision = self._apply(key, value, expected, decided)
            if not lost:
                self.world.after(
                    self._delay(), lambda: self._pass(who, lambda: answer(outcome, revision))
                )

        delay = self._delay()
        late_us = self.world.random.randrange(2000) * MS if late and not cut_off else 0
        self.world.after(delay + late_us, lambda: self._pass(who, apply))
        if lost:
            self.world.after(delay + 50 * MS, lambda: answer("unknown", ""))

    def _apply(
        self, key: Key, value: Value | None, expected: Revision | None, decided: Decided
    ) -> tuple[Outcome, Revision]:
        before = self.value(key)
        try:
            revision = _done(self.store.write(key, value, expected))
        except Conflict:
            return "conflict", ""
        if isinstance(key, ZoneKey) and value is None:
            self.ended.add(key.uid)
        # Rows of a zone that has ended, by a former master, follow no others, and are deleted.
        if isinstance(key, ShardKey) and value is not None and key.uid not in self.ended:
            self.checks.rows_written(key.uid, before or (), value, decided)
        if isinstance(value, NodeRecord):
            self.checks.node_written(value)
        return "written", revision

    def read(self, who: str, key: Key, answer: Callable[[Stored | None], None]) -> None:
        """One object as of some moment before the answer."""

        def apply() -> None:
            stored = _done(self.store.read(key))
            self.world.after(self._delay(), lambda: self._pass(who, lambda: answer(stored)))

        self.world.after(self._delay(), lambda: self._pass(who, apply))

    def load(self, who: str, answer: Callable[[dict[Key, Stored]], None]) -> None:
        """Everything as of some moment before the answer."""

        def apply() -> None:
            stored = self.stored()
            self.world.after(self._delay(), lambda: self._pass(who, lambda: answer(stored)))

        self.world.after(self._delay(), lambda: self._pass(who, apply))

    def acquire_master_term(self, above: int = 0) -> int:
        """Count one more holder of the mastership."""
        self.master_term = _done(self.store.acquire_master_term(above))
        return self.master_term
