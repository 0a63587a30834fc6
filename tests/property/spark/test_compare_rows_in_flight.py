"""Copies that take the same updates at different times, read key by key meanwhile: whatever the
order, what is in flight is never called damage, and damage to a settled row always is."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from quorate_spark.comparing.compare_rows import (
    Again,
    Baseline,
    Candidate,
    PartitionTally,
    RowSeen,
    judge_again,
)

NODES = ("A", "B", "C")
KEYS = (b"k0", b"k1", b"k2")
TERM = 3


@dataclass
class ModelCopy:
    """Rows by the protocol's rule: per key the highest counter wins, in any order of arrival."""

    node: str
    rows: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    flushed: int = 0

    @property
    def lwm(self) -> int:
        counter = 0
        while counter + 1 in self.held:
            counter += 1
        return counter

    def apply(self, counter: int, key: bytes | None, value: bytes | None) -> None:
        if counter in self.held:
            return
        self.held.add(counter)
        if key is None:
            self.flushed = max(self.flushed, counter)
            self.rows = {k: row for k, row in self.rows.items() if row[0] > counter}
        elif counter > max(self.rows.get(key, (0, None))[0], self.flushed):
            self.rows[key] = (counter, value)

    def purge(self, settled: int) -> None:
        """Forget the tombstones that all copies are past."""
        self.rows = {
            key: row for key, row in self.rows.items() if row[1] is not None or row[0] > settled
        }

    def row(self, key: bytes) -> list[RowSeen]:
        if key not in self.rows:
            return []
        counter, value = self.rows[key]
        return [RowSeen(self.node, counter, TERM, 0, value)]


class Model:
    """Three copies and the updates on their way."""

    def __init__(self) -> None:
        self.copies = [ModelCopy(node) for node in NODES]
        self.updates: list[tuple[bytes | None, bytes | None]] = []

    def step(self, data: st.DataObject) -> None:
        """Something happens, or nothing."""
        match data.draw(st.sampled_from(["nothing", "write", "arrive", "arrive", "purge"])):
            case "write":
                key = data.draw(st.sampled_from([*KEYS, None]))
                value = data.draw(st.sampled_from([b"x", b"y", None])) if key else None
                self.updates.append((key, value))
                self.deliver(self.copies[0], len(self.updates))
            case "arrive":
                copy = data.draw(st.sampled_from(self.copies[1:]))
                missing = [c for c in range(1, len(self.updates) + 1) if c not in copy.held]
                if missing:
                    self.deliver(copy, data.draw(st.sampled_from(missing)))
            case "purge":
                data.draw(st.sampled_from(self.copies)).purge(self.settled)
            case _:
                pass

    def deliver(self, copy: ModelCopy, counter: int) -> None:
        copy.apply(counter, *self.updates[counter - 1])

    def deliver_all(self) -> None:
        for copy in self.copies:
            for counter in range(1, len(self.updates) + 1):
                self.deliver(copy, counter)

    @property
    def settled(self) -> int:
        return min(copy.lwm for copy in self.copies)

    def baseline(self) -> Baseline:
        return Baseline(0, NODES, self.settled)

    def read(self, data: st.DataObject, keys: tuple[bytes, ...]) -> dict[bytes, list[RowSeen]]:
        """Every copy's row of every key, with something happening between any two of them."""
        seen: dict[bytes, list[RowSeen]] = {key: [] for key in keys}
        places = [(copy, key) for copy in self.copies for key in keys]
        for copy, key in data.draw(st.permutations(places)):
            seen[key] += copy.row(key)
            self.step(data)
        return seen


def validated(model: Model, data: st.DataObject) -> list[Candidate]:
    """The keys that a validation reports as differing, in its own steps."""
    tally = PartitionTally(model.baseline())
    for key, rows in model.read(data, KEYS).items():
        tally.count(key, rows, 100)
    known = len(model.updates)
    assert tally.settled + tally.unsettled + tally.differing == len(KEYS)
    candidates = list(tally.candidates)
    if tally.highest is not None and tally.highest.winner[0] > known:
        candidates.append(tally.highest)
    # What the validation waits for: every copy holds what any copy knew of.
    for copy in model.copies:
        for counter in range(1, known + 1):
            model.deliver(copy, counter)
    confirmed = []
    for candidate in candidates:
        later = model.baseline()
        assert later.settled_upto >= known
        rows = model.read(data, (candidate.key,))[candidate.key]
        if judge_again(candidate, rows, later)[0] is Again.CONFIRMED:
            confirmed.append(candidate)
    return confirmed


@given(st.data())
def test_what_is_in_flight_is_never_called_damage(data: st.DataObject) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(0, 12))):
        model.step(data)

    assert validated(model, data) == []


@given(st.data())
def test_a_damaged_row_that_stays_is_always_found(data: st.DataObject) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(0, 8))):
        model.step(data)
    model.updates.append((b"k0", b"x"))
    model.deliver_all()
    copy = data.draw(st.sampled_from(model.copies))
    counter = copy.rows[b"k0"][0]
    match data.draw(st.sampled_from(["value", "lost", "deleted", "older", "newer"])):
        case "value":
            copy.rows[b"k0"] = (counter, b"damaged")
        case "lost":
            del copy.rows[b"k0"]
        case "deleted":
            copy.rows[b"k0"] = (counter, None)
        case "older":
            copy.rows[b"k0"] = (counter - 1, b"x")
        case _:
            copy.rows[b"k0"] = (10_000, b"x")
    before = len(model.updates)

    found = validated(model, data)

    # Unless it was overwritten, deleted or flushed meanwhile, which heals it.
    touched = any(key in (b"k0", None) for key, _ in model.updates[before:])
    assert touched or [candidate.key for candidate in found] == [b"k0"]
