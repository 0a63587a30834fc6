"""LWM, HWM and the ranges above LWM say exactly which counters a copy holds."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.errors import InvariantError
from quorate.facts.intervals import IntervalSet
from quorate.facts.lineage import Entry, Lineage
from quorate.facts.update_counter import UpdateCounter, check_primary_counter
from quorate.protocol.copies.copy import Copy
from quorate_lone_copies.copies import another_copy, check_rows, first_copy, held, take
from quorate_lone_copies.exchange import activate

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=20)


def copy_of(updates: list[tuple[int, int]]) -> Copy:
    """A copy that was given these updates: (the counter before, how many)."""
    copy = first_copy()
    for start, delta in updates:
        take(copy, start + 1, start + delta)
    return copy


@settings(derandomize=True, max_examples=150, deadline=None)
@given(ranges)
def test_it_holds_what_it_was_given_whatever_the_order(updates: list[tuple[int, int]]) -> None:
    copy, model = first_copy(), set[int]()
    for start, delta in updates:
        numbers = set(range(start + 1, start + delta + 1))
        assert take(copy, start + 1, start + delta) == bool(numbers - model)
        model |= numbers

        assert held(copy) == model
        assert copy.lwm + 1 not in model
        assert (not copy.above) == (len(model) == copy.lwm)
        check_rows(copy)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(ranges)
def test_an_activation_closes_exactly_the_gaps(updates: list[tuple[int, int]]) -> None:
    copy = copy_of(updates)
    before = held(copy)
    top = max(before, default=0)
    gaps = IntervalSet((n, n) for n in before).gaps(1, top)
    other = another_copy(copy)
    for first, last in gaps:
        take(other, first, last)

    assert activate("a", {"a": copy, "b": other}) == gaps
    assert copy.lwm == top
    assert not copy.above
    check_primary_counter(copy)
    check_rows(copy)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(ranges, st.integers(1, 12))
def test_a_reservation_never_gives_out_a_counter_that_is_held_or_reserved(
    updates: list[tuple[int, int]], count: int
) -> None:
    copy = copy_of(updates)
    taken = held(copy)
    for _ in range(count):
        counter = copy.reserve()

        assert counter not in taken
        assert copy.hwm == counter
        taken.add(counter)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_every_order_of_the_same_updates_ends_without_gaps(
    sizes: list[int], random: Random
) -> None:
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    updates = list(zip(starts, sizes, strict=True))
    random.shuffle(updates)
    copy = copy_of(updates)

    assert copy.lwm == sum(sizes)
    assert not copy.above
    check_rows(copy)


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
        counter.hold(term, first, first + more)
        while found := counter.next_held():
            counter.advance(*found)
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
