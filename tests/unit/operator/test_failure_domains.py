"""Failure domains of agents, by the nodes that their pods are on."""

from typing import Any

from quorate_operator.owned.kube_nodes import NO_NODE_YET, Domains, KubeNode, failure_domains

Json = dict[str, Any]
NODES = {"n1": KubeNode(False, {"rack": "one"}), "n2": KubeNode(False, {})}


def on(node: str = "") -> Json:
    """A pod that is on this node; on none yet where it is empty."""
    return {"spec": {"nodeName": node} if node else {}}


def test_the_label_of_a_pods_node_counts_and_what_is_missing_has_a_reason() -> None:
    found = failure_domains("rack", {"a": on("n1"), "b": on("n2"), "c": on("n3")}, NODES)

    assert found.known == {"a": "one", "b": ""}
    assert found.missing == {"b": "node n2 has no label rack", "c": "node n3 cannot be read"}


def test_of_a_pod_that_is_on_no_node_nothing_is_known_and_that_is_said() -> None:
    """What was told of it last holds, so it is not among those that are known."""
    found = failure_domains("rack", {"a": on(), "b": None}, NODES)

    assert found == Domains({}, {"a": NO_NODE_YET, "b": NO_NODE_YET})


def test_where_no_node_can_be_read_that_is_the_reason() -> None:
    found = failure_domains("rack", {"a": on("n1"), "b": None}, {})

    assert found == Domains({}, dict.fromkeys("ab", "no Node can be read"))
