"""One operator outside of the namespaces that it serves, on a real API server.

Two namespaces have a cluster of the same name with agents of the same names; what happens in one
must not reach the other.  Operators and agents are real processes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import LEASE

EXAMPLES = Path(__file__).parents[3] / "examples"
ROLES = ("quorate-operator", "quorate-operator-declared")

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]


class Served(Road):
    """A namespace whose operator runs in another one."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        control_plane.kubectl("create", "namespace", namespace)
        super().__init__(control_plane, namespace)

    def _keep_operator(self) -> None:
        """The office keeps the operator."""

    def start(self) -> None:
        self.start_agents()
        self.declare()

    def fill(self) -> None:
        """Write keys that say which namespace they are of."""
        self.wait_zone(**QUIET)
        self.write_keys(self.namespace)

    def check(self) -> None:
        self.check_keys(self.namespace)


class Office(Road):
    """The namespace in which operators run."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        super().__init__(control_plane, namespace)
        self.served = [Served(control_plane, f"{namespace}-{name}") for name in ("one", "two")]

    def close(self) -> None:
        super().close()
        for each in self.served:
            each.close()
            self._control_plane.drop_namespace(each.namespace)
        self.administer("delete", "clusterrolebinding", *ROLES)

    def administer(self, *arguments: str) -> None:
        """Run kubectl outside of any namespace; what is to be deleted may be gone."""
        self._control_plane.kubectl(*arguments, "--ignore-not-found")

    def use_example(self, *names: str, namespace: str = "") -> str:
        """Apply files of the examples; operators that are started from now on have these rights."""
        for name in names:
            here = (f"--namespace={namespace}",) if namespace else ()
            text = (EXAMPLES / f"operator-{name}.yaml").read_text()
            text = text.replace("quorate-system", self.namespace)
            self._control_plane.kubectl("apply", "--filename=-", *here, stdin=text)
        account = f"system:serviceaccount:{self.namespace}:quorate-operator"
        self.kubeconfig = self._control_plane.kubeconfig_for(account)
        return account

    def bind_all_here(self, each: Road) -> None:
        """Let the operator do in one namespace what takes both roles."""
        for role in ROLES:
            account = f"--serviceaccount={self.namespace}:quorate-operator"
            each.kubectl("create", "rolebinding", role, f"--clusterrole={role}", account)

    def start(self, *, listed: bool) -> Component:
        """Both clusters with their agents, and an operator that leads them."""
        for each in self.served:
            each.start()
        operator = self.start_operator(serves=self.serves(listed=listed))
        for each in self.served:
            each.operators["of the office"] = operator  # its log is shown where a test fails
            each.fill()
        return operator

    def serves(self, *, listed: bool) -> list[str]:
        lease = ["--lease-namespace", self.namespace]
        names = [part for each in self.served for part in ("--namespace", each.namespace)]
        return [*lease, *(names if listed else ["--all-namespaces"])]

    def readiness(self) -> str:
        return self.asked("operator-a", "readyz")[1]


@pytest.fixture
def office(control_plane: ControlPlane, namespace: str) -> Iterator[Office]:
    office = Office(control_plane, namespace)
    try:
        yield office
    finally:
        office.close()


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "all"])
def test_clusters_and_agents_of_the_same_names_do_not_disturb_each_other(
    office: Office, listed: bool
) -> None:
    operator = office.start(listed=listed)
    one, two = office.served
    terms = [each.wait_led_by(operator) for each in office.served]
    assert [each["metadata"]["name"] for each in office.items("leases")] == [LEASE]
    for each in office.served:
        assert each.items("leases") == []
        assert [item["metadata"]["name"] for item in each.items("masterterms")] == ["main"]
        assert [item["spec"]["node"] for item in each.items("storagenodes")] == list(each.agents)
    told = office.metrics("operator-a")
    for each in office.served:
        labels = f'{{cluster="main",namespace="{each.namespace}",state="Online"}}'
        assert told[f"quorate_operator_nodes{labels}"] == 3

    one.agents["agent-2"].kill()
    one.wait_zone(Available="True", FullyReplicated="False")

    assert {QUIET.items() <= two.conditions().items()} == {True}
    assert all(each["state"] == "Online" for each in two.status("stc", "main")["members"])
    assert "NodeLeft" not in {each["reason"] for each in two.items("events")}
    one.agents["agent-2"].start()
    one.wait_zone(**QUIET)
    one.kubectl("delete", "zone", "sessions", "--timeout=60s")
    one.kubectl("delete", "storagecluster", "main", "--timeout=60s")
    one.declare()
    one.fill()
    two.check()
    assert [each.wait_led_by(operator) for each in office.served] == [terms[0] + 1, terms[1]]


def test_what_is_refused_in_one_namespace_of_a_list_does_not_stop_the_other(
    office: Office,
) -> None:
    """Rights are bound in each namespace alone; in one of them late, and taken back later."""
    one, two = office.served
    office.use_example("cluster-role")
    office.administer("delete", "clusterrolebinding", ROLES[1])
    office.bind_all_here(one)
    for each in office.served:
        each.start()
    operator = office.start_operator(serves=office.serves(listed=True))

    one.wait_zone(**QUIET)
    wait_until(
        lambda: (
            f"namespace {two.namespace}: declared objects are not watched" in office.readiness()
            and f"namespace {two.namespace}: clusters cannot be listed" in office.readiness()
        ),
        "what is refused is said",
        60,
        lambda: (office.readiness(), office.logs()),
    )
    assert one.namespace not in office.readiness()

    office.bind_all_here(two)

    two.wait_zone(**QUIET)
    two.write_keys("first")
    wait_until(lambda: office.readiness() == "ok\n", "ready", 60, office.readiness)
    terms = [each.wait_led_by(operator) for each in office.served]

    two.kubectl("delete", "rolebinding", *ROLES)
    two.agents["agent-2"].kill()
    wait_until(
        lambda: f"cluster {two.namespace}/main: blocked: " in office.readiness(),
        "what is blocked is said",
        60,
        lambda: (office.readiness(), office.logs()),
    )
    one.apply("Zone", "second", clusterRef={"name": "main"}, partitions=4)
    wait_until(lambda: one.conditions("zone", "second").get("Available") == "True", "led", 60)
    one.agents["agent-2"].kill()
    one.wait_zone(Available="True", FullyReplicated="False", Blocked="False")
    assert f"{one.namespace}/" not in office.readiness()
    assert office.asked("operator-a", "healthz") == (200, "ok\n")

    office.bind_all_here(two)

    two.wait_zone(Available="True", FullyReplicated="False", Blocked="False")
    two.check_keys("first")
    wait_until(lambda: office.readiness() == "ok\n", "ready again", 60, office.readiness)
    assert [each.wait_led_by(operator) for each in office.served] == terms


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "all"])
def test_a_namespace_goes_with_its_objects_and_the_others_are_led_as_before(
    office: Office, listed: bool
) -> None:
    """With the rights of the examples and no more."""
    account = office.use_example("cluster-role")
    if not listed:
        office.use_example("all-namespaces")
    for each in office.served:
        if listed:
            office.use_example("listed-namespace", namespace=each.namespace)
    operator = office.start(listed=listed)
    one, two = office.served
    term = two.wait_led_by(operator)
    one.apply("StorageCluster", "other", addresses=["127.0.0.1:9"], deletionPolicy="Delete")
    for name, policy in (("stays", "Retain"), ("unreached", "Delete")):
        cluster = "main" if policy == "Retain" else "other"
        spec = {"clusterRef": {"name": cluster}, "partitions": 4, "deletionPolicy": policy}
        one.apply("Zone", name, **spec)
    wait_until(lambda: one.conditions("zone", "stays").get("Available") == "True", "served", 60)
    wait_until(lambda: one.conditions("zone", "unreached") != {}, "told", 60)
    kept = one.status("zone", "stays")["zoneId"]
    folders = {path for path in one.zone_folders() if path.endswith(kept)}
    assert folders

    def forbidden() -> list[str]:
        lines = office.all_logs().splitlines()  # also of namespaces that other tests have left
        return [line for line in lines if "orbidden" in line and office.namespace in line]

    # `other` is not led: the examples let nobody read a Secret of that name.
    assert [line for line in forbidden() if "other-quorate" not in line] == []

    office.administer("delete", "namespace", one.namespace, "--timeout=80s")

    assert folders <= {*one.zone_folders()}
    two.check()
    two.agents["agent-2"].kill()
    two.wait_zone(Available="True", FullyReplicated="False")
    assert two.wait_led_by(operator) == term
    assert operator.is_alive()
    assert [line for line in forbidden() if one.namespace not in line] == []
    if listed:
        return
    for verb, what in (
        ("list", "secrets"),
        ("update", "secrets/main-quorate"),
        ("get", "secrets/another"),
        ("create", "configmaps"),
        ("update", "leases/quorate-operator"),
        ("delete", "zones"),
        ("update", "storageclusters"),
        ("create", "pods"),
        ("delete", "persistentvolumeclaims"),
    ):
        assert not office.may(account, verb, what, two.namespace), f"{verb} {what}"
