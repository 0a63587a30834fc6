"""The Job of a DataValidation: one pod that reads every copy, and has no rights at the API server.

    exit code 0 (agree)           --> the Job is complete
    exit code 1 (differ)          --> it has failed at once: another run finds the same
    any other (could not tell)    --> one more pod, then it has failed
    evicted, its node drained     --> another pod; this is not counted

The result is the pod's termination message; an exit code alone is no verdict.
"""

from typing import Any, NamedTuple

from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.managed_agents import PodAdditions
from quorate.wire.resource import API_VERSION
from quorate_operator import names
from quorate_operator.kube.secret import secret_name

CONTAINER = "validation"
DIFFERS = 1
"""The exit code of a validation that has proven a difference."""
MORE_PODS = 1
"""Pods after the first one, where that could not tell."""
MESSAGE = "/dev/termination-log"
SECRET = "/secret"
WORK = "/work"
PROGRESS_PORT = 8080
"""Where the pod tells how far it is."""
GRACE_S = 30

Json = dict[str, Any]


class Copies(NamedTuple):
    """The copies that are compared: of a zone of `cluster`, on agents at `addresses`."""

    cluster: str
    addresses: tuple[str, ...]
    partitions: int
    replicas: int


def job_name(validation: str) -> str:
    """Return the name of a DataValidation's Job."""
    return f"{validation}-validation"


def selector(validation: str) -> dict[str, str]:
    """Return the labels that select the pods of a DataValidation."""
    return {names.LABEL_VALIDATION: validation, names.LABEL_COMPONENT: "validation"}


def job_of(validation: DataValidation, copies: Copies, image: str) -> Json:
    """Return the Job; user additions to its pod never replace our fields."""
    metadata, spec = validation.metadata, validation.spec
    more = spec.pod_template or PodAdditions()
    labels = {
        **selector(metadata.name),
        names.LABEL_NAME: "quorate",
        names.LABEL_INSTANCE: copies.cluster,
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
    }
    template: Json = {"labels": {**more.labels, **labels}}
    if more.annotations:
        template["annotations"] = more.annotations
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(metadata.name),
            "namespace": metadata.namespace,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": DataValidation.kind_name(),
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "backoffLimit": MORE_PODS,
            "activeDeadlineSeconds": spec.deadline_seconds,
            "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": CONTAINER,
                            "operator": "In",
                            "values": [DIFFERS],
                        },
                    },
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                ]
            },
            "template": {
                "metadata": template,
                "spec": _pod_spec(validation, copies, image, more),
            },
        },
    }


def _pod_spec(validation: DataValidation, copies: Copies, image: str, more: PodAdditions) -> Json:
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroup": 65532,
        },
        "containers": [_container(validation, copies, image, more)],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            {
                "name": "secret",
                "secret": {"secretName": secret_name(copies.cluster), "defaultMode": 0o440},
            },
        ],
    }
    for field, value in (
        ("nodeSelector", validation.spec.node_selector),
        ("tolerations", validation.spec.tolerations),
        ("imagePullSecrets", more.image_pull_secrets),
        ("priorityClassName", more.priority_class_name),
    ):
        if value:
            spec[field] = value
    return spec


def _container(validation: DataValidation, copies: Copies, image: str, more: PodAdditions) -> Json:
    spec = validation.spec
    made: Json = {
        "name": CONTAINER,
        "image": image,
        "args": [
            "validate",
            spec.zone_ref.name,
            f"--cluster={copies.cluster}",
            f"--secret-file={SECRET}",
            f"--agents={','.join(copies.addresses)}",
            f"--level={spec.level.lower()}",
            f"--keys={spec.keys.lower()}",
            f"--partitions={copies.partitions}",
            f"--replicas={copies.replicas}",
            f"--work-dir={WORK}",
            f"--termination-message={MESSAGE}",
            f"--progress-port={PROGRESS_PORT}",
            "--json",
        ],
        "ports": [{"name": "progress", "containerPort": PROGRESS_PORT}],
        "terminationMessagePath": MESSAGE,
        # The last lines of the log, where it ended without a message: no memory, a defect.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "work", "mountPath": WORK},
            {"name": "secret", "mountPath": SECRET, "readOnly": True},
        ],
    }
    if more.env:
        made["env"] = more.env
    if spec.resources:
        made["resources"] = spec.resources
    return made
