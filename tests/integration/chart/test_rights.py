"""The roles of the chart, by the API server's audit log of a whole life of an operator.

What it was refused is missing in a role; what a role grants and nothing used has a reason here, or
is one right too many.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate.wire.crds import crds
from quorate_cluster.names import Names
from quorate_cluster.road import QUIET
from quorate_cluster.waiting import wait_until
from quorate_control_plane.audit import (
    Right,
)
from quorate_control_plane.control_plane import ControlPlane
from quorate_helm.released import Released

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(600),
]

_BY_SCHEDULE = (
    "by a schedule, at the next minute: tests/integration/operator/test_data_validation.py"
)
_BY_BACKUP_SCHEDULE = (
    "by a schedule, at the next minute: tests/integration/operator/test_scheduled_backup.py"
)
UNUSED_IN_THIS_LIFE: dict[Right, str] = {
    Right("create", "quorate.io", "datavalidations"): _BY_SCHEDULE,
    Right("delete", "quorate.io", "datavalidations"): _BY_SCHEDULE,
    Right("patch", "quorate.io", "scheduleddatavalidations/status"): _BY_SCHEDULE,
    Right("create", "quorate.io", "zonebackups"): _BY_BACKUP_SCHEDULE,
    Right("delete", "quorate.io", "zonebackups"): _BY_BACKUP_SCHEDULE,
    Right("patch", "quorate.io", "scheduledzonebackups/status"): _BY_BACKUP_SCHEDULE,
}
"""Rights that are granted though the life below does not use them -> why."""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(tmp_path / "hosts", monkeypatch)


@pytest.fixture
def released(
    request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: str, hosts: Names
) -> Iterator[Released]:
    made = Released(control_plane, namespace, hosts, *getattr(request, "param", ()))
    try:
        yield made
    finally:
        made.close()


def test_a_whole_life_is_refused_nothing_and_uses_every_right(released: Released) -> None:
    road = released.road
    road.start_agents()
    first = released.start_operator("operator-a")
    road.declare(replicas=2)
    road.wait_zone(**QUIET)
    second = released.start_operator("operator-b")
    first.kill()
    road.wait_led_by(second)
    _live_with_external_agents(released)
    with _node(released) as node:
        _live_with_managed_agents(released, node)
    second.terminate()  # watches are in the log once they have ended

    assert not released.missing(), f"the chart's roles lack: {released.missing()}"
    unused = released.unused()
    too_many = sorted(str(each) for each in unused if each not in UNUSED_IN_THIS_LIFE)
    assert not too_many, f"granted, and neither used nor justified here: {too_many}"
    used_after_all = sorted(str(each) for each in UNUSED_IN_THIS_LIFE if each not in unused)
    assert not used_after_all, f"justified as unused, and used or not granted: {used_after_all}"


def _live_with_external_agents(released: Released) -> None:
    """Others meddle with its objects; a person asks what would be cancelled; zones go with data,
    without, after their cluster; the cluster is declared again, loses an agent, and goes with all
    data."""
    road = released.road
    road.kubectl("label", "partitiontables,storagenodes", "--all", "seen=true")
    road.apply("Zone", "kept", clusterRef={"name": "main"}, partitions=16, replicas=2)
    wait_until(lambda: road.conditions(name="kept").get("Available") == "True", "the second zone")
    look = {"zoneRef": {"name": "kept"}, "action": "Cancel", "partitions": [0]}
    road.apply("ZoneRecovery", "look", **look)
    wait_until(lambda: road.status("zonerecovery", "look").get("phase") == "Refused", "a look")
    road.apply("DataValidation", "nightly", zoneRef={"name": "kept"})
    released.wait(
        "a look at its Job", lambda: Right("get", "batch", "jobs") not in released.unused()
    )
    claim = {"persistentVolumeClaim": {"claimName": "backups", "path": "kept"}}
    road.apply("ZoneRestore", "monday", zoneRef={"name": "kept"}, source=claim)
    wait_until(lambda: road.status("zonerestore", "monday").get("phase") == "Running", "a restore")
    road.kubectl("delete", "zonerestore", "monday")
    road.apply("ZoneBackup", "monday", zoneRef={"name": "kept"}, destination=claim)
    wait_until(lambda: road.status("zonebackup", "monday").get("phase") == "Running", "a backup")
    spec = {"zoneRef": {"name": "kept"}, "strategy": "LWW", "destination": claim}
    road.apply("ZoneRepair", "monday", **spec)
    wait_until(lambda: road.status("zonerepair", "monday").get("phase") == "Running", "a repair")
    road.kubectl("delete", "zonerepair", "monday")
    road.kubectl("delete", "zonebackup", "monday")
    road.kubectl("delete", "datavalidation", "nightly")
    road.kubectl("delete", "zone", "kept")
    of_main = {"clusterRef": {"name": "main"}, "partitions": 16, "replicas": 2}
    road.apply("Zone", "orphan", **of_main, deletionPolicy="Delete")
    wait_until(lambda: road.conditions(name="orphan").get("Available") == "True", "the third zone")
    road.kubectl("delete", "storagecluster", "main", "--timeout=60s")
    wait_until(lambda: road.conditions(name="orphan").get("Accepted") == "False", "no cluster")
    road.kubectl("delete", "zone", "orphan", "--timeout=60s")
    addresses = [agent.peer_address for agent in road.agents.values()]
    road.apply("StorageCluster", "main", external={"addresses": addresses})
    road.wait_zone(**QUIET)
    addresses.pop()
    road.apply("StorageCluster", "main", external={"addresses": addresses}, deletionPolicy="Delete")
    wait_until(lambda: len(road.items("storagenodes")) == 2, "an agent drained", 60, road.logs)
    road.kubectl("delete", "zone", "sessions", "--timeout=60s")
    road.kubectl("delete", "storagecluster", "main", "--timeout=60s")
    wait_until(lambda: not road.items("partitiontables,storagenodes"), "end of all rows")


@contextmanager
def _node(released: Released) -> Iterator[str]:
    """The name of a Node to read, which belongs to no namespace."""
    road = released.road
    name = f"node-{road.namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    road.kubectl("create", "--filename=-", stdin=json.dumps(node))
    try:
        yield name
    finally:
        road.kubectl("delete", "node", name)


def _live_with_managed_agents(released: Released, node: str) -> None:
    """Made, put right, changed one by one, fewer, and gone; in the end claims are kept."""
    road = released.road
    managed: dict[str, Any] = {"replicas": 3, "image": "i", "storage": {"size": "1Gi"}}
    road.apply("StorageCluster", "shop", managed=managed, deletionPolicy="Delete")
    road.apply("Zone", "carts", clusterRef={"name": "shop"}, partitions=16, deletionPolicy="Delete")

    def is_quiet() -> bool:
        return QUIET.items() <= road.conditions(name="carts").items()

    released.wait("a zone of managed agents", is_quiet)
    released.wait("its Service", lambda: "carts-clients" in released.names("services", "shop"))
    for kind in ("service", "poddisruptionbudget", "serviceaccount"):
        road.kubectl("delete", kind, "shop-agents")
        released.wait(
            f"{kind} again", lambda kind=kind: "shop-agents" in released.names(kind, "shop")
        )
    pods = {name: uid for name, (uid, _) in released.pods.running.items()}
    managed["podTemplate"] = {"labels": {"team": "shop"}}
    road.apply("StorageCluster", "shop", managed=managed, deletionPolicy="Delete")

    def are_others() -> bool:
        now = {name: uid for name, (uid, _) in released.pods.running.items()}
        return now.keys() == pods.keys() and not {*now.items()} & {*pods.items()}

    released.wait("all pods replaced", are_others, 120)
    managed["replicas"] = 2
    road.apply("Zone", "carts", clusterRef={"name": "shop"}, partitions=16, replicas=2,
               deletionPolicy="Delete")  # fmt: skip
    road.apply("StorageCluster", "shop", managed=managed, deletionPolicy="Delete")
    released.wait("two agents", lambda: len(released.names("statefulsets", "shop")) == 2, 120)
    road.kubectl("delete", "zone", "carts", "--timeout=60s")
    released.wait("no Service", lambda: "carts-clients" not in released.names("services", "shop"))
    _put_on(node, min(released.pods.running), released)
    road.kubectl("annotate", "storagecluster", "shop", "quorate.io/release=true")
    road.kubectl("delete", "storagecluster", "shop", "--timeout=60s")
    assert len(released.names("persistentvolumeclaims", "shop")) == 3, "claims are kept"


def _put_on(node: str, pod: str, released: Released) -> None:
    """Have a pod on the node, until that is read.  There is no kubelet to end it."""
    road = released.road
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    at = f"/api/v1/namespaces/{road.namespace}/pods/{pod}/binding"
    road.kubectl("create", f"--raw={at}", "--filename=-", stdin=json.dumps(binding))
    released.wait("a look at it", lambda: Right("get", "", "nodes") not in released.unused())
    road.kubectl("delete", "pod", pod, "--force", "--grace-period=0")


@pytest.mark.parametrize("released", [["scope.allNamespaces=true"]], indirect=True)
def test_a_namespace_that_is_deleted_goes_and_nothing_is_refused(released: Released) -> None:
    """With rights that are bound outside of it, as the chart does where all are served."""
    served = released.serve("served")
    served.start_agents()
    operator = released.start_operator("operator-a")
    served.declare()
    managed = {"replicas": 1, "image": "i", "storage": {"size": "1Gi"}}
    served.apply("StorageCluster", "shop", managed=managed, deletionPolicy="Delete")
    served.wait_zone(**QUIET)
    released.wait("a pod", lambda: served.items("pods"))

    released.plane.kubectl("delete", "namespace", served.namespace, "--timeout=60s")

    operator.terminate()
    assert served.namespace in {
        each.get("objectRef", {}).get("namespace") for each in released.requests()
    }
    assert not released.missing(), f"the chart's roles lack: {released.missing()}"


KINDS = tuple(crds())
EDITED = (
    "storageclusters",
    "zones",
    "zonerecoveries",
    "datavalidations",
    "scheduleddatavalidations",
    "zonebackups",
    "scheduledzonebackups",
    "zonerestores",
    "zonerepairs",
)
READ = ("get", "list", "watch")
WRITTEN = ("create", "update", "patch", "delete")


def _allowed(role: str, verb: str, plural: str) -> bool:
    """Whether a user with this role of Kubernetes is to have the right, in docs/kubernetes.md."""
    plural, _, subresource = plural.partition("/")
    if subresource == "scale":
        return verb == "get" or (role != "view" and verb in ("update", "patch"))
    if subresource:
        return False
    return verb in READ or (role != "view" and verb in WRITTEN and plural in EDITED)


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_users_have_what_is_said_of_their_role_and_no_more(
    control_plane: ControlPlane, released: Released, role: str
) -> None:
    """Every verb of every kind, asked by the user: a SelfSubjectAccessReview each."""
    road = released.road
    user = f"{role}-of-{road.namespace}"
    road.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")
    as_user = f"--kubeconfig={control_plane.kubeconfig_for(user)}"
    asked = [
        (verb, plural)
        for plural in (*KINDS, *(f"{each}/status" for each in KINDS), "storageclusters/scale")
        for verb in (*READ, *WRITTEN, "deletecollection")
    ]
    reviews = yaml.safe_dump_all(_review(road.namespace, *each) for each in asked)

    def answers() -> dict[tuple[str, str], bool]:
        options = ("--filename=-", "--output=json", "--validate=false", as_user)
        said = road.kubectl("create", *options, stdin=reviews)
        found = _documents(said)
        return dict(
            zip(asked, (each["status"].get("allowed", False) for each in found), strict=True)
        )

    wait_until(lambda: answers()["list", "zones"], "the controller that puts roles together")

    wrong = {
        each: allowed for each, allowed in answers().items() if allowed != _allowed(role, *each)
    }
    assert wrong == {}


def _review(namespace: str, verb: str, plural: str) -> dict[str, Any]:
    resource, _, subresource = plural.partition("/")
    attributes = {"namespace": namespace, "verb": verb, "group": "quorate.io", "resource": resource}
    if subresource:
        attributes["subresource"] = subresource
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _documents(text: str) -> list[dict[str, Any]]:
    """JSON objects that follow each other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    text = text.strip()
    while at < len(text):
        each, at = decoder.raw_decode(text, at)
        found += each["items"] if each["kind"] == "List" else [each]
        while at < len(text) and text[at].isspace():
            at += 1
    return found
