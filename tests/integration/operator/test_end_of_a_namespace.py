"""A namespace is deleted whose operator has the rights of its Role alone, which go first."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import FINALIZER

MANUAL = Path(__file__).parents[3] / "docs" / "operator.md"

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(240)]


def begin(road: Road, policy: str) -> None:
    """Led with the example's rights, which are then taken back, as the namespace's end may do."""
    road.use_example_role()
    road.start_agents()
    road.declare(deletionPolicy=policy)
    road.start_operator()
    road.wait_zone(**QUIET)
    road.kubectl("delete", "rolebinding", "quorate-operator")


def finalizers(road: Road, kind: str, name: str) -> list[str]:
    return list((road.get(kind, name) or {"metadata": {}})["metadata"].get("finalizers", []))


def test_a_namespace_without_anything_to_erase_goes_without_the_operators_rights(
    road: Road, control_plane: ControlPlane
) -> None:
    begin(road, "Retain")
    assert finalizers(road, "zone", "sessions") == []
    assert finalizers(road, "storagecluster", "main") == []
    kept = {*road.zone_folders()}

    control_plane.kubectl("delete", "namespace", road.namespace, "--timeout=80s")

    assert kept <= {*road.zone_folders()}


def test_a_namespace_that_hangs_goes_by_the_commands_of_the_manual(
    road: Road, control_plane: ControlPlane
) -> None:
    begin(road, "Delete")
    assert finalizers(road, "zone", "sessions") == [FINALIZER]
    control_plane.kubectl("delete", "namespace", road.namespace, "--wait=false")
    wait_until(
        lambda: (
            "SomeFinalizersRemain"
            in control_plane.kubectl(
                "get", "namespace", road.namespace, "--output=jsonpath={.status.conditions}"
            ).stdout
        ),
        "it hangs",
        60,
    )
    [block] = re.findall(r"```sh\n(for kind in zones.*?)```", MANUAL.read_text(), re.DOTALL)
    binaries = find_binaries()
    assert binaries is not None
    path = f"{binaries['kubectl'].parent}{os.pathsep}{os.environ['PATH']}"
    told = {"PATH": path, "KUBECONFIG": str(control_plane.kubeconfig), "HOME": str(road.kept.path)}

    said = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.replace("NAMESPACE", road.namespace)],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert said.returncode == 0, said.stderr
    control_plane.kubectl("wait", "--for=delete", f"namespace/{road.namespace}", "--timeout=60s")
