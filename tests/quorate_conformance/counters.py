"""What Quorate's copies owe to a counter case, and where they depart from the reference.

Real copies take the updates one by one, activate and fill.  Where the reference finalizes or sets a
counter, ours activates: it fetches what other copies hold.  What no copy holds is not closed as
no-ops: the history is cut there, since nothing above a gap was ever answered to a client.
"""

from collections.abc import Callable
from typing import Any

from quorate.facts.copy_state import State
from quorate.facts.intervals import IntervalSet
from quorate.protocol.copies.copy import Copy
from quorate_conformance.case_files import Case
from quorate_lone_copies.copies import (
    another_copy,
    check_rows,
    fill,
    filled,
    first_copy,
    held,
    take,
)
from quorate_lone_copies.exchange import activate

IN_BYTES = "which way to fill a copy is decided by bytes, not by numbers of updates and rows"

KEEPS_RANGES_BELOW_LWM = "pme_set_second_time_keeps_gaps"
"""The reference's name: its second set leaves a range below LWM behind; ours has none there."""


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "cases":
        return _bulk if "bulk" in case.facts else _steps
    judges: dict[str, Callable[[Case], None] | str] = {
        "owner_election": _who_lacks_nothing,
        "irrecoverable_restart": _copies_repair_each_other,
        "rebalance_kind": IN_BYTES,
    }
    return judges.get(case.section, f"there is no judge for the section {case.section!r}")


def _steps(case: Case) -> None:
    """Every step as the reference answers, unless its ranges overlap: then as a set would."""
    copy, model = first_copy(), set[int]()
    overlaps = False
    for step in case.facts["steps"]:
        if step["op"] == "update":
            start, delta = step["start"], step["delta"]
            numbers = set(range(start + 1, start + delta + 1))
            overlaps = overlaps or (bool(numbers & model) and not numbers <= model)
            was_new = take(copy, start + 1, start + delta)
            assert was_new == bool(numbers - model)
            assert was_new == step["returns"] or overlaps
            model |= numbers
        elif step["op"] == "reserve":
            assert [copy.reserve() for _ in range(step["delta"])] == [
                step["returns"] + number for number in range(1, step["delta"] + 1)
            ]
        elif step["op"] == "finalize":
            gaps = _gaps(model, max(model, default=0))
            assert [bound for gap in gaps for bound in gap] == (step["returns"] or [])
            _is_cut_where_nobody_holds(copy, gaps)
            _activate_with(copy, gaps)
            model = set(range(1, max(model, default=0) + 1))
        elif step["op"] == "set":
            _activate_with(copy, _gaps(model, step["value"]))
            model = set(range(1, step["value"] + 1))
        else:
            raise AssertionError(f"unknown step {step}")
        if not overlaps:
            _is_as_told(case.name, copy, step)
        assert held(copy) == model
        check_rows(copy)
    expected = case.facts.get("exact_set_model")
    if expected:
        assert copy.lwm == expected["lwm"]
        assert [list(pair) for pair in _ranges(copy)] == expected["out_of_order"]
    assert bool(expected) == overlaps


def _is_as_told(name: str, copy: Copy, step: dict[str, Any]) -> None:
    above = [] if name == KEEPS_RANGES_BELOW_LWM and step["op"] == "set" else step["out_of_order"]
    assert copy.lwm == step["lwm"]
    assert copy.hwm == step["hwm"]
    assert [list(pair) for pair in _ranges(copy)] == above


def _ranges(copy: Copy) -> list[tuple[int, int]]:
    """Held above LWM, as the reference writes it: (the counter before, how many)."""
    return [(first - 1, last - first + 1) for _, pairs in copy.held() for first, last in pairs]


def _gaps(numbers: set[int], upto: int) -> list[tuple[int, int]]:
    return IntervalSet((n, n) for n in numbers).gaps(1, upto)


def _activate_with(copy: Copy, gaps: list[tuple[int, int]]) -> None:
    """Another copy holds these updates: the copy activates and asks for exactly them."""
    other = another_copy(copy)
    for first, last in gaps:
        take(other, first, last)
    assert activate("a", {"a": copy, "b": other}) == gaps


