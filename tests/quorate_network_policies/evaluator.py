"""Whether a connection is allowed by NetworkPolicies: the rules of networking.k8s.io/v1.

    1.  A pod that no policy selects for a direction may do everything in that direction.
    2.  Policies add up: one rule of one of them that matches is enough.
    3.  A connection needs both ends: egress of the source, and ingress of the destination.
    4.  Entries of `from`, `to` and `ports` are alternatives; an absent or empty list matches all.
    5.  In one peer podSelector and namespaceSelector must both match; without a namespaceSelector
        the peer is in the policy's own namespace.
    6.  Replies belong to their connection.

Ends that are no pods (the API server, agents elsewhere) have an address only; a policy reaches
them by ipBlock, or by a rule that names no peers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

Json = Mapping[str, Any]
Direction = Literal["Ingress", "Egress"]
_PEERS = {"Ingress": "from", "Egress": "to"}
_RULES = {"Ingress": "ingress", "Egress": "egress"}


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection.  `namespace` is empty for one that is no pod."""

    name: str
    address: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Named ports of the pod's containers."""


class Policies:
    """NetworkPolicies, and the labels of all namespaces, by name."""

    def __init__(self, policies: Iterable[Json], namespaces: Mapping[str, Mapping[str, str]]):
        self._policies = list(policies)
        self._namespaces = namespaces
        for each in self._policies:
            assert each["apiVersion"] == "networking.k8s.io/v1", each["apiVersion"]

    def allow(self, source: End, destination: End, port: int, protocol: str = "TCP") -> bool:
        """Whether `source` may connect to this port of `destination`."""
        return self._lets_pass("Egress", source, destination, destination, port, protocol) and (
            self._lets_pass("Ingress", destination, source, destination, port, protocol)
        )

    def _lets_pass(
        self, direction: Direction, pod: End, peer: End, listens: End, port: int, protocol: str
    ) -> bool:
        isolating = [each for each in self._policies if self._isolates(each, pod, direction)]
        return not isolating or any(
            self._matches(policy, rule, direction, peer, listens, port, protocol)
            for policy in isolating
            for rule in policy["spec"].get(_RULES[direction]) or ()
        )

    def _isolates(self, policy: Json, pod: End, direction: Direction) -> bool:
        spec = policy["spec"]
        types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        is_there = bool(pod.namespace) and policy["metadata"]["namespace"] == pod.namespace
        return is_there and direction in types and selects(spec["podSelector"], pod.labels)

    def _matches(
        self,
        policy: Json,
        rule: Json,
        direction: Direction,
        peer: End,
        listens: End,
        port: int,
        protocol: str,
    ) -> bool:
        peers, ports = rule.get(_PEERS[direction]), rule.get("ports")
        return (not peers or any(self._is_peer(each, policy, peer) for each in peers)) and (
            not ports or any(_is_port(each, listens, port, protocol) for each in ports)
        )

    def _is_peer(self, wanted: Json, policy: Json, peer: End) -> bool:
        if "ipBlock" in wanted:
            assert wanted.keys() == {"ipBlock"}, f"ipBlock stands alone: {wanted}"
            return _is_in(wanted["ipBlock"], peer.address)
        if not peer.namespace:
            return False
        if "namespaceSelector" in wanted:
            of_namespace = self._namespaces[peer.namespace]
            if not selects(wanted["namespaceSelector"], of_namespace):
                return False
        elif peer.namespace != policy["metadata"]["namespace"]:
            return False
        return selects(wanted.get("podSelector") or {}, peer.labels)


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise ValueError(f"a label selector has no operator {other!r}")


def _is_in(block: Json, address: str) -> bool:
    if not address:
        return False
    at = ip_address(address)
    return at in ip_network(block["cidr"]) and not any(
        at in ip_network(each) for each in block.get("except") or ()
    )


def _is_port(wanted: Json, listens: End, port: int, protocol: str) -> bool:
    if wanted.get("protocol", "TCP") != protocol:
        return False
    first = wanted.get("port")
    if first is None:
        return True
    if isinstance(first, str):
        return listens.ports.get(first) == port
    return bool(first <= port <= wanted.get("endPort", first))
