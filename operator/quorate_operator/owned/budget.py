"""The PodDisruptionBudget of one managed cluster.

Writes are serialised; a failed one counts as not done.  Two tasks write it: a worker that looks at
all objects, and one that only lowers budgets that allow too much, because a worker takes seconds
while the API server is slow.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from quorate.planning.absence.disruption import Disruption
from quorate.wire.storage_cluster import StorageCluster
from quorate_operator.kube.api import ApiRefused
from quorate_operator.owned.apply import Applier
from quorate_operator.owned.children import budget_of

AGAIN_S = 2.0
"""Seconds after a failed write until the task that only lowers budgets tries again."""

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
    return fewer or not {*now.protected} <= {*before.protected}
