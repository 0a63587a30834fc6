"""The benchmarks' client of mixed loads, for a moment: every load is served without an error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.mixed_load import LOADS, Share, fill

pytestmark = pytest.mark.process

CLIENT = Path(__file__).parents[3] / "benchmarks" / "loads" / "mixed_client.py"
SCALE = 0.01


@pytest.fixture(scope="module")
def port(cluster: Cluster) -> int:
    cluster.apply_zone("mixed", partitions=16, storage="InMemory")
    port = cluster.port("mixed", "agent-1")
    fill(port, [Share(0, 1, SCALE)], list(LOADS))
    return port


def _measure(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CLIENT), *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(CLIENT.parents[2] / "tests")},
        input="go\n",
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("pipeline", [1, 16])
@pytest.mark.parametrize("load", LOADS)
def test_the_client_measures(port: int, load: str, pipeline: int) -> None:
    done = _measure(port, load, 6, pipeline, 0, 0.1, 0, 1, SCALE)

    assert done.returncode == 0, done.stderr
    ready, said = done.stdout.splitlines()
    found = json.loads(said)
    assert ready == "ready"
    assert found["operations"] >= 6 * pipeline
    assert found["operations"] == pipeline * sum(count for _, count in found["took"])


def test_an_error_reply_ends_the_client(port: int, cluster: Cluster) -> None:
    """Figures of refused commands would be figures of something else."""
    cluster.client("mixed").set(Share(0, 1, SCALE).counters[0], "no number")

    done = _measure(port, "INCR", 6, 16, 0, 5, 0, 1, SCALE)

    assert done.returncode != 0
    assert "not an integer" in done.stderr
