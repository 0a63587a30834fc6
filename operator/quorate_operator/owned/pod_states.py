"""The reason why the pod of an agent does not run: a word and a sentence of Kubernetes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from quorate.facts.topology import LAST_WORD
from quorate_operator.owned.agent_names import pod_name, stateful_set_name

Json = Mapping[str, Any]


class Trouble(NamedTuple):
    """Why `pod` does not run: `reason` is one word, `message` says what to look at."""

    pod: str
    reason: str
    message: str


def is_ready(pod: Json) -> bool:
    """Return whether the pod's readiness probe succeeds."""
    return _condition(pod, "Ready").get("status") == "True"


def is_ending(pod: Json) -> bool:
    """Return whether the pod is being deleted; it may still be ready for a while."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_running(pod: Json) -> bool:
    """Return whether a process of the pod may run, as far as its kubelet has told."""
    if pod.get("status", {}).get("phase") == "Unknown":
        return True
    return any("running" in each.get("state", {}) for each in _containers(pod))


def ended_processes(pods: Mapping[str, Json | None]) -> dict[str, tuple[str, ...]]:
    """Return by agent the words of processes whose containers have surely ended.

    An agent leaves its word as its container's termination message, which the kubelet reads when no
    process of that very container is left.  A pod that is gone, or unreachable, shows nothing.
    """
    found: dict[str, tuple[str, ...]] = {}
    for agent, pod in sorted(pods.items()):
        ends = [
            each.get(state, {}).get("terminated") or {}
            for each in (_containers(pod) if pod is not None else ())
            if each.get("name") == "agent"
            for state in ("state", "lastState")
        ]
        words = [str(end.get("message") or "") for end in ends]
        words = [each.strip() for each in words if each.startswith(LAST_WORD)]
        if words:
            found[agent] = tuple(each.removeprefix(LAST_WORD) for each in words)
    return found


def trouble(name: str, pod: Json | None, claim: Json | None) -> Trouble | None:
    """Return why pod `name` is not ready; None if it is.  `claim`: of its volume."""
    if claim is not None and claim.get("status", {}).get("phase") == "Lost":
        return Trouble(
            name, "ClaimLost", f"the volume of claim {claim['metadata']['name']} is gone"
        )
    if pod is None:
        return Trouble(name, "NoPod", "its StatefulSet has not created it yet")
    if is_ready(pod):
        return None
    for each in _containers(pod):
        waiting = each.get("state", {}).get("waiting") or {}
        last = each.get("lastState", {}).get("terminated") or {}
        ended = each.get("state", {}).get("terminated") or last
        if ended.get("reason") == "OOMKilled":
            times = each.get("restartCount", 0)
            return Trouble(
                name, "OOMKilled", f"it needed more memory than its limit, {times} times"
            )
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            said = waiting.get("message") or _end(ended)
            return Trouble(name, waiting["reason"], said)
        if ended and "running" not in each.get("state", {}):
            return Trouble(name, ended.get("reason") or "Ended", _end(ended))
    if is_ending(pod):
        return ending(name)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        if claim is not None and claim.get("status", {}).get("phase") == "Pending":
            about = (
                f"claim {claim['metadata']['name']} is not bound: {scheduled.get('message', '')}"
            )
            return Trouble(name, "ClaimUnbound", about)
        reason = scheduled.get("reason") or "Unschedulable"
        return Trouble(name, reason, scheduled.get("message", ""))
    if any("running" in each.get("state", {}) for each in _containers(pod)):
        return Trouble(name, "NotReady", _condition(pod, "Ready").get("message") or "it starts")
    phase = pod.get("status", {}).get("phase") or "Pending"
    return Trouble(
        name, phase, pod.get("status", {}).get("message") or "its containers are being created"
    )


def losing_agents(
    cluster: str,
    agents: Iterable[str],
    pods: Mapping[str, Json | None],
    claims: Mapping[str, Json],
) -> dict[str, Trouble]:
    """Return those of `agents` that lose their data when their pod ends, with what to do.

    `pods`: by agent; `claims`: by name.
    """
    found = {}
    for agent in agents:
        pod, claim = pods.get(agent), claims.get(stateful_set_name(cluster, agent))
        if pod is not None and not is_ending(pod) and claim is not None and is_ending(claim):
            found[agent] = _claim_ending(pod_name(cluster, agent), claim)
    return found


def ending(name: str) -> Trouble:
    """Return the trouble of a pod that is being deleted."""
    return Trouble(name, "Terminating", "it is being deleted")


def _containers(pod: Json) -> list[Json]:
    return list(pod.get("status", {}).get("containerStatuses") or ())


def _condition(pod: Json, kind: str) -> Json:
    found = pod.get("status", {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})


def _end(ended: Json) -> str:
    if not ended:
        return "it does not start"
    message = str(ended.get("message") or "")
    return (
        not message.startswith(LAST_WORD) and message
    ) or f"it ended with exit code {ended.get('exitCode')}"


def _claim_ending(name: str, claim: Json) -> Trouble:
    volume = claim["spec"].get("volumeName") or "it"
    return Trouble(
        name,
        "ClaimTerminating",
        f"claim {claim['metadata']['name']} is being deleted, which cannot be undone: its data is"
        f" lost when pod {name} ends. Planned restarts of the pod and scaling to 0 wait. To keep"
        f" the volume, set persistentVolumeReclaimPolicy: Retain on {volume}. When no Zone lacks a"
        " copy, delete the pod: it begins again with an empty volume, which the other agents fill",
    )
