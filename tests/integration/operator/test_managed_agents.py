"""Managed agents on a real API server; there is no kubelet, so the test writes what one would."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quorate_cluster.road import Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import FIELD_MANAGER, FINALIZER

pytestmark = pytest.mark.integration

Json = dict[str, Any]
MANAGED = {"replicas": 3, "image": "localhost/quorate-agent:1", "storage": {"size": "1Gi"}}
OF_AGENTS = "app.kubernetes.io/component=agent"
NAMES = [f"main-agent-{number}" for number in (1, 2, 3)]


class Managed:
    """One managed cluster in a namespace, whose operator has the rights of the examples."""

    def __init__(self, road: Road) -> None:
        self.road = road

    def names(self, kind: str) -> list[str]:
        found = self.road.names(kind, OF_AGENTS)
        return sorted(each.rpartition("/")[2] for each in found)

    def declare(self, **spec: Any) -> None:
        self.road.apply("StorageCluster", "main", managed={**MANAGED, **spec})

    def wait(self, is_so: Callable[[], object], what: str, timeout_s: float = 40) -> None:
        def facts() -> object:
            return self.road.status("storagecluster", "main"), self.road.logs()

        wait_until(lambda: bool(is_so()), what, timeout_s, facts)

    def pod_status(self, name: str, status: Json) -> None:
        """As its kubelet would tell."""
        patch = json.dumps({"status": status})
        self.road.kubectl(
            "patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={patch}"
        )

    def uids(self) -> dict[str, str]:
        """Of the claims, by name."""
        claims = self.road.items("persistentvolumeclaims")
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in claims}

    def owners(self) -> list[Json]:
        """With whom claims would go."""
        claims = self.road.items("persistentvolumeclaims")
        return [owner for each in claims for owner in each["metadata"].get("ownerReferences", ())]

    def own_claims(self) -> None:
        """Leave cluster and claims as a build before did where deletionPolicy was Delete."""
        patch = {"metadata": {"finalizers": [FINALIZER]}, "spec": {"deletionPolicy": "Delete"}}
        self.patch(patch)
        cluster = self.road.get("storagecluster", "main") or {}
        owner = {
            **{each: cluster[each] for each in ("apiVersion", "kind")},
            **{each: cluster["metadata"][each] for each in ("name", "uid")},
            "controller": True,
            "blockOwnerDeletion": False,
        }
        for claim in self.road.items("persistentvolumeclaims"):
            kept = {each: claim["metadata"][each] for each in ("name", "namespace", "labels")}
            spec = {each: claim["spec"][each] for each in ("accessModes", "resources")}
            made = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {**kept, "ownerReferences": [owner]},
                "spec": spec,
            }
            how = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")
            self.road.kubectl("apply", *how, "--filename=-", stdin=json.dumps(made))

    def patch(self, patch: Json) -> None:
        said = f"--patch={json.dumps(patch)}"
        self.road.kubectl("patch", "storagecluster", "main", "--type=merge", said)

    def finalizers(self) -> list[str]:
        found = self.road.get("storagecluster", "main") or {"metadata": {}}
        return list(found["metadata"].get("finalizers", []))

    def told(self) -> dict[str, str]:
        """pod -> reason, by the cluster's status."""
        pods = self.road.status("storagecluster", "main").get("pods", [])
        return {each["name"]: each["reason"] for each in pods}


def waiting(reason: str) -> Json:
    container = {
        "name": "agent",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "state": {"waiting": {"reason": reason, "message": f"because of {reason}"}},
    }
    return {"phase": "Pending", "containerStatuses": [container]}


READY = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "agent",
            "image": "i",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
    ],
}


@pytest.fixture
def undeclared(control_plane: ControlPlane, namespace: str) -> Iterator[Managed]:
    road = Road(control_plane, namespace)
    try:
        road.kubectl(
            "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
        )
        road.use_example_role()
        road.start_operator()
        yield Managed(road)
    finally:
        road.close()


@pytest.fixture
def managed(undeclared: Managed) -> Managed:
    undeclared.declare()
    undeclared.wait(lambda: len(undeclared.names("pods")) == 3, "three pods")
    return undeclared


