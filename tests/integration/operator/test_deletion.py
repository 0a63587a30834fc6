"""What is kept and what goes when objects are deleted, on a real API server.

One operator and three agents, as processes, serve all tests of this file, one after the other.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from quorate.wire.schema.resource import API_VERSION, GROUP
from quorate_cluster.road import Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import ANNOTATION_PAUSED, ANNOTATION_RELEASE, FINALIZER

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]

Json = dict[str, Any]
KEYS = 50
NAMESPACE = "test-deletion"


class Served(Road):
    """A namespace with an operator, which has the rights of the examples, and agents."""

    def __init__(self, control_plane: ControlPlane) -> None:
        control_plane.kubectl("create", "namespace", NAMESPACE)
        super().__init__(control_plane, NAMESPACE)

    def start(self) -> None:
        self.use_example_role()
        self.start_agents()
        self.operator = self.start_operator(lease_s=30)

    def declare_cluster(self, **spec: Any) -> None:
        addresses = [agent.peer_address for agent in self.agents.values()]
        self.apply("StorageCluster", "main", external={"addresses": addresses}, **spec)

    def declare_zone(self, name: str, **spec: Any) -> None:
        self.apply("Zone", name, **{"clusterRef": {"name": "main"}, "partitions": 4, **spec})

    def delete(self, kind: str, name: str) -> None:
        self.kubectl("delete", kind, name, "--timeout=60s")

    def condition(self, zone: str, kind: str) -> Json:
        """One condition of a Zone; empty: it has none of that kind."""
        found = self.status("zone", zone).get("conditions", [])
        return next((each for each in found if each["type"] == kind), {})

    def wait_for(self, name: str, **wanted: str) -> None:
        wait_until(
            lambda: wanted.items() <= self.conditions("zone", name).items(),
            f"zone {name} with {wanted}",
            60,
            lambda: self.said_of(name),
        )

    def said_of(self, name: str) -> object:
        return self.status("zone", name), self.operator.log_tail(30)

    def tables_of(self, zone_id: str) -> list[str]:
        return [name for name in self.names("partitiontables") if zone_id in name]

    def folders(self, zone_id: str) -> int:
        """How many agents have data of the zone."""
        agents = self.agents.values()
        return sum((agent.data / "zones" / zone_id).exists() for agent in agents)

    def fill(self, name: str) -> str:
        """Write into a zone that serves; its id."""
        self.wait_for(name, Available="True")
        with closing(self.client(name)) as client:
            for number in range(KEYS):
                client.set(f"key-{number}", f"value-{number}")
        return str(self.status("zone", name)["zoneId"])

    def check(self, name: str) -> None:
        self.wait_for(name, Available="True")
        with closing(self.client(name)) as client:
            found = [client.get(f"key-{number}") for number in range(KEYS)]
        assert found == [f"value-{number}".encode() for number in range(KEYS)]


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> Iterator[Served]:
    served = Served(control_plane)
    try:
        served.start()
        yield served
    finally:
        served.close()
        control_plane.drop_namespace(NAMESPACE)


@pytest.fixture(autouse=True)
def cluster(served: Served) -> None:
    """Every test begins with the cluster, declared as it is by default."""
    served.declare_cluster()


def test_a_zone_that_is_deleted_is_kept_and_declared_again_has_its_data(served: Served) -> None:
    served.declare_zone("kept")
    zone_id = served.fill("kept")
    uid = served.get("zone", "kept")["metadata"]["uid"]
    assert zone_id == uid

    served.delete("zone", "kept")

    assert served.tables_of(zone_id)
    assert served.folders(zone_id) == 3
    wait_until(
        lambda: served.status("stc", "main").get("retainedZones") == ["kept"], "named as kept", 30
    )

    served.declare_zone("kept")
    served.check("kept")
    again = served.get("zone", "kept")
    assert again["metadata"]["uid"] != uid
    assert again["status"]["zoneId"] == zone_id
    wait_until(
        lambda: not served.status("stc", "main").get("retainedZones"), "no longer named as kept", 30
    )


def test_another_zone_of_that_name_is_refused_and_its_deletion_erases_nothing(
    served: Served,
) -> None:
    served.declare_zone("other")
    zone_id = served.fill("other")
    served.delete("zone", "other")

    served.declare_zone("other", partitions=8, deletionPolicy="Delete")
    served.wait_for("other", Accepted="False")
    accepted = served.condition("other", "Accepted")
    assert accepted["reason"] == "KeptDataDiffers"
    assert "partitions: 4 and storage: Persistent" in accepted["message"]
    served.delete("zone", "other")

    assert served.folders(zone_id) == 3
    served.declare_zone("other")
    served.check("other")


def test_cluster_and_zone_that_are_deleted_and_declared_again_have_their_data(
    served: Served,
) -> None:
    served.declare_zone("both")
    zone_id = served.fill("both")
    nodes = sorted(served.names("storagenodes"))
    assert len(nodes) == 3

    served.delete("zone", "both")
    served.delete("storagecluster", "main")
    served.declare_cluster()
    served.declare_zone("both")

    served.check("both")
    assert served.status("zone", "both")["zoneId"] == zone_id
    assert sorted(served.names("storagenodes")) == nodes


def test_with_delete_data_goes_and_a_later_zone_of_that_name_is_empty(served: Served) -> None:
    served.declare_zone("gone", deletionPolicy="Delete")
    zone_id = served.fill("gone")
    assert served.folders(zone_id) == 3

    served.delete("zone", "gone")

    assert served.folders(zone_id) == 0
    wait_until(lambda: served.tables_of(zone_id) == [], "end of its tables", 30)
    served.declare_zone("gone", deletionPolicy="Delete")
    served.wait_for("gone", Available="True")
    assert served.status("zone", "gone")["zoneId"] != zone_id
    with closing(served.client("gone")) as client:
        assert client.dbsize() == 0
    served.delete("zone", "gone")


def test_kept_data_goes_when_its_zone_is_declared_with_delete_and_deleted(served: Served) -> None:
    served.declare_zone("late")
    zone_id = served.fill("late")
    served.delete("zone", "late")
    served.declare_zone("late", deletionPolicy="Delete")
    served.check("late")

    served.delete("zone", "late")

    assert served.folders(zone_id) == 0


def test_an_annotation_frees_a_zone_whose_data_cannot_be_deleted(
    control_plane: ControlPlane, served: Served
) -> None:
    served.declare_zone("stuck", deletionPolicy="Delete")
    zone_id = served.fill("stuck")
    with undeletable(control_plane, "partitiontables"):
        served.kubectl("delete", "zone", "stuck", "--wait=false")
        wait_until(
            lambda: served.conditions("zone", "stuck").get("Blocked") == "True",
            "it says why it waits",
            60,
            lambda: served.said_of("stuck"),
        )
        assert served.tables_of(zone_id)
        served.operator.terminate()  # kopf still waits for the handler
        assert served.operator.exit_status == 0
        assert "Traceback" not in served.operator.log_tail(100_000)
        served.operator.start()

        served.kubectl("annotate", "zone", "stuck", f"{ANNOTATION_RELEASE}=true")

        wait_until(lambda: served.get("zone", "stuck") is None, "its end", 60)
    wait_until(lambda: served.tables_of(zone_id) == [], "its data goes nevertheless", 60)


def test_what_frees_a_zone_is_seen_while_it_waits(
    control_plane: ControlPlane, served: Served
) -> None:
    """By one operator that goes on: kopf tells it of no event of the Zone meanwhile."""
    served.declare_zone("freed", deletionPolicy="Delete")
    zone_id = served.fill("freed")
    with undeletable(control_plane, "partitiontables"):
        delete_blocked(served, "freed")

        served.kubectl("annotate", "zone", "freed", f"{ANNOTATION_RELEASE}=true")

        wait_until(
            lambda: served.get("zone", "freed") is None,
            "its end",
            60,
            lambda: served.said_of("freed"),
        )
    wait_until(lambda: served.tables_of(zone_id) == [], "its data goes nevertheless", 60)


def test_a_zone_without_the_finaliser_keeps_its_data_and_holds_no_cluster(
    served: Served,
) -> None:
    """Removed by hand while the operator waits; the cluster can be deleted afterwards."""
    served.declare_cluster(deletionPolicy="Retain")
    served.declare_zone("by-hand", deletionPolicy="Delete")
    zone_id = served.fill("by-hand")
    served.kubectl("annotate", "zone", "by-hand", f"{ANNOTATION_PAUSED}=true")
    delete_blocked(served, "by-hand", "Paused")
    served.declare_cluster(deletionPolicy="Delete")
    wait_until(
        lambda: FINALIZER in served.get("stc", "main")["metadata"].get("finalizers", []), "held", 30
    )
    nothing = '{"metadata":{"finalizers":null}}'

    served.kubectl("patch", "zone", "by-hand", "--type=merge", f"--patch={nothing}")

    assert served.get("zone", "by-hand") is None
    wait_until(
        lambda: served.status("stc", "main").get("retainedZones") == ["by-hand"],
        "named as kept",
        60,
        lambda: served.operator.log_tail(30),
    )
    assert served.tables_of(zone_id)
    assert served.folders(zone_id) == 3
    served.kubectl("delete", "zones", "--all", "--timeout=60s")  # those of earlier tests
    served.delete("storagecluster", "main")
    assert served.folders(zone_id) == 0


def delete_blocked(served: Served, zone: str, condition: str = "Blocked") -> None:
    """Ask for the deletion of a zone that cannot go; wait until its status says that it waits."""
    served.kubectl("delete", "zone", zone, "--wait=false")
    wait_until(
        lambda: (
            served.get("zone", zone)["metadata"].get("deletionTimestamp") is not None
            and served.conditions("zone", zone).get(condition) == "True"
        ),
        "it waits",
        60,
        lambda: served.said_of(zone),
    )


def test_a_cluster_with_delete_waits_for_its_zones_and_leaves_nothing(served: Served) -> None:
    """Late in this file: nothing of the cluster is left."""
    served.declare_cluster(deletionPolicy="Delete")
    served.declare_zone("last")
    zone_id = served.fill("last")
    served.kubectl("delete", "storagecluster", "main", "--wait=false")
    served.check("last")  # a Zone is declared in it
    assert served.folders(zone_id) == 3

    served.kubectl("delete", "zones", "--all", "--timeout=60s")

    wait_until(
        lambda: served.get("stc", "main") is None,
        "its end",
        60,
        lambda: served.operator.log_tail(30),
    )
    assert served.names("partitiontables") == []
    assert served.names("storagenodes") == []
    assert served.folders(zone_id) == 0
    said = [line for line in served.operator.log_tail(100_000).splitlines() if "orbidden" in line]
    assert [line for line in said if "ValidatingAdmissionPolicy" not in line] == []


def test_a_namespace_goes_with_its_objects_where_rights_outlive_them(
    control_plane: ControlPlane, served: Served
) -> None:
    """The last one: it ends the namespace of this file."""
    account = f"--user=system:serviceaccount:{NAMESPACE}:quorate-operator"
    rights = ("clusterrolebinding", f"rights-{NAMESPACE}")
    control_plane.kubectl("create", *rights, "--clusterrole=cluster-admin", account)
    try:
        served.declare_zone("stays")
        served.declare_zone("goes", deletionPolicy="Delete")
        for name in ("stays", "goes"):
            served.wait_for(name, Available="True")

        control_plane.kubectl("delete", "namespace", NAMESPACE, "--timeout=80s")
    finally:
        control_plane.kubectl("delete", *rights)


@contextmanager
def undeletable(control_plane: ControlPlane, plural: str) -> Iterator[None]:
    """A policy by which nothing of a kind can be deleted here."""
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": [plural],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    kind, name = "ValidatingAdmissionPolicy", f"undeletable-{NAMESPACE}"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "validations": [{"expression": "false", "message": "kept for the audit"}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    for manifest in (
        {**head, "kind": kind, "spec": spec},
        {**head, "kind": f"{kind}Binding", "spec": bound},
    ):
        control_plane.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))
    probe = {"apiVersion": API_VERSION, "kind": "PartitionTable", "metadata": {"name": "probe"}}
    whole = {
        **probe,
        "spec": {"clusterRef": {"name": "x"}, "zoneRef": {"name": "x", "uid": "x"}, "rows": [],
                 "shard": 0},
    }  # fmt: skip
    at = f"--namespace={NAMESPACE}"
    control_plane.kubectl("apply", at, "--filename=-", stdin=json.dumps(whole))

    def is_denied() -> bool:
        dry = ("delete", "partitiontable", "probe", at, "--dry-run=server")
        return "kept for the audit" in control_plane.kubectl(*dry, check=False).stderr

    wait_until(is_denied, "the policy", 30)
    try:
        yield
    finally:
        control_plane.kubectl("delete", f"{kind}Binding", name)
        control_plane.kubectl("delete", kind, name)
        probe_ends = ("delete", "partitiontable", "probe", at, "--ignore-not-found")
        wait_until(
            lambda: control_plane.kubectl(*probe_ends, check=False).returncode == 0,
            "the end of the policy",
            30,
        )
