"""Declares which agents are to hold nothing, and follows the operator's progress.

It changes `spec.drainAgents` of the StorageCluster under compare-and-set.  The operator obeys it
and reports progress in the condition AgentsDrained.
"""

import time
from collections.abc import Callable

from quorate.wire.schema.resource import Condition
from quorate.wire.storage_cluster import StorageCluster
from quorate_cli.kubectl.kube_api import Conflict, KubeApi, objects_path
from quorate_cli.kubectl.objects import fetch, registrations
from quorate_cli.objects import resources
from quorate_cli.terminal.problem import Problem

ATTEMPTS = 5
POLL_S = 0.5


def declare_drain(
    api: KubeApi, cluster: StorageCluster, agent: str, draining: bool
) -> StorageCluster:
    """Declare that `agent` is to hold nothing, or no longer; return the cluster as it is then."""
    namespace, name = cluster.metadata.namespace, cluster.metadata.name
    for _ in range(ATTEMPTS):
        present = list(cluster.spec.drain_agents)
        if draining:
            _check_known(api, cluster, agent)
        elif agent not in present:
            listed = ", ".join(present) or "none"
            raise Problem(
                f"agent {agent} is not in spec.drainAgents of StorageCluster {name}:"
                f" that contains {listed}"
            )
        if draining == (agent in present):
            return cluster
        names = sorted({*present, agent}) if draining else [n for n in present if n != agent]
        body: resources.Whole = {
            "metadata": {"resourceVersion": cluster.metadata.resource_version},
            "spec": {"drainAgents": names},
        }
        try:
            made = api.patch(objects_path(StorageCluster.plural, namespace, name), body)
            return resources.cluster(made)
        except Conflict:  # changed by another client: read it again
            cluster = _again(api, cluster)
    raise Problem(
        f"StorageCluster {name}: other clients changed it {ATTEMPTS} times meanwhile, so this"
        " command changed nothing: try again"
    )


def follow_drain(
    api: KubeApi,
    cluster: StorageCluster,
    agent: str,
    draining: bool,
    wait_s: float,
    undo: str,
    tell: Callable[[str], None],
) -> None:
    """Wait until the operator has done it; call `tell` with its sentences as they change.

    Raises Problem, which names the command `undo`, if the operator refuses it for now, or it is not
    done in time.  It stays declared.
    """
    deadline = time.monotonic() + wait_s
    generation, said = cluster.metadata.generation, ""
    while True:
        cluster = _again(api, cluster)
        status = cluster.status
        is_seen = status.observed_generation >= generation
        found = _condition(cluster) if is_seen else None
        if is_seen and not draining and agent not in status.drained:
            return
        if found is not None and draining:
            if found.reason == "Refused" and f"node {agent}:" in found.message:
                raise Problem(
                    f"{found.message}; the drain stays declared and begins when it can;"
                    f" undo: {undo}"
                )
            if found.status == "True":
                return
            if found.message != said:
                said = found.message
                tell(said)
        if time.monotonic() > deadline:
            why = said or (
                "the operator has not processed it: `kubectl quorate status` shows whether an"
                " operator leads"
            )
            more = f"; it continues; undo: {undo}" if draining else ""
            raise Problem(f"agent {agent}: not done within {wait_s:g} s: {why}{more}")
        time.sleep(POLL_S)


def _check_known(api: KubeApi, cluster: StorageCluster, agent: str) -> None:
    known = registrations(api, cluster.metadata.namespace, cluster.metadata.name)
    if agent not in known:
        names = ", ".join(sorted(known)) or "none"
        raise Problem(
            f"agent {agent!r} is not registered in StorageCluster {cluster.metadata.name}:"
            f" registered agents are {names}"
        )


def _condition(cluster: StorageCluster) -> Condition | None:
    conditions = cluster.status.conditions
    return next((each for each in conditions if each.type == "AgentsDrained"), None)


def _again(api: KubeApi, cluster: StorageCluster) -> StorageCluster:
    metadata = cluster.metadata
    return resources.cluster(
        fetch(api, resources.STORAGE_CLUSTER, metadata.namespace, metadata.name)
    )
