"""A test that is to be alone is: no test of another lane runs meanwhile."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

from lanes import LaneLock
from quorate_cluster.waiting import wait_until

TESTS = """
import fcntl
from pathlib import Path

import pytest

from quorate_control_plane.ports import free_ports

LOCK = Path(__file__).with_name("lock")


def others_may():
    "What other lanes may do now: nothing, run tests, or also one that is to be alone."
    with LOCK.open() as lock:
        for how, may in ((fcntl.LOCK_EX, "all"), (fcntl.LOCK_SH, "run")):
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return may
    return "nothing"

def test_beside_others(): assert others_may() == "run"

@pytest.mark.alone
def test_alone(): assert others_may() == "nothing"

@pytest.fixture
def broken(): raise RuntimeError

@pytest.mark.alone
def test_that_never_begins(broken): pass

def test_behind_it(): assert others_may() == "run"

def test_ports(): assert all(port in (20001, 20002, 20003) for port in free_ports())
"""


def _could_lock(path: Path, how: int) -> bool:
    with path.open() as lock:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_tests_of_several_lanes_run_at_the_same_time(tmp_path: Path) -> None:
    lanes = [LaneLock(tmp_path / "lock") for _ in range(2)]
    for lane in lanes:
        lane.take(alone=False)

    assert not _could_lock(tmp_path / "lock", fcntl.LOCK_EX)
    for lane in lanes:
        lane.close()
    assert _could_lock(tmp_path / "lock", fcntl.LOCK_EX)


def test_who_waits_to_be_alone_comes_before_those_that_come_later(tmp_path: Path) -> None:
    first, alone = (LaneLock(tmp_path / "lock") for _ in range(2))
    first.take(alone=False)
    waiting = threading.Thread(target=alone.take, kwargs={"alone": True})
    waiting.start()
    gate = tmp_path / "lock-gate"
    wait_until(lambda: not _could_lock(gate, fcntl.LOCK_EX), "a shut gate")

    assert waiting.is_alive()
    first.release()
    waiting.join()
    assert not _could_lock(tmp_path / "lock", fcntl.LOCK_SH)
    assert _could_lock(gate, fcntl.LOCK_EX)
    alone.release()
    first.take(alone=False)
    first.close()
    alone.close()


def test_who_is_alone_may_go_on_being_it_while_another_waits(tmp_path: Path) -> None:
    alone, other = (LaneLock(tmp_path / "lock") for _ in range(2))
    alone.take(alone=True)
    waiting = threading.Thread(target=other.take, kwargs={"alone": False})
    waiting.start()
    wait_until(lambda: not _could_lock(tmp_path / "lock-gate", fcntl.LOCK_EX), "a shut gate")

    alone.take(alone=True)  # at once: the other holds the gate
    assert waiting.is_alive()
    alone.release()
    waiting.join()
    alone.take(alone=False)
    alone.close()
    other.close()


def test_a_run_holds_the_lock_while_each_test_runs(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone:\n")
    options = ["--lane-lock", str(tmp_path / "lock"), "--lane-ports", "20001-20003"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "lanes", "-v", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert "4 passed, 1 error" in done.stdout, done.stdout + done.stderr
    ran = [line.partition("::")[2].split()[0] for line in done.stdout.splitlines() if "%]" in line]
    assert ran == [
        "test_alone",
        "test_that_never_begins",
        "test_beside_others",
        "test_behind_it",
        "test_ports",
    ]
    assert _could_lock(tmp_path / "lock", fcntl.LOCK_EX)


def test_time_outs_of_a_lane_that_computes_count_processor_time(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        """
import time
def test_that_waits_for_a_processor(): time.sleep(1)
def test_that_never_ends():
    while True: pass

def test_behind_it(): pass
"""
    )
    options = ["--lane-computes", "--timeout=0.5"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "lanes", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "Failed: Timeout (>0.5s of processor time)" in done.stdout
