"""Connections of pods judged by the NetworkPolicies that their API server has."""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from quorate_network_policies.evaluator import End, Policies
from quorate_network_policies.in_pods import Connection

Json = Mapping[str, Any]


class Judged:
    """The ends of connections, and those connections that no policy allows.

    - `others`: ends that are no pods, by address
    - `services`: the range of cluster IPs, behind which is the API server at `api_port`
    """

    def __init__(self, others: Mapping[str, str], services: str, api_port: int) -> None:
        self._others = {address: End(name, address) for address, name in others.items()}
        self._services = ip_network(services)
        self._api_port = api_port
        self._by_name: dict[str, End] = {}
        self._by_address: dict[str, End] = {}

    def know(self, pods: Iterable[Json]) -> None:
        """Take these pods, as the API server has them now: one made anew has another address."""
        for pod in pods:
            metadata, address = pod["metadata"], pod.get("status", {}).get("podIP", "")
            labels = metadata.get("labels", {})
            component = labels.get("app.kubernetes.io/component", metadata["name"])
            end = End(component, address, metadata["namespace"], labels)
            self._by_name[metadata["name"]] = self._by_address[address] = end

    def ends(self, seen: Collection[Connection]) -> set[tuple[str, str, int]]:
        """Kinds of pods that connected, and to which at which port."""
        return {(source.name, to.name, port) for source, to, port in self._made(seen)}

    def denied(self, seen: Collection[Connection], policies: Policies) -> set[str]:
        """Connections that no policy allows."""
        return {
            f"{source.name} {source.address} -> {to.name} {to.address} port {port}"
            for source, to, port in self._made(seen)
            if not policies.allow(source, to, port)
        }

    def _made(self, seen: Collection[Connection]) -> Iterable[tuple[End, End, int]]:
        for each in seen:
            pod, other = self._by_name[each.pod], self._other(each.other)
            if other is None:
                assert not each.began, f"a connection to nobody who is known: {each}"
                continue  # a kubelet's: with most plugins it reaches its pods by any policy
            is_service = ip_address(each.other) in self._services
            port = self._api_port if is_service else each.port
            yield (pod, other, port) if each.began else (other, pod, port)

    def _other(self, address: str) -> End | None:
        if ip_address(address) in self._services:
            return End("the API server", address)
        return self._by_address.get(address) or self._others.get(address)
