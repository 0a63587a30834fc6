"""Specs of managed agents, which together set every field."""

from typing import Any

LEAST: dict[str, Any] = {"replicas": 3, "image": "agent:1", "storage": {"size": "10Gi"}}
MANY: dict[str, Any] = {
    "replicas": 1,
    "image": "agent@sha256:0",
    "storage": {"size": "10Gi", "className": "fast"},
    "resources": {"limits": {"memory": "2Gi"}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "storage", "operator": "Exists"}],
    "failureDomainLabel": "topology.kubernetes.io/region",
    "podTemplate": {
        "labels": {"team": "shop"},
        "annotations": {"note": "mine"},
        "env": [{"name": "TZ", "value": "UTC"}],
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "system-cluster-critical",
    },
}
ADDRESSES: dict[str, Any] = {
    "replicas": 3,
    "image": "agent:1",
    "storage": {"size": "10Gi"},
    "announcedNames": {"clusterDomain": "example.org"},
    "listeners": {
        "external": {
            "type": "NodePort",
            "hostTemplate": "{agent}.{cluster}.example.org",
            "annotations": {"dns": "{agent}"},
        }
    },
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"quorate.io/cluster": "main"}},
                }
            ]
        }
    },
}
SPECS = [LEAST, MANY, ADDRESSES]
WHOLE = {**MANY, **ADDRESSES}
