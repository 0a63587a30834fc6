"""The one queue of migrations for all zones of a cluster.

The zones supply what waits (rebalance.py) and note failures (planning/queue/retries.py);
planning/queue/choose_migrations.py has the order and the limits.
"""

from quorate.facts.time import Now
from quorate.planning.queue.choose_migrations import QueuedMigration, StartLimits, choose_migrations
from quorate.protocol.members.cluster import PLANS_MAX, Cluster
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.zone_master.zone_master import ZoneMaster

LOOKED_AT_PER_MS = 50
"""The longer the queue, the less often it is gone through: losing a node of a large zone touches
hundreds of shards, and each of their writes calls `start`."""

ZONES_PER_MS = 1
"""The same for many zones, since each message would have all of them looked at: one look at a zone
takes a tenth of a millisecond."""

FEW_ZONES = 10
"""Up to this number of zones are looked at with each message."""


class MigrationQueue:
    """Starts migrations. `zones` are the master's own, by uid."""

    def __init__(self, cluster: Cluster, zones: dict[str, ZoneMaster]) -> None:
        self._cluster = cluster
        self._zones = zones
        self._limits = limits_of(cluster.settings)
        self._looked_ms = -(1 << 40)
        self._looked_at = 0  # zones looked at the last time

    def start(self, now: Now) -> None:
        """Start the migrations that may start; cheap if nothing has changed."""
        passed_ms = now.boot_ms - self._looked_ms
        if not self._cluster.migrations_due:
            return
        if self._looked_at >= FEW_ZONES and passed_ms < self._looked_at // ZONES_PER_MS:
            return
        zones = [self._zones[uid] for uid in sorted(self._zones) if not self._zones[uid].is_idle]
        self._looked_at = len(zones)
        length = sum(zone.queue_length for zone in zones)
        if passed_ms < length // LOOKED_AT_PER_MS:
            return
        self._cluster.migrations_due, self._looked_ms = False, now.boot_ms
        self._cluster.plans_left = PLANS_MAX
        if not length:
            return
        waiting: list[QueuedMigration] = []
        running: list[QueuedMigration] = []
        losses: list[str] = []
        for zone in zones:
            waits, runs = zone.waiting(), zone.running()
            waiting += waits
            running += runs
            if zone.misses_copies([*runs, *waits], self._cluster.retries):
                losses.append(zone.record.uid)
        for migration in choose_migrations(
            waiting, running, self._limits, self._cluster.retries, losses, now.boot_ms
        ):
            self._zones[migration.zone].begin(migration.partition)
        self._cluster.migrations_due = not self._cluster.plans_left


def limits_of(settings: ProtocolSettings) -> StartLimits:
    """Return the limits of the queue that the settings contain."""
    return StartLimits(
        node_migrations=settings.migrations_per_node,
        node_bytes=settings.migration_bytes_per_node,
        node_role_changes=settings.role_changes_per_node,
        zone_migrations=settings.migrations_per_zone,
        zone_bytes=settings.migration_bytes_per_zone,
    )
