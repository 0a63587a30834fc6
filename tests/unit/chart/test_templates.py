"""The chart declares objects under some sets of values, and refuses others.

The folder `golden` has what it declared when somebody last looked at it, without kinds and
dashboards.  QUORATE_WRITE_GOLDEN=1 writes it anew.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate.wire.crds import crds
from quorate.wire.managed_agents import AgentStorage, ManagedAgents
from quorate_helm.build import VERSIONS, helm_path
from quorate_helm.chart import CHART, by_hand, find, objects, render, run_helm
from quorate_operator.owned import agent_pod
from quorate_operator.owned.agent_names import EXTERNAL_PORT_OFFSET, PEER_PORT
from quorate_operator.owned.children import labels
from write_dashboards import written

pytestmark = pytest.mark.needs("helm")

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
_MANAGED = ManagedAgents(replicas=3, image="image", storage=AgentStorage(size="1Gi"))
SETS = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))
EXAMPLE_ROLE = ROOT / "examples" / "operator-role.yaml"


@pytest.fixture(params=VERSIONS)
def helm(request: pytest.FixtureRequest) -> Path:
    return helm_path(request.param)


def _values(name: str) -> list[str]:
    return ["--values", str(HERE / "values" / f"{name}.yaml")]


@pytest.mark.parametrize("values", SETS)
def test_the_chart_declares_what_it_did(helm: Path, values: str) -> None:
    rendered = by_hand(render(helm, *_values(values)))

    golden = HERE / "golden" / f"{values}.yaml"
    if os.environ.get("QUORATE_WRITE_GOLDEN"):
        golden.write_text(rendered)
    assert rendered == golden.read_text()


@pytest.mark.parametrize("values", SETS)
def test_helm_finds_nothing_to_complain_of(helm: Path, values: str) -> None:
    done = run_helm(helm, "lint", "--strict", str(CHART), *_values(values))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


def test_the_kinds_are_those_of_the_project_and_are_kept(helm: Path) -> None:
    declared = [
        each for each in objects(render(helm)) if each["kind"] == "CustomResourceDefinition"
    ]

    for each in declared:
        assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    by_name = {each["metadata"]["name"]: each for each in declared}
    assert by_name == {each["metadata"]["name"]: each for each in crds().values()}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scope.allNamespaces=false", "of namespace storage."),
        ("scope.allNamespaces=true", "of all namespaces."),
        ("scope.namespaces={shop,blog}", "of: shop, blog."),
        ("rbac.clusters={archive}", "metadata: {name: archive}"),
        ("scope.namespaces={shop,blog}", "kubectl --namespace shop apply"),
        ("crds.create=false", "kubectl apply --filename crds/"),
        (
            "networkPolicy.create=true,scope.allNamespaces=true",
            "agents of other namespaces\naccept every connection",
        ),
    ],
)
def test_the_notes_are_about_this_release(setting: str, said: str) -> None:
    """As helm 4 shows them: helm 3 does not without an API server."""
    options = ("--namespace", "storage", "--dry-run=client", "--set", setting)

    done = run_helm(helm_path("helm4"), "install", "quorate", str(CHART), *options)

    assert done.returncode == 0, done.stderr
    assert said in done.stdout.partition("NOTES:")[2]


def _names(value: Any) -> list[Any]:
    """Names, namespaces and labels anywhere in an object."""
    if isinstance(value, list):
        return [name for each in value for name in _names(each)]
    if not isinstance(value, dict):
        return []
    found = [value[key] for key in ("name", "namespace") if key in value]
    found += value.get("namespaces") or []
    for key in ("labels", "matchLabels"):
        found += (value.get(key) or {}).values()
    return found + [name for each in value.values() for name in _names(each)]


def test_releases_and_namespaces_may_be_named_by_numbers() -> None:
    numbers = "scope.namespaces={3,4},executors.namespaces={4},serviceAccount.name=5"
    settings = ("--set-string", numbers, "--set", "networkPolicy.create=true")
    settings += ("--set", "crds.create=false,monitoring.podMonitor.enabled=true")

    declared = objects(render(helm_path("helm3"), *settings, release="1", namespace="2"))

    names = _names(declared)
    assert {"1", "2", "3", "4", "5"} <= {*names}
    assert [name for name in names if not isinstance(name, str)] == []


def test_network_policies_mean_managed_agents_unless_told_otherwise() -> None:
    agents = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]["agents"]

    first, last = agent_pod.CLIENT_PORTS.split("-")
    assert (agents["peerPort"], agents["adminPort"]) == (PEER_PORT, agent_pod.ADMIN_PORT)
    assert (agents["clientPortFirst"], agents["clientPortLast"]) == (int(first), int(last))
    outside = (int(first) + EXTERNAL_PORT_OFFSET, int(last) + EXTERNAL_PORT_OFFSET)
    assert (agents["externalPortFirst"], agents["externalPortLast"]) == outside
    assert agents["podLabels"].items() <= labels("main").items()


def test_the_kinds_can_be_left_out(helm: Path) -> None:
    declared = objects(render(helm, "--set", "crds.create=false"))

    assert "CustomResourceDefinition" not in {each["kind"] for each in declared}


def _sorted(role: dict[str, Any]) -> list[str]:
    return sorted(json.dumps(rule, sort_keys=True) for rule in role["rules"])


def test_the_operator_has_the_rights_of_the_examples_role(helm: Path) -> None:
    example = find(objects(EXAMPLE_ROLE.read_text()), "Role")

    assert _sorted(find(objects(render(helm)), "Role")) == _sorted(example)


def test_pods_that_lead_executors_have_the_rights_of_the_example(helm: Path) -> None:
    example = objects((ROOT / "examples" / "driver-role.yaml").read_text())
    declared = objects(
        render(helm, "--set", "executors.namespaces={shop,blog},scope.namespaces={shop,blog}")
    )

    made = [each for each in declared if each["metadata"]["name"] == "quorate-driver"]
    assert [(each["kind"], each["metadata"]["namespace"]) for each in made] == [
        (kind, namespace)
        for kind in ("ServiceAccount", "Role", "RoleBinding")
        for namespace in ("shop", "blog")
    ]
    for each in made:
        [wanted] = [one for one in example if one["kind"] == each["kind"]]
        assert each.get("rules") == wanted.get("rules")
        assert each.get("roleRef") == wanted.get("roleRef")
        for subject in each.get("subjects", ()):
            assert subject.pop("namespace") == each["metadata"]["namespace"]
        assert each.get("subjects") == wanted.get("subjects")
    assert not [
        each for each in objects(render(helm)) if each["metadata"]["name"] == "quorate-driver"
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "executors.namespaces={shop},scope.allNamespaces=true",
        "executors.namespaces={storage}",
        "executors.namespaces={storage},scope.namespaces={storage}",
    ],
)
def test_executors_may_be_where_no_operator_of_other_namespaces_is(
    helm: Path, setting: str
) -> None:
    declared = objects(render(helm, "--set", setting))

    assert [each for each in declared if each["metadata"]["name"] == "quorate-driver"]


@pytest.mark.parametrize(
    ("setting", "argument", "bound"),
    [
        ("scope.allNamespaces=true", ["--all-namespaces"], [None]),
        ("scope.namespaces={a,b}", ["--namespace=a", "--namespace=b"], ["a", "b"]),
    ],
)
def test_where_others_are_served_the_operator_has_the_rights_of_the_example_for_that(
    helm: Path, setting: str, argument: list[str], bound: list[str | None]
) -> None:
    example = objects((ROOT / "examples" / "operator-cluster-role.yaml").read_text())
    declared = objects(render(helm, "--set", setting))

    assert _sorted(find(declared, "Role")) == _sorted(find(example, "Role"))
    names = {"quorate-operator": "storage-quorate-operator"}
    names["quorate-operator-declared"] = "storage-quorate-operator-declared"
    for theirs, ours in names.items():
        wanted = find(example, "ClusterRole", theirs)
        assert _sorted(find(declared, "ClusterRole", ours)) == _sorted(wanted)
    bindings = [each for each in declared if each["kind"].endswith("RoleBinding")]
    leading = [each for each in bindings if each["roleRef"]["name"] == "storage-quorate-operator"]
    assert [each["metadata"].get("namespace") for each in leading] == bound
    (container,) = find(declared, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["kubernetes", *argument, "--lease-namespace=storage"]


def test_where_one_namespace_is_served_nodes_are_read_unless_that_is_not_wanted(helm: Path) -> None:
    """Otherwise a cordoned node is not seen."""
    role = find(objects(render(helm)), "ClusterRole", "storage-quorate-operator-nodes")
    without = objects(render(helm, "--set", "rbac.nodes=false"))

    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    ]
    assert not [each for each in without if each["metadata"]["name"].endswith("-nodes")]


def test_each_cluster_that_is_led_has_its_secret_in_the_role(helm: Path) -> None:
    role = find(objects(render(helm, "--set", "rbac.clusters={main,archive}")), "Role")

    named = [
        rule.get("resourceNames") for rule in role["rules"] if rule["resources"] == ["secrets"]
    ]
    assert named == [None, ["main-quorate", "archive-quorate"]]


def test_probes_and_port_are_those_of_the_manual(helm: Path) -> None:
    manual = (ROOT / "docs" / "operator.md").read_text()
    (text,) = re.findall(r"```yaml\n(args: \[kubernetes\].*?)```", manual, re.DOTALL)

    deployment = find(objects(render(helm)), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    wanted = yaml.safe_load(text)
    assert {name: container[name] for name in wanted} == wanted


def test_the_version_of_the_image_is_the_projects(helm: Path) -> None:
    (line,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)

    deployment = find(objects(render(helm)), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"quorate-operator:{line}"


def test_nothing_is_declared_for_prometheus_unless_it_is_asked_for(helm: Path) -> None:
    kinds = {each["kind"] for each in objects(render(helm))}

    assert not kinds & {"PodMonitor", "PrometheusRule", "ConfigMap"}


def test_prometheus_scrapes_the_pods_of_operator_and_agents_where_they_serve_metrics(
    helm: Path,
) -> None:
    declared = objects(render(helm, *_values("monitored")))
    operator = find(declared, "Deployment")["spec"]["template"]
    (container,) = operator["spec"]["containers"]
    agent = agent_pod.pod_template("main", _MANAGED, "agent-1", labels("main", "agent-1"), {}, "a")
    (agents_container,) = agent["spec"]["containers"]

    for name, pod, ports in (
        ("quorate-operator", operator, container["ports"]),
        ("quorate-agents", agent, agents_container["ports"]),
    ):
        monitor = find(declared, "PodMonitor", name)["spec"]
        (endpoint,) = monitor["podMetricsEndpoints"]
        assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in ports}
        by_target = {each["targetLabel"]: each["sourceLabels"] for each in endpoint["relabelings"]}
        assert by_target["instance"] == ["__meta_kubernetes_pod_name"], "not its address"
        labels_of_pod = {re.sub(r"\W", "_", label) for label in pod["metadata"]["labels"]}
        for rule in endpoint["relabelings"]:
            (source,) = rule["sourceLabels"]
            found = re.fullmatch("__meta_kubernetes_pod_(name|label_(.*))", source)
            assert found is not None
            assert found[1] == "name" or found[2] in labels_of_pod
    (health,) = (port for port in container["ports"] if port["name"] == "health")
    told = operator["metadata"]["annotations"]
    assert told["prometheus.io/port"] == str(health["containerPort"])


@pytest.mark.parametrize(
    ("setting", "selector"),
    [
        ("scope.allNamespaces=false", None),
        ("scope.allNamespaces=true", {"any": True}),
        ("scope.namespaces={shop,blog}", {"matchNames": ["shop", "blog"]}),
    ],
)
def test_agents_are_scraped_in_the_namespaces_that_are_served(
    helm: Path, setting: str, selector: dict[str, Any] | None
) -> None:
    declared = objects(render(helm, "--set", f"monitoring.podMonitor.enabled=true,{setting}"))

    monitor = find(declared, "PodMonitor", "quorate-agents")
    assert monitor["spec"].get("namespaceSelector") == selector


def test_alerts_are_those_of_the_file_and_link_to_the_published_pages(helm: Path) -> None:
    text = (CHART / "files" / "alerts.yaml").read_text()
    rule = find(objects(render(helm, *_values("monitored"))), "PrometheusRule")
    unpublished = objects(render(helm, "--set", "monitoring.prometheusRule.enabled=true"))

    wanted = text.replace("docs/runbooks/", "https://docs.example/runbooks/")
    assert [rule["spec"]] == objects(wanted)
    assert [find(unpublished, "PrometheusRule")["spec"]] == objects(text)


def _dashboards(declared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in declared if each["kind"] == "ConfigMap"]


def test_each_dashboard_is_a_config_map_that_grafanas_sidecar_finds(helm: Path) -> None:
    configured = _dashboards(objects(render(helm, *_values("monitored"))))

    found = {name: text for each in configured for name, text in each["data"].items()}
    assert found == {f"quorate-{name}": text for name, text in written().items()}
    for each in configured:
        assert len(each["data"]) == 1
        assert each["metadata"]["namespace"] == "monitoring"
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Quorate"}
    assert len({each["metadata"]["name"] for each in configured}) == len(configured)


def test_label_and_folder_are_what_the_sidecar_was_told(helm: Path) -> None:
    texts = ("label=board", "labelValue=yes", "folder=Stores", "folderAnnotation=shelf")
    told = [word for text in texts for word in ("--set", f"monitoring.dashboards.{text}")]
    switch = ("--set", "monitoring.dashboards.enabled=true")

    for each in _dashboards(objects(render(helm, *switch, *told))):
        assert each["metadata"]["namespace"] == "storage"
        assert each["metadata"]["labels"]["board"] == "yes"
        assert "grafana_dashboard" not in each["metadata"]["labels"]
        assert each["metadata"]["annotations"] == {"shelf": "Stores"}
    for each in _dashboards(objects(render(helm, *switch))):
        assert "annotations" not in each["metadata"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("monitoring.dashboards.label=", "label"),
        ("monitoring.podMonitor.interval=often", "interval"),
        ("monitoring.prometheusRule.runbookUrl=runbooks", "runbookUrl"),
        ("image.digest=latest", "image"),
        ("operator.replicas=two", "replicas"),
        ("operator.replica=2", "replica"),
        ("scope.allNamespaces=true,scope.namespaces={a}", "allNamespaces or namespaces, not both"),
        ("networkPolicy.agents.peerPort=70000", "peerPort"),
        ("rbac.clusters={}", "clusters"),
        ("serviceAccount.create=false", "serviceAccount.name: name the ServiceAccount"),
        ("executors.namespaces={shop,shop}", "namespaces"),
        ("executors.namespaces={a.b}", "namespaces"),
        ("executors.namespaces={default},scope.allNamespaces=true", "leave out the release's own"),
        (
            "executors.namespaces={default},scope.namespaces={default,shop}",
            "leave out the release's",
        ),
        ("scope.namespaces={a,a}", "namespaces"),
        ("executors.namespaces={shop}", "executors.namespaces: shop is not served"),
        ("executors.namespaces={shop},scope.namespaces={blog}", "shop is not served"),
        ("operator.podLabels.app\\.kubernetes\\.io/name=x", "app.kubernetes.io/name"),
        ("commonLabels.app\\.kubernetes\\.io/instance=x", "app.kubernetes.io/instance"),
        ("commonLabels.app\\.kubernetes\\.io/component=x", "app.kubernetes.io/component"),
        (
            "networkPolicy.create=true,networkPolicy.agents.clientPortFirst=8080",
            "networkPolicy.agents.clientPortFirst is above clientPortLast",
        ),
        (
            "networkPolicy.create=true,networkPolicy.agents.externalPortLast=8199",
            "networkPolicy.agents.externalPortFirst is above externalPortLast",
        ),
        ("operator.args={--lease-seconds=20,--namespace=x}", "write scope.namespaces"),
        ("operator.args={--namespace,x}", "write scope.namespaces"),
        ("operator.args={--all-namespaces}", "write scope.allNamespaces"),
    ],
)
def test_values_that_would_not_do_are_refused_by_name(helm: Path, setting: str, said: str) -> None:
    done = run_helm(helm, "template", "quorate", str(CHART), "--set", setting)

    assert done.returncode != 0
    assert said in done.stderr


def test_every_value_has_its_line_in_the_schema_and_in_the_readme() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    readme = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    described: set[str] = set()

    def compare(found: dict[str, object], allowed: dict[str, dict[str, object]], path: str) -> None:
        assert set(found) == set(allowed) - {"global"}, path
        for name, value in found.items():
            properties = allowed[name].get("properties")
            whole = f"{path}{name}"
            if isinstance(properties, dict) and whole != "operator.resources":
                assert isinstance(value, dict)
                compare(value, properties, f"{whole}.")
            else:
                described.add(whole)

    compare(values, schema["properties"], "")
    assert described == readme
