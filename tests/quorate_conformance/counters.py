"""What Quorate's update counter owes to a counter case, and where it departs from the reference."""

from collections.abc import Callable
from typing import Any

from quorate.facts.intervals import IntervalSet
from quorate.facts.update_counter import UpdateCounter
from quorate_conformance.case_files import Case

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
    counter, model = UpdateCounter(), set[int]()
    overlaps = False
    for step in case.facts["steps"]:
        if step["op"] == "update":
            start, delta = step["start"], step["delta"]
            numbers = set(range(start + 1, start + delta + 1))
            overlaps = overlaps or (bool(numbers & model) and not numbers <= model)
            was_new = counter.update(start, delta)
            assert was_new == bool(numbers - model)
            assert was_new == step["returns"] or overlaps
            model |= numbers
        elif step["op"] == "reserve":
            assert counter.reserve(step["delta"]) == step["returns"]
        elif step["op"] == "finalize":
            gaps = [bound for gap in counter.finalize() for bound in gap]
            assert gaps == (step["returns"] or [])
            model = set(range(1, counter.lwm + 1))
        elif step["op"] == "set":
            counter.activate(step["value"])
            model = set(range(1, counter.lwm + 1))
        else:
            raise AssertionError(f"unknown step {step}")
        if not overlaps:
            _is_as_told(case.name, counter, step)
        assert _held(counter) == model
    expected = case.facts.get("exact_set_model")
    if expected:
        assert counter.lwm == expected["lwm"]
        assert [list(pair) for pair in _ranges(counter)] == expected["out_of_order"]
    assert bool(expected) == overlaps


def _is_as_told(name: str, counter: UpdateCounter, step: dict[str, Any]) -> None:
    above = [] if name == KEEPS_RANGES_BELOW_LWM and step["op"] == "set" else step["out_of_order"]
    assert counter.lwm == step["lwm"]
    assert counter.hwm == step["hwm"]
    assert [list(pair) for pair in _ranges(counter)] == above
    assert (not counter.above) == (not above)


def _ranges(counter: UpdateCounter) -> list[tuple[int, int]]:
    """Held above LWM, as the reference writes it: (the counter before, how many)."""
    return [(first - 1, last - first + 1) for _, held in counter.held() for first, last in held]


def _held(counter: UpdateCounter) -> set[int]:
    above = _ranges(counter)
    numbers = {n for start, delta in above for n in range(start + 1, start + delta + 1)}
    return numbers | set(range(1, counter.lwm + 1))


def _bulk(case: Case) -> None:
    """The reference stops at so many ranges.  These overlap: for us they are one, and no limit."""
    count = case.facts["expected"]["queued"]
    counter = UpdateCounter()
    for at in range(1, count + 1):
        assert counter.update(3 * at, 3 * at + 1)
    last_start, last_delta = 3 * count + 6, 3 * count + 7
    assert counter.update(last_start, last_delta)

    assert counter.lwm == 0
    assert _ranges(counter) == [(3, last_start + last_delta - 3)]


def _who_lacks_nothing(case: Case) -> None:
    """Copies that own and lack nothing that an owner holds stay owners; the rest must fill."""
    lwm, states, expect = case.facts["lwm"], case.facts["states"], case.facts["expect"]
    held = max(lwm[node] for node in lwm if states[node] == "OWNING")
    lacks = {node: UpdateCounter(lwm[node]).missing(held) for node in lwm}
    owners = [node for node in lwm if states[node] == "OWNING" and not lacks[node]]

    assert owners == expect["owners"]
    assert [node for node in lwm if node not in owners] == expect["moving"]
    for node, count in case.facts.get("missing", {}).items():
        assert IntervalSet(lacks[node]).count() == count


def _copies_repair_each_other(case: Case) -> None:
    """The reference stops or wipes such copies.  Ours exchange what they hold and end alike;
    only what no copy holds is given up."""
    states = [case.facts["backup1_state"], case.facts["backup2_state"]]
    held: set[int] = set()
    copies = []
    for state in states:
        counter = UpdateCounter(state["lwm"])
        for start, delta in state["out_of_order"]:
            assert counter.update(start, delta)
        held |= _held(counter)
        copies.append(counter)
    for counter in copies:
        for other in states:
            counter.update(0, other["lwm"])
            for start, delta in other["out_of_order"]:
                counter.update(start, delta)

    top = max(state["highest_applied"] for state in states)
    for counter in copies:
        assert _held(counter) == held
        missing = {n for first, last in counter.missing(top) for n in range(first, last + 1)}
        assert missing == set(range(1, top + 1)) - held
    assert [c.lwm for c in copies] == [copies[0].lwm] * 2
