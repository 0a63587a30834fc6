"""`quorate export` with a base: what it prints, tells its pod, and refuses."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.protocol.messages.tools import AskUpdates
from quorate.wire.exports.export_result import decode_export_result
from quorate_spark import __main__ as command
from quorate_spark.exports.base_export import Whole, reasons
from quorate_spark.exports.export_key import read_key
from quorate_spark.exports.manifest import read_manifest
from quorate_spark.exports.target import Target, TargetRefused
from quorate_spark.exports.verify import verify
from quorate_spark_fixtures.based_exports import (
    IN_0,
    base_of,
    changed,
    export,
    filled_zone,
    partitions_asked,
    read_whole,
)
from quorate_spark_fixtures.logged_zone import LoggedZone

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    with filled_zone() as zone:
        yield zone


def run(zone: LoggedZone, target: Path, *options: str) -> int:
    agents = ",".join(agent.address for agent in zone.agents)
    words = ["export", "z", "--target", str(target), "--agents", agents, "--settle-seconds", "0.3"]
    words += ["--cluster", "c", "--secret-file", zone.secret_file, "--replicas", "3"]
    return command.main([*words, "--partitions", "4", "--zone-uid", "u", "--verify", *options])


def test_the_command_tells_what_came_from_the_base(
    zone: LoggedZone, tmp_path: Path, capsys: Captured
) -> None:
    assert run(zone, tmp_path / "base") == 0
    assert "base" not in capsys.readouterr().out.replace(str(tmp_path), "").replace("/base", "")
    zone.put(IN_0[0], b"changed")
    zone.log_from = zone.copy(0, 0).lwm
    message = tmp_path / "message"

    code = run(
        zone,
        tmp_path / "second",
        *("--base", str(tmp_path / "base"), "--termination-message", str(message)),
    )

    assert code == 0
    out, about = capsys.readouterr()
    base = read_manifest(Target(str(tmp_path / "base"))).export_id
    said = " ".join(out.split())
    assert f"3 of 4 partitions are made of the base {base} and of updates since;" in said
    assert "1 was read whole: the update log no longer reaches back to the base (1)" in said
    assert "read whole: partition 0: the log of" in about
    told = decode_export_result(message.read_text())
    assert (told.base, told.partitions_from_base, told.partitions_read_whole) == (base, 3, 1)
    assert told.read_whole.startswith("partition 0: the log of agent-")
    assert told.read_whole.endswith(" (1)")


def test_a_base_that_cannot_be_opened_is_bad_input(
    zone: LoggedZone, tmp_path: Path, capsys: Captured
) -> None:
    for place, why in (
        (str(tmp_path / "none"), "is no export"),
        ("ftp://host/x", "write a folder, or a URI"),
    ):
        assert run(zone, tmp_path / "second", "--base", place) == 2
        said = capsys.readouterr().err
        assert f"--base {place}: " in said
        assert why in said
        assert "Name another export, or leave the option out" in said
        assert not (tmp_path / "second").exists()


def test_a_folder_without_an_export_is_no_end(
    zone: LoggedZone, tmp_path: Path, capsys: Captured
) -> None:
    message = tmp_path / "message"
    more = ("--base-folder", "base", "--termination-message", str(message))

    assert run(zone, tmp_path / "first", *more) == 0

    assert "0 of 4 partitions are made of the base and of updates" in capsys.readouterr().out
    told = decode_export_result(message.read_text())
    assert (told.base, told.partitions_from_base, told.partitions_read_whole) == ("", 0, 4)
    assert run(zone, tmp_path / "base") == 0
    assert run(zone, tmp_path / "second", *more) == 0
    assert decode_export_result(message.read_text()).partitions_from_base == 4


def test_the_folder_of_a_base_is_named_also_where_its_first_problem_has_no_room(
    zone: LoggedZone, tmp_path: Path
) -> None:
    first = export(zone, tmp_path / "base")
    changed(tmp_path / "base" / first.partitions[2].file, "order")
    zone.log_from = zone.put(IN_0[0], b"changed")
    base = base_of(tmp_path / "base")
    made = export(zone, tmp_path / "second", base)
    long, short = base.details[Whole.BASE_UNUSABLE], base.details[Whole.LOG_TOO_SHORT]

    assert reasons(made, base, 10_000) == f"{long} (1); {short} (1)"
    assert "`quorate verify" in long
    for_both = "could not be read, or is not as it was written: `quorate verify` of it tells (1)"
    limit = len(f"the base base {for_both}; {short} (1)")
    assert reasons(made, base, limit) == f"the base base {for_both}; {short} (1)"
    log = "the update log no longer reaches back to the base (1)"
    assert reasons(made, base, 10) == f"the base base {for_both}; {log}"
    assert reasons(made) == f"the base {for_both}; {log}"


def test_a_folder_that_is_no_place_is_no_end(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside(target: Target, name: str) -> Target:
        raise TargetRefused(f"{name}: write a folder")

    monkeypatch.setattr(Target, "beside", beside)
    message = tmp_path / "message"
    more = ("--base-folder", "no:place", "--termination-message", str(message))

    assert run(zone, tmp_path / "first", *more) == 0

    assert decode_export_result(message.read_text()).read_whole == "no:place: write a folder (4)"


def test_there_is_one_base(zone: LoggedZone, tmp_path: Path, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        run(zone, tmp_path / "second", "--base", "a", "--base-folder", "b")
    assert ended.value.code == 2
    assert "not allowed with argument --base" in capsys.readouterr().err


def test_base_and_export_have_one_key(zone: LoggedZone, tmp_path: Path, capsys: Captured) -> None:
    """A base in the clear is not authenticated: anybody may have made it up."""
    for name in ("mine", "other"):
        path = tmp_path / name
        path.write_text(b64encode(name.encode() * 32)[:44].decode().rstrip("=")[:43] + "=")
        path.chmod(0o600)
    mine, other = (("--encryption-key-file", str(tmp_path / name)) for name in ("mine", "other"))
    assert run(zone, tmp_path / "clear") == run(zone, tmp_path / "sealed", *mine) == 0
    zone.put(IN_0[0], b"changed")

    for base, key in (("clear", mine), ("sealed", other), ("sealed", ())):
        assert run(zone, tmp_path / "bad", "--base", str(tmp_path / base), *key) == 2
        said = capsys.readouterr().err
        assert f"--base {tmp_path / base}: base and export must have one key: " in said
        assert "give" not in said, "the one way out is another base"
        assert not (tmp_path / "bad").exists()
    message = tmp_path / "message"
    more = ("--base-folder", "clear", "--termination-message", str(message))
    assert run(zone, tmp_path / "with", *more, *mine) == 0
    said, about = capsys.readouterr()
    assert "0 of 4 partitions are made" in said
    assert f"{tmp_path / 'clear'} is not encrypted, and the new export is encrypted with" in about
    told = decode_export_result(message.read_text())
    assert told.partitions_read_whole == 4
    assert told.read_whole.startswith(("base and export must have one key", "the base clear has"))
    parts = verify(
        Target(str(tmp_path / "with")), lambda done, total: None, read_key(Path(mine[1]))
    )
    assert set(read_whole(parts).values()) == {"OtherKey"}
    assert run(zone, tmp_path / "second", "--base", str(tmp_path / "sealed"), *mine) == 0
    assert "4 of 4 partitions are made" in capsys.readouterr().out
    assert partitions_asked(zone, AskUpdates) == {0}


def test_a_base_that_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetRefused, match="is no export"):
        base_of(tmp_path)
