"""The desired Kubernetes objects of a managed cluster: manifests from facts, without requests.

Per agent: a StatefulSet with one pod, so that the pod comes back while the operator is away; a
claim that the pod mounts by name; with an external listener, a Service.  Per cluster: a headless
Service for the names of pods, a client Service per zone, a ServiceAccount without rights, a
PodDisruptionBudget that follows the rows.  All but the claims are owned by the StorageCluster and
deleted with it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from quorate.planning.absence.disruption import Disruption
from quorate.wire.managed_agents import AgentStorage, ManagedAgents
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator import names
from quorate_operator.owned.agent_names import (
    Agents,
    external_service_name,
    service_name,
    stateful_set_name,
)
from quorate_operator.owned.agent_pod import pod_template
from quorate_operator.owned.external_listener import ZonePort, service_annotations, service_spec
from quorate_operator.owned.volumes import larger

CLIENT_PORT = 6379

Json = dict[str, Any]


def desired_children(
    cluster: StorageCluster,
    agents: Agents,
    removed: Collection[str],
    zones: Sequence[ZonePort],
    claims: Mapping[str, Json],
    unnamed: Collection[str] = (),
    losing: Collection[str] = (),
) -> list[Json]:
    """Return the manifests of all desired objects, in the order of their making.

    The budget, which follows the rows, is not among them (budget.py).  `removed`: leaving agents
    that may go now: they get no StatefulSet.  `claims`: the existing claims by name: the size and
    class of a volume are not taken back.  `unnamed`: zones that get no client Service.  `losing`:
    agents whose data would be lost with their pods: they run also in a cluster scaled to 0.
    """
    managed = cluster.spec.managed
    if managed is None:
        return []
    present = [name for name in (*agents.staying, *agents.leaving) if name not in removed]
    made = [_account(cluster), _headless(cluster)]
    for agent in sorted(present, key=lambda name: (len(name), name)):
        name = stateful_set_name(cluster.metadata.name, agent)
        made.append(claim_of(cluster, agent, managed.storage, claims.get(name)))
        made.append(_stateful_set(cluster, managed, agent, agents.run or agent in losing))
        made += _external_service(cluster, managed, agent, zones)
    named = [zone for zone in zones if zone.zone not in unnamed]
    made += [_client_service(cluster, zone) for zone in named if has_same_port(zone)]
    return made


def selector(cluster: str) -> dict[str, str]:
    """Return the labels that select the pods of a cluster's agents."""
    return {names.LABEL_CLUSTER: cluster, names.LABEL_COMPONENT: "agent"}


def selector_text(cluster: str) -> str:
    """Return the label selector of a cluster's agents' pods, as `kubectl --selector` takes it."""
    return ",".join(f"{key}={value}" for key, value in selector(cluster).items())


def labels(cluster: str, agent: str = "") -> dict[str, str]:
    """Return the labels of each object that is made for a cluster."""
    made = {
        **selector(cluster),
        names.LABEL_NAME: "quorate",
        names.LABEL_INSTANCE: cluster,
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
    }
    return {**made, names.LABEL_AGENT: agent} if agent else made


def _metadata(cluster: StorageCluster, name: str, agent: str = "", owned: bool = True) -> Json:
    made: Json = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": labels(cluster.metadata.name, agent),
    }
    if owned:
        made["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": StorageCluster.kind_name(),
                "name": cluster.metadata.name,
                "uid": cluster.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
    return made


def _account(cluster: StorageCluster) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(cluster, service_name(cluster.metadata.name)),
        "automountServiceAccountToken": False,
    }


def _headless(cluster: StorageCluster) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(cluster, service_name(cluster.metadata.name)),
        "spec": {
            "clusterIP": "None",
            # The operator dials agents before they are ready, and its messages make them ready.
            "publishNotReadyAddresses": True,
            "ipFamilyPolicy": "SingleStack",
            "selector": selector(cluster.metadata.name),
        },
    }


def claim_of(
    cluster: StorageCluster,
    agent: str,
    storage: AgentStorage,
    there: Json | None,
    owned: bool = False,
) -> Json:
    """Return the claim of one agent; `there`: the existing one.

    `owned`: the claim is deleted with the StorageCluster, whose data is already deleted.  Until
    then it has no owner, so that no deletion of the StorageCluster deletes it.
    """
    size, class_name = storage.size, storage.class_name
    if there is not None:
        known = there["spec"]["resources"]["requests"]["storage"]
        size = larger(known, size)
        class_name = there["spec"].get("storageClassName")
    name = stateful_set_name(cluster.metadata.name, agent)
    spec: Json = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    if class_name is not None:
        spec["storageClassName"] = class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(cluster, name, agent, owned=owned),
        "spec": spec,
    }


def _stateful_set(cluster: StorageCluster, managed: ManagedAgents, agent: str, run: bool) -> Json:
    name = cluster.metadata.name
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(cluster, stateful_set_name(name, agent), agent),
        "spec": {
            "replicas": int(run),
            "serviceName": service_name(name),
            "selector": {"matchLabels": {**selector(name), names.LABEL_AGENT: agent}},
            # The operator decides when a pod is replaced.
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 2,
            "template": pod_template(
                name,
                managed,
                agent,
                labels(name, agent),
                selector(name),
                cluster.metadata.namespace,
            ),
        },
    }


def client_service_name(zone: str) -> str:
    """Return the name of the Service at which clients of this zone start."""
    return f"{zone}-clients"


def _client_service(cluster: StorageCluster, zone: ZonePort) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(cluster, client_service_name(zone.zone)),
        "spec": {
            "ipFamilyPolicy": "SingleStack",
            "selector": selector(cluster.metadata.name),
            "ports": [
                {
                    "name": "redis",
                    "port": CLIENT_PORT,
                    "protocol": "TCP",
                    "targetPort": next(iter(zone.ports.values())),
                }
            ],
        },
    }


def _external_service(
    cluster: StorageCluster, managed: ManagedAgents, agent: str, zones: Sequence[ZonePort]
) -> list[Json]:
    """Return the agent's Service; none without a listener or a zone (it needs a port)."""
    listener, given = managed.external_listener, [zone for zone in zones if zone.port]
    if listener is None or not given:
        return []
    name = cluster.metadata.name
    metadata = _metadata(cluster, external_service_name(name, agent), agent)
    if annotations := service_annotations(listener, cluster, agent):
        metadata["annotations"] = annotations
    chosen = {**selector(name), names.LABEL_AGENT: agent}
    spec = service_spec(listener, given, chosen)
    return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}]


def has_same_port(zone: ZonePort) -> bool:
    """Return whether one Service can lead to all agents of the zone."""
    return len({*zone.ports.values()}) == 1


def budget_of(cluster: StorageCluster, disruption: Disruption) -> Json:
    """Return the PodDisruptionBudget.  Pods of agents that no row names may always be evicted.

    So may those of agents that are away already.  One that comes back is selected again when the
    rows are judged with it; until then the others are enough without it, so an old budget is safe.

    It says how many must stay.  For a maximum of unavailable pods Kubernetes counts only agents
    that have a pod at that moment, so an agent whose pod was just deleted would not count as away.
    """
    limited = disruption.limited
    named = {"key": names.LABEL_AGENT, "operator": "In", "values": [*limited]}
    chosen: Json = {"matchLabels": selector(cluster.metadata.name)}
    if limited:
        chosen["matchExpressions"] = [named]
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(cluster, service_name(cluster.metadata.name)),
        "spec": {
            "minAvailable": max(len(limited) - disruption.unavailable_max, 0),
            "selector": chosen,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
