"""NetworkPolicies that the kernel of every node enforces, for as long as a test asks for it.

The CNI plugin of the nodes knows nothing of policies.  On each node the program in `firewall` makes
rules of iptables and sets of addresses from them: kube-router's, so it is not our understanding of
a policy that is enforced.  A refused connection is answered at once, as at a closed port.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_nodes.cluster import NodeCluster
from quorate_nodes.node import Node, system_environment

_RULES_S_MAX = 60.0
_ACCEPTS = "--mark 0x20000/0x20000 -j ACCEPT"
"""The last rule that it makes."""


@contextmanager
def policies_enforced(cluster: NodeCluster) -> Iterator[None]:
    """From here to the end, also for pods that are there already; no node may lose power meanwhile.

    A node knows a new pod or policy a moment later."""
    firewalls = {node.name: _firewall(cluster, node) for node in cluster.nodes}
    try:
        for each in firewalls.values():
            each.start()
        wait_until(
            lambda: all(_ACCEPTS in _rules(node) for node in cluster.nodes),
            "rules on each node",
            _RULES_S_MAX,
            lambda: "\n".join(each.log_tail() for each in firewalls.values()),
        )
        yield
        assert [name for name, each in firewalls.items() if not each.is_alive()] == []
    finally:
        for each in firewalls.values():
            each.terminate()
    assert [node.name for node in cluster.nodes if "KUBE-ROUTER" in _rules(node)] == []


def _firewall(cluster: NodeCluster, node: Node) -> Component:
    command = [
        str(cluster.programs["firewall"]),
        f"--kubeconfig={cluster.plane.kubeconfig}",
        f"--hostname-override={node.name}",
        f"--service-cluster-ip-range={cluster.network.services}",
    ]
    return cluster.component(
        f"{node.name}-firewall", [*node.enter("net"), *command], system_environment()
    )


def _rules(node: Node) -> str:
    return node.run("iptables", "--wait", "--list-rules")
