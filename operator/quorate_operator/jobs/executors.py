"""The executors of a run: pods that Spark makes from a template, in the pod of the Job.

That pod leads them as the ServiceAccount quorate-driver of its namespace, which only an
administrator makes.  Its name is no field of an object, so that a run has no rights where there is
none.  Where it is, whoever may create runs can act as any ServiceAccount of the namespace: it may
create pods, and users choose variables and files of the pod that has its token.

Executors have no token.  They get the cluster's secret, and what else they need to read copies and
to write files of an export; the rest is for the leading pod alone (`Work.driver_only`).
"""

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.executors import (
    ADDRESS_VARIABLE,
    BLOCKS_PORT,
    DRIVER_PORT,
    EXECUTOR_CONTAINER,
    EXECUTOR_FOLDER,
    EXECUTORS_VARIABLE,
    NAMESPACE_VARIABLE,
    POD_VARIABLE,
    VALUE_BYTES_MAX,
    Executors,
    encode_executors,
)
from quorate.wire.jobs.job_run import DividedRun, JobRun
from quorate.wire.managed_agents import PodAdditions
from quorate.wire.zone import memory_bytes
from quorate_operator import names
from quorate_operator.jobs.job import GRACE_S, Json, Work
from quorate_operator.owned.pod_parts import (
    container_security,
    placement,
    secret_mount,
    secret_volume,
    without_rights,
)

COMPONENT = "executor"
FOLDER = "spark-local-dir-work"
"""The volume for temporary files.  Spark makes another one unless it has a name like this."""


class ExecutorsTooLarge(QuorateError):
    """Executors of which a run says more than a variable can have; the message is a sentence."""


def executors_of(spec: JobRun) -> int:
    """Return how many executors a run has."""
    return spec.executors if isinstance(spec, DividedRun) else 0


def with_executors(job: Json, spec: JobRun, work: Work, cluster: str, image: str) -> Json:
    """Return the Job, whose pod leads executors if the run has some.  Raises ExecutorsTooLarge."""
    if not isinstance(spec, DividedRun) or not spec.executors:
        return job
    executors = Executors(
        spec.executors,
        spec.executor_cores,
        spec.executor_cpu or str(spec.executor_cores),
        memory_bytes(spec.executor_memory),
        image,
        template_of(spec, work, cluster),
    )
    value = encode_executors(executors)
    if len(value.encode()) > VALUE_BYTES_MAX:
        raise ExecutorsTooLarge(
            f"what it says of executors has {len(value.encode()) >> 10} KiB, and a variable may"
            f" have {VALUE_BYTES_MAX >> 10}: write less into podTemplate, tolerations and"
            " nodeSelector, or executors: 0"
        )
    template = job["spec"]["template"]
    pod = template["spec"]
    [container] = pod["containers"]
    leading = {
        **container,
        "ports": [
            *container["ports"],
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "blocks", "containerPort": BLOCKS_PORT},
        ],
        "env": [
            *container.get("env", ()),
            # The kubelet would replace $(NAME) by another variable.
            {"name": EXECUTORS_VARIABLE, "value": value.replace("$", "$$")},
            _told(POD_VARIABLE, "metadata.name"),
            _told(NAMESPACE_VARIABLE, "metadata.namespace"),
            _told(ADDRESS_VARIABLE, "status.podIP"),
        ],
    }
    rights = {"serviceAccountName": names.DRIVER_ACCOUNT, "automountServiceAccountToken": True}
    made = {**template, "spec": {**pod, **rights, "containers": [leading]}}
    return {**job, "spec": {**job["spec"], "template": made}}


def template_of(spec: DividedRun, work: Work, cluster: str) -> Json:
    """Return the Pod from which Spark makes executors; user additions never replace our fields."""
    more = spec.pod_template or PodAdditions()
    own = {each["name"] for each in work.env}
    env = (*(each for each in more.env if each.get("name") not in own), *work.env)
    volumes, mounts = (
        [each for each in found if each["name"] not in work.driver_only]
        for found in (work.volumes, work.mounts)
    )
    metadata: Json = {
        "labels": {
            **more.labels,
            names.LABEL_COMPONENT: COMPONENT,
            names.LABEL_NAME: "quorate",
            names.LABEL_INSTANCE: cluster,
            names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
        }
    }
    if more.annotations:
        metadata["annotations"] = more.annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            **without_rights(GRACE_S),
            "containers": [
                {
                    "name": EXECUTOR_CONTAINER,
                    "env": [
                        *(each for each in env if each["name"] not in work.driver_only),
                        {"name": "TMPDIR", "value": EXECUTOR_FOLDER},
                    ],
                    "securityContext": container_security(),
                    "volumeMounts": [
                        {"name": FOLDER, "mountPath": EXECUTOR_FOLDER},
                        secret_mount(),
                        *mounts,
                    ],
                }
            ],
            "volumes": [{"name": FOLDER, "emptyDir": {}}, secret_volume(cluster), *volumes],
            **placement(spec.node_selector, spec.tolerations, more),
        },
    }


def _told(variable: str, field: str) -> Json:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": field}}}
