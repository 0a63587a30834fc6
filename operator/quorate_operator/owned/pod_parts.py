"""Parts that the pods of agents and of Jobs share: no root, no rights, the cluster's secret."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.wire.managed_agents import PodAdditions
from quorate_operator.kube.secret import secret_name

Json = dict[str, Any]

SECRET = "/secret"


def without_rights(grace_s: int) -> Json:
    """Return fields of a pod that cannot reach the API server and runs as any user but root."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroup": 65532,
        },
    }


def container_security() -> Json:
    """Return the security context of a container that writes only to its volumes."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def secret_volume(cluster: str) -> Json:
    """Return the volume of the cluster's secret, for `secret_mount`."""
    return {
        "name": "secret",
        "secret": {"secretName": secret_name(cluster), "defaultMode": 0o440},
    }


def secret_mount() -> Json:
    """Return the mount of the cluster's secret at `SECRET`."""
    return {"name": "secret", "mountPath": SECRET, "readOnly": True}


def placement(
    node_selector: Mapping[str, str], tolerations: Sequence[Any], more: PodAdditions
) -> Json:
    """Return the fields of a pod that say where it may run and how it is pulled; no empty ones."""
    fields = {
        "nodeSelector": node_selector,
        "tolerations": tolerations,
        "imagePullSecrets": more.image_pull_secrets,
        "priorityClassName": more.priority_class_name,
    }
    return {name: value for name, value in fields.items() if value}
