"""An interval set is a set of integers, whatever is added, removed or cut in which order."""

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.intervals import IntervalSet

TOP = 40
values = st.integers(1, TOP)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "cut"]), values, values), max_size=25
)


def applied(steps: list[tuple[str, int, int]]) -> tuple[IntervalSet, set[int]]:
    intervals, model = IntervalSet(), set[int]()
    for change, first, last in steps:
        numbers = set(range(first, last + 1))
        if change == "add":
            assert intervals.add(first, last) == bool(numbers - model)
            model |= numbers
        elif change == "remove":
            intervals.remove(first, last)
            model -= numbers
        else:
            intervals.cut_below(first)
            model = {value for value in model if value > first}
    return intervals, model


def members(ranges: list[tuple[int, int]]) -> set[int]:
    return {value for first, last in ranges for value in range(first, last + 1)}


@settings(derandomize=True, max_examples=150, deadline=None)
@given(changes)
def test_it_has_the_members_of_the_set_in_normal_form(steps: list[tuple[str, int, int]]) -> None:
    intervals, model = applied(steps)
    ranges = list(intervals)

    assert members(ranges) == model
    assert all(first <= last for first, last in ranges)
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(ranges))
    assert intervals.count() == len(model)
    assert intervals.max() == max(model, default=0)
    assert intervals.is_empty() == (not model)
    assert [value in intervals for value in range(TOP + 2)] == [
        value in model for value in range(TOP + 2)
    ]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(changes, values, values)
def test_gaps_and_prefix_are_what_the_set_says(
    steps: list[tuple[str, int, int]], first: int, last: int
) -> None:
    intervals, model = applied(steps)

    assert members(intervals.gaps(first, last)) == set(range(first, last + 1)) - model
    end = intervals.end_of_prefix(first)
    assert set(range(first + 1, end + 1)) <= model
    assert end + 1 not in model


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.tuples(values, values), max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_additions_does_not_matter(
    ranges: list[tuple[int, int]], random: Random
) -> None:
    shuffled = ranges[:]
    random.shuffle(shuffled)

    assert IntervalSet(ranges) == IntervalSet(shuffled)


def test_a_copy_is_independent() -> None:
    original = IntervalSet([(1, 3)])
    other = original.copy()
    other.add(4, 9)

    assert list(original) == [(1, 3)]
    assert original != other
