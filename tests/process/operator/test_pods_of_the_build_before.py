"""An operator that is upgraded restarts no agent: pods are made as the build before makes them.

A pod is replaced when the template of its StatefulSet is another one, whatever changed it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from quorate_cluster.processes import environment, python
from quorate_owned.specs import SPECS
from quorate_versions.build_before import unpack_build_before

pytestmark = [pytest.mark.process, pytest.mark.needs("git", "build-before")]

PROGRAM = """
import inspect, json, sys
from quorate.wire.managed_agents import ManagedAgents, PodAdditions
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.owned.agent_pod import pod_template
from quorate_operator.owned.children import labels, selector

made, unset = [], {*ManagedAgents.model_fields, *PodAdditions.model_fields}
for managed in json.load(sys.stdin):
    metadata = {"name": "main", "namespace": "shop", "uid": "uid-1", "generation": 1}
    whole = {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": metadata}
    whole["spec"] = {"managed": managed}
    parsed = StorageCluster.parse(whole).spec.managed
    unset -= parsed.model_fields_set
    unset -= parsed.pod_template.model_fields_set if parsed.pod_template else set()
    known = {
        "cluster": "main",
        "managed": parsed,
        "agent": "agent-1",
        "labels": labels("main", "agent-1"),
        "of_cluster": selector("main"),
        "namespace": "shop",
    }
    wanted = inspect.signature(pod_template).parameters
    made.append(pod_template(**{name: known[name] for name in wanted}))
print(json.dumps([made, sorted(unset)]))
"""


def _templates(path: dict[str, str]) -> tuple[list[Any], list[str]]:
    """Of each spec, and the fields that none of them sets."""
    done = subprocess.run(
        [*python("quorate")[:-2], "-c", PROGRAM],
        input=json.dumps(SPECS),
        env=path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    made, unset = json.loads(done.stdout)
    return made, unset


def test_the_pods_of_a_spec_are_those_that_the_build_before_makes(tmp_path: Path) -> None:
    before, unset = _templates(environment(unpack_build_before(tmp_path / "sources")))

    assert unset == [], "a field that pods could have: set it in quorate_owned/specs.py"
    assert _templates(environment())[0] == before, (
        "an upgrade of the operator would restart every agent: make what is new depend on a field"
        " of the spec that nobody has set yet"
    )
