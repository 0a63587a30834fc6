"""The admission policy of the examples: data goes only when that was said twice."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.wire.schema.resource import API_VERSION
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

Json = dict[str, Any]
POLICY = Path(__file__).parents[3] / "examples" / "deletion-policy.yaml"
FULL = {"partitions": {"total": 4, "available": 2, "degraded": 1, "unavailable": 1}}
EMPTY = {"partitions": {"total": 4, "available": 0, "degraded": 0, "unavailable": 0}}
MEMBER = {"name": "agent-1", "storeId": "s", "address": "127.0.0.1:7100", "state": "Online"}


class Objects:
    """Zones and clusters that no operator leads."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self._here = f"--namespace={namespace}"

    def make(self, kind: str, name: str, status: Json | None = None, **spec: Any) -> None:
        whole = {"addresses": ["127.0.0.1:7100"]} if kind == "StorageCluster" else {}
        whole = whole or {"clusterRef": {"name": "main"}, "partitions": 4}
        manifest = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**whole, **spec},
        }
        self._control_plane.kubectl("apply", self._here, "--filename=-", stdin=json.dumps(manifest))
        if status is not None:
            patch = json.dumps({"status": status})
            how = ("--subresource=status", "--type=merge", f"--patch={patch}")
            self._control_plane.kubectl("patch", kind, name, self._here, *how)

    def annotate(self, kind: str, name: str, value: str) -> None:
        said = f"quorate.io/confirm-deletion={value}"
        self._control_plane.kubectl("annotate", kind, name, self._here, said, "--overwrite")

    def refusal(self, kind: str, name: str) -> str:
        """Why it cannot be deleted; empty when it was."""
        done = self._control_plane.kubectl(
            "delete", kind, name, self._here, "--timeout=20s", check=False
        )
        return done.stderr if done.returncode != 0 else ""


@pytest.fixture(scope="module", autouse=True)
def policy(control_plane: ControlPlane) -> Iterator[None]:
    """In force for the tests of this file only."""
    control_plane.kubectl("apply", "--filename", str(POLICY))
    control_plane.kubectl("create", "namespace", "test-policy-probe")
    probe = Objects(control_plane, "test-policy-probe")
    probe.make("Zone", "probe", FULL, deletionPolicy="Delete")

    def is_in_force() -> bool:
        here = ("--namespace=test-policy-probe", "--dry-run=server")
        return (
            "holds data"
            in control_plane.kubectl("delete", "zone", "probe", *here, check=False).stderr
        )

    try:
        wait_until(is_in_force, "the policy in force", 30)
        yield
    finally:
        control_plane.kubectl("delete", "--filename", str(POLICY))
        control_plane.kubectl("delete", "namespace", "test-policy-probe", "--wait=false")


@pytest.fixture
def objects(control_plane: ControlPlane, namespace: str) -> Objects:
    return Objects(control_plane, namespace)


def test_a_zone_that_holds_data_is_deleted_when_that_is_confirmed(objects: Objects) -> None:
    objects.make("Zone", "full", FULL, deletionPolicy="Delete")

    said = objects.refusal("zone", "full")

    assert "Zone full holds data, and deletionPolicy: Delete erases it" in said
    assert "annotate the object with quorate.io/confirm-deletion=true" in said
    objects.annotate("zone", "full", "yes")
    assert objects.refusal("zone", "full")
    objects.annotate("zone", "full", "true")
    assert objects.refusal("zone", "full") == ""


def test_a_cluster_whose_members_hold_copies_is_deleted_when_that_is_confirmed(
    objects: Objects,
) -> None:
    objects.make(
        "StorageCluster", "full", {"members": [{**MEMBER, "owners": 3}]}, deletionPolicy="Delete"
    )

    assert "StorageCluster full holds data" in objects.refusal("storagecluster", "full")
    objects.annotate("storagecluster", "full", "true")
    assert objects.refusal("storagecluster", "full") == ""


@pytest.mark.parametrize(
    ("kind", "status", "spec"),
    [
        ("Zone", FULL, {}),
        ("Zone", FULL, {"deletionPolicy": "Retain"}),
        ("Zone", EMPTY, {"deletionPolicy": "Delete"}),
        ("Zone", None, {"deletionPolicy": "Delete"}),
        ("StorageCluster", {"members": [{**MEMBER, "owners": 3}]}, {}),
        ("StorageCluster", {"members": [{**MEMBER, "owners": 0}]}, {"deletionPolicy": "Delete"}),
        ("StorageCluster", None, {"deletionPolicy": "Delete"}),
    ],
)
def test_what_erases_nothing_is_deleted_as_ever(
    objects: Objects, kind: str, status: Json | None, spec: Json
) -> None:
    objects.make(kind, "free", status, **spec)

    assert objects.refusal(kind, "free") == ""


def test_a_namespace_is_deleted_with_all_that_it_holds(
    control_plane: ControlPlane, objects: Objects, namespace: str
) -> None:
    objects.make("Zone", "full", FULL, deletionPolicy="Delete")
    assert objects.refusal("zone", "full")

    control_plane.kubectl("delete", "namespace", namespace, "--timeout=60s")
