"""The PodDisruptionBudget of one managed cluster, and why it allows no eviction now.

Writes are serialised; a failed one counts as not done.  Two tasks write it: a worker that looks at
all objects, and one that only lowers budgets that allow too much, because a worker takes seconds
while the API server is slow.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quorate.planning.absence.disruption import Disruption
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.kube.api import ApiRefused
from quorate_operator.owned.agent_names import pod_name, stateful_set_name
from quorate_operator.owned.apply import Applier
from quorate_operator.owned.children import budget_of
from quorate_operator.owned.pod_states import Trouble, ending, is_ending, trouble

AGAIN_S = 2.0
"""Seconds after a failed write until the task that only lowers budgets tries again."""

PODS_NOT_READY = "PodsNotReady"
_MESSAGE_MAX = 1000

Json = dict[str, Any]


class Budget:
    """The budget of one cluster.  `applier`: of the same cluster."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self._writing = asyncio.Lock()
        self._written: Disruption | None = None
        """The judgement behind the last successful write."""
        self._is_unclear = False
        """Whether a write of unknown outcome has followed."""
        self._not_before_s = 0.0

    async def write(
        self,
        cluster: StorageCluster,
        judge: Callable[[], Disruption | None],
        present: Json | None = None,
    ) -> None:
        """Write the budget that the rows allow.

        `judge`: called when the previous write has ended, so that the last write is of the last
        judgement; it returns None if nothing may be written any more.  `present`: the budget as
        last seen; None: write in any case.

        Raises ApiRefused, ApiUnclear, MandateLost: a budget that allows more may be in force.
        """
        async with self._writing:
            now = judge()
            if now is None:
                return
            was_unclear, self._is_unclear = self._is_unclear, True
            self._not_before_s = time.monotonic() + AGAIN_S
            try:
                await self._applier.put(budget_of(cluster, now), present)
            except ApiRefused:
                self._is_unclear = was_unclear
                raise
            self._written, self._is_unclear, self._not_before_s = now, False, 0.0

    def must_be_lowered(self, now: Disruption) -> bool:
        """Return whether a budget that allows evictions which `now` refuses may be in force.

        False while a write is under way, or AGAIN_S after one has failed.
        """
        if self._writing.locked() or time.monotonic() < self._not_before_s:
            return False
        return self._is_unclear or (self._written is not None and _is_less(now, self._written))


def _is_less(now: Disruption, before: Disruption) -> bool:
    """Return whether a budget of `now` refuses evictions that one of `before` allows."""
    fewer = now.unavailable_max < before.unavailable_max
    return fewer or not {*now.limited} <= {*before.limited}


class NoEvictionNow(NamedTuple):
    """`reason`: of `EvictionBlock`, or PODS_NOT_READY; `message`: agents awaited, and why."""

    reason: str
    message: str


def no_eviction_now(
    cluster: str,
    disruption: Disruption,
    pods: Mapping[str, Mapping[str, Any] | None],
    claims: Mapping[str, Mapping[str, Any]],
) -> NoEvictionNow | None:
    """Return why no pod of an agent that rows name may be evicted; None if one may.

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
    not_ready = troubles(disruption.limited)
    if disruption.limited and len(not_ready) >= disruption.unavailable_max:
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
