"""Only a claim that clients were served is not judged where the machine stood still; the run says
so, and of every failure what the machine did meanwhile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_standstills import NOT_JUDGED_MAX

TESTS = """
import pytest
from quorate_cluster.served import assert_served
from quorate_cluster.standstill import Standstill, StandstillWatch

SEEN = {seen}
StandstillWatch.since = lambda self, moment: SEEN if moment else SEEN * 2
pytestmark = pytest.mark.process

class Nobody:
    processes = ()
"""
FOUR = """
def test_served(): assert_served(Nobody, ["CLUSTERDOWN"])

def test_lost(): assert ["key-1"] == []

def test_both():
    try:
        assert_served(Nobody, ["CLUSTERDOWN"])
    except AssertionError as error:
        error.add_note("a road beside it ended with lost keys")
        raise

def test_well(): assert_served(Nobody, [])
"""
LONG = 'Standstill("cpu 0", 10.0, 2.6)'
SHORT = 'Standstill("disk", 10.0, 2.4)'
NOT_FIRST = 'Standstill("late on cpu 0", 10.0, 60.0)'


def run(folder: Path, seen: str, tests: str = FOUR) -> tuple[int, list[str], str]:
    """How the run ends where the machine did this, what became of each test, and all that the run
    says."""
    (folder / "test_some.py").write_text(TESTS.format(seen=seen) + tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    process:\n")
    plugins = ["-p", "no:cacheprovider", "-p", "machine_standstills"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *plugins],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    verdicts = [line.split()[1] for line in lines if line.startswith("test_some.py::")]
    return done.returncode, verdicts, done.stdout


def test_who_was_not_served_while_the_machine_stood_still_is_not_judged(tmp_path: Path) -> None:
    status, verdicts, said = run(tmp_path, f"[{LONG}]")

    assert status == 1
    assert verdicts == ["XFAIL", "FAILED", "FAILED", "PASSED"]
    assert "not judged whether clients were served: test_some.py::test_served:" in said
    assert said.count("['CLUSTERDOWN']") > 2
    assert "% of its processors; cpu 0 stood still 2 x, at most 2.60 s" in said


@pytest.mark.parametrize("seen", ["", SHORT, NOT_FIRST])
def test_on_a_machine_that_ran_every_claim_is_judged(tmp_path: Path, seen: str) -> None:
    status, verdicts, said = run(tmp_path, f"[{seen}]")

    assert status == 1
    assert verdicts == ["FAILED", "FAILED", "FAILED", "PASSED"]
    assert "not judged whether" not in said
    assert said.count("- the machine meanwhile -") == 3
    assert said.count("stood still 1 x, at most" if seen else "it never stood still") >= 3


@pytest.mark.parametrize("count", [1, NOT_JUDGED_MAX, NOT_JUDGED_MAX + 1])
def test_a_run_that_has_not_judged_more_than_a_few_fails_and_names_them(
    tmp_path: Path, count: int
) -> None:
    tests = """
@pytest.mark.parametrize("number", range({count}))
def test_many(number): assert_served(Nobody, ["CLUSTERDOWN"])

def test_well(): assert_served(Nobody, [])
"""
    status, verdicts, said = run(tmp_path, f"[{LONG}]", tests.format(count=count))

    assert verdicts == [*["XFAIL"] * count, "PASSED"]
    assert status == (1 if count > NOT_JUDGED_MAX else 0)
    last = said.splitlines()[-count - 3 :]
    for number in range(count):
        assert f"not judged: test_some.py::test_many[{number}]" in last
    assert ("the run has failed" in said) == (count > NOT_JUDGED_MAX)
