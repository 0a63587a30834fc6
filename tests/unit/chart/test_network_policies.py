"""Who may connect to whom by the chart's NetworkPolicies: the table of docs/kubernetes.md.

No network plugin runs: the rendered policies are evaluated as the API reference defines them.
"""

from dataclasses import replace

import pytest

from quorate.wire.jobs.executors import BLOCKS_PORT, DRIVER_PORT
from quorate_helm.build import VERSIONS, helm_path
from quorate_helm.chart import find, objects, render
from quorate_network_policies.evaluator import End, Policies
from quorate_operator.jobs.job import PROGRESS_PORT
from quorate_operator.owned.agent_names import PEER_PORT
from quorate_operator.owned.agent_pod import ADMIN_PORT
from quorate_operator.owned.children import labels

pytestmark = pytest.mark.needs("helm")

VALUES = """
networkPolicy:
  create: true
  apiServerPorts: [6443]
  clients:
    - podSelector: {matchLabels: {app: shop}}
  prometheus:
    - namespaceSelector: {matchLabels: {team: monitoring}}
  agents:
    cidrs: [10.1.0.0/16]
"""
API_PORT = 6443
HEALTH_PORT = 8080
CLIENT_PORT = 7200
EXTERNAL_PORT = 8200
NAMESPACES = {
    "storage": {"kubernetes.io/metadata.name": "storage"},
    "monitoring": {"kubernetes.io/metadata.name": "monitoring", "team": "monitoring"},
    "elsewhere": {"kubernetes.io/metadata.name": "elsewhere"},
    "shops": {"kubernetes.io/metadata.name": "shops"},
}
API_SERVER = End("the API server", "10.96.0.1")
OUTSIDE = End("outside", "192.0.2.7")
AGENT_OUTSIDE = End("an agent of a cidr", "10.1.7.7")
ONE, TWO = (
    End(f"agent-{number}", f"10.0.0.{number}", "storage", labels("main", f"agent-{number}"))
    for number in (1, 2)
)
SHOP = End("a client", "10.0.0.11", "storage", {"app": "shop"})
OTHER = End("another pod", "10.0.0.12", "storage", {"app": "blog"})
NAMESAKE = End("a client's labels elsewhere", "10.0.0.13", "elsewhere", {"app": "shop"})
FALSE_AGENT = End("an agent's labels elsewhere", "10.0.0.14", "elsewhere", labels("main"))
VALIDATION = End(
    "a validation",
    "10.0.0.16",
    "storage",
    {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "validation"},
)
BACKUP = End(
    "a backup",
    "10.0.0.17",
    "storage",
    {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "backup"},
)
RESTORE = End(
    "a restore",
    "10.0.0.18",
    "storage",
    {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "restore"},
)
REPAIR = End(
    "a repair",
    "10.0.0.19",
    "storage",
    {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "repair"},
)
EXECUTOR = End(
    "an executor",
    "10.0.0.20",
    "storage",
    {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "executor"},
)
PROMETHEUS = End("prometheus", "10.0.0.15", "monitoring", {"app": "prometheus"})


@pytest.fixture(params=VERSIONS, scope="module")
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(VALUES)
    return render(helm_path(request.param), "--values", str(values))


class Rendered:
    """The policies, and the chart's own pods as ends."""

    def __init__(self, rendered: str) -> None:
        declared = objects(rendered)
        policies = [each for each in declared if each["kind"] == "NetworkPolicy"]
        self.policies = Policies(policies, NAMESPACES)
        template = find(declared, "Deployment")["spec"]["template"]
        self.operator = End("operator", "10.0.0.9", "storage", template["metadata"]["labels"])
        test = find(declared, "Pod")["metadata"]["labels"]
        self.test = End("the pod of helm test", "10.0.0.8", "storage", test)

    def judged(self, cases: list[tuple[End, End, int]], wanted: bool) -> list[str]:
        """Those that are not as wanted."""
        return [
            f"{source.name} -> {destination.name} port {port}"
            for source, destination, port in cases
            if self.policies.allow(source, destination, port) is not wanted
        ]


def test_what_belongs_to_the_system_is_allowed(rendered: str) -> None:
    its = Rendered(rendered)
    allowed = [
        (its.operator, ONE, PEER_PORT),
        (its.operator, AGENT_OUTSIDE, PEER_PORT),
        (VALIDATION, ONE, PEER_PORT),
        (BACKUP, ONE, PEER_PORT),
        (RESTORE, ONE, PEER_PORT),
        (REPAIR, ONE, PEER_PORT),
        (EXECUTOR, ONE, PEER_PORT),
        (EXECUTOR, VALIDATION, DRIVER_PORT),
        (EXECUTOR, BACKUP, BLOCKS_PORT),
        (BACKUP, EXECUTOR, BLOCKS_PORT),
        (its.operator, VALIDATION, PROGRESS_PORT),
        (its.operator, BACKUP, PROGRESS_PORT),
        (its.operator, RESTORE, PROGRESS_PORT),
        (its.operator, REPAIR, PROGRESS_PORT),
        (its.operator, API_SERVER, API_PORT),
        (ONE, TWO, PEER_PORT),
        (ONE, AGENT_OUTSIDE, PEER_PORT),
        (AGENT_OUTSIDE, ONE, PEER_PORT),
        (SHOP, ONE, CLIENT_PORT),
        (ONE, TWO, CLIENT_PORT),  # `kubectl quorate cli`, in the pod of an agent
        (its.test, ONE, CLIENT_PORT),
        (its.test, API_SERVER, API_PORT),
        (PROMETHEUS, ONE, ADMIN_PORT),
        (PROMETHEUS, its.operator, HEALTH_PORT),
        (OTHER, OUTSIDE, 443),  # no policy of the chart is about it
    ]

    assert its.judged(allowed, True) == []
    resolver = End("dns", "10.0.0.53", "elsewhere")
    for source in (its.operator, ONE):
        assert its.policies.allow(source, resolver, 53, "UDP")


