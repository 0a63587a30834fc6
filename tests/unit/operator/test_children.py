"""What a managed cluster's Kubernetes objects are to be; `children.yaml` has those of one case."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate.planning.absence.disruption import Disruption
from quorate_operator.owned.agent_names import Agents
from quorate_operator.owned.children import budget_of, desired_children
from quorate_operator.owned.external_listener import ZonePort
from quorate_owned.facts import managed_cluster

GOLDEN = Path(__file__).parent / "children.yaml"
ONE = Agents(("agent-1",), (), run=True)
Json = dict[str, Any]


def children(
    agents: Agents = ONE, claims: dict[str, Json] | None = None, policy: str = "", **spec: Any
) -> dict[tuple[str, str], Json]:
    cluster = managed_cluster(deletion_policy=policy, **spec)
    made = desired_children(cluster, agents, (), (), claims or {})
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def pod_spec(**spec: Any) -> Json:
    found: Json = children(**spec)["StatefulSet", "main-agent-1"]["spec"]["template"]["spec"]
    return found


def test_all_objects_of_a_small_cluster() -> None:
    """To accept a change of the file that you can explain: write `text` into it."""
    cluster = managed_cluster(
        storage={"size": "10Gi", "className": "fast"},
        resources={"limits": {"memory": "2Gi"}},
        nodeSelector={"disk": "ssd"},
        podTemplate={"labels": {"team": "shop"}, "env": [{"name": "TZ", "value": "UTC"}]},
    )
    rows = Disruption((), ("agent-1",), 1)
    made = desired_children(cluster, ONE, (), [ZonePort("cart", {"agent-1": 7201})], {})
    made.insert(0, budget_of(cluster, rows))
    text = yaml.safe_dump_all(made, sort_keys=False)

    assert list(yaml.safe_load_all(GOLDEN.read_text())) == made, text


def test_each_agent_has_a_stateful_set_and_a_claim_that_it_mounts_by_name() -> None:
    made = children(Agents(("agent-1", "agent-12"), ("agent-3",), run=True))
    for name in ("main-agent-1", "main-agent-3", "main-agent-12"):
        spec = made["StatefulSet", name]["spec"]
        [data] = [v for v in spec["template"]["spec"]["volumes"] if v["name"] == "data"]
        assert data["persistentVolumeClaim"]["claimName"] == name
        assert ("PersistentVolumeClaim", name) in made
        assert (spec["replicas"], spec["updateStrategy"]["type"]) == (1, "OnDelete")
        chosen, labels = spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]
        assert chosen.items() <= labels.items()


def test_one_that_has_left_has_no_stateful_set() -> None:
    agents = Agents(("agent-1",), ("agent-2",), run=True)
    made = desired_children(managed_cluster(), agents, ["agent-2"], (), {})

    assert {each["metadata"]["name"] for each in made if each["kind"] == "StatefulSet"} == {
        "main-agent-1"
    }


def test_at_zero_everything_stays_and_no_pod_runs() -> None:
    made = children(Agents(("agent-1", "agent-2"), (), run=False))

    assert [made["StatefulSet", f"main-agent-{n}"]["spec"]["replicas"] for n in (1, 2)] == [0, 0]


@pytest.mark.parametrize("policy", ["", "Retain", "Delete"])
def test_all_goes_with_the_cluster_but_claims(policy: str) -> None:
    """With Delete they are owned when the data goes, and not before."""
    for (kind, _), made in children(policy=policy).items():
        is_owned = "ownerReferences" in made["metadata"]
        assert is_owned == (kind != "PersistentVolumeClaim"), kind


def test_a_volume_grows_and_neither_shrinks_nor_changes_its_class() -> None:
    there = {"resources": {"requests": {"storage": "20Gi"}}, "storageClassName": "slow"}
    claims = {"main-agent-1": {"spec": there}}
    for wanted, size in (("10Gi", "20Gi"), ("30Gi", "30Gi")):
        storage = {"size": wanted, "className": "fast"}
        spec = children(claims=claims, storage=storage)["PersistentVolumeClaim", "main-agent-1"]
        assert spec["spec"]["resources"]["requests"]["storage"] == size
        assert spec["spec"]["storageClassName"] == "slow"


def test_what_a_user_adds_does_not_replace_what_the_operator_writes() -> None:
    bad = {
        "labels": {"quorate.io/agent": "other", "quorate.io/cluster": "x"},
        "env": [{"name": "POD_IP", "value": "1.2.3.4"}, {"name": "TZ", "value": "UTC"}],
    }
    template = children(podTemplate=bad)["StatefulSet", "main-agent-1"]["spec"]["template"]

    assert template["metadata"]["labels"]["quorate.io/agent"] == "agent-1"
    assert template["metadata"]["labels"]["quorate.io/cluster"] == "main"
    env = {each["name"]: each for each in template["spec"]["containers"][0]["env"]}
    assert "valueFrom" in env["POD_IP"]
    assert env["TZ"] == {"name": "TZ", "value": "UTC"}
    assert len(env) == len(template["spec"]["containers"][0]["env"])


def test_the_budget_protects_those_that_rows_name_and_lets_the_broken_go() -> None:
    """It counts who stays: an agent without a pod at the moment must count as away."""
    rows = Disruption((), ("agent-1", "agent-2", "agent-3"), 1)
    budget = budget_of(managed_cluster(), rows)["spec"]

    assert budget["minAvailable"] == 2
    assert "maxUnavailable" not in budget
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["selector"]["matchExpressions"] == [
        {"key": "quorate.io/agent", "operator": "In", "values": ["agent-1", "agent-2", "agent-3"]}
    ]


def test_the_budget_does_not_count_an_agent_that_is_away_twice() -> None:
    """Of five copies one is lost, and the four others can do without one."""
    agents = tuple(f"agent-{number}" for number in range(1, 6))
    rows = Disruption((), agents, 1, away=("agent-5",))

    budget = budget_of(managed_cluster(), rows)["spec"]

    assert budget["minAvailable"] == 3
    assert budget["selector"]["matchExpressions"][0]["values"] == [*agents[:4]]


def test_a_zone_has_a_client_service_where_one_port_leads_to_all_agents() -> None:
    zones = [
        ZonePort("cart", {"agent-1": 7201, "agent-2": 7201}),
        ZonePort("odd", {"a": 1, "b": 2}),
    ]
    made = desired_children(managed_cluster(), ONE, (), zones, {})
    services = {e["metadata"]["name"]: e["spec"] for e in made if e["kind"] == "Service"}

    assert services.keys() == {"main-agents", "cart-clients"}
    assert services["cart-clients"]["ports"][0]["targetPort"] == 7201
    assert services["main-agents"]["publishNotReadyAddresses"]


def test_names_are_announced_where_that_is_asked_for() -> None:
    usual = pod_spec()["containers"][0]["args"]
    assert not any("announce" in each for each in usual)
    for asked, domain in (({}, "cluster.local"), ({"clusterDomain": "k8s.example"}, "k8s.example")):
        name = f"main-agent-1-0.main-agents.shop.svc.{domain}"
        args = pod_spec(announcedNames=asked)["containers"][0]["args"]
        assert [each for each in args if each not in usual] == [
            f"--announce-peer={name}:7100",
            f"--announce-client-host={name}",
        ]


def test_pods_keep_apart_unless_a_user_says_how() -> None:
    terms = pod_spec()["affinity"]["podAntiAffinity"]
    keys = [
        each["podAffinityTerm"]["topologyKey"]
        for each in terms["preferredDuringSchedulingIgnoredDuringExecution"]
    ]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert pod_spec(affinity={"nodeAffinity": {}})["affinity"] == {"nodeAffinity": {}}


def test_a_pod_keeps_to_the_restricted_standard() -> None:
    spec = pod_spec()
    [container] = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "runAsUser" not in spec["securityContext"], "any user will do"
    assert not spec["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
