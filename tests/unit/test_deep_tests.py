"""Deep tests come last, and do not begin when a run's time is over; the run says so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fresh_seeds import SEEDS_EACH, VARIABLE

TESTS = """
import time
import pytest

@pytest.mark.deep
def test_deep(): time.sleep(0.3)

@pytest.mark.deep
def test_deeper(): pass

def test_shallow(): pass
"""


def run(folder: Path, *options: str, first_seed: int = 0) -> list[str]:
    """The lines that a run of these tests prints."""
    (folder / "test_three.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    deep:\n    needs(*parts):\n")
    plugins = ["-p", "no:cacheprovider", "-p", "machine_parts", "-p", "fresh_seeds"]
    plugins += ["-p", "deep_tests"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *plugins, *options],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "CI": "true",
            VARIABLE: str(first_seed),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line]


def verdicts(lines: list[str]) -> list[str]:
    """Each test with what became of it, in the order in which they ran."""
    return [" ".join(line.split()[:2]) for line in lines if line.startswith("test_three.py::")]


@pytest.mark.parametrize("options", [(), ("--minutes", "0"), ("--minutes", "0.25")])
def test_with_time_enough_all_run_the_deep_ones_last(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    lines = run(tmp_path, *options)

    assert verdicts(lines) == [
        "test_three.py::test_shallow PASSED",
        "test_three.py::test_deep PASSED",
        "test_three.py::test_deeper PASSED",
    ]
    assert "did not run" not in "".join(lines)
    assert re.search(
        "the others took [0-9.]+ minutes, and [0-9.]+ minutes of CPU", "\n".join(lines)
    )


def test_each_commit_begins_with_another_of_the_deep_ones(tmp_path: Path) -> None:
    assert verdicts(run(tmp_path, first_seed=5 * SEEDS_EACH)) == [
        "test_three.py::test_shallow PASSED",
        "test_three.py::test_deeper PASSED",
        "test_three.py::test_deep PASSED",
    ]


def test_none_begins_when_the_time_is_over(tmp_path: Path) -> None:
    lines = run(tmp_path, "--minutes", "0.0016")  # a tenth of a second

    assert verdicts(lines)[0] == "test_three.py::test_shallow PASSED"
    assert verdicts(lines)[2] == "test_three.py::test_deeper SKIPPED"
    assert "for want of time (make test has no limit; this run's was 0.0016 minutes):" in lines[-3]
    assert lines[-2] == "    test_three.py"
    assert "passed" in lines[-1]
    assert "skipped" in lines[-1]


def test_those_without_time_come_first_in_the_next_run(tmp_path: Path) -> None:
    left_over = tmp_path / "cache" / "left-over"
    options = ("--left-over", str(left_over))
    run(tmp_path, "--minutes", "0.000001", *options)
    ids = ["test_three.py::test_deep", "test_three.py::test_deeper"]
    assert left_over.read_text().splitlines() == ids
    left_over.write_text(f"{ids[1]}\n")

    lines = run(tmp_path, *options)

    assert verdicts(lines)[1:] == [f"{ids[1]} PASSED", f"{ids[0]} PASSED"]
    assert not left_over.read_text()
