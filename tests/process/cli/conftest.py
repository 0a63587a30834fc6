"""`quorate` as a user runs it, in a folder of the test's own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_cli.demo.keeper import end_all
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects import resources
from quorate_cli.processes.cluster_folder import ClusterFolder

PATH = os.pathsep.join(path for path in sys.path if path)

Quorate = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cluster's folder; what runs in it is ended at last."""
    yield tmp_path / ".quorate"
    end_all(tmp_path / ".quorate", 0)


@pytest.fixture
def quorate_environment() -> dict[str, str]:
    """What the command finds in its environment besides; a module may say otherwise."""
    return {"COLUMNS": "200"}


@pytest.fixture
def quorate(folder: Path, quorate_environment: dict[str, str]) -> Quorate:
    """The command; its output."""
    given = {"PYTHONPATH": PATH, "QUORATE_FOLDER": str(folder), **quorate_environment}

    def run(*arguments: str, code: int = 0) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "quorate_cli", *arguments],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


@pytest.fixture
def cluster(folder: Path) -> DevCluster:
    """The same cluster for what a test asks itself."""
    return DevCluster(ClusterFolder(folder), print)


@pytest.fixture
def damageable(
    quorate: Quorate, cluster: DevCluster, tmp_path: Path
) -> Callable[[str, int], AbstractContextManager[RedisCluster]]:
    """Starts a cluster that obeys `debug damage`, with one zone and so many keys; its client."""

    @contextmanager
    def start(zone: str, keys: int) -> Iterator[RedisCluster]:
        (tmp_path / "zone.yaml").write_text(zone)
        quorate("dev", "up", "--debug-commands")
        quorate("apply", "-f", str(tmp_path / "zone.yaml"), "--wait", "60")
        (found,) = resources.fetch_all(cluster.api(), resources.ZONE)
        host, _, port = resources.zone(found).status.endpoints[0].rpartition(":")
        with RedisCluster(host=host, port=int(port), decode_responses=True) as client:
            for number in range(keys):
                client.set(f"key-{number}", f"value-{number}")
            yield client

    return start
