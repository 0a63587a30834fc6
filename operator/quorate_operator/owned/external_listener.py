"""The external listener of managed agents: one Service per agent, and its addresses.

A client is told which agent serves which slots, so each agent needs its own external address.  Only
Services, pods and nodes tell that address: each look reads it there and tells the master, which
tells all agents.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from quorate.facts.addresses import is_dialable
from quorate.wire.managed_agents import INGRESS, ExternalListener, ListenerType
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.owned.agent_names import (
    EXTERNAL_PORT_OFFSET,
    external_service_name,
    pod_name,
)

Json = dict[str, Any]


class ZonePort(NamedTuple):
    """The client port of a zone on each agent.

    `ports`: agent -> port; `port`: the one that the master gave it; `uid`: the zone's.
    """

    zone: str
    ports: Mapping[str, int]
    uid: str = ""
    port: int = 0


class Outside(NamedTuple):
    """Where external clients reach agents.

    `hosts`: by agent; `ports`: by zone uid and agent; `missing`: agent -> why it has no address.
    """

    hosts: dict[str, str]
    ports: dict[str, dict[str, int]]
    missing: dict[str, str]


def service_spec(
    listener: ExternalListener, zones: Sequence[ZonePort], chosen: Mapping[str, str]
) -> Json:
    """Return the spec of one agent's Service; `chosen`: labels of its pod.

    Every node forwards to the agent, so an earlier address works until clients learn a new one.
    """
    return {
        "type": listener.type.value,
        "ipFamilyPolicy": "SingleStack",
        "externalTrafficPolicy": "Cluster",
        "selector": dict(chosen),
        "ports": [
            {
                "name": _port_name(port),
                "port": port,
                "protocol": "TCP",
                "targetPort": port,
            }
            for port in sorted(map(_listened, zones))
        ],
    }


def service_annotations(
    listener: ExternalListener, cluster: StorageCluster, agent: str
) -> dict[str, str]:
    """Return the annotations that the user declared for each agent's Service."""
    facts = _facts(cluster, agent)
    return {key: _filled(value, facts) for key, value in listener.annotations.items()}


def external_addresses(
    cluster: StorageCluster,
    agents: Iterable[str],
    zones: Sequence[ZonePort],
    services: Mapping[str, Json],
    pods: Mapping[str, Json],
) -> Outside:
    """Return the external address of each agent, from its present Service and pod."""
    outside = Outside({}, {zone.uid: {} for zone in zones}, {})
    managed = cluster.spec.managed
    listener = managed.external_listener if managed is not None else None
    if listener is None or not zones:
        return outside
    for agent in agents:
        service = services.get(external_service_name(cluster.metadata.name, agent))
        pod = pods.get(pod_name(cluster.metadata.name, agent), {})
        host, why = _host(listener, cluster, agent, service, pod)
        if why:
            outside.missing[agent] = why
            continue
        outside.hosts[agent] = host
        dialed = _dialed(listener, service)
        for zone in zones:
            port = dialed.get(_port_name(_listened(zone)), 0)
            if port:
                outside.ports[zone.uid][agent] = port
    return outside


def _host(
    listener: ExternalListener,
    cluster: StorageCluster,
    agent: str,
    service: Json | None,
    pod: Json,
) -> tuple[str, str]:
    """Return the host, or why there is none."""
    name = external_service_name(cluster.metadata.name, agent)
    if service is None:
        return "", f"Service {name} is not created yet"
    facts = _facts(cluster, agent)
    facts["{node}"] = str(pod.get("spec", {}).get("nodeName", ""))
    facts["{node_ip}"] = str(pod.get("status", {}).get("hostIP", ""))
    facts[INGRESS] = _ingress(service)
    for placeholder, value in facts.items():
        if placeholder in listener.template and not value:
            if placeholder == INGRESS:
                return "", f"Service {name} has no address from a load balancer yet"
            return "", f"its pod runs on no node yet, which {placeholder} of hostTemplate asks for"
    host = _filled(listener.template, facts)
    if not is_dialable(host):
        return (
            "",
            f"hostTemplate {listener.template} gives {host}, which is not a host: write another",
        )
    return host, ""


def _facts(cluster: StorageCluster, agent: str) -> dict[str, str]:
    return {
        "{agent}": agent,
        "{cluster}": cluster.metadata.name,
        "{namespace}": cluster.metadata.namespace,
    }


def _filled(text: str, facts: Mapping[str, str]) -> str:
    for placeholder, value in facts.items():
        text = text.replace(placeholder, value)
    return text


def _ingress(service: Json) -> str:
    given = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
    return str(given[0].get("hostname") or given[0].get("ip") or "") if given else ""


def _dialed(listener: ExternalListener, service: Json | None) -> dict[str, int]:
    """Return name of the Service's port -> port that clients dial."""
    ports = service["spec"].get("ports", ()) if service is not None else ()
    field = "port" if listener.type is ListenerType.LOAD_BALANCER else "nodePort"
    return {each.get("name", ""): each.get(field, 0) for each in ports}


def _listened(zone: ZonePort) -> int:
    return zone.port + EXTERNAL_PORT_OFFSET


def _port_name(port: int) -> str:
    return f"clients-{port}"
