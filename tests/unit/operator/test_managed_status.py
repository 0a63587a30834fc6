"""What a StorageCluster says of managed agents."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from quorate.facts.errors import WireError
from quorate.protocol.status import ClusterStatus
from quorate.wire.storage_cluster import PodProblem, StorageClusterStatus
from quorate_operator.declared.object_status import Seen, cluster_status
from quorate_operator.embedded.objects import ObjectStore
from quorate_operator.metastores.sqlite import EmbeddedStore
from quorate_operator.owned.agent_names import Agents
from quorate_operator.owned.budget import NoEvictionNow
from quorate_operator.owned.kube_nodes import NO_NODE_YET
from quorate_operator.owned.owned_objects import ManagedView
from quorate_operator.owned.volumes import Growth
from quorate_owned.facts import managed_cluster

STAYING = ("agent-1", "agent-2")
SPEC = managed_cluster().spec
VIEW = ManagedView(Agents(STAYING, (), True), ["one:7100", "two:7100"], [], "", "", SPEC)


def told(view: ManagedView, kept: Mapping[str, str] | None = None) -> StorageClusterStatus:
    seen = Seen(ClusterStatus(1, (), ()), unreached={"one:7100": "no answer"}, kept=kept or {})
    now = "2026-01-01T00:00:00Z"
    return cluster_status(managed_cluster(), seen, "me", now, dialed=view.addresses, managed=view)


def condition(status: StorageClusterStatus, kind: str) -> tuple[str, str, str]:
    [found] = [each for each in status.conditions if each.type == kind]
    return found.status, found.reason, found.message


def test_it_says_how_many_there_are_and_how_to_select_their_pods() -> None:
    status = told(VIEW)

    assert (status.replicas, status.online) == (2, "0/2")
    assert status.selector == "quorate.io/cluster=main,app.kubernetes.io/component=agent"
    assert status.addresses == ["one:7100", "two:7100"]
    assert condition(status, "AgentsUpdated")[:2] == ("True", "Updated")
    assert condition(status, "Ready")[1] == "AgentsMissing"


def test_a_pod_that_fails_says_more_than_an_address_without_an_answer() -> None:
    pod = PodProblem(name="main-agent-1-0", reason="ImagePullBackOff", message="not found")
    status = told(VIEW._replace(pods=[pod, pod]))

    assert condition(status, "Ready") == (
        "False",
        "PodsFailing",
        "0 of 2 agents are online; pod main-agent-1-0: ImagePullBackOff: not found, and 1 more",
    )
    assert status.pods == [pod, pod]


def test_what_is_known_of_an_earlier_spec_says_nothing_of_a_change() -> None:
    """`kubectl wait` takes the first condition that is told of the new generation."""
    earlier = VIEW._replace(spec=managed_cluster(replicas=7).spec)

    assert condition(told(earlier), "AgentsUpdated")[:2] == ("Unknown", "NotLookedAt")


def test_what_a_change_waits_for_is_told() -> None:
    for view, reason, part in (
        (VIEW._replace(waits_for="agent-1 catches up"), "Replacing", "agent-1 catches up"),
        (VIEW._replace(refused="exceeded quota"), "Refused", "exceeded quota"),
        (VIEW._replace(agents=Agents(STAYING, ("agent-3",), True)), "ScalingDown", "agent-3: "),
        (
            VIEW._replace(agents=Agents(STAYING, ("agent-3",), True), untold="it is asked"),
            "ScalingDown",
            "agent-3: it is asked",
        ),
    ):
        status, word, message = condition(told(view), "AgentsUpdated")
        assert (status, word) == ("False", reason)
        assert part in message


def test_an_agent_that_a_zone_needs_is_not_told_as_on_its_way() -> None:
    view = VIEW._replace(agents=Agents(STAYING, ("agent-3",), True))
    why = "node agent-3: zone cart needs 3 agents and 2 would remain; add an agent first"

    assert condition(told(view, {"agent-3": why}), "AgentsUpdated") == (
        "False",
        "ScaleDownRefused",
        why,
    )
    assert condition(told(view, {"agent-9": why}), "AgentsUpdated")[1] == "ScalingDown"


async def test_an_operator_without_kubernetes_refuses_managed_agents(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    try:
        manifest = managed_cluster().model_dump(mode="json", by_alias=True, exclude_none=True)
        about = {"apiVersion": "quorate.io/v1alpha1", "kind": "StorageCluster"}
        with pytest.raises(
            WireError, match=r"StorageCluster main: spec\.managed: .* no pods: write"
        ):
            ObjectStore(store).prepare(
                "storageclusters",
                "main",
                {**about, "metadata": {"name": "main"}, "spec": manifest["spec"]},
            )
        with pytest.raises(WireError, match="drainAgents: an operator without Kubernetes"):
            ObjectStore(store).prepare(
                "storageclusters",
                "main",
                {
                    **about,
                    "metadata": {"name": "main"},
                    "spec": {"external": {"addresses": ["one:7100"]}, "drainAgents": ["agent-1"]},
                },
            )
    finally:
        await store.close()


def test_a_label_of_the_users_own_says_which_agent_has_no_failure_domain() -> None:
    kind = "FailureDomainsKnown"
    assert all(each.type != kind for each in told(VIEW).conditions)
    assert condition(told(VIEW._replace(domainless={})), kind)[0] == "True"
    missing = {"agent-2": "node n2 has no label rack", "agent-1": "node n1 has no label rack"}
    status, _, message = condition(told(VIEW._replace(domainless=missing)), kind)
    assert status == "False"
    assert message.startswith("agent agent-1: node n1 has no label rack, and 1 more: label the ")
    assert "`rbac.nodes` of the chart, or examples/operator-cluster-role.yaml" in message
    waits = {"agent-1": NO_NODE_YET}
    message = condition(told(VIEW._replace(domainless=waits)), kind)[2]
    assert message == f"agent agent-1: {NO_NODE_YET}"
    message = condition(told(VIEW._replace(domainless={**missing, **waits})), kind)[2]
    assert message.startswith("agent agent-2: node n2"), "what can be mended goes first"


def test_a_volume_that_is_too_small_is_told_until_it_has_grown() -> None:
    small = Growth("Resizing", "the volume of claim main-agent-1 is not of 2Gi yet")
    assert all(each.type != "VolumesGrown" for each in told(VIEW).conditions)
    status = told(VIEW._replace(growth=small))
    assert condition(status, "VolumesGrown") == ("False", *small)

    cluster = managed_cluster().model_copy(update={"status": status})
    seen = Seen(ClusterStatus(1, (), ()))
    now = "2026-01-01T00:00:00Z"
    grown = cluster_status(cluster, seen, "me", now, managed=VIEW)
    assert condition(grown, "VolumesGrown")[:2] == ("True", "Grown")

    earlier = VIEW._replace(spec=managed_cluster(storage={"size": "1Gi"}).spec)
    for view in (earlier, None):  # none is known yet to an operator that has just begun
        unknown = cluster_status(cluster, seen, "me", now, managed=view)
        assert condition(unknown, "VolumesGrown")[:2] == ("Unknown", "NotLookedAt")
    external = cluster.spec.model_copy(update={"managed": None})
    of_others = cluster.model_copy(update={"spec": external})
    told_of_others = cluster_status(of_others, seen, "me", now)
    assert all(each.type != "VolumesGrown" for each in told_of_others.conditions)


def test_kept_data_to_which_no_service_leads_is_told() -> None:
    kind = "ClientServicesMade"
    why = {"library": "no Service leads to library", "cart": "no Service leads to cart"}

    assert all(each.type != kind for each in told(VIEW).conditions)
    assert condition(told(VIEW._replace(unnamed=why)), kind) == (
        "False",
        "NameTaken",
        "no Service leads to cart, and 1 more zones",
    )


def test_it_says_whether_a_pod_may_be_evicted_and_who_is_waited_for() -> None:
    waits = VIEW._replace(no_eviction=NoEvictionNow("AgentsAway", "offline: agent-2; partitions …"))
    at_zero = VIEW._replace(agents=Agents(STAYING, (), False))

    assert condition(told(VIEW), "EvictionsAllowed")[:2] == ("True", "Spare")
    assert condition(told(waits), "EvictionsAllowed") == (
        "False",
        "AgentsAway",
        "no pod that a partition needs can be evicted: offline: agent-2; partitions …",
    )
    assert not [each for each in told(at_zero).conditions if each.type == "EvictionsAllowed"]
