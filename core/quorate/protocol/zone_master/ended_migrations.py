"""Ends of migrations: their counts, their events, and when what failed is tried again."""

from quorate.facts.partition_row import PartitionRow, is_committed
from quorate.facts.time import Now
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.zone_master.causes import Why
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.view.events import ZoneEvents
from quorate.protocol.zone_master.view.status import Moved


class EndedMigrations:
    """Follows one zone's migrations to their ends, from the rows that were written."""

    def __init__(
        self, cluster: Cluster, uid: str, rebalance: Rebalance, moved: Moved, events: ZoneEvents
    ) -> None:
        self._retries = cluster.retries
        self._uid = uid
        self._rebalance = rebalance
        self._moved = moved
        self._events = events

    def row_changed(self, before: PartitionRow, row: PartitionRow, why: Why, now: Now) -> None:
        """Count a migration that has ended, and note the failure of an end that is to blame."""
        migration = before.active
        if migration is None or row.active is not None:
            return
        failed = not is_committed(before, row)
        destination = migration.destination.node if migration.destination is not None else None
        is_cancelled = why.cause.is_cancellation
        self._moved.ended(row.partition, destination or "", failed, is_cancelled)
        if not failed:
            self._retries.succeeded(self._uid, row.partition, destination)
            return
        self._rebalance.look_again(row.partition)
        if why.cause.blames_destination:
            tried = (self._uid, row.partition, destination)
            self._retries.failed(*tried, now.boot_ms, why.sentence)
        if is_cancelled or why.cause.blames_destination:
            where = f" (to {destination})" if destination else ""
            self._events.given_up(row.partition, f"{why.sentence}{where}", is_cancelled)

    def owners_changed(self, before: PartitionRow, row: PartitionRow, now: Now) -> None:
        """Queue the partition again, and note a primary that is online and lost its role: stuck."""
        stuck = self._rebalance.owners_changed(before, row)
        if stuck:
            self._retries.taken_over(self._uid, row.partition, stuck, now.boot_ms)