def _is_cut_where_nobody_holds(copy: Copy, gaps: list[tuple[int, int]]) -> None:
    """A copy that holds the same, among copies that hold no more, goes on before its first gap."""
    alike = another_copy(copy, upto=copy.lwm)
    for _, pairs in copy.held():
        for first, last in pairs:
            take(alike, first, last)
    assert held(alike) == held(copy)
    top = gaps[0][0] - 1 if gaps else copy.lwm
    assert activate("a", {"a": alike, "b": another_copy(copy, upto=copy.lwm)}) == []
    assert (alike.lwm, alike.hwm, alike.above) == (top, top, {})
    check_rows(alike)


def _bulk(case: Case) -> None:
    """The reference stops at so many ranges.  Ours takes as many, and more.  These overlap, so in
    the end they are one."""
    count = case.facts["expected"]["queued"]
    ranges = [(3 * at, 3 * at + 1) for at in range(1, count + 1)]
    ranges.append((3 * count + 6, 3 * count + 7))
    copy = first_copy()
    for start, _ in ranges:
        assert take(copy, start + 1, start + 1)
    assert len(_ranges(copy)) == count + 1
    seen, at = {start + 1 for start, _ in ranges}, 0
    for start, delta in ranges:
        at = max(at, start)  # the other ranges had what is before
        while at < start + delta:
            at += 1
            assert take(copy, at, at) == (at not in seen)

    assert copy.lwm == 0
    assert _ranges(copy) == [(3, at - 3)]
    check_rows(copy)


def _who_lacks_nothing(case: Case) -> None:
    """In a new term, copies that own and lack nothing that an owner holds adopt at once; the rest
    must fill, and then they are like the owners."""
    lwm, states, expect = case.facts["lwm"], case.facts["states"], case.facts["expect"]
    copies = {node: first_copy() for node in lwm}
    for node, copy in copies.items():
        take(copy, 1, lwm[node])
    owning = [node for node in lwm if states[node] == "OWNING"]
    freshest = max(owning, key=lambda node: lwm[node])
    primary = copies[freshest]
    activate(freshest, {node: copies[node] for node in owning})
    fills = {}
    for node, copy in copies.items():
        if node == freshest:
            continue
        assert primary.promise_holder is not None
        assert copy.promise(primary.promise_term, primary.promise_holder)
        fills[node] = fill(copy, primary, primary.lineage.last_first - 1)
        if fills[node].is_complete():
            fills[node].finish()

    assert [node for node in lwm if copies[node].state is State.OWNING] == expect["owners"]
    assert [node for node in lwm if copies[node].state is State.MOVING] == expect["moving"]
    for node, count in case.facts.get("missing", {}).items():
        assert IntervalSet(fills[node].missing()).count() == count
    for node in expect["moving"]:
        check_rows(filled(fills[node], primary))
        assert (copies[node].lwm, copies[node].state) == (primary.lwm, State.OWNING)


def _copies_repair_each_other(case: Case) -> None:
    """The reference stops or wipes such copies.  Ours exchange what they hold and end alike,
    whichever activates; only what no copy holds is given up, with what comes after it."""
    states = [case.facts["backup1_state"], case.facts["backup2_state"]]
    for primary, other in (("a", "b"), ("b", "a")):
        copies = {}
        for node, state in zip("ab", states, strict=True):
            copies[node] = first_copy()
            take(copies[node], 1, state["lwm"])
            for start, delta in state["out_of_order"]:
                take(copies[node], start + 1, start + delta)
            assert max(held(copies[node])) == state["highest_applied"]
        before = held(copies["a"]) | held(copies["b"])
        gaps = _gaps(before, max(before))
        top = gaps[0][0] - 1 if gaps else max(before)

        activate(primary, copies)
        chosen = copies[primary]
        filled(fill(copies[other], chosen, chosen.lineage.last_first - 1), chosen)

        for copy in copies.values():
            assert held(copy) == set(range(1, top + 1))
            assert [at for at, _, _ in copy.storage.log_read(0, 1, 1 << 62, 1 << 30)] == [
                *range(1, top + 1)
            ]
            check_rows(copy)
