"""Agents and an operator of the build before run beside those of this one, and become those."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

import pytest

from quorate_cluster.changes import grow
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import Listening, environment
from quorate_cluster.served import assert_served
from quorate_versions.build_before import commit_before, unpack_build_before

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
    pytest.mark.needs("git", "build-before"),
]


@pytest.fixture(scope="module")
def before() -> Iterator[Path]:
    """The sources of the build before."""
    with TemporaryDirectory(prefix="quorate-before-") as folder:
        yield unpack_build_before(Path(folder) / "sources")


def _start_mixed(start_cluster: StartCluster, before: Path) -> Cluster:
    """The operator and two of three agents are of the build before."""
    cluster = start_cluster(agents=0)
    cluster.operator.terminate()
    cluster.operator.run_sources(before)
    for _ in range(3):
        cluster.define_agent()
    for name in ("agent-1", "agent-2"):
        cluster.agents[name].run_sources(before)
    for process in cluster.processes:
        process.start(wait=False)
    for process in cluster.processes:
        process.wait_listening()
    cluster.declare()
    return cluster


def _renew(process: Listening) -> None:
    """Restart it as a process of this build."""
    process.terminate()
    process.run_sources()
    process.start()


def _write(cluster: Cluster, name: str) -> dict[str, bytes]:
    """Two hundred values, and one that has a file of its own."""
    data = {f"{name}-{number}": f"{name} {number} ".encode() * 50 for number in range(200)}
    data[f"{name}-long"] = name.encode() * 600_000
    client = cluster.client("z")
    for key, value in data.items():
        client.set(key, value)
    return data


def test_the_sources_of_the_build_before_are_what_its_processes_run(before: Path) -> None:
    packages = ("quorate", "quorate_link", "quorate_agent", "quorate_operator")
    say = f"import {', '.join(packages)}; [print(each.__file__) for each in ({','.join(packages)})]"
    said = run([sys.executable, "-P", "-c", say], env=environment(before), capture_output=True)

    found = said.stdout.decode().split()
    assert len(found) == len(packages)
    assert all(Path(each).is_relative_to(before) for each in found)


def test_builds_mix_while_clients_go_on_and_become_this_one_by_one(
    start_cluster: StartCluster, before: Path, measured: Measured
) -> None:
    cluster = _start_mixed(start_cluster, before)
    cluster.apply_zone("z", partitions=16)
    data = _write(cluster, "first")
    began = time.monotonic()
    with Pulses(cluster, "z") as pulses:
        _renew(cluster.operator)
        cluster.wait_online()
        cluster.wait_quiet("z")
        data |= _write(cluster, "operator-renewed")

        grow(cluster)  # data moves between agents of both builds
        served = [*pulses.failed]

        killed = cluster.agents["agent-1"]
        killed.kill()
        cluster.wait_left(killed.name)
        cluster.wait_available("z")
        data |= _write(cluster, "one-lost")
        killed.start()
        cluster.wait_online()
        cluster.wait_quiet("z")

        told = len(pulses.failed)
        for name in ("agent-1", "agent-2"):
            _renew(cluster.agents[name])
            cluster.wait_online()
            cluster.wait_quiet("z")
            data |= _write(cluster, f"{name}-renewed")
        pulses.wait_all_written_since(time.monotonic())
        served += pulses.failed[told:]

    measured(
        f"beside {str(commit_before())[:7]}",
        f"{time.monotonic() - began:.1f} s, operator and two of four agents renewed; commands that"
        f" failed while one was lost {len(pulses.failed) - len(served)}, else {len(served)}",
    )
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    client = cluster.client("z")
    assert {key: client.get(key) for key in data} == data
    status = cluster.zone_status("z")
    problems: list[object] = [*served]
    if status["migrations_failed"]:
        problems.append(f"migrations that failed: {status['migrations_failed']}")
    assert_served(cluster, problems)
