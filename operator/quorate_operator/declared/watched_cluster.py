"""A led StorageCluster on Kubernetes: what was written to its object, its Zones and Events."""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import pydantic

from quorate.wire.schema.unknown_fields import without_unknown
from quorate.wire.storage_cluster import StorageCluster, StorageClusterStatus
from quorate_operator.declared.led_cluster import LedCluster
from quorate_operator.kube.api import KubeApi, path_of
from quorate_operator.mastership.decisions import About, Decisions
from quorate_operator.mastership.runner import Runner
from quorate_operator.process.clock import rfc3339

UNTOLD_MAX = 1000
WATCH_BEHIND_S = 10.0
"""A process that has led for this many seconds has seen all existing Zones."""


class WatchedCluster(LedCluster):
    """A led StorageCluster on Kubernetes.  Times are seconds of any monotonic clock."""

    def __init__(
        self,
        cluster: StorageCluster,
        runner: Runner,
        decisions: Decisions,
        now_s: float,
        store_end_of_recovery: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(cluster, runner)
        self.decisions = decisions
        self._store_end_of_recovery = store_end_of_recovery
        self.told: dict[str, Any] | None = None
        """The status that the object has, as far as is known."""
        self.untold: deque[dict[str, Any]] = deque(maxlen=UNTOLD_MAX)
        """Events that are still to be created; beyond UNTOLD_MAX the oldest are dropped."""
        self._since_s = now_s
        self._has_seen_zones = False

    @property
    def is_recovery_over(self) -> bool:
        """Whether agents were asked which zones they have, and no more answers are expected."""
        runner = self.runner
        return runner.is_leading and runner.is_recovering and runner.has_heard_all

    async def end_recovery(self) -> None:
        """End the recovery: zones that no agent has told are new now.  Raises the API's errors."""
        await self._store_end_of_recovery()
        self.runner.end_recovery()

    def sees_zones(self, now_s: float) -> bool:
        """Return True once: the first time that the watch must have shown all existing Zones."""
        if self._has_seen_zones:
            return False
        self._has_seen_zones = now_s >= self._since_s + WATCH_BEHIND_S
        return self._has_seen_zones

    def retained(self, declared: Collection[str]) -> list[str]:
        """Return the names of zones whose object is gone and whose data is kept.

        `declared`: uids of the others.  Until the watch has shown all Zones, the names told before
        are returned.
        """
        if not self._has_seen_zones:
            return self.cluster.status.retained_zones
        known = self.runner.known_zones()
        return sorted(record.name for uid, record in known.items() if uid not in declared)

    async def tell(
        self,
        api: KubeApi,
        namespace: str,
        identity: str,
        declared: Collection[str],
        body: Mapping[str, Any],
    ) -> None:
        """Write the status of the cluster's object, if it has changed.

        `identity`: of this process; `declared`: as of `retained`; `body`: the object as the watch
        has shown it.  Raises the API's errors.
        """
        status = self.status(self.cluster, identity, self.retained(declared))
        fresh = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if fresh != (self.told if self.told is not None else body.get("status")):
            metadata = self.cluster.metadata
            path = path_of(namespace, StorageCluster.plural, metadata.name)
            await api.set_status(path, fresh, uid=metadata.uid)
        self.told = fresh
        self.cluster = self.cluster.model_copy(update={"status": status})

    def take_decisions(self, zones: Mapping[str, About], namespace: str, now_s: float) -> None:
        """Move the decisions that are due to `untold`, as Events."""
        metadata = self.cluster.metadata
        about = About(StorageCluster.kind_name(), metadata.name, metadata.uid)
        self.untold += self.decisions.take(about, zones, namespace, rfc3339(), now_s)


def known_status(body: Mapping[str, Any]) -> StorageClusterStatus:
    """Return a StorageCluster's status without fields of a later version; empty if unreadable."""
    try:
        told = without_unknown(StorageClusterStatus, body.get("status") or {}).body
        return StorageClusterStatus.model_validate(told)
    except pydantic.ValidationError:
        return StorageClusterStatus()
