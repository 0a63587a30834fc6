"""The same seed gives the same story, whatever the process's hash seed."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.simulation


def _trace(seed: int, hash_seed: str) -> str:
    environment = dict(os.environ, PYTHONHASHSEED=hash_seed, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "quorate_sim", str(seed), "--trace"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    lines = done.stdout.splitlines()
    return "\n".join(lines[:-1])  # the last line tells how long it took


@pytest.mark.parametrize("seed", [3, 10])
def test_a_seed_tells_the_same_story_under_another_hash_seed(seed: int) -> None:
    story = _trace(seed, "1")
    assert story.count("\n") > 300
    assert story == _trace(seed, "2")
