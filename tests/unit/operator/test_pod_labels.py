"""The labels of agents: of their pods, and of the nodes that these are on."""

from quorate.protocol.master.told_places import PodLabels
from quorate_operator.owned.kube_nodes import KubeNode, pod_labels

NODES = {"n1": KubeNode(False, {"disk": "ssd"})}


def test_each_pod_has_its_labels_and_those_of_its_node_if_that_can_be_read() -> None:
    def pod(**spec: str) -> dict[str, object]:
        return {"metadata": {"labels": {"team": "shop"}}, "spec": spec}

    bare = {"metadata": {}, "spec": {"nodeName": "n1"}}
    pods = {"a": pod(nodeName="n1"), "b": pod(nodeName="n2"), "c": pod(), "d": None, "e": bare}

    assert pod_labels(pods, NODES) == {
        "a": PodLabels({"team": "shop"}, {"disk": "ssd"}),
        "b": PodLabels({"team": "shop"}, None),
        "c": PodLabels({"team": "shop"}, None),
        "e": PodLabels({}, {"disk": "ssd"}),
    }
