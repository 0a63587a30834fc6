"""The pod of one agent: runs as any user but root, writes only to its volume, has no rights."""

from typing import Any

from quorate.wire.managed_agents import ManagedAgents, PodAdditions
from quorate_operator.owned.agent_names import (
    EXTERNAL_PORT_OFFSET,
    PEER_PORT,
    announced_name,
    service_name,
    stateful_set_name,
)
from quorate_operator.owned.pod_parts import (
    SECRET,
    container_security,
    placement,
    secret_mount,
    secret_volume,
    without_rights,
)

ADMIN_PORT = 8080
CLIENT_PORTS = "7200-8079"
"""Client ports of a cluster's zones.  The operator gives each zone one, the same on all agents."""
DATA = "/data"
GRACE_S = 30
HOST_LABEL = "kubernetes.io/hostname"

Json = dict[str, Any]


def pod_template(
    cluster: str,
    managed: ManagedAgents,
    agent: str,
    labels: dict[str, str],
    of_cluster: dict[str, str],
    namespace: str,
) -> Json:
    """Return the template of the agent's StatefulSet; user additions never replace our fields."""
    more = managed.pod_template or PodAdditions()
    own = without_rights(GRACE_S)
    spec: Json = {
        "serviceAccountName": service_name(cluster),
        **own,
        "securityContext": {**own["securityContext"], "fsGroupChangePolicy": "OnRootMismatch"},
        "affinity": managed.affinity or _apart(managed, of_cluster),
        "containers": [_container(cluster, namespace, managed, agent, more)],
        "volumes": [
            {
                "name": "data",
                "persistentVolumeClaim": {"claimName": stateful_set_name(cluster, agent)},
            },
            secret_volume(cluster),
        ],
        **placement(managed.node_selector, managed.tolerations, more),
    }
    metadata: Json = {"labels": {**more.labels, **labels}}
    if more.annotations:
        metadata["annotations"] = more.annotations
    return {"metadata": metadata, "spec": spec}


def _container(
    cluster: str, namespace: str, managed: ManagedAgents, agent: str, more: PodAdditions
) -> Json:
    own = [
        _from_field("POD_IP", "status.podIP"),
        # Empty if the node has no such label: then the agent is a failure domain by itself.
        _from_field("FAILURE_DOMAIN", f"metadata.labels['{managed.failure_domain_label}']"),
    ]
    taken = {each["name"] for each in own}
    made: Json = {
        "name": "agent",
        "image": managed.image,
        "args": [
            f"--name={agent}",
            f"--cluster={cluster}",
            f"--data={DATA}/agent",
            f"--secret-file={SECRET}",
            # Without brackets, also if it is an IPv6 address: agents read the last group as port.
            f"--peer=$(POD_IP):{PEER_PORT}",
            "--client-host=$(POD_IP)",
            f"--client-ports-from-master={CLIENT_PORTS}",
            f"--admin=$(POD_IP):{ADMIN_PORT}",
            "--failure-domain=$(FAILURE_DOMAIN)",
        ],
        "env": [*own, *(each for each in more.env if each.get("name") not in taken)],
        "ports": [
            {"name": "peer", "containerPort": PEER_PORT},
            {"name": "admin", "containerPort": ADMIN_PORT},
        ],
        "startupProbe": {**_probe("startupz"), "periodSeconds": 2, "failureThreshold": 1800},
        "livenessProbe": {**_probe("healthz"), "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**_probe("readyz"), "periodSeconds": 2},
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            secret_mount(),
        ],
    }
    if managed.announced_names is not None:
        name = announced_name(cluster, namespace, agent, managed.announced_names.cluster_domain)
        made["args"] += [f"--announce-peer={name}:{PEER_PORT}", f"--announce-client-host={name}"]
    if managed.external_listener is not None:
        made["args"].append(f"--external-port-offset={EXTERNAL_PORT_OFFSET}")
    if managed.resources:
        made["resources"] = managed.resources
    return made


def _from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str) -> Json:
    return {"httpGet": {"path": f"/{path}", "port": "admin"}, "timeoutSeconds": 5}


def _apart(managed: ManagedAgents, of_cluster: dict[str, str]) -> Json:
    """Return an affinity that prefers to separate agents by node and failure domain."""
    terms = [
        {
            "weight": weight,
            "podAffinityTerm": {
                "topologyKey": key,
                "labelSelector": {"matchLabels": of_cluster},
            },
        }
        for weight, key in ((100, HOST_LABEL), (50, managed.failure_domain_label))
    ]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
