"""LWM, HWM and the ranges above LWM say exactly which counters a copy holds."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.errors import InvariantError
from quorate.facts.lineage import Entry, Lineage
from quorate.facts.update_counter import UpdateCounter, check_primary_counter

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=20)


def held(counter: UpdateCounter) -> set[int]:
    above = {
        value
        for _, ranges in counter.held()
        for first, last in ranges
        for value in range(first, last + 1)
    }
    return set(range(1, counter.lwm + 1)) | above


@settings(derandomize=True, max_examples=150, deadline=None)
@given(ranges)
def test_it_holds_what_it_was_given_whatever_the_order(updates: list[tuple[int, int]]) -> None:
    counter, model = UpdateCounter(), set[int]()
    for start, delta in updates:
        numbers = set(range(start + 1, start + delta + 1))
        assert counter.update(start, delta) == bool(numbers - model)
        model |= numbers

        assert held(counter) == model
        assert counter.lwm + 1 not in model
        assert (not counter.above) == (len(model) == counter.lwm)
    top = max(model, default=0)
    assert {v for a, b in counter.missing(top) for v in range(a, b + 1)} == set(
        range(1, top + 1)
    ) - model


@settings(derandomize=True, max_examples=200, deadline=None)
@given(ranges)
def test_finalize_closes_exactly_the_gaps(updates: list[tuple[int, int]]) -> None:
    counter = UpdateCounter()
    for start, delta in updates:
        counter.update(start, delta)
    before = held(counter)
    top = max(before, default=0)
    gaps = counter.finalize()

    assert {v for a, b in gaps for v in range(a, b + 1)} == set(range(1, top + 1)) - before
    assert counter.lwm == top
    assert not counter.above
    check_primary_counter(counter)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(ranges, st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_a_reservation_never_gives_out_a_counter_that_is_held_or_reserved(
    updates: list[tuple[int, int]], deltas: list[int]
) -> None:
    counter, taken = UpdateCounter(), set[int]()
    for start, delta in updates:
        counter.update(start, delta)
    taken = held(counter)
    for delta in deltas:
        start = counter.reserve(delta)
        reserved = set(range(start + 1, start + delta + 1))

        assert not reserved & taken
        assert counter.hwm == start + delta
        taken |= reserved


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_every_order_of_the_same_updates_ends_without_gaps(
    sizes: list[int], random: Random
) -> None:
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    updates = list(zip(starts, sizes, strict=True))
    random.shuffle(updates)
    counter = UpdateCounter()
    for start, delta in updates:
        counter.update(start, delta)

    assert counter.lwm == sum(sizes)
    assert not counter.above


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([3, 5, 8]), st.integers(1, 9), st.integers(0, 8)), max_size=12
    ),
    st.integers(1, 6),
    st.integers(0, 6),
)
def test_lwm_follows_only_updates_in_the_terms_of_the_lineage(
    updates: list[tuple[int, int, int]], second: int, later: int
) -> None:
    lineage = Lineage(3, 0, (Entry(5, second), Entry(8, second + later)))
    counter, model = UpdateCounter(lineage=lineage), set[tuple[int, int]]()
    for term, first, more in updates:
        counter.update(first - 1, more + 1, term)
        model |= {(term, at) for at in range(first, first + more + 1)}
        right = 0
        while (lineage.term_at(right + 1), right + 1) in model:
            right += 1

        assert counter.lwm == right
    kept = {
        at for low, high in counter.held_under(lineage, counter.lwm) for at in range(low, high + 1)
    }
    assert kept == set(range(1, counter.lwm + 1)) | {
        at for term, at in model if not lineage.is_divergent(term, at)
    }


def test_a_primary_whose_hwm_is_below_its_lwm_is_impossible() -> None:
    counter = UpdateCounter(lwm=5, hwm=4)

    with pytest.raises(InvariantError, match="HWM 4 below LWM 5"):
        check_primary_counter(counter)
