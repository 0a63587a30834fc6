"""The command: its exit codes, its report, and what it says where Spark cannot run."""

import argparse
import contextlib
import dataclasses
import errno
import hashlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
from py4j.protocol import Py4JJavaError

from quorate.protocol.copies.totals import key_bucket
from quorate.protocol.messages.tools import AskPaced
from quorate.wire.jobs.validation_result import (
    Outvoted,
    ValidationMode,
    ValidationVerdict,
    decode_result,
)
from quorate_cluster.interrupts import Interrupted, interrupted_behind, running_children
from quorate_link.secret import make_secret
from quorate_spark import __main__ as command
from quorate_spark.command_line import settings_of
from quorate_spark.passes import spark_session
from quorate_spark.passes.spark_session import SparkMissing, check_spark, own_spark
from quorate_spark.report import report_json
from quorate_spark.settings import Settings
from quorate_spark.verdict import Level, could_not_tell
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

VALIDATE = ("validate", "z", "--cluster", "c", "--secret-file", "none")
ROOT = Path(__file__).parents[3]


def filled() -> ScriptedZone:
    zone = ScriptedZone()
    zone.write(b"key", b"value")
    return zone


def run(zone: ScriptedZone, tmp_path: Path, *options: str) -> tuple[int, dict[str, object]]:
    report = tmp_path / "report.json"
    agents = ["--agents", ",".join(zone.copies.agents), "--settle-seconds", "0.3"]
    agents += ["--cluster", "c", "--secret-file", zone.secret_file]
    files = ["--report", str(report), "--work-dir", str(tmp_path / "work")]
    code = command.main(["validate", "z", *agents, *files, *options])
    return code, json.loads(report.read_bytes())


def with_secret(tmp_path: Path) -> list[str]:
    make_secret(tmp_path / "secret" / "c.json")
    return ["validate", "z", "--cluster", "c", "--secret-file", str(tmp_path / "secret" / "c.json")]


