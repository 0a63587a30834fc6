"""A run without the programs its tests need says so, and fails where nothing may be missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.needs("strace", "redis-server")
def test_marked(): raise AssertionError("ran")

@pytest.mark.needs("client library ioredis-6")
def test_of_a_library(): raise AssertionError("ran")

@pytest.mark.integration
def test_with_a_level_that_implies_a_part(): raise AssertionError("ran")

@pytest.fixture
def server(needs): needs("redis-cli")

def test_whose_fixture_needs_a_part(server): raise AssertionError("ran")

@pytest.mark.needs("redi-server")
def test_that_names_an_unknown_part(): raise AssertionError("ran")

def test_that_needs_nothing(): pass
"""


def run_on_a_bare_machine(folder: Path, test: str, **settings: str) -> str:
    """The output of the named test on a machine whose PATH and cache hold nothing."""
    (folder / "test_bare.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    needs(*parts):\n    integration:\n    spark:\n"
    )
    environment = {
        "PATH": str(folder),
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **settings,
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "machine_parts"]
    done = subprocess.run(
        [*command, "--strict-markers", "-k", test],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_a_missing_part_is_named_in_the_last_lines_with_its_way_out(tmp_path: Path) -> None:
    output = run_on_a_bare_machine(tmp_path, "test_marked")
    lines = [line for line in output.splitlines() if line]

    assert "1 skipped" in lines[-1]
    assert lines[-5:-1] == [
        "1 for want of redis-server (apt-get install redis-server):",
        "    test_bare.py",
        "1 for want of strace (apt-get install strace):",
        "    test_bare.py",
    ]


@pytest.mark.parametrize(
    ("test", "part"), [("level", "control-plane"), ("fixture", "redis-cli"), ("marked", "strace")]
)
def test_under_ci_a_missing_part_is_a_failure(tmp_path: Path, test: str, part: str) -> None:
    output = run_on_a_bare_machine(tmp_path, test, CI="true")

    assert f"under CI nothing may be missing: needs {part}" in output.replace(
        "redis-server (apt-get install redis-server); needs ", ""
    )
    assert "1 error" in output.splitlines()[-1] or "1 failed" in output.splitlines()[-1]


def test_an_unknown_part_is_a_mistake_in_the_test(tmp_path: Path) -> None:
    output = run_on_a_bare_machine(tmp_path, "unknown")

    assert "needs('redi-server'): the parts known to machine_parts are" in output


def test_a_run_that_lacks_nothing_says_nothing(tmp_path: Path) -> None:
    output = run_on_a_bare_machine(tmp_path, "nothing", CI="true")

    assert "1 passed" in output.splitlines()[-1]
    assert "did not run" not in output


def test_a_client_library_may_be_lacking_under_ci_too_and_is_named(tmp_path: Path) -> None:
    output = run_on_a_bare_machine(tmp_path, "test_of_a_library", CI="true")

    assert "1 skipped" in output
    assert "1 for want of client library ioredis-6 (make client-libraries):" in output
