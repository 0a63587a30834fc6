"""The chart on a real API server: installed, upgraded, rolled back, uninstalled, installed again.

This control plane has no kinds of the project before: the chart declares them.  No pod runs here.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.wire.crds import crds
from quorate_cluster.waiting import wait_until
from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.control_plane import ControlPlane
from quorate_helm.build import VERSIONS, helm_path
from quorate_helm.chart import CHART, render, run_helm
from quorate_helm.released import assert_taken

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("helm"),
    pytest.mark.timeout(300),
]

VALUES = Path(__file__).parents[2] / "unit" / "chart" / "values"
KINDS = {f"{plural}.quorate.io" for plural in crds()}
DIGEST = f"sha256:{'a' * 64}"
RELEASE = "quorate"
OPERATOR = "quorate-operator"
CLUSTER = {
    "apiVersion": "quorate.io/v1alpha1",
    "kind": "StorageCluster",
    "metadata": {"name": "main"},
    "spec": {"agents": "external", "addresses": ["127.0.0.1:7100"]},
}


@pytest.fixture
def bare() -> Iterator[ControlPlane]:
    """A control plane that knows nothing of the project.

    Each release has its own.  The kinds belong to the first release that declared them, and an API
    server may take minutes to delete kinds that were only just declared: it repeats that it cannot
    list their objects ("storage is (re)initializing")."""
    binaries = find_binaries()
    assert binaries is not None
    with ControlPlane(binaries) as started:
        yield started


class Release:
    """The release in its namespace, which refuses pods that are not restricted."""

    def __init__(self, helm: Path, plane: ControlPlane) -> None:
        self._helm = helm
        self._plane = plane
        self.namespace = helm.name
        plane.kubectl("create", "namespace", self.namespace)
        label = "pod-security.kubernetes.io/enforce=restricted"
        plane.kubectl("label", "namespace", self.namespace, label)

    def helm(self, *arguments: str) -> str:
        command = [*arguments, "--namespace", self.namespace]
        done = run_helm(self._helm, *command, kubeconfig=self._plane.kubeconfig)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = ["--namespace", self.namespace, *arguments]
        return str(self._plane.kubectl(*command, stdin=stdin).stdout)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self._plane.objects.get(kind, name, self.namespace)
        assert found is not None, f"{kind} {name}"
        return found

    def image(self) -> str:
        (container,) = self.get("deployment", OPERATOR)["spec"]["template"]["spec"]["containers"]
        return str(container["image"])

    def may(self, verb: str, what: str, user: str) -> bool:
        command = ["--namespace", self.namespace, "auth", "can-i", verb, what, f"--as={user}"]
        return self._plane.kubectl(*command, check=False).returncode == 0

    def declared(self) -> set[str]:
        """What is left of the project, in the namespace and outside of it."""
        kinds = (
            "deployment,serviceaccount,role,rolebinding,poddisruptionbudget,clusterrole,flowschema"
        )
        chosen = f"app.kubernetes.io/instance={RELEASE}"
        return {*self.kubectl("get", kinds, "--selector", chosen, "--output", "name").split()}


@pytest.fixture(params=VERSIONS)
def release(request: pytest.FixtureRequest, bare: ControlPlane) -> Release:
    return Release(helm_path(request.param), bare)


def test_a_release_from_install_to_uninstall_and_again(
    release: Release, bare: ControlPlane
) -> None:
    said = release.helm("install", RELEASE, str(CHART))

    assert f"rollout status deployment/{OPERATOR}" in said
    bare.kubectl("wait", "--for=condition=Established", "crd", *KINDS, "--timeout=30s")
    _assert_the_notes_can_be_followed(release, said)
    release.kubectl("apply", "--filename", "-", stdin=json.dumps(CLUSTER))
    _assert_the_operators_pod_is_admitted(release)
    _assert_rights(release)
    _assert_renewals_have_their_priority(release, bare)

    release.helm("upgrade", RELEASE, str(CHART), "--set", f"image.digest={DIGEST}")
    assert release.image() == f"quorate-operator@{DIGEST}"
    release.helm("rollback", RELEASE, "1")
    assert release.image().startswith("quorate-operator:")

    release.helm("uninstall", RELEASE)
    assert release.declared() == set()
    assert release.get("storagecluster", "main")["spec"]["agents"] == "external"

    release.helm("install", RELEASE, str(CHART))
    assert f"deployment.apps/{OPERATOR}" in release.declared()
    release.helm("uninstall", RELEASE)


def _assert_the_notes_can_be_followed(release: Release, said: str) -> None:
    """The manifests in the notes are taken as they stand there."""
    (lines,) = re.findall(r"<<END\n(.*?)\n  END\n", said, re.DOTALL)
    strict = ("apply", "--dry-run=server", "--validate=strict", "--output=name", "--filename=-")

    taken = release.kubectl(*strict, stdin=textwrap.dedent(lines))

    assert taken.split() == ["storagecluster.quorate.io/main", "zone.quorate.io/library"]


def _assert_the_operators_pod_is_admitted(release: Release) -> None:
    template = release.get("deployment", OPERATOR)["spec"]["template"]
    template["metadata"]["name"] = "as-declared"
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    dry_run = ["create", "--dry-run=server", "--output", "name", "--filename", "-"]

    assert release.kubectl(*dry_run, stdin=json.dumps(pod)) == "pod/as-declared\n"


def _assert_rights(release: Release) -> None:
    operator = f"system:serviceaccount:{release.namespace}:{OPERATOR}"
    assert release.may("update", "partitiontables.quorate.io", operator)
    assert release.may("get", "secrets/main-quorate", operator)
    assert not release.may("get", "secrets/other", operator)
    for user, role in (("editor", "edit"), ("viewer", "view")):
        name = [f"rolebinding/{user}", f"--clusterrole={role}", f"--user={user}"]
        release.kubectl("create", *name[0].split("/"), *name[1:])
    for user in ("editor", "viewer"):  # the controller manager puts roles together
        wait_until(
            lambda user=user: release.may("list", "zones.quorate.io", user), f"right of {user}"
        )
    wait_until(lambda: release.may("create", "zones.quorate.io", "editor"), "right to create")
    assert not release.may("create", "zones.quorate.io", "viewer")
    assert not release.may("update", "partitiontables.quorate.io", "editor")


def _assert_renewals_have_their_priority(release: Release, plane: ControlPlane) -> None:
    """The API server says by which FlowSchema and in which priority level it answers a request."""
    account = f"system:serviceaccount:{release.namespace}:{OPERATOR}"
    kubeconfig = plane.kubeconfig_for(account)

    def answered_in(what: str) -> str:
        asked = ["--kubeconfig", str(kubeconfig), "get", what, "--v=8", "--ignore-not-found"]
        done = plane.kubectl("--namespace", release.namespace, *asked, check=False)
        found = re.search(r"prioritylevel-uid: ([0-9a-f-]+)", done.stderr, re.IGNORECASE)
        return found.group(1) if found else done.stderr

    level = release.get("prioritylevelconfiguration", "leader-election")["metadata"]["uid"]
    wait_until(
        lambda: answered_in(f"lease/{OPERATOR}") == level,
        "a renewal in the priority level leader-election",
        30,
        lambda: answered_in(f"lease/{OPERATOR}"),
    )
    assert answered_in("lease/another") == level  # of the same namespace
    assert answered_in("storagecluster/main") != level


@pytest.mark.parametrize("values", sorted(path.stem for path in VALUES.glob("*.yaml")))
def test_the_api_server_takes_what_the_chart_declares(
    control_plane: ControlPlane, namespace: str, values: str
) -> None:
    """Every field of every object is known to it, with the kinds among them."""
    options = ("--values", str(VALUES / f"{values}.yaml"))
    options += ("--set", f"monitoring.dashboards.namespace={namespace}")  # one that exists

    assert_taken(control_plane, render(helm_path("helm3"), *options, namespace=namespace))
