"""Divergence, agreement and folding of lineages, against the definition word by word."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.errors import InvariantError
from quorate.facts.lineage import EMPTY_LINEAGE, Entry, Lineage

TOP = 14
TERMS = range(1, 14)


@st.composite
def histories(draw: st.DrawFn, closing: bool = True) -> Lineage:
    """Entries as activations leave them: rising terms, any first counter, closed counters below it.

    With every entry, as earlier versions kept them.
    """
    entries: tuple[Entry, ...] = ()
    for term in sorted(draw(st.sets(st.sampled_from(TERMS), max_size=5))):
        first = draw(st.integers(1, TOP))
        closed: tuple[tuple[int, int], ...] = ()
        if closing and first > 2 and draw(st.booleans()):
            low = draw(st.integers(1, first - 1))
            closed = ((low, draw(st.integers(low, first - 1))),)
        entries = (*entries, Entry(term, first, closed))
    return Lineage(0, 0, entries)


@st.composite
def both_ways(draw: st.DrawFn) -> tuple[Lineage, Lineage]:
    """A history with every entry, and the same with entries dropped by some of the primaries."""
    whole = draw(histories())
    lineage = EMPTY_LINEAGE
    for entry in whole.entries:
        if draw(st.booleans()):
            lineage = lineage.appended(entry)
        else:  # an earlier version's primary
            lineage = Lineage(0, 0, (*lineage.entries, entry))
    return whole, lineage


def closes(entry: Entry, counter: int) -> bool:
    return any(low <= counter <= high for low, high in entry.closed)


def is_divergent_by_definition(lineage: Lineage, term: int, counter: int) -> bool:
    own = [entry for entry in lineage.entries if entry.term == term]
    if not own:
        return True  # the term is not in the lineage
    later = [entry for entry in lineage.entries if entry.term > term]
    if any(entry.first <= counter for entry in later):
        return True  # a later entry starts at or below the counter
    if any(closes(entry, counter) for entry in later):
        return True  # a later entry closed it
    return counter < own[0].first and not closes(own[0], counter)  # below its term's first


@settings(derandomize=True, max_examples=200, deadline=None)
@given(histories())
def test_an_update_is_divergent_exactly_by_the_four_clauses(lineage: Lineage) -> None:
    for term in TERMS:
        for counter in range(1, TOP + 2):
            expected = is_divergent_by_definition(lineage, term, counter)
            assert lineage.is_divergent(term, counter) == expected, (term, counter)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(histories(), histories(), st.integers(0, TOP + 1))
def test_the_agreed_prefix_is_the_longest_with_equal_terms(
    one: Lineage, other: Lineage, upto: int
) -> None:
    agreed = 0
    while agreed < upto and one.term_at(agreed + 1) == other.term_at(agreed + 1):
        agreed += 1

    assert one.agreed_prefix(other, upto) == agreed
    assert other.agreed_prefix(one, upto) == agreed


@settings(derandomize=True, max_examples=200, deadline=None)
@given(histories(), st.lists(st.integers(0, TOP + 1), min_size=1, max_size=3))
def test_a_folded_lineage_judges_as_before_from_its_base_on(
    lineage: Lineage, settled: list[int]
) -> None:
    folded = lineage
    for counter in sorted(settled):
        folded = folded.folded(counter)

        assert folded.base_counter <= max(counter, 0)
        assert folded.last_term == lineage.last_term
        assert folded.last_first == lineage.last_first
    for term in TERMS:
        for counter in range(1, TOP + 2):
            judged, before = folded.is_divergent(term, counter), lineage.is_divergent(term, counter)
            if counter >= folded.base_counter:
                assert judged == before, (term, counter)
            else:  # forgotten there; but what belongs to the history never becomes divergent
                assert before or not judged, (term, counter)


@settings(derandomize=True, max_examples=120, deadline=None)
@given(histories(closing=False), histories(closing=False), st.integers(0, TOP), st.integers(1, TOP))
def test_folding_one_of_two_lineages_never_makes_them_agree_on_more(
    one: Lineage, tail: Lineage, settled: int, upto: int
) -> None:
    other = one
    for entry in tail.entries:
        if entry.term > one.last_term:
            other = other.appended(entry)
    folded = one.folded(settled)

    agreed = one.agreed_prefix(other, upto)
    assert folded.agreed_prefix(other, upto) in (0, agreed)
    if agreed >= folded.base_counter:
        assert folded.agreed_prefix(other, upto) == agreed


@settings(derandomize=True, max_examples=400, deadline=None)
@given(both_ways(), histories(), st.integers(0, TOP + 1), st.data())
def test_the_entries_that_are_dropped_decided_nothing(
    ways: tuple[Lineage, Lineage], other: Lineage, upto: int, data: st.DataObject
) -> None:
    whole, lineage = ways

    assert (lineage.last_term, lineage.last_first) == (whole.last_term, whole.last_first)
    for counter in range(TOP + 2):
        assert lineage.term_at(counter) == whole.term_at(counter), counter
        for term in TERMS:
            assert lineage.is_divergent(term, counter) == whole.is_divergent(term, counter)
    assert lineage.agreed_prefix(whole, upto) == upto
    assert lineage.agreed_prefix(other, upto) == whole.agreed_prefix(other, upto)
    assert other.agreed_prefix(lineage, upto) == other.agreed_prefix(whole, upto)
    held = data.draw(st.lists(st.integers(upto + 1, TOP + 2), max_size=3))
    terms = [term for term in map(whole.term_at, held) if term is not None]
    used, used_whole = lineage.without_unused(upto, terms), whole.without_unused(upto, terms)
    assert used.last_term == used_whole.last_term
    assert used.agreed_prefix(used_whole, TOP + 2) == TOP + 2


@settings(derandomize=True, max_examples=200, deadline=None)
@given(both_ways(), st.integers(0, TOP + 1))
def test_a_lineage_without_the_dropped_entries_folds_to_one_that_judges_the_same(
    ways: tuple[Lineage, Lineage], settled: int
) -> None:
    whole, lineage = (each.folded(settled) for each in ways)

    base = max(whole.base_counter, lineage.base_counter)
    for counter in range(base, TOP + 2):
        assert lineage.term_at(counter) == whole.term_at(counter), counter
    assert lineage.agreed_prefix(whole, TOP + 1) == TOP + 1


def test_terms_in_which_nothing_is_written_leave_one_entry() -> None:
    lineage = EMPTY_LINEAGE.appended(Entry(1, 1))
    for term in range(2, 1000):
        lineage = lineage.appended(Entry(term, 11))

    assert lineage == Lineage(0, 0, (Entry(1, 1), Entry(999, 11)))


def test_folding_keeps_the_term_of_the_base_when_a_later_one_left_nothing() -> None:
    """Term 3 began at 11 and so did term 5: counter 10 is still term 1's."""
    lineage = Lineage(0, 0, (Entry(1, 1), Entry(3, 11), Entry(5, 11)))

    folded = lineage.folded(20)

    assert folded == Lineage(1, 10, (Entry(5, 11),))
    assert not folded.is_divergent(1, 10)
    assert folded.agreed_prefix(lineage, 15) == 15


def test_terms_only_rise() -> None:
    lineage = EMPTY_LINEAGE.appended(Entry(4, 1))

    with pytest.raises(InvariantError, match="term 4 is not above 4"):
        lineage.appended(Entry(4, 9))


def test_a_stale_no_op_does_not_beat_an_acknowledged_update() -> None:
    """Voters A, B, C.  B leads term 2 and holds (2, 8) alone.  A activates term 3 over A and C,
    closes 8 and stops before it tells anybody.  B activates term 4 over B and C and keeps (2, 8).
    When B is lost, C's lineage decides, and A's no-op (3, 8) is divergent."""
    lineage_of_c = Lineage(0, 0, (Entry(2, 1), Entry(4, 9)))

    assert not lineage_of_c.is_divergent(2, 8)
    assert lineage_of_c.is_divergent(3, 8)
