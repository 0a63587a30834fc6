"""The commands export, verify and import: what they print, and their exit codes."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from quorate.protocol.messages.tools import RowsRestored
from quorate.wire.exports.export_result import ExportResult, RunOutcome
from quorate_spark import __main__ as command
from quorate_spark import export_commands
from quorate_spark.exports import cut, part_file
from quorate_spark.exports.manifest import MANIFEST
from quorate_spark.exports.target import TargetUnreadable
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.work_folder import ROOM
from quorate_spark_fixtures.export_runs import run, told_by
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=2)
    for number in range(20):
        zone.put(b"key-%02d" % number, b"value-%d" % number)
    with listening(zone):
        yield zone


def test_an_export_is_made_verified_and_imported(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "of monday"

    assert run("export", zone, target, "--zone-uid", "u", "--verify") == 0
    out, about = capsys.readouterr()
    assert about == "", "no bar where there is no terminal"
    said = " ".join(out.split())
    assert f"{target} is as it was exported: 20 rows" in said
    assert f"quorate import '{target}' ZONE" in said
    assert command.main(["verify", str(target), "--json"]) == 0
    out, _ = capsys.readouterr()
    told: dict[str, Any] = json.loads(out)
    assert (told["rows"], told["zone"]["uid"], told["target"]) == (20, "u", str(target))
    assert run("import", empty, target, "--check") == 0
    assert capsys.readouterr().out == f"{told['export_id']}\n"
    assert run("import", empty, target, "--continue", "--export-id", "01234567") == 2
    assert "and the import that has begun is of the export 01234567" in capsys.readouterr().err
    assert empty.rows() == {}
    assert run("import", empty, target, "--export-id", told["export_id"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Zone z has all rows of {target}: 20 compared one by one." in said
    assert f"digest {told['digest']}, as exported" in said
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_result_that_cannot_be_printed_is_no_proof_of_damage(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, more: tuple[str, ...]
) -> None:
    target = tmp_path / "export"
    codes = []
    for command_of in (
        lambda: run("export", zone, target, *more),
        lambda: command.main(["verify", str(target), *more]),
        lambda: run("import", empty, target, *more),
    ):
        with os.fdopen(os.open("/dev/full", os.O_WRONLY), "w") as full, redirect_stdout(full):
            codes.append(command_of())

    assert codes == [2, 2, 1]
    assert len(empty.rows()) == 20


def test_what_cannot_begin_has_exit_code_2(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "export"

    assert run("import", empty, target) == 2
    assert f"{target} is no export" in capsys.readouterr().err
    assert command.main(["verify", str(target)]) == 2
    assert run("export", zone, target) == 0
    assert run("export", zone, target) == 2
    assert "zone z is not exported" in capsys.readouterr().err
    assert run("import", zone, target) == run("import", zone, target, "--check") == 2
    assert "is not empty" in capsys.readouterr().err
    assert run("import", zone, target, "--into-non-empty") == 0
    assert run("export", zone, tmp_path / "bad", "--zone-spec", "[") == 2
    assert not (tmp_path / "bad" / MANIFEST).exists()


def test_a_work_folder_that_is_full_is_named(
    zone: LoggedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linux has a device that is always full; files of the export itself are elsewhere."""

    def full(*given: object, **named: object) -> Any:
        return open("/dev/full", "wb")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "SPOOL_BYTES_MAX", 1)
        patch.setattr(tempfile, "TemporaryFile", full)
        assert run("export", zone, tmp_path / "export") == 2

    said = capsys.readouterr().err
    assert f"temporary files in {tmp_path}/work" in said
    assert f"No space left on device: {ROOM}" in said
    assert list((tmp_path / "export").iterdir()) == []
    (tmp_path / "file").touch()
    assert run("export", zone, tmp_path / "export", "--work-dir", f"{tmp_path}/file/x") == 2
    said = capsys.readouterr().err
    assert f"temporary files in {tmp_path}/file/x cannot be kept: Not a directory\n" in said