def test_objects_are_made_told_of_and_put_right(managed: Managed) -> None:
    """Pods are made in a namespace that enforces the restricted Pod Security Standard."""
    road = managed.road
    assert managed.names("statefulsets") == managed.names("persistentvolumeclaims") == NAMES
    assert managed.names("services") == managed.names("poddisruptionbudgets") == ["main-agents"]
    assert managed.names("serviceaccounts") == ["main-agents"]

    for name, reason in zip(NAMES, ("ImagePullBackOff", "CrashLoopBackOff", ""), strict=True):
        managed.pod_status(f"{name}-0", waiting(reason) if reason else READY)
    expected = {f"{NAMES[0]}-0": "ImagePullBackOff", f"{NAMES[1]}-0": "CrashLoopBackOff"}
    managed.wait(lambda: managed.told() == expected, "reasons of the pods")
    conditions = road.status("storagecluster", "main")["conditions"]
    [ready] = [each for each in conditions if each["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "PodsFailing")
    assert "main-agent-1-0: ImagePullBackOff: because of ImagePullBackOff" in ready["message"]

    road.kubectl("delete", "service", "main-agents")
    road.kubectl("scale", "statefulset", "main-agent-2", "--replicas=0")
    road.kubectl("annotate", "statefulset", "main-agent-2", "team=shop")
    managed.wait(lambda: managed.names("services") == ["main-agents"], "the Service again")

    def spec() -> Json:
        return road.get("statefulset", "main-agent-2") or {}

    managed.wait(lambda: spec()["spec"]["replicas"] == 1, "the pod again")
    assert spec()["metadata"]["annotations"]["team"] == "shop", "what others add stays"


def test_the_scale_subresource_adds_agents_and_removes_those_that_hold_nothing(
    managed: Managed,
) -> None:
    road = managed.road
    managed.wait(lambda: road.status("storagecluster", "main").get("replicas") == 3, "told")
    road.kubectl("scale", "storagecluster", "main", "--replicas=4")
    managed.wait(lambda: "main-agent-4" in managed.names("pods,statefulsets"), "the fourth")
    road.kubectl("scale", "storagecluster", "main", "--replicas=2")
    managed.wait(lambda: managed.names("statefulsets") == NAMES[:2], "two")

    assert len(managed.names("persistentvolumeclaims")) == 4, "claims are never deleted"
    managed.wait(lambda: road.status("storagecluster", "main")["online"] == "0/2", "told")


def test_the_objects_go_with_the_cluster_and_claims_and_secret_stay(managed: Managed) -> None:
    road = managed.road
    road.kubectl("delete", "storagecluster", "main")
    managed.wait(lambda: not managed.names("statefulsets"), "no StatefulSet", 60)
    managed.wait(lambda: not managed.names("services,poddisruptionbudgets"), "nothing else", 60)

    assert managed.names("persistentvolumeclaims") == NAMES
    secret = road.get("secret", "main-quorate")
    assert secret is not None

    managed.declare()
    managed.wait(lambda: managed.names("statefulsets") == NAMES, "made again")
    again = road.get("secret", "main-quorate")
    assert again is not None
    assert again["data"] == secret["data"]
    assert managed.owners() == [], "no claim would go with the new object either"


def test_the_cluster_goes_at_once_while_no_operator_runs_and_claims_stay(
    managed: Managed,
) -> None:
    """By a person, by a tool that prunes, by the deletion of a kind: nothing hangs."""
    road = managed.road
    managed.wait(lambda: managed.names("persistentvolumeclaims") == NAMES, "claims")
    uids = managed.uids()
    (operator,) = road.operators.values()
    operator.kill()
    assert managed.finalizers() == []
    road.kubectl("delete", "storagecluster", "main", "--timeout=20s")
    managed.wait(lambda: not managed.names("statefulsets,services,pods"), "no pod", 60)
    assert managed.uids() == uids
    assert managed.owners() == []

    managed.declare()
    operator.start()
    managed.wait(lambda: managed.names("statefulsets") == NAMES, "made again")
    assert managed.uids() == uids


def test_with_delete_claims_go_when_the_data_has_gone(managed: Managed) -> None:
    road = managed.road
    managed.wait(lambda: managed.names("persistentvolumeclaims") == NAMES, "claims")
    managed.patch({"spec": {"deletionPolicy": "Delete"}})
    managed.wait(managed.finalizers, "its deletion waits for the data")
    assert managed.owners() == [], "not before"
    road.kubectl("delete", "storagecluster", "main", "--timeout=60s")

    managed.wait(lambda: not managed.names("persistentvolumeclaims"), "no claim", 60)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_claims_that_a_build_before_owned_stay_with_a_cluster_that_now_says_retain(
    managed: Managed, is_deleted: bool
) -> None:
    """The policy changes while no operator runs, and the cluster may be deleted then, too."""
    road = managed.road
    road.kubectl("scale", "storagecluster", "main", "--replicas=2")
    managed.wait(lambda: managed.names("statefulsets") == NAMES[:2], "one is scaled away")
    uids = managed.uids()
    (operator,) = road.operators.values()
    operator.kill()
    managed.own_claims()
    assert len(managed.owners()) == 3
    paused = {"annotations": {"quorate.io/paused": "true"}}
    managed.patch({"metadata": paused, "spec": {"deletionPolicy": "Retain"}})
    if is_deleted:
        road.kubectl("delete", "storagecluster", "main", "--wait=false")
        assert managed.finalizers() == [FINALIZER]
    operator.start()

    if not is_deleted:
        managed.wait(lambda: not managed.owners(), "claims belong to nobody")
        managed.wait(lambda: not managed.finalizers(), "no finaliser", 90)
        road.kubectl("delete", "storagecluster", "main", "--wait=false")
    managed.wait(lambda: road.get("storagecluster", "main") is None, "the object gone")
    managed.wait(lambda: not managed.names("statefulsets,services,pods"), "no pod", 60)
    assert managed.uids() == uids
    assert managed.owners() == []


def test_a_policy_that_refuses_an_object_is_told_and_costs_the_lease_nothing(
    managed: Managed,
) -> None:
    road = managed.road
    managed.wait(lambda: road.master()[1], "a master")
    term = road.master()[1]
    road.kubectl("create", "quota", "few", "--hard=count/statefulsets.apps=3")
    road.kubectl("scale", "storagecluster", "main", "--replicas=4")

    def refused() -> str:
        conditions = road.status("storagecluster", "main").get("conditions", [])
        return "".join(e["message"] for e in conditions if e["type"] == "AgentsUpdated")

    managed.wait(lambda: "exceeded quota: few" in refused(), "the refusal, told")
    road.kubectl("delete", "quota", "few")
    managed.wait(lambda: "main-agent-4" in managed.names("statefulsets"), "made after all", 90)
    assert road.master()[1] == term


def test_a_claim_that_its_class_does_not_let_grow_is_told_with_the_way_out(
    undeclared: Managed, control_plane: ControlPlane, namespace: str
) -> None:
    """There is no provisioner: the test makes the volumes, and says later that they have grown."""
    managed, road = undeclared, undeclared.road
    cluster = {"size": "1Gi", "className": f"fixed-{namespace}"}
    storage_class: Json = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": cluster["className"]},
        "provisioner": "example.org/none",
    }
    volumes = [_volume(f"{namespace}-{number}", cluster["className"]) for number in (1, 2, 3)]
    cluster_wide = {"apiVersion": "v1", "kind": "List", "items": [storage_class, *volumes]}
    control_plane.kubectl("apply", "--filename=-", stdin=json.dumps(cluster_wide))
    try:
        managed.declare(storage=cluster)

        def claims() -> list[Json]:
            return road.items("persistentvolumeclaims")

        def sizes() -> list[str]:
            return [each["spec"]["resources"]["requests"]["storage"] for each in claims()]

        managed.wait(
            lambda: [e["status"].get("phase") for e in claims()] == ["Bound"] * 3, "bound", 60
        )
        assert _grown(road) == ("", "", "")

        managed.declare(storage={**cluster, "size": "2Gi"})
        managed.wait(lambda: _grown(road)[:2] == ("False", "ExpansionRefused"), "the refusal")
        assert _grown(road)[2] == (
            f"claim main-agent-1 stays at 1Gi instead of 2Gi: StorageClass {cluster['className']} "
            "does not let volumes grow: set allowVolumeExpansion: true in it if its provisioner "
            "can, or write spec.managed.storage.size: 1Gi and add agents; and 2 more claims"
        )
        assert sizes() == ["1Gi"] * 3
        updated = road.status("storagecluster", "main")["conditions"]
        assert "Refused" not in [each["reason"] for each in updated], "nothing else is held up"

        allowed = json.dumps({**storage_class, "allowVolumeExpansion": True})
        control_plane.kubectl("apply", "--filename=-", stdin=allowed)
        managed.wait(lambda: _grown(road)[:2] == ("False", "Resizing"), "asked for again", 100)
        assert sizes() == ["2Gi"] * 3
        capacity = json.dumps({"status": {"capacity": {"storage": "2Gi"}}})
        for each in claims():
            name = each["metadata"]["name"]
            how = ("--subresource=status", "--type=merge", f"--patch={capacity}")
            road.kubectl("patch", "persistentvolumeclaim", name, *how)
        managed.wait(lambda: _grown(road)[:2] == ("True", "Grown"), "grown")
    finally:
        names = [each["metadata"]["name"] for each in volumes]
        control_plane.kubectl("delete", "persistentvolume", *names, "--wait=false")
        control_plane.kubectl("delete", "storageclass", cluster["className"])


def _volume(name: str, class_name: str) -> Json:
    spec = {
        "storageClassName": class_name,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/nothing"},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


def _grown(road: Road) -> tuple[str, str, str]:
    """Status, reason and message of the condition; empty while there is none."""
    for each in road.status("storagecluster", "main").get("conditions", []):
        if each["type"] == "VolumesGrown":
            return each["status"], each["reason"], each["message"]
    return "", "", ""
