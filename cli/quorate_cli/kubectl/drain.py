"""Declares which agents are to hold nothing, and follows the operator's progress.

It changes `spec.drainAgents` of the StorageCluster under compare-and-set.  The operator obeys it
and reports progress: in the condition AgentsDrained of all these agents together, and in
`status.emptied` which of them are done.
"""

import time
from collections.abc import Callable

from quorate.wire.schema.resource import Condition
from quorate.wire.storage_cluster import StorageCluster
from quorate_cli.kubectl.kube_api import Conflict, KubeApi, Unreached, objects_path
from quorate_cli.kubectl.objects import fetch, registrations
from quorate_cli.kubectl.runs.follow import UNREACHED_S, asked_again, left_going
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
        except Unreached as unreached:
            raise Problem(
                f"{unreached}; whether agent {agent} was {'added to' if draining else 'taken from'}"
                " spec.drainAgents is unknown: run the command again"
            ) from unreached
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
    done in time.  It stays declared, also after Ctrl-C.
    """
    goes_on = f"agent {agent} may hold copies again as soon as an operator leads"
    if draining:
        goes_on = f"the drain of agent {agent} stays declared and continues; undo: {undo}"
    deadline = time.monotonic() + wait_s
    generation, said = cluster.metadata.generation, ""
    with left_going(goes_on):
        for now in asked_again(
            lambda: _again(api, cluster), goes_on, POLL_S, min(wait_s, UNREACHED_S)
        ):
            is_seen = now.status.observed_generation >= generation
            if is_seen and _is_done(now, agent, draining):
                return
            found = _condition(now) if is_seen and draining else None
            if (
                found is not None
                and found.reason == "Refused"
                and f"node {agent}:" in found.message
            ):
                raise Problem(
                    f"{found.message}; the drain stays declared and begins when it can;"
                    f" undo: {undo}"
                )
            if found is not None and found.message != said:
                said = found.message
                tell(said)
            if time.monotonic() > deadline:
                why = said or (
                    "the operator has not processed it: `kubectl quorate status` shows whether an"
                    " operator leads"
                )
                raise Problem(f"agent {agent}: not done within {wait_s:g} s: {why}; {goes_on}")


def _is_done(cluster: StorageCluster, agent: str, draining: bool) -> bool:
    """Return whether the agent has no copies, or may hold some again, whatever others do."""
    if not draining:
        return agent not in cluster.status.drained
    found = _condition(cluster)  # operators of earlier versions tell only of all agents together
    is_of_all = found is not None and found.status == "True"
    return is_of_all or agent in cluster.status.emptied


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
