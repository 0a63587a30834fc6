"""Labels and storage classes of agents: of their pods, their nodes and their claims."""

from quorate.facts.topology import PodFacts
from quorate_operator.owned.kube_nodes import KubeNode, pod_facts

NODES = {"n1": KubeNode(False, {"disk": "ssd"})}


def test_each_pod_has_its_labels_and_those_of_its_node_if_that_can_be_read() -> None:
    def pod(**spec: str) -> dict[str, object]:
        return {"metadata": {"labels": {"team": "shop"}}, "spec": spec}

    bare = {"metadata": {}, "spec": {"nodeName": "n1"}}
    pods = {"a": pod(nodeName="n1"), "b": pod(nodeName="n2"), "c": pod(), "d": None, "e": bare}

    claims = {"a": {"spec": {"storageClassName": "fast"}}, "b": {"spec": {}}}

    assert pod_facts(pods, NODES, claims) == {
        "a": PodFacts({"team": "shop"}, {"disk": "ssd"}, "fast", "n1"),
        "b": PodFacts({"team": "shop"}, None, "", "n2"),
        "c": PodFacts({"team": "shop"}, None),
        "e": PodFacts({}, {"disk": "ssd"}, None, "n1"),
    }
