"""Differences are counted by class: what differs, and how many partitions were not judged."""

import pytest

from quorate_spark.comparing.classes import count_classes
from quorate_spark.verdict import CopyRow, CounterDifference, KeyDifference


def key(*what: str, lengths: tuple[int, ...] = (5, 5)) -> KeyDifference:
    copies = tuple(
        CopyRow(f"agent-{n}", n, present=True, value_bytes=length)
        for n, length in enumerate(lengths)
    )
    return KeyDifference(0, "k", "6b", what, copies)


@pytest.mark.parametrize(
    ("difference", "named"),
    [
        (key("value"), {"value": 1}),
        (key("value", lengths=(5, 6)), {"size": 1}),
        (key("expires_at"), {"expiry": 1}),
        (key("missing"), {"missing": 1}),
        (key("tombstone"), {"missing": 1}),
        (key("counter", "term"), {"keyCounter": 1}),
        (key("hwm"), {"keyCounter": 1}),
        (key("repeated"), {"other": 1}),
        (key("counter", "value", "expires_at"), {"keyCounter": 1, "value": 1, "expiry": 1}),
    ],
)
def test_a_key_counts_once_in_each_of_its_classes(
    difference: KeyDifference, named: dict[str, int]
) -> None:
    assert count_classes((), (difference,), 0) == named


def test_a_deleted_row_has_no_size() -> None:
    deleted = CopyRow("agent-1", 1, present=True, tombstone=True)
    there = CopyRow("agent-0", 0, present=True, value_bytes=5)
    difference = KeyDifference(0, "k", "6b", ("value",), (there, deleted))

    assert count_classes((), (difference,), 0) == {"value": 1}


def test_partitions_count_by_what_their_counters_show_and_those_not_judged() -> None:
    differences = [CounterDifference(n, what, "", ()) for n, what in enumerate(WHATS)]

    named = {"counter": 2, "lineage": 1, "gap": 1, "skipped": 3}
    assert count_classes(differences, (), 3) == named


WHATS = ("lwm", "hwm", "lwm", "lineage")