def home_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """The only java there is does what `script` says."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return program


def test_the_report_says_the_limit_that_agents_were_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(filled()) as zone:
        zone.copy(2).rows[b"key"] = (1, zone.copy(2).term, 0, b"damaged")
        options = ("--level", "digest", "--max-mib-per-second-per-agent")
        code, report = run(zone, tmp_path, *options, "8")
        asked = [each for agent in zone.agents for each in agent.asked]
        free, told = run(zone, tmp_path, "--level", "digest")

    assert (code, free) == (1, 1)
    assert report["max_mib_per_second_per_agent"] == 8
    assert AskPaced(8 << 20) in asked
    assert "8 MiB/s of each agent" in capsys.readouterr().out
    assert told["max_mib_per_second_per_agent"] is None


@pytest.mark.parametrize("level", ["counters", "digest"])
def test_the_report_says_how_much_was_answered_and_of_which_zone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    zone = filled()
    zone.copy(2).rows[b"key"] = (1, zone.copy(2).term, 0, b"damaged" * 100_000)
    for agent in zone.agents[:2]:  # the third one is of an earlier version
        agent.uid = "u-1"
    with listening(zone):
        code, report = run(zone, tmp_path, "--level", level)

    assert report["zone_uid"] == "u-1"
    rate = report["answered"]
    assert isinstance(rate, dict)
    seconds = rate["seconds"]
    assert rate["bytes"] == sum(agent.answered for agent in zone.agents)
    assert f"{1000 * seconds:.0f}" == str(report["duration_ms"])
    out = capsys.readouterr().out
    assert f"MiB in {seconds:,.1f} s; most by {rate['busiest_node']}: " in out
    assert ("agents read more than they answer" in " ".join(out.split())) == (level == "digest")
    if level == "digest":
        # Agents 0 and 1 have little to tell.
        assert (code, rate["busiest_node"]) == (1, "agent-2")
        assert rate["bytes"] > 700_000
        assert rate["busiest_mib_per_s"] > 0.6 / seconds


def test_a_limit_that_is_none_is_no_verdict_on_copies(tmp_path: Path) -> None:
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--max-mib-per-second-per-agent", "0")

    assert code == 2
    assert report["reasons"] == ["max_mib_per_second_per_agent is 0: give a number above 0"]


def test_the_report_and_the_termination_message_say_the_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def soon(options: argparse.Namespace) -> Settings:
        return dataclasses.replace(settings_of(options), idle_s=0.05)

    monkeypatch.setattr(command, "settings_of", soon)
    message = tmp_path / "termination-log"
    said = []

    def mode(*words: str) -> tuple[int, object]:
        options = ("--level", "counters", "--termination-message", str(message), *words)
        code, report = run(zone, tmp_path, *options)
        said.append(decode_result(message.read_text()).mode)
        return code, report["mode"]

    with listening(filled()) as zone:
        assert mode() == (0, "live")
        assert mode("--mode", "idle") == (0, "idle")
        zone.agents[0].end()
        assert mode("--mode", "idle") == (2, "idle")

    assert said == [ValidationMode.LIVE, ValidationMode.IDLE, ValidationMode.IDLE]


def test_agreeing_counters_end_with_0(tmp_path: Path) -> None:
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--level", "counters", "--replicas", "3")

    assert code == 0
    assert (report["outcome"], report["exit_code"], report["copies"]) == ("agree", 0, 3)
    assert list((tmp_path / "work").iterdir()) == []


def test_the_termination_message_is_the_verdict_in_short(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    options = ("--level", "digest", "--replicas", "3", "--termination-message", str(message))
    zone = filled()
    zone.write(b"another", b"value")
    copy = zone.copy(2)
    copy.rows[b"key"] = (*copy.rows[b"key"][:3], b"other")
    with listening(zone):
        code, report = run(zone, tmp_path, *options)

    result = decode_result(message.read_text())
    assert (code, result.verdict) == (1, ValidationVerdict.DIFFER)
    assert result.classes == report["classes"] == {"value": 1}
    assert (result.copies, result.differing_keys) == (3, 1)
    assert result.outvoted == (Outvoted(0, "agent-2", ("agent-0", "agent-1")),)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("none/report.json", "folder {tmp}/none does not exist: make it, or name a file elsewhere"),
        (
            "file/reports/",
            "folder {tmp}/file/reports cannot be made: Not a directory; name another one",
        ),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], report: str, said: str
) -> None:
    (tmp_path / "file").touch()

    code = command.main([*VALIDATE, "--agents", "127.0.0.1:1", "--report", f"{tmp_path}/{report}"])

    assert code == 2
    printed = capsys.readouterr()
    assert printed.err == f"--report {tmp_path}/{report}: {said.format(tmp=tmp_path)}\n"
    assert printed.out == ""


def test_what_an_interrupted_question_raises_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        try:
            command._stop(signal.SIGTERM, None)
        finally:
            raise KeyError("p")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(command, "run_validation", interrupted)
    monkeypatch.setattr(command, "_asked_to_end", [])
    try:
        code = command.main(
            [*with_secret(tmp_path), "--agents", "a:1", "--work-dir", str(tmp_path / "work")]
        )
    finally:
        signal.signal(signal.SIGTERM, before)

    assert code == 128 + signal.SIGTERM
    assert capsys.readouterr().out == ""
    assert list((tmp_path / "work").iterdir()) == []


def test_the_verdict_is_printed_as_it_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--level", "digest", "--json")

    assert code == 0
    assert json.loads(capsys.readouterr().out) == report


def in_folder(zone: ScriptedZone, tmp_path: Path, *options: str) -> int:
    agents = ["--agents", ",".join(zone.copies.agents), "--settle-seconds", "0.3"]
    agents += ["--cluster", "c", "--secret-file", zone.secret_file, "--level", "digest"]
    files = ["--report", f"{tmp_path}/reports/", "--work-dir", str(tmp_path / "work")]
    return command.main(["validate", "z", *agents, *files, *options])


def test_a_report_in_a_folder_is_json_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = filled()
    zone.copy(1).rows[b"key"] = (1, 3, 0, b"other")
    with listening(zone):
        code = in_folder(zone, tmp_path, "--keys", "hashed", "--json")

    printed = capsys.readouterr()
    [page, report] = sorted((tmp_path / "reports").iterdir())
    assert code == 1
    assert (report.stem, report.suffix, page.suffix) == (page.stem, ".json", ".html")
    modes = [path.stat().st_mode & 0o777 for path in (report.parent, report, page)]
    assert modes == [0o700, 0o600, 0o600], "keys are in it"
    assert printed.err == f"report: {page}\n"
    assert report.read_text() == printed.out
    told = json.loads(printed.out)
    name = f"sha256:{hashlib.sha256(b'key').hexdigest()[:16]}"
    assert told["key_differences"][0]["key"] == name
    assert told["digests"]["differing"][0]["keys"] == [name]
    assert (told["keys_hashed"], told["rows_compared"]) == (True, 3)
    assert abs(told["started_ms"] / 1000 - time.time()) < 60
    assert name in page.read_text()


def test_a_pod_whose_report_cannot_be_kept_has_told_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(command, "store", full)
    told = tmp_path / "told"
    with listening(filled()) as zone:
        assert in_folder(zone, tmp_path) == 2
        assert in_folder(zone, tmp_path, "--termination-message", str(told)) == 0

    assert json.loads(told.read_bytes())["verdict"] == "Agree"
    assert "cannot be written" in capsys.readouterr().err


def test_a_report_from_standard_input_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = could_not_tell("library", Level.ROWS, "agent-2 is silent")
    (tmp_path / "file").touch()
    for told, folder, code in (
        (report_json(verdict), "reports", 0),
        (b"tea", "reports", 2),
        (report_json(verdict), "file/reports", 2),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(told)))
        assert command.main(["keep", f"{tmp_path}/{folder}"]) == code

    [page, report] = sorted((tmp_path / "reports").iterdir())
    printed = capsys.readouterr()
    assert printed.out == f"report: {page}\n"
    assert "is no report of a validation" in printed.err
    assert report.read_bytes() == report_json(verdict)
    assert "agent-2 is silent" in page.read_text()


def test_a_defect_of_the_page_does_not_hide_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(command, "page_of", fail)
    with listening(filled()) as zone:
        code = in_folder(zone, tmp_path)

    [page, report] = sorted((tmp_path / "reports").iterdir())
    assert (code, json.loads(report.read_bytes())["outcome"]) == (0, "agree")
    assert "The page failed by itself: ZeroDivisionError: x" in page.read_text()


@contextlib.contextmanager
def output_that_is(state: str) -> Iterator[None]:
    """Standard output is on a full disk, or a pipe that is read by no process any more."""
    if state == "full":
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        read_end, output = os.pipe()
        os.close(read_end)
    with os.fdopen(output, "w") as file, contextlib.redirect_stdout(file):
        yield


@pytest.mark.parametrize("output", ["full", "closed"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_verdict_that_cannot_be_printed_is_kept_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, options: tuple[str, ...]
) -> None:
    with listening(filled()) as zone, output_that_is(output):
        code, report = run(zone, tmp_path, "--level", "counters", *options)

    assert (code, report["outcome"]) == (2, "agree")
    assert "standard output cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["full", "closed"])
def test_a_pod_whose_verdict_cannot_be_printed_has_told_it(tmp_path: Path, output: str) -> None:
    message = tmp_path / "termination-log"
    with listening(filled()) as zone, output_that_is(output):
        zone.write(b"key", b"new", on=(0,))
        options = ("--level", "counters", "--termination-message", str(message))
        code, _ = run(zone, tmp_path, *options)

    assert code == 1
    assert decode_result(message.read_text()).verdict is ValidationVerdict.DIFFER


def test_differing_counters_end_with_1_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(filled()) as zone:
        zone.write(b"key", b"new", on=(0,))
        code, report = run(zone, tmp_path, "--level", "counters")

    assert code == 1
    assert report["differing_partitions"] == 1
    assert "Counters differ in 1 partitions" in capsys.readouterr().out


def test_differing_digests_end_with_1_and_name_buckets_and_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(filled()) as zone:
        zone.copy(1).rows[b"key"] = (1, 3, 0, b"other")
        code, report = run(zone, tmp_path, "--level", "digest")

    assert code == 1
    digests = report["digests"]
    assert isinstance(digests, dict)
    [differing] = digests["differing"]
    assert (differing["buckets"], differing["keys"]) == ([key_bucket(b"key")], ["key"])
    assert "Digests differ in 1 partitions, 1 listed" in capsys.readouterr().out


def test_what_cannot_be_told_ends_with_2_and_the_reason(tmp_path: Path) -> None:
    with listening(filled()) as zone:
        zone.agents[1].end()
        code, report = run(zone, tmp_path, "--level", "counters")

    assert code == 2
    assert "cannot be reached" in str(report["reasons"])


def test_a_secret_that_cannot_be_read_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main([*VALIDATE, "--agents", "a:1"])

    assert code == 2
    assert "none cannot be read: No such file" in " ".join(capsys.readouterr().out.split())


def test_a_bad_address_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main([*with_secret(tmp_path), "--agents", "nowhere"])

    assert code == 2
    assert "write host:port" in capsys.readouterr().out


def test_a_defect_of_ours_never_says_that_copies_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(command, "run_validation", fail)
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path)

    assert code == 2
    assert "failed by itself: ZeroDivisionError: x (test_main.py, line" in str(report["reasons"])


def test_an_error_without_a_text_never_says_that_copies_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of py4j, which asks Java for its text, when Java has ended."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    def fail(*arguments: object, **options: object) -> None:
        raise Mute

    monkeypatch.setattr(command, "run_validation", fail)
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--level", "counters")

    assert code == 2
    assert "failed by itself: Mute (" in str(report["reasons"])


def test_without_java_rows_cannot_be_told_and_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--level", "rows")
        without = [run(zone, tmp_path, "--level", level)[0] for level in ("counters", "digest")]

    assert (code, without) == (2, [0, 0])
    assert "needs Java 17 or later" in str(report["reasons"])
    assert "apt-get install openjdk-17-jre-headless" in str(report["reasons"])


def test_an_old_java_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = home_of_java(tmp_path, monkeypatch, "echo 'openjdk version \"1.8.0_392\"' >&2")
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--level", "rows")

    assert code == 2
    assert f"{program} is Java 8" in str(report["reasons"])


def test_java_asked_for_its_version_is_not_left_behind_by_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_of_java(tmp_path, monkeypatch, "exec sleep 0.5")

    with (
        interrupted_behind(monkeypatch, subprocess.Popen, "_execute_child"),
        pytest.raises(Interrupted),
    ):
        check_spark()

    assert not [command for command in running_children() if "sleep 0.5" in command]


class Refused(Py4JJavaError):
    """The error of a Java that tells its words as long as it runs."""

    def __init__(self, killed: list[object]) -> None:
        self._killed = killed
        self.java_exception = SimpleNamespace(toString=self._words)

    def _words(self) -> str:
        if self._killed:
            raise ConnectionRefusedError
        return "x.SparkException: no port is free\n  at y"


@pytest.mark.parametrize(
    ("ended_before", "said"),
    [([], "gave up: x.SparkException: no port is free"), (["by itself"], "gave up: the last line")],
    ids=["Java runs", "Java has ended"],
)
def test_a_spark_that_cannot_begin_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_before: list[object], said: str
) -> None:
    killed = [*ended_before]

    def start(conf: object, log: BinaryIO) -> str:
        log.write(b"the last line\n")
        log.flush()
        return "gateway"

    def context(**settings: object) -> None:
        raise Refused(killed)

    monkeypatch.setattr(spark_session, "check_spark", lambda: None)
    monkeypatch.setattr(spark_session, "_start_java", start)
    monkeypatch.setattr(spark_session, "_kill_java", killed.append)
    monkeypatch.setattr("pyspark.SparkContext", context)

    with pytest.raises(SparkMissing, match=said), own_spark(tmp_path):
        pass

    assert killed == [*ended_before, "gateway"]


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_without_a_package_rows_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else find_spec(name)
    )
    with listening(filled()) as zone:
        code, report = run(zone, tmp_path, "--level", "rows")

    assert code == 2
    assert f"package {package}, which is not installed: pip install" in str(report["reasons"])


def test_it_runs_as_a_module_without_spark_being_imported(tmp_path: Path) -> None:
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("core", "spark"))
    with listening(filled()) as zone:
        agents = ",".join(zone.copies.agents)
        arguments = ["validate", "z", "--agents", agents, "--level", "counters"]
        arguments += ["--cluster", "c", "--secret-file", zone.secret_file]
        ended = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "quorate_spark", *arguments],
            env={**os.environ, "PYTHONPATH": paths},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    assert ended.returncode == 0
    assert "agree" in ended.stdout
    assert "pyspark" not in ended.stderr
    assert "pyarrow" not in ended.stderr


def test_it_refuses_to_run_without_its_checks() -> None:
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("core", "spark"))
    ended = subprocess.run(
        [sys.executable, "-O", "-m", "quorate_spark", "validate", "z", "--agents", "a:1"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 2
    assert "python -O" in ended.stderr
