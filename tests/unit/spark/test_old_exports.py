"""Older exports of a schedule are deleted, and no other folder, whatever its name is."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import time

import msgspec
import pytest

from quorate.wire.exports.export_result import RunOutcome, decode_export_result
from quorate_spark import __main__ as command
from quorate_spark import export_commands
from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.export_zone import Progress
from quorate_spark.exports.manifest import MANIFEST, Manifest, read_manifest
from quorate_spark.exports.old_exports import delete_old, time_to_delete
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


def export(
    zone: LoggedZone,
    target: Path,
    *options: str,
    uid: str = "u",
    series: str = "s",
    told: tuple[str, ...] = (),
) -> int:
    """Export; `told`: uids that agents tell, in turn; otherwise all tell `uid`."""
    agents = ",".join(agent.address for agent in zone.agents)
    words = ["export", "z", "--target", str(target), "--agents", agents, "--settle-seconds", "0.3"]
    words += ["--cluster", "c", "--secret-file", zone.secret_file, "--replicas", "3"]
    words += ["--partitions", str(zone.partitions), "--work-dir", str(target.parent / "work")]
    for index, agent in enumerate(zone.agents):
        agent.uid = told[index % len(told)] if told else uid
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
    assert found.kept == ("other-20260105T030000Z", "..")
    assert found.halves == ()


def test_what_is_left_without_a_manifest_is_told(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(zone, tmp_path / MONDAY)
    delete = Target.delete

    def fail(target: Target, names: list[str]) -> None:
        if names != [MANIFEST]:
            raise OSError("the volume is read-only")
        delete(target, names)

    manifest = read_manifest(Target(str(tmp_path / MONDAY)))
    monkeypatch.setattr(Target, "delete", fail)
    found = delete_old(Target(str(tmp_path / TUESDAY)), manifest, [MONDAY])

    assert (found.folders, found.kept, found.halves) == ((), (MONDAY,), (MONDAY,))
    assert found.problem == f"{MONDAY} is not deleted: OSError: the volume is read-only"
    assert not (tmp_path / MONDAY / MANIFEST).exists()


def test_a_store_that_does_not_answer_costs_its_time_alone(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sunday, answered, asked = "nightly-20260104T030000Z", Event(), Event()
    for each in (sunday, MONDAY):
        make(zone, tmp_path / each)
    manifest, remove = read_manifest(Target(str(tmp_path / MONDAY))), Target.remove

    def wait(target: Target) -> None:
        asked.set()
        answered.wait(30)
        remove(target)

    monkeypatch.setattr(Target, "remove", wait)
    found = delete_old(Target(str(tmp_path / TUESDAY)), manifest, [sunday, MONDAY], 0.5)
    assert asked.is_set()
    answered.set()

    assert (found.folders, found.kept, found.halves) == ((), (sunday,), (sunday,))
    assert "the time for it was over; the next run goes on; and 1 more" in found.problem
    assert (tmp_path / MONDAY / MANIFEST).exists()


def test_deletion_has_a_quarter_of_what_is_left(zone: LoggedZone, tmp_path: Path) -> None:
    assert time_to_delete(100) == 25
    assert time_to_delete(1e9) == 300
    assert time_to_delete(-5) == 0
    make(zone, tmp_path / MONDAY)
    message = tmp_path / "message"
    options = (f"--delete={MONDAY}", f"--ends-at={time()}", f"--termination-message={message}")

    assert export(zone, tmp_path / TUESDAY, *options) == 0
    assert "the time for it was over" in decode_export_result(message.read_text()).undeleted
    assert (tmp_path / MONDAY / MANIFEST).exists()


def test_nothing_is_deleted_where_agents_do_not_tell_the_zone(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(zone, tmp_path / MONDAY)
    verify = export_commands.verify

    def forget(target: Target, progress: Progress, key: ExportKey | None) -> Manifest:
        zone.agents[0].uid = ""
        return verify(target, progress, key)

    monkeypatch.setattr(export_commands, "verify", forget)
    deleted, problem = told(zone, tmp_path, MONDAY)

    assert deleted == ()
    assert "do not tell which zone they have" in problem
    assert (tmp_path / MONDAY / MANIFEST).exists()


@pytest.mark.parametrize("moment", ["begin", "read", "delete"])
def test_another_zone_of_the_name_is_not_exported_as_the_first(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    make(zone, tmp_path / MONDAY)
    verify, message = export_commands.verify, tmp_path / "message"

    def replace(*given: object) -> None:
        zone.agents[1].uid = "another"

    def replace_then_verify(target: Target, progress: Progress, key: ExportKey | None) -> Manifest:
        replace()
        return verify(target, progress, key)

    if moment == "read":
        zone.while_read = replace
    if moment == "delete":
        monkeypatch.setattr(export_commands, "verify", replace_then_verify)
    uids = ("u", "another") if moment == "begin" else ("u",)
    options = (f"--delete={MONDAY}", f"--termination-message={message}")
    code = export(zone, tmp_path / TUESDAY, *options, told=uids)

    result = decode_export_result(message.read_text())
    said = "zone z is another one than this export was to be of: agents have the zone another"
    if moment == "delete":
        assert (code, result.outcome) == (0, RunOutcome.COMPLETE)
        assert said in result.undeleted
    else:
        assert (code, result.outcome) == (2, RunOutcome.FAILED)
        assert said in result.reason
        assert not (tmp_path / TUESDAY / MANIFEST).exists()
    assert (tmp_path / MONDAY / MANIFEST).exists()


@pytest.mark.parametrize(
    "other", [{"run": "another"}, {"series": "another"}, {"export_id": "00112233"}]
)
def test_nothing_is_deleted_by_the_manifest_of_another_export(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    make(zone, tmp_path / MONDAY)
    verify, message = export_commands.verify, tmp_path / "message"

    def read_another(target: Target, progress: Progress, key: ExportKey | None) -> Manifest:
        return msgspec.structs.replace(verify(target, progress, key), **other)

    monkeypatch.setattr(export_commands, "verify", read_another)
    options = (f"--delete={MONDAY}", f"--termination-message={message}")

    assert export(zone, tmp_path / TUESDAY, *options) == 2
    result = decode_export_result(message.read_text())
    assert result.outcome is RunOutcome.FAILED
    assert "has another export by now" in result.reason
    assert (tmp_path / MONDAY / MANIFEST).exists()


def test_no_error_around_deletion_spoils_the_new_export(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(zone, tmp_path / MONDAY)

    def fail(*given: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(export_commands, "unproved", fail)
    assert told(zone, tmp_path, MONDAY) == ((), "nothing is deleted: broken")
