"""Manifests and pods that tests of managed agents have in common."""

from typing import Any

from quorate.planning.absence.disruption import AgentDisruption, Disruption
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster

Json = dict[str, Any]
IMAGE = "localhost/quorate-agent:1"
MANAGED = {"replicas": 3, "image": IMAGE, "storage": {"size": "10Gi"}}


def managed_cluster(name: str = "main", deletion_policy: str = "", **spec: Any) -> StorageCluster:
    whole: Json = {"managed": {**MANAGED, **spec}}
    if deletion_policy:
        whole["deletionPolicy"] = deletion_policy
    metadata = {"name": name, "namespace": "shop", "uid": "uid-1", "generation": 1}
    return StorageCluster.parse(
        {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": metadata, "spec": whole}
    )


def verdict(name: str, copies: int = 0, primaries: int = 0, waits: str = "") -> AgentDisruption:
    return AgentDisruption(name, primaries, copies, waits)


def nobody(unavailable_max: int = 0) -> Disruption:
    return Disruption((), (), unavailable_max)


def pod(name: str, revision: str = "new", **status: Any) -> Json:
    """A pod that is ready, if nothing else is said of it."""
    ready = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "agent", "state": {"running": {}}}],
    }
    labels = {"controller-revision-hash": revision}
    metadata = {"name": name, "labels": labels, "resourceVersion": "1"}
    return {"metadata": metadata, "status": status or ready}


def waiting(reason: str, message: str = "", **last: Any) -> Json:
    """The status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    container = {"name": "agent", "state": state, "restartCount": 3, **last}
    return {"phase": "Pending", "containerStatuses": [container]}


def stateful_set(agent: str, revision: str = "new", observed: int = 1) -> Json:
    return {
        "metadata": {"name": f"main-{agent}", "generation": 1},
        "status": {"updateRevision": revision, "observedGeneration": observed},
    }
