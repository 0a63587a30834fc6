"""The nodes themselves: pods run, reach each other by name and Service; nothing is left of them."""

import json
import os
import subprocess
import sys

import pytest

from quorate_cluster.waiting import wait_until
from quorate_nodes.cluster import Json, left_behind
from quorate_nodes.release.installed import REGISTRY, VERSION, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

IMAGE = f"{REGISTRY}/quorate-agent:{VERSION}"
"""It has Python and nothing that would be in the way."""
PROGRAM = """
import http.server as h, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
os.chdir("/etc")
h.test(h.SimpleHTTPRequestHandler, port=8000)
"""


def _pod(name: str, zone: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "trivial"}},
        "spec": {
            "nodeSelector": {"topology.kubernetes.io/zone": zone},
            "containers": [
                {
                    "name": "python",
                    "image": IMAGE,
                    "command": ["python3", "-u", "-c", PROGRAM],
                    "readinessProbe": {
                        "httpGet": {"path": "/hostname", "port": 8000},
                        "periodSeconds": 1,
                    },
                }
            ],
        },
    }


def test_pods_on_each_node_reach_each_other_by_service_and_name(installed: Installed) -> None:
    nodes = installed.nodes
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "trivial"},
        "spec": {"selector": {"app": "trivial"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    pods = [_pod(f"on-{node.zone}", node.zone) for node in nodes.nodes]
    declared = {"apiVersion": "v1", "kind": "List", "items": [service, *pods]}
    nodes.kubectl("apply", "--filename=-", stdin=json.dumps(declared))
    nodes.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")

    ask = (
        "import urllib.request as u; print(u.urlopen('http://trivial/hostname', timeout=9).read())"
    )
    seen: set[str] = set()

    def reaches_all() -> bool:
        # Nothing at first: a node knows a new Service a second later.
        said = nodes.kubectl("exec", "on-zone-1", "--", "python3", "-c", ask, check=False)
        seen.update(said.splitlines())
        return len(seen) == 3

    wait_until(reaches_all, "an answer of each pod", 60, lambda: seen)
    assert seen == {str(f"{pod['metadata']['name']}\n".encode()) for pod in pods}
    assert "GET /hostname" in nodes.kubectl("logs", "on-zone-2")
    nodes.kubectl("delete", "pod,service", "--selector=app=trivial", "--wait=false")
    nodes.kubectl("delete", "service", "trivial")
    nodes.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=60s")


RUN_AND_WAIT = """
import json, sys, time
from quorate_nodes.cluster import NodeCluster
from quorate_nodes.programs import find_programs
with NodeCluster(find_programs(), count=1) as cluster:
    assert cluster.left_behind(), "what there is would be found"
    print(json.dumps([cluster.network.name, str(cluster.work_folder("last").parent)]), flush=True)
    time.sleep(600)
"""


@pytest.mark.deep
def test_nothing_is_left_when_the_test_run_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen(
        [sys.executable, "-c", RUN_AND_WAIT], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    with run.stdout:
        name, folder = json.loads(run.stdout.readline())
    run.kill()
    run.wait()

    wait_until(
        lambda: not left_behind(name, folder),
        f"end of {folder}",
        60,
        lambda: left_behind(name, folder),
    )