def test_everything_else_is_denied(rendered: str) -> None:
    its = Rendered(rendered)
    denied = [
        (its.operator, EXECUTOR, PROGRESS_PORT),
        (EXECUTOR, ONE, CLIENT_PORT),
        (its.operator, ONE, CLIENT_PORT),
        (its.operator, ONE, ADMIN_PORT),
        (its.operator, OUTSIDE, 443),
        (its.operator, OTHER, PEER_PORT),
        (its.operator, OTHER, PROGRESS_PORT),
        (its.operator, VALIDATION, PEER_PORT),
        (its.test, ONE, PEER_PORT),
        (ONE, API_SERVER, API_PORT),
        (ONE, its.operator, HEALTH_PORT),
        (ONE, OUTSIDE, 443),
        (ONE, OTHER, 80),
        (ONE, OTHER, CLIENT_PORT),
        (ONE, TWO, ADMIN_PORT),
        (ONE, TWO, EXTERNAL_PORT),
        (ONE, AGENT_OUTSIDE, CLIENT_PORT),
        (AGENT_OUTSIDE, ONE, CLIENT_PORT),
        (FALSE_AGENT, ONE, CLIENT_PORT),
        (SHOP, ONE, PEER_PORT),
        (SHOP, ONE, ADMIN_PORT),
        (SHOP, its.operator, HEALTH_PORT),
        (OTHER, ONE, CLIENT_PORT),
        (NAMESAKE, ONE, CLIENT_PORT),
        (FALSE_AGENT, ONE, PEER_PORT),
        (PROMETHEUS, ONE, PEER_PORT),
        (PROMETHEUS, ONE, CLIENT_PORT),
        (OUTSIDE, ONE, PEER_PORT),
        (OUTSIDE, ONE, CLIENT_PORT),
        (OUTSIDE, its.operator, HEALTH_PORT),
    ]

    assert its.judged(denied, False) == []


def test_where_no_clients_are_named_every_pod_of_the_namespace_is_a_client() -> None:
    its = Rendered(render(helm_path("helm3"), "--set", "networkPolicy.create=true"))

    assert its.judged([(SHOP, ONE, CLIENT_PORT), (OTHER, ONE, CLIENT_PORT)], True) == []
    assert its.judged([(NAMESAKE, ONE, CLIENT_PORT), (PROMETHEUS, ONE, ADMIN_PORT)], False) == []


def _in(namespace: str, end: End) -> End:
    """The same pod in another namespace, with another address."""
    return replace(end, name=f"{end.name} of {namespace}", address="", namespace=namespace)


@pytest.mark.parametrize("scope", ["scope.namespaces={shops}", "scope.namespaces={storage,shops}"])
def test_agents_in_a_namespace_that_is_served_are_reached_and_have_the_policy(scope: str) -> None:
    its = Rendered(render(helm_path("helm3"), "--set", f"networkPolicy.create=true,{scope}"))
    one, two, backup = _in("shops", ONE), _in("shops", TWO), _in("shops", BACKUP)
    executor, shop = _in("shops", EXECUTOR), _in("shops", SHOP)
    allowed = [
        (its.operator, one, PEER_PORT),
        (its.operator, backup, PROGRESS_PORT),
        (its.test, one, CLIENT_PORT),
        (one, two, PEER_PORT),
        (one, two, CLIENT_PORT),
        (backup, one, PEER_PORT),
        (executor, one, PEER_PORT),
        (shop, one, CLIENT_PORT),
    ]
    denied = [
        (its.operator, FALSE_AGENT, PEER_PORT),
        (its.operator, one, CLIENT_PORT),
        (_in("shops", its.operator), one, PEER_PORT),
        (_in("elsewhere", its.operator), one, PEER_PORT),
        (_in("elsewhere", its.test), one, CLIENT_PORT),
        (ONE, one, PEER_PORT),
        (BACKUP, one, PEER_PORT),
        (SHOP, one, CLIENT_PORT),
        (shop, one, PEER_PORT),
        (one, OUTSIDE, 443),
    ]

    assert its.judged(allowed, True) == []
    assert its.judged(denied, False) == []
    reached = its.policies.allow(its.operator, ONE, PEER_PORT)
    assert reached is ("storage" in scope)


def test_where_all_namespaces_are_served_the_agents_of_each_are_reached() -> None:
    settings = "networkPolicy.create=true,scope.allNamespaces=true"
    its = Rendered(render(helm_path("helm3"), "--set", settings))
    elsewhere = _in("elsewhere", BACKUP)

    for agent in (ONE, FALSE_AGENT, _in("shops", ONE)):
        assert its.judged([(its.operator, agent, PEER_PORT)], True) == []
        assert its.judged([(its.operator, agent, CLIENT_PORT)], False) == []
    assert its.judged([(its.operator, elsewhere, PROGRESS_PORT)], True) == []
    assert its.judged([(SHOP, ONE, PEER_PORT), (FALSE_AGENT, ONE, PEER_PORT)], False) == []
