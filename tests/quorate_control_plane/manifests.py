"""A manifest of each kind that is declared, to be changed by a test."""

from typing import Any

from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import external

Manifest = dict[str, Any]
ROW = {
    "partition": 0,
    "version": 5,
    "term": 3,
    "replicas": ["agent-1"],
    "voters": [{"node": "agent-1", "storeId": "s1"}],
}

OTHER_VOTER = {"node": "agent-2", "storeId": "s2"}


def zone(name: str = "sessions", **spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "Zone",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }


def cluster(name: str = "main", **spec: Any) -> Manifest:
    spec = spec or external(["127.0.0.1:7100"])
    return {
        "apiVersion": API_VERSION,
        "kind": "StorageCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def table(**spec: Any) -> Manifest:
    refs = {"clusterRef": {"name": "main"}, "zoneRef": {"name": "sessions", "uid": "u"}}
    return {
        "apiVersion": API_VERSION,
        "kind": "PartitionTable",
        "metadata": {"name": "u-000"},
        "spec": {**refs, "shard": 0, "rows": [ROW], **spec},
    }


def node(**spec: Any) -> Manifest:
    about = {"node": "agent-1", "storeId": "s", "incarnation": 3, "host": "h", "peerPort": 1}
    return {
        "apiVersion": API_VERSION,
        "kind": "StorageNode",
        "metadata": {"name": "main.agent-1"},
        "spec": {"clusterRef": {"name": "main"}, "clientHost": "h", **about, **spec},
    }


def master_term(term: int) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "MasterTerm",
        "metadata": {"name": "main"},
        "spec": {"clusterRef": {"name": "main"}, "term": term},
    }


def recovery(**spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "ZoneRecovery",
        "metadata": {"name": "reset"},
        "spec": {"zoneRef": {"name": "books"}, "action": "Reset", "partitions": [3, 5], **spec},
    }


def validation(**spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "DataValidation",
        "metadata": {"name": "nightly"},
        "spec": {"zoneRef": {"name": "books"}, **spec},
    }


def schedule(name: str = "nightly", **spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "ScheduledDataValidation",
        "metadata": {"name": name},
        "spec": {
            "schedule": "0 3 * * *",
            "template": {"spec": {"zoneRef": {"name": "books"}}},
            **spec,
        },
    }


def backup(**spec: Any) -> Manifest:
    claim = {"claimName": "backups", "path": "books/monday"}
    return {
        "apiVersion": API_VERSION,
        "kind": "ZoneBackup",
        "metadata": {"name": "monday"},
        "spec": {
            "zoneRef": {"name": "books"},
            "destination": {"persistentVolumeClaim": claim},
            **spec,
        },
    }


def backup_schedule(name: str = "nightly", path: str = "books", **spec: Any) -> Manifest:
    claim = {"claimName": "backups", "path": path}
    run = {"zoneRef": {"name": "books"}, "destination": {"persistentVolumeClaim": claim}}
    return {
        "apiVersion": API_VERSION,
        "kind": "ScheduledZoneBackup",
        "metadata": {"name": name},
        "spec": {"schedule": "0 3 * * *", "template": {"spec": run}, **spec},
    }


def restore(**spec: Any) -> Manifest:
    claim = {"claimName": "backups", "path": "books/monday"}
    return {
        "apiVersion": API_VERSION,
        "kind": "ZoneRestore",
        "metadata": {"name": "monday"},
        "spec": {"zoneRef": {"name": "books"}, "source": {"persistentVolumeClaim": claim}, **spec},
    }


def repair(**spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "ZoneRepair",
        "metadata": {"name": "first"},
        "spec": {"zoneRef": {"name": "books"}, **spec},
    }


PLAN_PLACE = {"persistentVolumeClaim": {"claimName": "backups", "path": "books/repair"}}
NEW_PLAN = {"strategy": "LWW", "destination": PLAN_PLACE}
READ_PLAN = {"source": PLAN_PLACE, "digest": "0a" * 32}


def without(manifest: Manifest, field: str) -> Manifest:
    kept = {key: value for key, value in manifest["spec"].items() if key != field}
    return {**manifest, "spec": kept}


MANAGED = {"replicas": 3, "image": "agent:1", "storage": {"size": "10Gi"}}
HIGH = {"consistencyMode": "HIGH_AVAILABILITY"}
