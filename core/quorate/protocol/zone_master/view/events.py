"""Events of one zone: its migrations step by step, lost partitions, the end of a rebalance.

They follow from rows and reports that the master has anyway. A master that takes over does not know
what its predecessor reported: events of active migrations go on from there.
"""

from collections.abc import Mapping, Sequence

from quorate.facts.partition_row import MigrationKind, PartitionRow, is_committed, is_hand_over
from quorate.facts.zone import SyncWrites, ZoneRecord
from quorate.protocol.members.cluster import Cluster
from quorate.protocol.messages.events import Reason
from quorate.protocol.zone_master.causes import Cause, Why
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.rebalance import Rebalance
from quorate.protocol.zone_master.view.status import Moved, listed, way_out_of_loss
from quorate.protocol.zone_master.zone import Zone


class ZoneEvents:
    """Reports the events of one zone."""

    def __init__(self, cluster: Cluster, zone: Zone) -> None:
        self._cluster = cluster
        self._zone = zone
        self._parts = zone.parts
        self._unfinished: dict[int, str] = {}  # committed, not yet served as they are now
        self._lost: set[int] = set()
        self._was_moving = False

    def row_changed(self, before: PartitionRow | None, row: PartitionRow, why: Why | None) -> None:
        """Report what `row` in place of `before` means. `why`: the cause; None if it is unknown."""
        old = before.active if before is not None else None
        new = row.active
        if new is not None:
            if old is None or old.migration_id != new.migration_id:
                self._was_moving = True
                self._tell(row.partition, Reason.MIGRATION_STARTED, _named(row))
            return
        if old is None or before is None:
            return
        if is_committed(before, row):
            self._tell(row.partition, Reason.MIGRATION_SWITCHED, _named(before))
            self._unfinished[row.partition] = _named(before)
        else:
            told = f": {why.sentence}" if why is not None else ""
            self._tell(row.partition, Reason.MIGRATION_REVERTED, f"{_named(before)}{told}")

    def causes_of_changes(self, causes: Mapping[Why, Sequence[int]]) -> None:
        """Report why rows of partitions changed, unless other events tell it."""
        for why, partitions in causes.items():
            if not why.cause.is_told_elsewhere:
                about = f"{why.sentence}: {len(partitions)} partitions from {partitions[0]} on"
                self._cluster.event(self._zone.record.uid, None, Reason.ROW_CHANGED, about)

    def look_at_primaries(self, changed: Mapping[int, tuple[PartitionRow, Why]]) -> None:
        """Announce changes of primary that may lose what the former one has acknowledged alone.

        Called before the rows are written, because nothing tells a later master what was not
        announced.
        """
        record, parts = self._zone.record, self._parts
        if not record.acknowledges_alone:
            return
        lossy: dict[int, str] = {}
        for partition, (row, why) in changed.items():
            part = parts.get(partition)
            before = part.row if part is not None else None
            if row.primary is not None and _may_lose(record, before, row, why):
                former = before.primary.node if before is not None and before.primary else "unknown"
                lossy[partition] = f"{former} > {row.primary.node}"
        if lossy:
            about = (
                f"{len(lossy)} partitions ({listed(sorted(lossy))}) change their primary "
                f"without a hand-over ({', '.join(sorted(set(lossy.values())))}): writes that only "
                "the former one has may be lost"
            )
            reason = Reason.DATA_LOSS_ACCEPTED
            self._cluster.event(record.uid, None, reason, about, "Warning")

    def caught_up(self, part: PartitionState) -> None:
        """Report once that the destination holds everything that was answered."""
        active = part.row.active
        if active is not None and not part.caught_up:
            self._tell(part.row.partition, Reason.MIGRATION_CAUGHT_UP, _named(part.row))

    def given_up(self, partition: int, message: str, is_cancelled: bool) -> None:
        """Report a reverted migration: its target changed, or one of its ends failed."""
        if is_cancelled:
            self._tell(partition, Reason.MIGRATION_CANCELLED, message)
        else:
            self._tell(partition, Reason.MIGRATION_FAILED, message, "Warning")

    def look_at_switched(self) -> None:
        """Report switched migrations that are finished; cheap if there are none."""
        for partition, name in list(self._unfinished.items()):
            part = self._parts.get(partition)
            if part is None or part.serves:
                del self._unfinished[partition]
                self._tell(partition, Reason.MIGRATION_FINISHED, name)

    def look(self, rebalance: Rebalance, moved: Moved, is_quiet: bool) -> None:
        """Report losses and a finished rebalance, after every partition was looked at.

        `is_quiet`: no row is being changed.
        """
        self._look_for_lost()
        is_moving = any(part.row.active is not None for part in self._parts.values())
        self._was_moving = self._was_moving or is_moving
        in_place = is_quiet and not is_moving and not self._unfinished and not rebalance.off_target
        if self._was_moving and in_place and rebalance.target is not None:
            self._was_moving = False
            self._cluster.event(
                self._zone.record.uid,
                None,
                Reason.ZONE_REBALANCED,
                f"all copies of {len(self._parts)} partitions are in place; this master has "
                f"committed {moved.migrations_done} migrations and moved {moved.bytes_moved} bytes",
            )

    def _look_for_lost(self) -> None:
        is_lost = self._zone.nodes.is_lost
        lost = {p for p, part in self._parts.items() if not part.serves and is_lost(part.row)}
        for partition in sorted(lost - self._lost):
            voters = ", ".join(self._parts[partition].row.voter_nodes)
            self._tell(
                partition,
                Reason.PARTITION_LOST,
                f"the stores of all its voters ({voters}) are gone for good; "
                f"{way_out_of_loss(self._zone.record)}",
                "Warning",
            )
        self._lost = lost

    def _tell(self, partition: int, reason: Reason, message: str, kind: str = "Normal") -> None:
        self._cluster.event(self._zone.record.uid, partition, reason, message, kind)


def _may_lose(record: ZoneRecord, before: PartitionRow | None, row: PartitionRow, why: Why) -> bool:
    """Return whether the row may leave out what was acknowledged in PRIMARY_SYNC.

    A reset is announced by itself.
    """
    if before is None or before.primary is None:
        return why.cause is Cause.REBUILT
    is_reset = row.reset is not None and row.reset.term == row.term
    if row.term == before.term or is_reset or is_hand_over(before, row) or row.primary is None:
        return False
    if (before.primary.node, before.primary.store) != (row.primary.node, row.primary.store):
        return True
    # Its own store has everything, unless its machine lost power.
    return record.sync_writes is SyncWrites.INTERVAL and before.primary != row.primary


def _named(row: PartitionRow) -> str:
    """Return the active migration of the row in words."""
    migration = row.active
    assert migration is not None
    source = migration.source
    if migration.kind is MigrationKind.DROP:
        staying = {voter.node for voter in migration.voters}
        source = ", ".join(node for node in row.voter_nodes if node not in staying)
    to = migration.destination.node if migration.destination is not None else None
    road = " > ".join(node for node in (source, to) if node)
    return f"{migration.kind.value} {road} ({migration.migration_id})"
