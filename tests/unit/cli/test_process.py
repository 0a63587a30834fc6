"""Processes that outlive the command: only the very one that was started is ever signalled."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate_cli.copies.validation import run_validation
from quorate_cli.processes.process import (
    Started,
    end,
    identify,
    is_alive,
    kill,
    python,
    read_started,
    send,
    start,
    start_noted,
    wait_until_gone,
    write_started,
)
from quorate_cli.terminal.problem import Problem
from quorate_cluster.interrupts import Interrupted, interrupted_behind, running_children

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "from signal import *; signal(SIGTERM, SIG_IGN); print('here', flush=True); pause()",
]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Started]]:
    """Processes to be killed at the end of the test."""
    found: list[Started] = []
    yield found
    for process in found:
        kill(process)


def _start(arguments: list[str], folder: Path, started: list[Started]) -> Started:
    """A process that has said its first word."""
    log = folder / "log"
    process = start(arguments, log, str(folder))
    started.append(process)
    deadline = time.monotonic() + 10
    while not (log.exists() and log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_a_started_process_is_alive_in_a_session_of_its_own(
    tmp_path: Path, started: list[Started]
) -> None:
    process = _start(SLEEPER, tmp_path, started)

    assert is_alive(process)
    assert os.getsid(process.pid) == process.pid
    assert (tmp_path / "log").read_text() == "here\n"


def test_end_asks_and_kill_does_not(tmp_path: Path, started: list[Started]) -> None:
    polite = _start(SLEEPER, tmp_path, started)

    assert end(polite, 10)
    assert not is_alive(polite)


def test_a_process_that_does_not_end_in_time_is_killed(
    tmp_path: Path, started: list[Started]
) -> None:
    stubborn = _start(STUBBORN, tmp_path, started)

    assert not end(stubborn, 0.2)
    assert not is_alive(stubborn)


def test_a_process_that_ended_is_not_alive_although_nobody_waited_for_it(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", ""], tmp_path / "log")

    assert wait_until_gone(process, 10)


def test_a_process_is_found_again_whoever_interrupts_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Started]
) -> None:
    with interrupted_behind(monkeypatch, os, "posix_spawn"), pytest.raises(Interrupted):
        start_noted(SLEEPER, tmp_path / "log", tmp_path / "pid", str(tmp_path))

    process = read_started(tmp_path / "pid")
    assert process is not None
    started.append(process)
    assert is_alive(process)


def test_a_process_that_cannot_be_noted_is_ended(tmp_path: Path) -> None:
    (tmp_path / "pid").mkdir()

    with pytest.raises(Problem, match="is a directory"):
        start_noted(SLEEPER, tmp_path / "log", tmp_path / "pid", str(tmp_path))

    assert not [command for command in running_children() if "print('here'" in command]


def test_a_validation_ends_with_who_is_interrupted_as_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        interrupted_behind(monkeypatch, subprocess.Popen, "_execute_child"),
        pytest.raises(Interrupted),
    ):
        run_validation(SLEEPER)

    assert not [command for command in running_children() if "print('here'" in command]


def test_a_validation_that_is_killed_is_unknown() -> None:
    with pytest.raises(Problem) as raised:
        run_validation([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])

    assert raised.value.exit_code == 2
    assert str(raised.value) == (
        "the process was ended by signal 9 (Killed): the system does this when memory runs out;"
        " whether the copies agree is unknown"
    )


def test_another_process_under_the_same_pid_is_left_alone(
    tmp_path: Path, started: list[Started]
) -> None:
    process = _start(SLEEPER, tmp_path, started)
    earlier = Started(process.pid, process.mark + "0", process.folder)

    assert not is_alive(earlier)
    assert not send(earlier, signal.SIGKILL)
    kill(earlier)

    assert is_alive(process)


def test_a_process_is_found_again_from_its_file(tmp_path: Path, started: list[Started]) -> None:
    process = _start(SLEEPER, tmp_path, started)
    file = tmp_path / "some.pid"

    write_started(file, process)

    assert read_started(file) == process


@pytest.mark.parametrize("content", [b"", b"12", b'{"pid": 1', b'{"pid": "x"}'])
def test_half_a_pid_file_names_no_process(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "some.pid"
    file.write_bytes(content)

    assert read_started(file) is None
    assert read_started(tmp_path / "none.pid") is None


def test_a_child_of_ours_is_identified(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL) as child:
        process = identify(child.pid, str(tmp_path))

        assert is_alive(process)
        kill(process)


def test_a_program_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"/nowhere/python cannot be started with log .*no such file"):
        start(["/nowhere/python"], tmp_path / "log")


def test_our_modules_do_not_see_the_folder_the_user_stands_in(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")

    ran = subprocess.run([*python("json.tool"), "--help"], cwd=tmp_path, capture_output=True)

    assert ran.returncode == 0
