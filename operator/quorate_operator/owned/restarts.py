"""Chooses the pod that is replaced next because its template has changed, or says what that waits
for.

One at a time: the next one is replaced when all pods replaced before are ready and hold everything
again, and every partition keeps its majority without it.  So a bad image stops after the first pod.
Pods of agents that never registered are replaced before, also several: no row needs them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from quorate.planning.absence.disruption import Disruption, EvictionBlock
from quorate_operator.owned.agent_names import pod_name
from quorate_operator.owned.pod_states import is_ending, is_ready, is_running

REVISION_LABEL = "controller-revision-hash"

Json = Mapping[str, Any]


class Restart(NamedTuple):
    """`agent`: the agent whose pod is to be deleted, empty if none now.

    `waits_for`: a sentence; empty if all pods are of the present template.
    """

    agent: str = ""
    waits_for: str = ""


def gone_agents(pods: Mapping[str, Json | None]) -> set[str]:
    """Return agents whose pods run no process, as the API server sees it.  `pods`: by agent."""
    return {agent for agent, pod in pods.items() if pod is None or not is_running(pod)}


def next_restart(
    pods: Mapping[str, Json | None],
    sets: Mapping[str, Json],
    disruption_after: Callable[[Collection[str]], Disruption],
    kept: Mapping[str, str] = MappingProxyType({}),
) -> Restart:
    """Choose the next pod to replace.

    `pods` and `sets` (StatefulSets): by agent; `disruption_after(restarted)`: see
    Runner.disruption; `kept`: by agent, why its pod must stay.
    """
    for agent, found in sets.items():
        if found.get("status", {}).get("observedGeneration", 0) < found["metadata"]["generation"]:
            return Restart("", f"StatefulSet {found['metadata']['name']} is not processed yet")
        if pods.get(agent) is None:
            return Restart("", f"agent {agent} has no pod yet")
    found_old = {
        agent: pod
        for agent, pod in pods.items()
        if pod is not None and _is_outdated(pod, sets.get(agent))
    }
    outdated = {agent: pod for agent, pod in found_old.items() if agent not in kept}
    if not outdated:
        return Restart("", kept[min(found_old)]) if found_old else Restart()
    updated = [agent for agent in sets if agent not in found_old]
    disruption = disruption_after(updated)
    known = [each for each in disruption.agents if each.name in outdated]
    unregistered = sorted(outdated.keys() - {each.name for each in known})
    for each in known:  # replacing it takes nothing away, and may be the cure
        old = outdated[each.name]
        if each.may_restart and not is_running(old) and not is_ending(old):
            return Restart(each.name)
    for agent in unregistered:
        if not is_ending(outdated[agent]) and not _why_unregistered_stays(agent, disruption):
            return Restart(agent)
    for agent in updated:
        pod = pods[agent]
        if pod is not None and not is_ready(pod):
            return Restart("", f"pod {pod['metadata']['name']} was replaced and is not ready")
    for agent in (*updated, *outdated):
        pod = pods[agent]
        if pod is not None and is_ending(pod):
            return Restart("", f"pod {pod['metadata']['name']} is being replaced")
    if not known:
        return Restart("", _why_unregistered_stays(unregistered[0], disruption))
    if known[0].may_restart:
        return Restart(known[0].name)
    return Restart("", known[0].restart_waits_for)


def _why_unregistered_stays(agent: str, disruption: Disruption) -> str:
    """Return why an agent that runs without a registration is not replaced.

    Empty if no row names it, and no row is lost that may do so: its end takes nothing away.
    """
    block = disruption.no_eviction
    if block is not None and block.reason is EvictionBlock.ROWS_REBUILT:
        return f"agent {agent} is not registered: {block.message}"
    if agent in disruption.protected:
        return (
            f"agent {agent} is not registered, and rows name it: see the log of its pod, and"
            " delete the pod if nothing else helps"
        )
    return ""


def replacement_waits_for(cluster: str, restart: Restart, changed: Sequence[str]) -> str:
    """Return what the change of the agents waits for; empty if nothing is left to change.

    `changed`: StatefulSets that were just made or changed.
    """
    if restart.agent:
        return f"pod {pod_name(cluster, restart.agent)} is being replaced"
    if changed and not restart.waits_for:
        return f"StatefulSet {changed[0]} is not processed yet"
    return restart.waits_for


def _is_outdated(pod: Json, of: Json | None) -> bool:
    if of is None:
        return False
    wanted = of.get("status", {}).get("updateRevision")
    has = pod["metadata"].get("labels", {}).get(REVISION_LABEL)
    return bool(wanted) and has != wanted