def test_a_target_that_takes_no_files_is_named(
    zone: LoggedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert run("export", zone, tmp_path / "file") == 2
    assert f"zone z is not exported: {tmp_path}/file" in capsys.readouterr().err
    options = ("--work-dir", str(tmp_path / "work"))
    assert run("export", zone, tmp_path / "file" / "x", *options) == 2
    assert f"zone z is not exported: {tmp_path}/file/x" in capsys.readouterr().err


def test_what_is_not_as_it_was_has_exit_code_1(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "export"
    assert run("export", zone, target) == 0
    empty.refuses = lambda ask: RowsRestored(problem="no room on agent a")

    assert run("import", empty, target) == 1
    told = capsys.readouterr().err
    assert "zone z has only a part of the export: partition 0: no room on agent a" in told
    assert "Import again, and it goes on" in told
    next(target.glob("partition-00001-*")).write_bytes(b"PAR1")
    assert run("import", empty, target, "--continue") == 2
    assert "nothing is imported" in capsys.readouterr().err
    assert command.main(["verify", str(target)]) == 1
    assert f"{target} is not as it was exported" in capsys.readouterr().err


def test_rows_that_cannot_be_compared_have_their_own_sentence(
    zone: LoggedZone,
    empty: LoggedZone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: object) -> None:
        raise Unreadable("agent a was lost")

    run("export", zone, tmp_path / "export")
    monkeypatch.setattr("quorate_spark.exports.import_zone._compare", fail)

    assert run("import", empty, tmp_path / "export") == 1

    said = capsys.readouterr().err
    assert "all rows are written; they could not be compared: agent a was lost" in said
    assert empty.rows() == zone.rows()


def test_counts_of_an_import_are_told(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("export", zone, tmp_path / "export")
    empty.put(b"key-03", b"newer")
    empty.put(b"mine", b"1")
    capsys.readouterr()

    assert run("import", empty, tmp_path / "export", "--continue", "--json") == 1

    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["kept"], told["others"], told["exit_code"]) == (19, 1, 1, 1)
    message = tmp_path / "message"
    more = ("--continue", f"--termination-message={message}")
    assert run("import", empty, tmp_path / "export", *more) == 1
    assert "only intoNonEmpty ends it" in told_by(message).reason
    said = " ".join(capsys.readouterr().out.split())
    assert f"has all rows of {tmp_path / 'export'} but 1, whose keys had another row" in said
    assert run("import", empty, tmp_path / "export", *more, "--into-non-empty") == 0
    result = told_by(message)
    assert (result.outcome, result.rows, result.keys_kept) == (RunOutcome.COMPLETE, 19, 1)
    said = capsys.readouterr().out
    wanted = f"Zone z has 19 rows of {tmp_path / 'export'} as exported, compared one by one."
    assert wanted in " ".join(said.split())
    assert "1 keys had another row already, which was left as it was" in said


def test_the_result_is_told_in_short(zone: LoggedZone, tmp_path: Path) -> None:
    message, target = tmp_path / "message", tmp_path / "monday"
    options = ("--verify", f"--termination-message={message}")

    assert run("export", zone, target, *options) == 0
    whole = told_by(message)
    assert run("export", zone, target, *options) == 2
    again = told_by(message)

    manifest = json.loads((target / MANIFEST).read_bytes())
    assert (whole.outcome, whole.rows) == (RunOutcome.COMPLETE, 20)
    assert (whole.export_id, whole.digest) == (manifest["export_id"], manifest["digest"])
    assert again.outcome is RunOutcome.FAILED
    assert "has an export already" in again.reason


def test_a_run_that_has_exported_only_reads_it_back(zone: LoggedZone, tmp_path: Path) -> None:
    message, target = tmp_path / "message", tmp_path / "monday"
    options = ("--run=uid-1", "--verify", f"--termination-message={message}")
    assert run("export", zone, target, "--run=uid-1") == 0
    before = (target / MANIFEST).read_bytes()

    assert run("export", zone, target, *options) == 0

    assert told_by(message).outcome is RunOutcome.COMPLETE
    assert (target / MANIFEST).read_bytes() == before
    assert run("export", zone, target, "--run=uid-2", "--verify") == 2
    [first, *_] = sorted(target.glob("partition-*"))
    first.write_bytes(b"damaged")
    assert run("export", zone, target, *options) == 1
    assert told_by(message).outcome is RunOutcome.FAILED
    assert told_by(message).damaged, "which outweighs what an earlier pod told"
    assert "not as it was exported" in told_by(message).reason


def test_a_run_that_fails_tells_whether_its_place_has_its_export(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, target = tmp_path / "message", tmp_path / "monday"
    options = ("--run=uid-1", "--verify", f"--termination-message={message}")

    def no_agent(*given: object) -> Any:
        raise Unreadable("no agent answers")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_commands, "export_zone", no_agent)
        assert run("export", zone, target, *options) == 2
        assert (told_by(message).outcome, told_by(message).absent) == (RunOutcome.FAILED, True)
    assert run("export", zone, target, "--run=uid-1") == 0
    monkeypatch.setattr(export_commands, "verify", no_agent)
    assert run("export", zone, target, *options) == 2
    assert (told_by(message).outcome, told_by(message).absent) == (RunOutcome.FAILED, False)
    other = ("--run=uid-2", "--verify", f"--termination-message={message}")
    assert run("export", zone, target, *other) == 2
    assert told_by(message).absent, "that is the export of another run"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("export_id", "$(KEY)"),
        ("export_id", ""),
        ("export_id", "0" * 65),
        ("run", "$(KEY)"),
        ("series", "x/y"),
    ],
)
def test_ids_that_are_none_are_refused(
    zone: LoggedZone,
    empty: LoggedZone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
) -> None:
    """They get into arguments of the next pod."""
    assert run("export", zone, tmp_path / "monday") == 0
    path = tmp_path / "monday" / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_bytes()), name: value}))
    capsys.readouterr()

    assert run("import", empty, tmp_path / "monday", "--check") == 2
    assert "has an export_id, run, series or base that is none" in capsys.readouterr().err


