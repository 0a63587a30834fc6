"""The chart as tests have it: rendered, and read."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from quorate_control_plane.binaries import KUBERNETES_VERSION

CHART = Path(__file__).parents[2] / "charts" / "quorate"
GENERATED = ("quorate/templates/crds/", "quorate/templates/dashboards.yaml")

Objects = list[dict[str, Any]]


def run_helm(
    helm: Path, *arguments: str, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`helm ARGUMENTS` with settings of nobody's; on the cluster of `kubeconfig`, where given."""
    home = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), "/nonexistent")
    environment = {**home, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    environment["KUBECONFIG"] = str(kubeconfig or "/nonexistent")
    return subprocess.run([str(helm), *arguments], env=environment, capture_output=True, text=True)


def render(
    helm: Path,
    *options: str,
    release: str = "quorate",
    namespace: str = "storage",
    chart: Path = CHART,
) -> str:
    """Render the chart as YAML; AssertionError with the text of helm when it refuses."""
    command = ["template", release, str(chart), "--namespace", namespace]
    done = run_helm(helm, *command, "--kube-version", KUBERNETES_VERSION, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_hand(rendered: str) -> str:
    """Leave out kinds and dashboards, which are generated, and empty lines, which helm decides."""
    sources = tuple(f"# Source: {each}" for each in GENERATED)
    parts = [part for part in rendered.split("---\n") if not part.startswith(sources)]
    lines = "---\n".join(parts).splitlines()
    return "".join(f"{line}\n" for line in lines if line.strip())


def objects(rendered: str) -> Objects:
    """The declared objects.  What is not written in Python reads them ten times as fast."""
    return [each for each in yaml.load_all(rendered, yaml.CSafeLoader) if each]


def find(declared: Objects, kind: str, name: str = "") -> dict[str, Any]:
    """The one object of this kind, and name where one is given."""
    (found,) = (
        each for each in declared if each["kind"] == kind and name in ("", each["metadata"]["name"])
    )
    return found
