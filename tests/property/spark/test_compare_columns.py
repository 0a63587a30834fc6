"""Copies compared as columns: the same tally as key by key, however they are cut into chunks."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate_spark.comparing.compare_columns import compare_copies
from quorate_spark.comparing.compare_rows import Baseline, Candidate, PartitionTally
from quorate_spark.reading.read_copies import StoredRow
from quorate_spark.reading.recheck import row_seen
from quorate_spark.row_columns import RowColumns

NODES = ("A", "B", "C")
SETTLED = 5
CANDIDATES_MAX = 3
KEYS = [b"", b"\0", b"a", b"a\0", b"ab", b"b", b"\xff"]

rows = st.tuples(
    st.integers(SETTLED - 1, SETTLED + 2),
    st.integers(1, 2),
    st.sampled_from([0, 0, 9]),
    st.sampled_from([None, b"", b"v", b"w"]),
)
copies = st.dictionaries(st.sampled_from(KEYS), rows, min_size=1)
FIELDS = st.sampled_from(
    [(0, SETTLED), (0, SETTLED + 1), (1, 1), (1, 2), (2, 9), (3, None), (3, b"v"), (3, b"w")]
)


@st.composite
def zones(draw: st.DrawFn) -> list[list[StoredRow]]:
    """Rows of three copies: the same, but for a few fields, rows and missing rows."""
    common = draw(copies)
    shown: list[dict[bytes, list[Any]]] = [
        {key: list(row) for key, row in common.items()} for _ in NODES
    ]
    for copy, key in draw(st.lists(st.tuples(st.sampled_from(shown), st.sampled_from(KEYS)))):
        field, value = draw(FIELDS)
        if key in copy:
            copy[key][field] = value
    for copy, key in draw(
        st.lists(st.tuples(st.sampled_from(shown), st.sampled_from(KEYS)), max_size=2)
    ):
        if copy.pop(key, None) is None:
            copy[key] = list(draw(rows))
    return [[(key, *copy[key]) for key in sorted(copy)] for copy in shown]


def chunks(rows: list[StoredRow], size: int) -> Iterator[RowColumns]:
    for at in range(0, len(rows), size):
        yield RowColumns.of_rows(rows[at : at + size], values=True)


@settings(max_examples=300)
@given(zones(), st.lists(st.integers(1, 8), min_size=3, max_size=3))
def test_columns_and_keys_give_the_same_tally(
    shown: list[list[StoredRow]], sizes: list[int]
) -> None:
    baseline = Baseline(0, NODES, SETTLED)
    expected = PartitionTally(baseline)
    for key in sorted({row[0] for copy in shown for row in copy}):
        found = [
            row_seen(node, row)
            for node, copy in zip(NODES, shown, strict=True)
            for row in copy
            if row[0] == key
        ]
        expected.count(key, found, CANDIDATES_MAX)
    streams = {
        node: chunks(copy, size) for node, copy, size in zip(NODES, shown, sizes, strict=True)
    }

    assert compare_copies(streams, baseline, CANDIDATES_MAX) == expected


def test_keys_that_agree_or_are_unsettled_cost_no_work_of_their_own() -> None:
    """Also beside one that differs, and where a copy lacks a row or two."""
    same: list[StoredRow] = [(b"%05d" % n, n % SETTLED, 3, 0, b"v") for n in range(2000)]
    newer = [(key, SETTLED + 1, *rest) for key, _, *rest in same[:500]]
    damaged = [*newer, *same[500:1500], (b"01500", 1, 3, 0, b"x"), *same[1501:]]
    missing = [*same[:700], *same[701:]]
    counted: list[bytes] = []

    def count(self: PartitionTally, key: bytes, *rest: object) -> None:
        counted.append(key)

    with patch.object(PartitionTally, "count", count):
        tally = compare_copies(
            {"A": chunks(same, 300), "B": chunks(damaged, 500), "C": chunks(missing, 7000)},
            Baseline(0, NODES, SETTLED),
            CANDIDATES_MAX,
        )

    assert counted == [b"00700", b"01500"]
    assert (tally.settled, tally.unsettled) == (1498, 500)


def test_no_copy_is_read_ahead_of_the_others_by_more_than_a_chunk() -> None:
    """So what is in memory does not grow with the partition."""
    reached = dict.fromkeys(NODES, b"")

    def read(node: str, size: int) -> Iterator[RowColumns]:
        for chunk in chunks([(b"%05d" % n, 1, 3, 0, b"v") for n in range(1000)], size):
            assert reached[node] == min(reached.values())
            reached[node] = chunk.key(len(chunk) - 1)
            yield chunk

    sizes = {"A": 10, "B": 70, "C": 300}
    streams = {node: read(node, size) for node, size in sizes.items()}

    assert compare_copies(streams, Baseline(0, NODES, SETTLED), CANDIDATES_MAX).settled == 1000


def test_of_unsettled_keys_the_one_with_the_highest_counter_term_and_key_is_kept() -> None:
    new = SETTLED + 1
    a: list[StoredRow] = [(b"a", new, 2, 0, b"v"), (b"b", new, 1, 0, b"v"), (b"c", 1, 3, 0, b"v")]
    b: list[StoredRow] = [(b"a", new, 2, 0, b"v"), (b"b", new, 1, 0, None), (b"d", new, 1, 0, b"")]
    streams = {"A": chunks(a, 9), "B": chunks(b, 9)}

    tally = compare_copies(streams, Baseline(0, ("A", "B"), SETTLED), CANDIDATES_MAX)

    assert tally.highest == Candidate(0, b"a", (new, 2))
    assert (tally.unsettled, tally.differing) == (3, 1)