def test_what_cannot_be_read_is_not_called_damaged(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, target = tmp_path / "message", tmp_path / "monday"
    options = ("--run=uid-1", "--verify", f"--termination-message={message}")
    assert run("export", zone, target, *options) == 0
    part = next(target.glob("partition-00001-*"))
    content, columns = part.read_bytes(), part_file._columns

    def lost(*given: object) -> Iterator[Any]:
        monkeypatch.setattr(part_file, "_columns", columns)
        raise TargetUnreadable("the connection was lost")

    monkeypatch.setattr(part_file, "_columns", lost)
    assert run("export", zone, target, *options) == 2
    assert told_by(message) == ExportResult(RunOutcome.UNKNOWN, reason="the connection was lost")

    part.unlink()
    part.mkdir()  # it can be opened by nobody
    assert run("export", zone, target, *options) == 2
    assert told_by(message).outcome is RunOutcome.UNKNOWN
    part.rmdir()
    assert run("export", zone, target, *options) == 1
    footer = int.from_bytes(content[-8:-4], "little") + 8
    rows = len(content) - footer - 4
    part.write_bytes(content[:4] + b"\xff" * rows + content[-footer:])
    with pytest.raises(OSError, match=r"."):
        pq.read_table(part)
    assert run("export", zone, target, *options) == 1
    assert told_by(message).outcome is RunOutcome.FAILED
    assert "is damaged" in told_by(message).reason


@pytest.mark.parametrize(
    ("what", "broken", "more", "code"),
    [
        ("export", "export_zone", (), 2),
        ("export", "verify", ("--verify",), 2),
        ("import", "import_zone", (), 1),
        ("import", "check_empty", ("--check",), 2),
    ],
)
def test_a_defect_is_never_taken_for_a_result(
    zone: LoggedZone,
    empty: LoggedZone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    broken: str,
    more: tuple[str, ...],
    code: int,
) -> None:
    """An exit code of 1 ends a ZoneBackup; a code of 2 says that an import wrote nothing."""

    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("broken")

    message = tmp_path / "message"
    if what == "import":
        assert run("export", zone, tmp_path / "monday") == 0
    monkeypatch.setattr(export_commands, broken, fail)
    of = empty if what == "import" else zone

    assert run(what, of, tmp_path / "monday", *more, f"--termination-message={message}") == code
    assert told_by(message).outcome is RunOutcome.UNKNOWN
    assert f"{what} failed by itself: RuntimeError: broken" in told_by(message).reason


def test_a_port_tells_how_far_an_export_is(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export is the first half, reading it back the second."""
    seen: list[int] = []

    @contextmanager
    def port(number: int) -> Iterator[Progress]:
        assert number == 8080
        yield Progress(seen.append)

    monkeypatch.setattr(export_commands, "progress_port", port)

    assert run("export", zone, tmp_path / "monday", "--verify", "--progress-port=8080") == 0

    assert seen == sorted(seen)
    assert 50 in seen
    assert seen[-1] == 99


def test_an_import_tells_its_result_in_short(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path
) -> None:
    message, target = tmp_path / "message", tmp_path / "monday"
    option = f"--termination-message={message}"
    assert run("export", zone, target) == 0
    manifest = json.loads((target / MANIFEST).read_bytes())

    assert run("import", empty, target, "--check", option) == 0
    assert told_by(message) == ExportResult(RunOutcome.COMPLETE, manifest["export_id"])

    assert run("import", zone, target, "--check", option) == 2
    assert told_by(message).outcome is RunOutcome.FAILED
    assert "is not empty" in told_by(message).reason
