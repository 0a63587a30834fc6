"""The chart and the kinds on other versions of Kubernetes: what docs/kubernetes.md tells works.

One version a run is enough: these tests are deep, and each commit begins with another one.
"""

from pathlib import Path

import pytest

from quorate_cluster.names import Names
from quorate_control_plane.binaries import OTHER_VERSIONS, find_binaries
from quorate_control_plane.control_plane import ControlPlane
from quorate_control_plane.fixtures import CRDS
from quorate_documented.reader import a_reader, follow_kubernetes_md
from quorate_helm.build import helm_path
from quorate_helm.chart import render
from quorate_helm.released import assert_taken

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.deep,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(300),
]

VALUES = Path(__file__).parents[2] / "unit" / "chart" / "values"
VERSIONS = [
    pytest.param(version, marks=pytest.mark.needs(f"kubernetes-{version}"))
    for version in OTHER_VERSIONS
]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_commands_of_kubernetes_md_work_on(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(tmp_path / "hosts", monkeypatch)
    with a_reader("helm4", tmp_path, names, version) as reader:
        follow_kubernetes_md(reader)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_of_the_chart_is_known_to(version: str) -> None:
    binaries = find_binaries(version)
    assert binaries is not None
    with ControlPlane(binaries, crds=CRDS) as plane:
        for values in sorted(VALUES.glob("*.yaml")):
            namespace = f"values-{values.stem}"
            plane.kubectl("create", "namespace", namespace)
            options = ("--values", str(values), f"--kube-version={version}")
            options += ("--set", f"monitoring.dashboards.namespace={namespace}")  # one that exists
            assert_taken(plane, render(helm_path("helm3"), *options, namespace=namespace))
