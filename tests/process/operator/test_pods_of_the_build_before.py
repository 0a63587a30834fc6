"""An operator that is upgraded restarts no agent: pods are made as the build before makes them.

A pod is replaced when the template of its StatefulSet is another one, whatever changed it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quorate_cluster.processes import environment, python
from quorate_versions.build_before import unpack_build_before

pytestmark = [pytest.mark.process, pytest.mark.needs("git", "build-before")]

SPECS: list[dict[str, Any]] = [
    {"replicas": 3, "image": "agent:1", "storage": {"size": "10Gi"}},
    {
        "replicas": 1,
        "image": "agent@sha256:0",
        "storage": {"size": "10Gi", "className": "fast"},
        "resources": {"limits": {"memory": "2Gi"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "storage", "operator": "Exists"}],
        "failureDomainLabel": "topology.kubernetes.io/region",
        "podTemplate": {
            "labels": {"team": "shop"},
            "annotations": {"note": "mine"},
            "env": [{"name": "TZ", "value": "UTC"}],
            "imagePullSecrets": [{"name": "registry"}],
            "priorityClassName": "high",
        },
    },
]
PROGRAM = """
import inspect, json, sys
from quorate.wire.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.owned.agent_pod import pod_template
from quorate_operator.owned.children import labels, selector

made = []
for managed in json.load(sys.stdin):
    metadata = {"name": "main", "namespace": "shop", "uid": "uid-1", "generation": 1}
    whole = {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": metadata}
    whole["spec"] = {"managed": managed}
    known = {
        "cluster": "main",
        "managed": StorageCluster.parse(whole).spec.managed,
        "agent": "agent-1",
        "labels": labels("main", "agent-1"),
        "of_cluster": selector("main"),
        "namespace": "shop",
    }
    wanted = inspect.signature(pod_template).parameters
    made.append(pod_template(**{name: known[name] for name in wanted}))
print(json.dumps(made))
"""


def _templates(path: dict[str, str]) -> list[Any]:
    done = subprocess.run(
        [*python("quorate")[:-2], "-c", PROGRAM],
        input=json.dumps(SPECS),
        env=path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_the_pods_of_a_spec_are_those_that_the_build_before_makes(tmp_path: Path) -> None:
    before = _templates(environment(unpack_build_before(tmp_path / "sources")))

    assert _templates(environment()) == before, (
        "an upgrade of the operator would restart every agent: make what is new depend on a field"
        " of the spec that nobody has set yet"
    )
