"""Copies compared as columns: the same tally as key by key, however they are cut into chunks."""

from collections.abc import Iterator
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from quorate_spark.comparing.compare_columns import compare_copies
from quorate_spark.comparing.compare_rows import Baseline, PartitionTally
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
copies = st.dictionaries(st.sampled_from(KEYS), rows)


@st.composite
def zones(draw: st.DrawFn) -> list[list[StoredRow]]:
    """What three copies show: mostly the same rows."""
    common = draw(copies)
    return [
        [(key, *row) for key, row in sorted({**common, **other}.items()) if key not in lost]
        for other, lost in draw(
            st.lists(
                st.tuples(
                    st.one_of(st.just({}), copies), st.sets(st.sampled_from(KEYS), max_size=1)
                ),
                min_size=3,
                max_size=3,
            )
        )
    ]


def chunks(rows: list[StoredRow], size: int) -> Iterator[RowColumns]:
    for at in range(0, len(rows), size):
        yield RowColumns.of_rows(rows[at : at + size], values=True)


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
