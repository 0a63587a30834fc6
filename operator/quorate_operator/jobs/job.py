"""The Job of an object: one pod that works on a zone, and has no rights at the API server.

A run with executors has some: see `executors`.

    exit code 0                   --> the Job is complete
    an exit code that is final    --> it has failed at once: another run ends the same way
    any other                     --> more pods, then it has failed
    evicted, its node drained     --> another pod; this is not counted

The result is the pod's termination message; an exit code alone is none.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from quorate.wire.jobs.executors import EXECUTORS_VARIABLE
from quorate.wire.jobs.job_run import JobRun
from quorate.wire.managed_agents import PodAdditions
from quorate.wire.schema.resource import API_VERSION, Metadata
from quorate_operator import names
from quorate_operator.owned.pod_parts import (
    SECRET,
    container_security,
    placement,
    secret_mount,
    secret_volume,
    without_rights,
)

MORE_PODS = 1
"""Pods after the first one, where that told no final result."""
MESSAGE = "/dev/termination-log"
WORK = "/work"
PROGRESS_PORT = 8080
"""Where the pod tells how far it is."""
GRACE_S = 30

Json = dict[str, Any]


class Copies(NamedTuple):
    """The copies that are worked on: of a zone of `cluster`, on agents at `addresses`.

    `uid` and `spec`: as the zone declares them.  `object_uid`: of the Zone.
    """

    cluster: str
    addresses: tuple[str, ...]
    partitions: int
    replicas: int
    uid: str = ""
    spec: Mapping[str, Any] = {}
    object_uid: str = ""


class JobOwner(Protocol):
    """An object that has a Job."""

    @classmethod
    def kind_name(cls) -> str:
        """Return its kind."""

    @property
    def metadata(self) -> Metadata:
        """Its metadata."""

    @property
    def spec(self) -> JobRun:
        """How the Job is run."""


class Work(NamedTuple):
    """The work of a kind's pods.

    - `component`: also the name of the container
    - `suffix`: the end of the Job's name, if it is another word
    - `label`: has the object's name at Job and pods
    - `final_codes`: exit codes after which no other pod is tried
    - `labels`: more of them, of Job and pods
    - `driver_only`: names of variables and volumes that executors do not get
    """

    component: str
    label: str
    arguments: tuple[str, ...] = ()
    final_codes: tuple[int, ...] = ()
    env: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    mounts: tuple[Json, ...] = ()
    suffix: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    driver_only: tuple[str, ...] = ()

    def job_name(self, name: str) -> str:
        """Return the name of an object's Job."""
        return f"{name}-{self.suffix or self.component}"

    def selector(self, name: str) -> dict[str, str]:
        """Return the labels that select the pods of an object."""
        return {self.label: name, names.LABEL_COMPONENT: self.component}


def zone_arguments(command: str, zone: str, copies: Copies) -> tuple[str, ...]:
    """Return the arguments of each command that works on the copies of a zone."""
    return (
        command,
        zone,
        f"--cluster={copies.cluster}",
        f"--secret-file={SECRET}",
        f"--agents={','.join(copies.addresses)}",
        f"--partitions={copies.partitions}",
        f"--replicas={copies.replicas}",
        f"--work-dir={WORK}",
        f"--termination-message={MESSAGE}",
        f"--progress-port={PROGRESS_PORT}",
        "--json",
    )


def job_of(owner: JobOwner, work: Work, cluster: str, image: str) -> Json:
    """Return the Job; user additions to its pod never replace our fields."""
    metadata, spec = owner.metadata, owner.spec
    more = spec.pod_template or PodAdditions()
    labels = {
        **dict(work.labels),
        **work.selector(metadata.name),
        names.LABEL_NAME: "quorate",
        names.LABEL_INSTANCE: cluster,
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
    }
    template: Json = {"labels": {**more.labels, **labels}}
    if more.annotations:
        template["annotations"] = more.annotations
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": work.job_name(metadata.name),
            "namespace": metadata.namespace,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": owner.kind_name(),
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
            "podFailurePolicy": {"rules": _failure_rules(work)},
            "template": {
                "metadata": template,
                "spec": _pod_spec(spec, work, cluster, image, more),
            },
        },
    }


def _failure_rules(work: Work) -> list[Json]:
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    rules: list[Json] = [{"action": "Ignore", "onPodConditions": [disrupted]}]
    if work.final_codes:
        codes = {
            "containerName": work.component,
            "operator": "In",
            "values": [*work.final_codes],
        }
        rules.insert(0, {"action": "FailJob", "onExitCodes": codes})
    return rules


def _pod_spec(spec: JobRun, work: Work, cluster: str, image: str, more: PodAdditions) -> Json:
    return {
        "restartPolicy": "Never",
        **without_rights(GRACE_S),
        "containers": [_container(spec, work, image, more)],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            secret_volume(cluster),
            *work.volumes,
        ],
        **placement(spec.node_selector, spec.tolerations, more),
    }


def _container(spec: JobRun, work: Work, image: str, more: PodAdditions) -> Json:
    made: Json = {
        "name": work.component,
        "image": image,
        # The kubelet would replace $(NAME) by a variable, also one from a Secret.
        "args": [each.replace("$", "$$") for each in work.arguments],
        "ports": [{"name": "progress", "containerPort": PROGRESS_PORT}],
        "terminationMessagePath": MESSAGE,
        # The last lines of the log, where it ended without a message: no memory, a defect.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": "work", "mountPath": WORK},
            secret_mount(),
            *work.mounts,
        ],
    }
    own = {EXECUTORS_VARIABLE, *(each["name"] for each in work.env)}
    env = [*(each for each in more.env if each.get("name") not in own), *work.env]
    if env:
        made["env"] = env
    if spec.resources:
        made["resources"] = spec.resources
    return made
