"""The control plane that other tests lean on: it works, it can be disturbed, it leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_cluster.waiting import wait_until
from quorate_control_plane.binaries import KUBERNETES_VERSION, find_binaries
from quorate_control_plane.control_plane import ControlPlane
from quorate_control_plane.fixtures import CRDS, Kubectl
from quorate_control_plane.keeper import start_time

pytestmark = pytest.mark.integration


def processes_about(text: str) -> list[str]:
    """Command lines of this machine's living processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        if text in command:
            found.append(command)
    return found


def test_the_server_answers_kubectl(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("version", "--output=json").stdout)

    assert version["serverVersion"]["gitVersion"].startswith("v1.")
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        assert version["clientVersion"]["gitVersion"].startswith(KUBERNETES_VERSION[:3])


def test_it_knows_the_projects_resources(kubectl: Kubectl) -> None:
    names = kubectl("get", "crd", "--output=name").stdout.split()

    assert len(names) == len(list(CRDS.glob("*.yaml")))


def test_children_of_a_deleted_owner_are_collected(kubectl: Kubectl, namespace: str) -> None:
    here = f"--namespace={namespace}"
    kubectl("create", "configmap", "owner", here)
    uid = kubectl("get", "configmap", "owner", here, "--output=jsonpath={.metadata.uid}").stdout
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    metadata = {"name": "child", "ownerReferences": [owner]}
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    kubectl("create", "--filename=-", here, stdin=json.dumps(child))

    kubectl("delete", "configmap", "owner", here)

    kubectl("wait", "--for=delete", "configmap/child", here, "--timeout=30s")


def test_a_dropped_namespace_goes_although_an_object_waits_for_its_operator(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    name = "test-dropped"
    kubectl("create", "namespace", name)
    metadata = {"name": "sessions", "finalizers": ["quorate.io/zone-data"]}
    spec = {"clusterRef": {"name": "main"}, "partitions": 16, "replicas": 3}
    zone = {"apiVersion": "quorate.io/v1alpha1", "kind": "Zone", "metadata": metadata, "spec": spec}
    kubectl("create", "--filename=-", f"--namespace={name}", stdin=json.dumps(zone))

    control_plane.drop_namespace(name)

    kubectl("wait", "--for=delete", f"namespace/{name}", "--timeout=60s")


def test_another_user_may_do_only_what_rbac_grants(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    here = f"--namespace={namespace}"
    as_jane = f"--kubeconfig={control_plane.kubeconfig_for('jane')}"
    kubectl("create", "role", "reader", here, "--verb=list", "--resource=configmaps")
    kubectl("create", "rolebinding", "jane", here, "--role=reader", "--user=jane")

    kubectl("get", "configmaps", here, as_jane)
    refused = kubectl("get", "secrets", here, as_jane, check=False)

    assert refused.returncode != 0
    assert 'User "jane" cannot list resource "secrets"' in refused.stderr


def test_a_refused_request_of_any_account_is_noticed(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    here = f"--namespace={namespace}"
    kubectl("create", "serviceaccount", "visitor", here)
    token = kubectl("create", "token", "visitor", here).stdout.strip()
    of_admin = kubectl("config", "view", "--raw", "--flatten", "--minify", "--output=json")
    as_visitor = control_plane.folder / f"visitor-{namespace}"
    config = json.loads(of_admin.stdout)
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    as_visitor.write_text(json.dumps(config))
    log = control_plane.audit_log

    kubectl("auth", "whoami", f"--kubeconfig={as_visitor}")
    assert log.refusals(namespace) == []
    for refused in (("get", "pods", here), ("get", "nodes"), ("get", "--raw=/metrics")):
        assert kubectl(*refused, f"--kubeconfig={as_visitor}", check=False).returncode != 0

    visitor = f"system:serviceaccount:{namespace}:visitor"
    assert [*map(str, log.refusals(namespace))] == [
        f"{visitor} may not {right}" for right in ("list pods", "list nodes", "get /metrics")
    ]
    assert len(log.events(visitor)) > 3, "also what was allowed"
    assert log.refusals("kube-system") == []


def test_objects_are_read_as_kubectl_reads_them(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    here = f"--namespace={namespace}"
    for name in ("one", "two"):
        kubectl("create", "configmap", name, here)
    kubectl("label", "configmap", "two", here, "color=red")
    objects = control_plane.objects

    for kinds in ("configmaps", "cm,serviceaccount", "Zone,lease,jobs.batch"):
        shown = json.loads(kubectl("get", kinds, here, "--output=json").stdout)["items"]
        assert objects.items(kinds, namespace) == shown
        named = kubectl("get", kinds, here, "--output=name").stdout.split()
        assert objects.names(kinds, namespace) == named
    assert objects.names("configmap", namespace, "color=red") == ["configmap/two"]
    (one,) = objects.items("configmap", namespace, fields="metadata.name=one")
    assert objects.get("configmap", "one", namespace) == one
    assert objects.get("configmap", "three", namespace) is None
    with pytest.raises(RuntimeError, match='no resource type "sorrows"'):
        objects.items("sorrows")
    with pytest.raises(RuntimeError, match="unable to parse requirement"):
        objects.items("configmaps", namespace, "color in red")


def test_objects_outlive_a_killed_api_server(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    kubectl("create", "configmap", "kept", f"--namespace={namespace}")
    before = control_plane.api_server.pid

    control_plane.api_server.kill()
    with pytest.raises(RuntimeError, match="no answer to"):
        control_plane.objects.get("configmap", "kept", namespace)
    control_plane.api_server.start()
    control_plane.wait_ready()

    assert control_plane.api_server.pid != before
    assert control_plane.objects.get("configmap", "kept", namespace) is not None
    kubectl("get", "configmap", "kept", f"--namespace={namespace}")


def test_a_paused_api_server_answers_nobody_until_resumed(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    control_plane.api_server.pause()
    try:
        silent = kubectl("get", "--raw=/readyz", "--request-timeout=1s", check=False)
    finally:
        control_plane.api_server.resume()

    assert silent.returncode != 0
    control_plane.wait_ready()


RUN_AND_WAIT = """
import sys, time
from pathlib import Path
from quorate_control_plane.binaries import find_binaries
from quorate_control_plane.control_plane import ControlPlane
with ControlPlane(find_binaries()) as control_plane:
    print(control_plane.folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_test_run_is_ended(end: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen(
        [sys.executable, "-c", RUN_AND_WAIT],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    with run.stdout:
        folder = Path(run.stdout.readline().strip())
    assert folder.parent == tmp_path
    assert len(processes_about(str(folder))) == 4  # three components and the keeper

    run.send_signal(end)
    run.wait(60)

    wait_until(lambda: not processes_about(str(folder)), f"no process of {folder}", 60)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_when_the_start_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    binaries = find_binaries()
    assert binaries is not None
    broken = ControlPlane({**binaries, "kube-apiserver": Path("/bin/false")})

    with pytest.raises(RuntimeError, match="kube-apiserver does not run"):
        broken.start()

    assert list(tmp_path.iterdir()) == []
    assert processes_about(str(tmp_path)) == []


def test_a_start_time_tells_a_process_from_its_successor() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None

    assert start_time(child.pid) is not None
    child.stdin.close()
    child.wait(20)
    assert start_time(child.pid) is None
