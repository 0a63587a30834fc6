"""Older exports of a schedule are deleted, and no other folder, whatever its name is."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from quorate.wire.jobs.export_result import RunOutcome, decode_export_result
from quorate_spark import __main__ as command
from quorate_spark.exports.manifest import MANIFEST, Manifest, read_manifest
from quorate_spark.exports.old_exports import delete_old
from quorate_spark.exports.target import Target
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening

MONDAY, TUESDAY = "nightly-20260105T030000Z", "nightly-20260106T030000Z"


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=2)
    for number in range(20):
        zone.put(b"key-%02d" % number, b"value-%d" % number)
    with listening(zone):
        yield zone


def export(zone: LoggedZone, target: Path, *options: str, uid: str = "u", series: str = "s") -> int:
    agents = ",".join(agent.address for agent in zone.agents)
    words = ["export", "z", "--target", str(target), "--agents", agents, "--settle-seconds", "0.3"]
    words += ["--cluster", "c", "--secret-file", zone.secret_file, "--replicas", "3"]
    words += ["--partitions", str(zone.partitions), "--work-dir", str(target.parent / "work")]
    words += ["--zone-uid", uid, "--series", series, "--verify", *options]
    return command.main(words)


def make(zone: LoggedZone, target: Path, uid: str = "u", series: str = "s") -> None:
    assert export(zone, target, uid=uid, series=series) == 0


def told(zone: LoggedZone, tmp_path: Path, *folders: str) -> tuple[tuple[str, ...], str]:
    """Make the export of Tuesday, which is to delete these; return what it says of them."""
    message = tmp_path / "message"
    options = [f"--delete={each}" for each in folders]
    code = export(zone, tmp_path / TUESDAY, *options, f"--termination-message={message}")
    assert code == 0, "the new export is there whatever becomes of the others"
    result = decode_export_result(message.read_text())
    assert result.outcome is RunOutcome.COMPLETE
    return result.deleted, result.undeleted


def test_an_older_export_of_the_schedule_is_deleted(zone: LoggedZone, tmp_path: Path) -> None:
    make(zone, tmp_path / MONDAY)

    assert told(zone, tmp_path, MONDAY, "nightly-20260104T030000Z") == (
        (MONDAY, "nightly-20260104T030000Z"),
        "",
    )
    assert not (tmp_path / MONDAY).exists()
    assert read_manifest(Target(str(tmp_path / TUESDAY))).series == "s"


def test_what_an_export_without_an_end_left_is_deleted(zone: LoggedZone, tmp_path: Path) -> None:
    make(zone, tmp_path / MONDAY)
    (tmp_path / MONDAY / MANIFEST).unlink()

    assert told(zone, tmp_path, MONDAY) == ((MONDAY,), "")
    assert not (tmp_path / MONDAY).exists()


@pytest.mark.parametrize(
    ("uid", "series", "said"),
    [
        ("u", "another", "is no export of this schedule"),
        ("u", "", "is no export of this schedule"),
        ("another", "s", "is an export of another zone"),
    ],
)
def test_an_export_of_another_is_left(
    zone: LoggedZone, tmp_path: Path, uid: str, series: str, said: str
) -> None:
    make(zone, tmp_path / MONDAY, uid, series)
    before = sorted(each.name for each in (tmp_path / MONDAY).iterdir())

    deleted, problem = told(zone, tmp_path, MONDAY)
    assert deleted == ()
    assert said in problem
    assert sorted(each.name for each in (tmp_path / MONDAY).iterdir()) == before


@pytest.mark.parametrize("strange", ["notes.txt", "inside/"])
def test_a_folder_with_other_files_is_left(zone: LoggedZone, tmp_path: Path, strange: str) -> None:
    make(zone, tmp_path / MONDAY)
    path = tmp_path / MONDAY / strange
    path.mkdir() if strange.endswith("/") else path.write_text("mine")

    deleted, problem = told(zone, tmp_path, MONDAY)
    assert deleted == ()
    assert f"it has {strange}, which is of no export" in problem
    assert (tmp_path / MONDAY / MANIFEST).exists()


@pytest.mark.parametrize("folder", ["..", ".", "books", f"../{MONDAY}", f"x/{MONDAY}", TUESDAY, ""])
def test_a_folder_that_no_schedule_makes_is_left(
    zone: LoggedZone, tmp_path: Path, folder: str
) -> None:
    make(zone, tmp_path / "books")

    deleted, problem = told(zone, tmp_path, folder)
    assert deleted == ()
    assert "is not deleted" in problem
    assert (tmp_path / "books" / MANIFEST).exists()
    assert (tmp_path / TUESDAY / MANIFEST).exists()


def test_nothing_is_deleted_where_the_new_export_is_not_as_it_was_written(
    zone: LoggedZone, tmp_path: Path
) -> None:
    make(zone, tmp_path / MONDAY)
    make(zone, tmp_path / TUESDAY)
    target = Target(str(tmp_path / TUESDAY))
    manifest = read_manifest(target)
    named = msgspec.structs.replace(manifest, run="again")
    (tmp_path / TUESDAY / MANIFEST).write_bytes(msgspec.json.encode(named))
    file = tmp_path / TUESDAY / manifest.partitions[0].file
    file.write_bytes(file.read_bytes()[:-20])

    code = export(zone, tmp_path / TUESDAY, "--run=again", f"--delete={MONDAY}")
    assert code != 0
    assert (tmp_path / MONDAY / MANIFEST).exists()


def test_one_that_cannot_be_deleted_keeps_no_other(zone: LoggedZone, tmp_path: Path) -> None:
    make(zone, tmp_path / MONDAY)
    make(zone, tmp_path / "other-20260105T030000Z", series="other")
    manifest: Manifest = read_manifest(Target(str(tmp_path / MONDAY)))
    new = Target(str(tmp_path / TUESDAY))

    found = delete_old(new, manifest, ["other-20260105T030000Z", "..", MONDAY])
    assert found.folders == (MONDAY,)
    assert found.problem.endswith("is no export of this schedule; and 1 more")
