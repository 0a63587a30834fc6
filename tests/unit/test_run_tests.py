"""What `make test` runs: every test in one lane, and a run that ends as its worst lane does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_cluster.waiting import wait_until

ROOT = Path(__file__).parents[2]
WAITING = ("first", "second", "third")
LANES = (*WAITING, "computing")

# In the place of pytest: notes what it was told, and does what the test says.
PROGRAM = """#!/usr/bin/env bash
lane=${{!#}} # --left-over=FOLDER/LANE
lane=${{lane##*/}}
printf '%s\\n' "$@" >"{folder}/$lane"
{does}
"""
SAYS = """
echo "a test of lane $lane"
echo "---------------- the machine ----------------"
echo "as $lane saw it"
echo "---------------- processor time ----------------"
echo "12 s of the processors: tests/$lane.py"
echo "============== slowest 50 durations =============="
[ $lane = computing ] || echo "$((${#lane} * 10)).25s call     tests/$lane.py::test"
[ $lane != second ] || echo "FAILED tests/second.py::test - it is wrong"
echo "12 passed in $lane"
[ $lane != STATUS_OF ] || exit 2
"""
WAITS = """
echo "what $lane found"
trap 'touch "{folder}/$lane-is-told"; kill $!; exit 2' INT TERM
sleep 60 &
touch "{folder}/$lane-waits"
wait
"""


def _program(folder: Path, does: str) -> Path:
    program = folder / "pytest"
    program.write_text(PROGRAM.format(folder=folder, does=does.format(folder=folder)))
    program.chmod(0o755)
    return program


def _run(folder: Path, does: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "tools/run-tests", f"{_program(folder, does)} -m", "--minutes", "7"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def _told(folder: Path, lane: str) -> list[str]:
    return (folder / lane).read_text().splitlines()


def test_each_folder_is_run_by_one_lane(tmp_path: Path) -> None:
    done = _run(tmp_path, "true")

    assert done.returncode == 0, done.stderr
    lanes = {lane: _told(tmp_path, lane) for lane in LANES}
    for told in lanes.values():
        assert told[0] == "-m"
        assert told[told.index("--minutes") + 1] == "7"
    assert [lane for lane, told in lanes.items() if "--lane-computes" in told] == ["computing"]
    named = [*lanes["first"], *lanes["second"], *lanes["computing"]]
    elsewhere = sorted(each for each in named if each.startswith("tests/"))
    assert "tests" in lanes["third"]
    ignored = [each.removeprefix("--ignore=") for each in lanes["third"] if "--ignore=" in each]
    assert sorted(ignored) == elsewhere
    for folder in elsewhere:
        assert (ROOT / folder).is_dir(), folder


def test_lanes_of_processes_share_a_lock_and_no_port(tmp_path: Path) -> None:
    _run(tmp_path, "true")

    locks, ports = [], []
    for lane in WAITING:
        told = _told(tmp_path, lane)
        [lock] = [each for each in told if each.startswith("--lane-lock=")]
        locks.append(lock.removeprefix("--lane-lock="))
        first, last = told[told.index("--lane-ports") + 1].split("-")
        ports.append(range(int(first), int(last) + 1))
    assert len(set(locks)) == 1
    assert len({port for each in ports for port in each}) == sum(map(len, ports))
    assert not Path(locks[0]).parent.exists()


def test_pytest_knows_every_option_also_when_the_files_named_are_there(tmp_path: Path) -> None:
    # As in a second run, whose lanes begin at different times.
    kept = tmp_path / "quorate" / "left-over"
    kept.mkdir(parents=True)
    for lane in LANES:
        (kept / lane).touch()
    pytest_itself = tmp_path / "pytest"
    pytest_itself.write_text(
        f"""#!/usr/bin/env bash
for each; do case $each in */lock) touch "${{each#*=}}" ;; esac; done
exec {sys.executable} -m pytest --markers "$@" >/dev/null
"""
    )
    pytest_itself.chmod(0o755)
    done = subprocess.run(
        ["bash", "tools/run-tests", str(pytest_itself), "--minutes", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("failed", LANES)
def test_a_run_ends_as_its_worst_lane_and_shows_at_last_what_all_of_them_found(
    tmp_path: Path, failed: str
) -> None:
    done = _run(tmp_path, SAYS.replace("{", "{{").replace("}", "}}").replace("STATUS_OF", failed))

    assert done.returncode == 2
    _, _, end = done.stdout.partition("== all lanes\n")
    sections = [
        line
        for lane in LANES
        for line in (
            "---------------- the machine ----------------",
            f"as {lane} saw it",
            "---------------- processor time ----------------",
            f"12 s of the processors: tests/{lane}.py",
        )
    ]
    assert end.splitlines() == [
        *sections,
        "50 slowest:",
        "60.25s call     tests/second.py::test",
        "50.25s call     tests/third.py::test",
        "50.25s call     tests/first.py::test",
        "FAILED tests/second.py::test - it is wrong",
        "first: 12 passed in first",
        "second: 12 passed in second",
        "third: 12 passed in third",
        "computing: 12 passed in computing",
    ]


def test_what_interrupts_the_run_ends_every_lane(tmp_path: Path) -> None:
    command = ["bash", "tools/run-tests", str(_program(tmp_path, WAITS))]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        wait_until(lambda: all((tmp_path / f"{lane}-waits").exists() for lane in LANES), "lanes")
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does
        said, _ = run.communicate()

    assert run.returncode == 130
    assert "what first found" in said
    assert "what second found" in said
    assert "what third found" in said
    assert all((tmp_path / f"{lane}-is-told").exists() for lane in LANES)
