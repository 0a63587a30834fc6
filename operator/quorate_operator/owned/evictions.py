"""The reason why the PodDisruptionBudget of a managed cluster allows no eviction now."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quorate.planning.absence.disruption import Disruption
from quorate_operator.owned.agent_names import pod_name, stateful_set_name
from quorate_operator.owned.pod_states import Trouble, ending, is_ending, trouble

PODS_NOT_READY = "PodsNotReady"
_MESSAGE_MAX = 1000

Json = Mapping[str, Any]


class NoEvictionNow(NamedTuple):
    """`reason`: of `EvictionBlock`, or PODS_NOT_READY; `message`: agents awaited, and why."""

    reason: str
    message: str


def no_eviction_now(
    cluster: str,
    disruption: Disruption,
    pods: Mapping[str, Json | None],
    claims: Mapping[str, Json],
) -> NoEvictionNow | None:
    """Return why no pod of a protected agent may be evicted; None if one may.

    `pods`: by agent; `claims`: by name.  Besides the rows, pods that are not ready or are being
    deleted count: the API server subtracts them from what the budget allows.
    """

    def troubles(agents: tuple[str, ...]) -> list[Trouble]:
        found = []
        for agent in agents:
            name, pod = pod_name(cluster, agent), pods.get(agent)
            found.append(trouble(name, pod, claims.get(stateful_set_name(cluster, agent))))
            if found[-1] is None and pod is not None and is_ending(pod):
                found[-1] = ending(name)
        return [each for each in found if each is not None]

    none = disruption.no_eviction
    if none is not None:
        said = _said(troubles(none.agents))
        return NoEvictionNow(none.reason.value, none.message + (f"; {said}" if said else ""))
    not_ready = troubles(disruption.protected)
    if disruption.protected and len(not_ready) >= disruption.unavailable_max:
        at_most = disruption.unavailable_max
        sentence = f"not ready: {len(not_ready)}; at most {at_most} may be away at once"
        return NoEvictionNow(PODS_NOT_READY, f"{sentence}; {_said(not_ready)}")
    return None


def _said(found: list[Trouble]) -> str:
    if not found:
        return ""
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    first = found[0]
    return f"pod {first.pod}: {first.reason}: {first.message}"[:_MESSAGE_MAX] + more
