"""Which exports of a schedule are deleted: never what is to be kept, whatever the new one is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.wire.exports.export_result import DELETED_MAX
from quorate.wire.exports.scheduled_zone_backup import LISTED_MAX, ListedBackup, Retention
from quorate_operator.declared.runs.schedules.retention import (
    UNSEEN,
    Deletions,
    folder_name,
    folder_of,
    listed_anew,
    newest_verified,
    to_delete,
)

NOW = datetime(2026, 1, 31, 4, tzinfo=UTC)
PLACE = "backups:books"


def export(
    day: int, outcome: str = "Complete", uid: str = "u", place: str = PLACE, by: str = ""
) -> ListedBackup:
    time = datetime(2026, 1, day, 3, tzinfo=UTC)
    return ListedBackup(
        run=f"nightly-{day}",
        place=f"{place}/{folder_name('nightly', time)}",
        time=f"2026-01-{day:02}T03:00:00Z",
        outcome=outcome,
        zone_uid=uid if outcome != "Removed" else "",
        deleted_by=by,
    )


def days(found: list[ListedBackup]) -> list[int]:
    return [int(each.run.rpartition("-")[2]) for each in found]


def deleted(
    listed: list[ListedBackup], keep: int, age: int | None = None, new: int = 31
) -> list[int]:
    retention = Retention(keep_last=keep, max_age_days=age)
    return days(to_delete(listed, export(new), retention, NOW))


ALL = [export(day) for day in range(21, 31)]


@pytest.mark.parametrize(
    ("listed", "keep", "age", "wanted"),
    [
        (ALL, 100, None, []),
        (ALL, 10, None, []),
        (ALL, 9, None, [21]),
        (ALL, 3, None, [*range(21, 28)]),
        (ALL, 1, None, [*range(21, 30)]),
        # By age never more than remain.
        (ALL, 100, 2, [*range(21, 26)]),
        (ALL, 4, 1, [*range(21, 29)]),
        (ALL, 4, 4, [*range(21, 28)]),
        (ALL, 1, 1, [*range(21, 30)]),
        # One that is not verified goes once a newer one is verified, and does not count.
        ([export(28), export(29, "Failed"), export(30, "Unknown")], 2, None, []),
        ([export(27, "Failed"), export(28), export(29, "Removed"), export(30)], 2, None, [27, 29]),
        ([export(28), export(29, UNSEEN), export(30)], 1, None, [28]),
        # That of another zone, or elsewhere, neither counts nor goes.
        ([export(27), export(28, uid="v"), export(29, uid="v"), export(30)], 1, None, [27]),
        ([export(29, place="other:books"), export(30, place="backups:books/b")], 1, None, []),
        ([export(29, by="nightly-30"), export(30)], 1, None, []),
    ],
)
def test_exports_beyond_the_limits_are_deleted(
    listed: list[ListedBackup], keep: int, age: int | None, wanted: list[int]
) -> None:
    assert deleted(listed, keep, age) == wanted


def test_nothing_is_deleted_where_no_retention_is_declared() -> None:
    assert to_delete(ALL, export(31), None, NOW) == []


def test_the_new_export_never_counts() -> None:
    """It may turn out to be no good, and what is left is what is to be kept."""
    assert deleted([export(30)], 1) == []
    assert deleted([export(29, "Failed")], 1) == [], "no other one is verified"
    assert deleted(ALL, 1, None, new=25) == [*range(21, 25), *range(26, 30)]
    again = [*ALL, export(31)]
    assert deleted(again, 9) == [21], "also where its status was seen already"


def test_an_export_of_the_future_neither_counts_nor_goes() -> None:
    ahead = NOW - timedelta(days=5)
    retention = Retention(keep_last=2)

    assert days(to_delete(ALL, export(31), retention, ahead)) == [21, 22, 23, 24]
    assert to_delete(ALL, export(31), retention, None) == []


def test_places_in_use_stay() -> None:
    used = export(22).place
    found = to_delete(ALL, export(31), Retention(keep_last=7), NOW, {used})

    assert days(found) == [21, 23]


def test_those_that_could_not_be_deleted_come_last() -> None:
    many = [
        export(day).model_copy(update={"undeleted_by": "r" if day <= DELETED_MAX else ""})
        for day in range(1, 31)
    ]

    assert deleted(many, 1) == [*range(21, 30), *range(1, DELETED_MAX - 8)]


def test_one_run_deletes_the_oldest_of_many() -> None:
    many = [export(day).model_copy(update={"run": f"r-{day}"}) for day in range(1, 31)]

    assert deleted(many, 1) == [*range(1, DELETED_MAX + 1)]


OUTCOMES = st.sampled_from(["Complete", "Failed", "Unknown", "Removed"])


@given(
    st.dictionaries(st.integers(1, 31), OUTCOMES, max_size=20),
    st.integers(1, 31),
    st.integers(1, 5),
    st.none() | st.integers(1, 40),
)
def test_a_newer_verified_export_is_always_left(
    outcomes: dict[int, str], new: int, keep: int, age: int | None
) -> None:
    listed = [export(day, outcome) for day, outcome in outcomes.items() if day != new]
    gone = {*deleted(listed, keep, age, new)}

    verified = {each for each, outcome in outcomes.items() if outcome == "Complete"} - {new}
    left = verified - gone
    assert new not in gone
    assert not gone or max(verified) in left
    assert all(max(left) > day for day in gone)
    wanted = min(keep, len(verified))
    assert len(left) >= (wanted if age is None else wanted - wanted // 2)
    assert len(left) <= keep


def test_a_folder_has_the_time_in_utc() -> None:
    assert folder_name("nightly", datetime(2026, 1, 5, 3, tzinfo=UTC)) == "nightly-20260105T030000Z"
    s3 = export(5).model_copy(update={"place": "s3://b/c/nightly-20260105T030000Z?region=eu-1"})
    assert folder_of(s3) == "nightly-20260105T030000Z" == folder_of(export(5))


def test_a_deleted_export_is_listed_as_long_as_its_run_is_there() -> None:
    listed, folder = [export(1), export(2)], folder_of(export(1))

    told = listed_anew(listed, [export(1), export(3)], Deletions({folder: "nightly-3"}))
    assert [(*days([each]), each.deleted_by) for each in told] == [
        (1, "nightly-3"),
        (2, ""),
        (3, ""),
    ]
    later = listed_anew(told, [export(1)], Deletions())
    assert later[0].deleted_by == "nightly-3", "the run that deleted it is gone, its own is not"
    assert days(listed_anew(told, [], Deletions())) == [2, 3]


def test_a_verified_export_stays_one_whatever_another_run_of_its_name_tells() -> None:
    """That one was refused its place, or was deleted, and the export is there."""
    listed, failed, removed = [export(1), export(2)], export(1, "Failed"), export(2, "Removed")

    assert listed_anew([*listed, removed], [failed], Deletions()) == listed
    better = listed_anew([failed], [export(1)], Deletions())
    assert better == [export(1)]


def test_what_is_left_without_a_manifest_is_no_export() -> None:
    folder, seen = folder_of(export(1)), [export(1), export(2)]
    told = Deletions(undeleted={folder: "nightly-2"}, halves={folder})

    half, whole = listed_anew(seen, seen, told)
    assert (half.outcome, half.undeleted_by, whole.outcome) == ("Removed", "nightly-2", "Complete")
    later = listed_anew([half, whole], seen, Deletions())
    assert later == [half, whole], "the run that has told it is gone"
    gone = listed_anew(later, seen, Deletions({folder: "nightly-3"}))[0]
    assert (gone.deleted_by, gone.undeleted_by) == ("nightly-3", "")


def test_the_list_has_an_end() -> None:
    many = [export(1).model_copy(update={"run": f"r-{number}"}) for number in range(LISTED_MAX + 5)]

    assert len(listed_anew(many, [export(2)], Deletions())) == LISTED_MAX
    assert listed_anew(many, [export(2)], Deletions())[-1] == export(2)


def test_verified_exports_stay_listed_however_many_fail_after_them() -> None:
    good = [export(day) for day in range(1, 15)]
    gone = export(15, by="nightly-16")
    start = datetime(2026, 1, 16, tzinfo=UTC)
    failed = [
        export(16, "Failed").model_copy(
            update={"run": f"r-{n}", "time": (start + n * timedelta(minutes=5)).isoformat()}
        )
        for n in range(LISTED_MAX + 5)
    ]

    listed = listed_anew([*good, gone, *failed[:-1]], [gone, failed[-1]], Deletions())

    assert len(listed) == LISTED_MAX
    assert listed == [*good, *failed[-(LISTED_MAX - 14) :]]
    assert newest_verified(listed, export(31), NOW) == export(14)
    assert deleted(listed, keep=10)[:4] == [1, 2, 3, 4]


def test_of_verified_exports_the_oldest_are_listed_no_more() -> None:
    good = [
        export(1).model_copy(update={"run": f"r-{n:03}", "time": f"2026-01-01T03:{n // 60:02}:00Z"})
        for n in range(LISTED_MAX + 5)
    ]

    assert listed_anew(good, [export(2, "Failed")], Deletions()) == good[-LISTED_MAX:]


def test_the_newest_verified_export_is_the_base() -> None:
    """One of other data, in another place, deleted, from the future or not verified is none."""
    none = [
        export(29, uid="another"),
        export(29, place="backups:others"),
        export(29, by="nightly-30"),
        export(30, outcome="Failed"),
        export(30, outcome="Removed"),
    ]
    later = export(29).model_copy(update={"time": "2026-02-02T03:00:00Z"})

    assert newest_verified([*none, later], export(31), NOW) is None
    assert newest_verified([*none, export(20), export(21), later], export(31), NOW) == export(21)
    assert newest_verified([export(20), export(31)], export(31), NOW) == export(20), "not itself"


@pytest.mark.parametrize("keep", [1, 3])
def test_no_run_deletes_its_base(keep: int) -> None:
    base = newest_verified(ALL, export(31), NOW)

    assert base is not None
    assert days([base])[0] not in deleted(ALL, keep, age=1)
