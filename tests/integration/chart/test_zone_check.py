"""`helm test`: the pod's command, run here with the account that the pod would have.

It is the program of the chart's test pod with the arguments of the chart; only the account's folder
and the address of the API server are others, and no image is started.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate_cluster.names import Names
from quorate_cluster.processes import environment, python
from quorate_cluster.road import QUIET
from quorate_control_plane.control_plane import ControlPlane
from quorate_helm.released import Released

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def released(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Released]:
    made = Released(control_plane, namespace, Names(tmp_path / "hosts", monkeypatch))
    try:
        yield made
    finally:
        made.close()


def _run(released: Released, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = python(*released.zone_check(folder), *more)
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)


def test_a_key_goes_through_every_zone_and_what_does_not_serve_is_named(
    released: Released, tmp_path: Path
) -> None:
    road = released.road
    road.kubectl("create", "serviceaccount", "quorate-operator")
    road.start_agents()
    released.start_operator("operator-a")

    empty = _run(released, tmp_path / "account")
    assert (empty.returncode, empty.stdout) == (0, "no Zone is declared, so nothing was written\n")

    road.declare()
    road.apply("Zone", "carts", clusterRef={"name": "main"}, partitions=16)
    road.wait_zone(**QUIET)
    released.wait("carts", lambda: QUIET.items() <= road.conditions(name="carts").items())
    done = _run(released, tmp_path / "account")
    assert done.stdout.splitlines() == [
        f"zone {road.namespace}/{zone}: a key was written, read and deleted"
        for zone in ("carts", "sessions")
    ]
    assert (done.returncode, done.stderr) == (0, "")
    client = road.client()
    assert client.dbsize() == 0
    client.close()

    road.apply("Zone", "orphan", clusterRef={"name": "nobody"}, partitions=16)
    for agent in road.agents.values():
        agent.kill()
    failed = _run(released, tmp_path / "account", "--patience=0")
    assert failed.returncode == 1
    said = dict(line.split(": ", 1) for line in failed.stdout.splitlines())
    at = f"zone {road.namespace}"
    assert "cannot be reached: connection refused" in said[f"{at}/carts"]
    assert said[f"{at}/orphan"] == (
        f"status.endpoints is empty: `kubectl describe --namespace {road.namespace} zone orphan`"
        " shows the reason"
    )

    refused = _run(released, tmp_path / "account", "--namespace=default")
    assert refused.returncode == 1
    assert 'cannot list resource \\"zones\\"' in refused.stderr
