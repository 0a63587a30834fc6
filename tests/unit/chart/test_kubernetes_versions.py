"""The versions of Kubernetes that the chart and its manual name: those that tests run on."""

import re

import yaml

from quorate_control_plane.binaries import KUBERNETES_VERSION, OTHER_VERSIONS
from quorate_helm.chart import CHART

MANUAL = CHART.parents[1] / "docs" / "kubernetes.md"


def _minor(version: str) -> tuple[int, int]:
    major, minor, _ = version.removeprefix("v").split(".")
    return int(major), int(minor)


TESTED = sorted(map(_minor, (KUBERNETES_VERSION, *OTHER_VERSIONS)))


def test_the_chart_asks_for_the_oldest_tested_version() -> None:
    major, minor = TESTED[0]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["kubeVersion"] == f">={major}.{minor}.0-0"


def test_the_manual_names_the_oldest_and_the_newest_tested_version() -> None:
    found = re.search(
        r"You need Kubernetes (\S+) or later \((\S+) to (\S+) are tested\)", MANUAL.read_text()
    )

    assert found is not None
    oldest, newest = (f"{major}.{minor}" for major, minor in (TESTED[0], TESTED[-1]))
    assert found.groups() == (oldest, oldest, newest)
