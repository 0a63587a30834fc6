"""The plan as a file: what a person reads is what is executed."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate_spark.repairing.decide import Action, Strategy
from quorate_spark.repairing.plan import (
    Planned,
    PlannedKey,
    PlanRefused,
    plan_keys,
    read_plan,
    write_plan,
)
from quorate_spark.verdict import CopyRow, KeyDifference

PLANNED = Planned("library", "uid-1", "main", Strategy.LWW, "2026-11-28T16:00:00+00:00")
KEY = b"caf\xc3\xa9\n\xff"
DIFFERENCES = (
    KeyDifference(
        3,
        "café\\n\\xff",
        KEY.hex(),
        ("counter", "value"),
        (
            CopyRow("a", 0, True, 5, 2, 0, False, 3, "aa"),
            CopyRow("b", 1, True, 7, 2, 99, False, 4, "bb"),
        ),
        12,
    ),
    KeyDifference(
        1,
        "gone",
        b"gone".hex(),
        ("missing",),
        (CopyRow("c", 0, False), CopyRow("a", 1, True, 6, 1, 0, False, 2, "cc")),
        9,
    ),
)


@pytest.fixture
def keys() -> list[PlannedKey]:
    return plan_keys(DIFFERENCES, PLANNED)


def test_a_plan_says_of_each_key_what_is_decided_and_what_must_still_be_there(
    keys: list[PlannedKey],
) -> None:
    gone, changed = keys

    assert (gone.action, gone.new_value_bytes, gone.right) == (Action.IRREPARABLE, None, ())
    assert (gone.primary, gone.primary_counter, gone.primary_term) == ("c", 9, 0)
    assert (gone.version_on("a"), gone.version_on("x")) == ((6, 1), None)
    assert (changed.action, changed.right) == (Action.WRITE, ("b",))
    assert (changed.new_value_bytes, changed.new_value_sha256) == (4, "bb")
    assert changed.new_expires_at == 99
    assert (changed.primary, changed.primary_counter, changed.primary_term) == ("a", 5, 2)
    assert [changed.is_new_row(copy) for copy in changed.copies] == [False, True]


def test_what_is_written_is_read_again(keys: list[PlannedKey], tmp_path: Path) -> None:
    path = tmp_path / "plan.parquet"
    write_plan(path, keys)

    assert read_plan(path) == keys
    read = pq.read_table(path).to_pylist()
    assert [(row["key"], row["action"]) for row in read] == [
        ("gone", "irreparable"),
        ("café\\n\\xff", "write"),
    ]
    assert [copy["node"] for copy in read[1]["copies"]] == ["a", "b"]
    with pytest.raises(PlanRefused, match="is there already"):
        write_plan(path, keys)


def test_rows_that_a_person_removed_are_not_executed(
    keys: list[PlannedKey], tmp_path: Path
) -> None:
    path, less = tmp_path / "plan.parquet", tmp_path / "less.parquet"
    write_plan(path, keys)
    table = pq.read_table(path)
    pq.write_table(table.filter(pa.compute.equal(table["partition"], 3)), less)

    assert read_plan(less) == keys[1:]


def test_files_that_are_no_plan_are_refused(keys: list[PlannedKey], tmp_path: Path) -> None:
    path = tmp_path / "plan.parquet"

    def refused(match: str) -> None:
        with pytest.raises(PlanRefused, match=match):
            read_plan(path)

    refused("cannot be read")
    path.write_text("no plan")
    refused("no Parquet file")
    pq.write_table(pa.table({"key": ["k"]}), path)
    refused("no plan of `quorate repair`")
    for others, match in (
        ({"strategy": Strategy.PRIMARY}, "several plans"),
        ({}, "a key twice"),
        ({"key_hex": "x"}, "no plan of"),
    ):
        path.unlink()
        write_plan(path, [keys[0], msgspec.structs.replace(keys[0], **others)])
        refused(match)
    with pytest.raises(PlanRefused, match="cannot be written: No such file"):
        write_plan(tmp_path / "none" / "plan.parquet", keys)
