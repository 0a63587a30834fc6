"""The rights of `kubectl quorate top` on a real API server, by the role of docs/kubectl.md.

tests/e2e has pods that answer.
"""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from quorate_cli.kubectl.app import app
from quorate_cli.kubectl.kube_api import Forbidden
from quorate_cluster.road import Json, Road
from quorate_control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[3] / "docs" / "kubectl.md"
MANAGED = {"replicas": 1, "image": "localhost/none", "storage": {"size": "1Gi"}}


def _role(namespace: str) -> Json:
    found = re.search(r"```yaml\n(apiVersion.*?name: quorate-top.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    role = dict(yaml.safe_load(found[1]))
    role["metadata"]["namespace"] = namespace
    return role


def _pod(road: Road) -> None:
    """A pod of an agent, at an address to which no API server connects."""
    labels = {"quorate.io/cluster": "main", "quorate.io/agent": "agent-1"}
    containers = [{"name": "agent", "image": "localhost/none"}]
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "main-agent-1-0", "labels": labels},
        "spec": {"containers": containers, "automountServiceAccountToken": False},
    }  # fmt: skip
    road.kubectl("apply", "--filename=-", stdin=json.dumps(pod))
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    patch = f"--patch={json.dumps({'status': status})}"
    road.kubectl("patch", "pod", "main-agent-1-0", "--subresource=status", "--type=merge", patch)


def test_the_role_of_the_page_is_what_it_takes(control_plane: ControlPlane, road: Road) -> None:
    road.apply("StorageCluster", "main", managed=MANAGED)
    _pod(road)
    user = f"watcher-{road.namespace}"
    config = control_plane.kubeconfig_for(user)
    role = _role(road.namespace)
    rights = role["rules"]
    without = [each for each in rights if each["resources"] != ["pods/proxy"]]
    assert len(without) == len(rights) - 1

    def grant(rules: list[Json]) -> None:
        road.kubectl("apply", "--filename=-", stdin=json.dumps({**role, "rules": rules}))

    def run() -> tuple[str, BaseException | None]:
        words = ["top", "--json", "--interval=0.1", "--operator-namespace", road.namespace]
        where = [f"--kubeconfig={config}", f"--namespace={road.namespace}"]
        result = CliRunner().invoke(app, [*words, *where])
        return result.output, result.exception

    grant(without)
    road.kubectl("create", "rolebinding", "top", "--role=quorate-top", f"--user={user}")
    _, refused = run()
    grant(rights)
    said, error = run()

    assert isinstance(refused, Forbidden)
    assert "pods/proxy" in str(refused)
    assert error is None, error
    (agent,) = json.loads(said)["agents"]
    assert agent["name"] == "agent-1"
    assert "address not allowed" in agent["problem"], "the proxy was asked, and refused to connect"
