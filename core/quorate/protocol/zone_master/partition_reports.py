"""Take agents' messages about single partitions, as far as they agree with the newest rows."""

from collections.abc import Collection

import msgspec

from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.protocol.messages.master import (
    TROUBLES_MAX,
    Activated,
    ActivationBlocked,
    AgentReport,
    CaughtUp,
    CopyReady,
    Frozen,
    Prepared,
    RowsStored,
    TransferProgress,
    Trouble,
    TroubleKind,
)
from quorate.protocol.zone_master.decide_partition import needs_filling
from quorate.protocol.zone_master.partition_state import BEHIND, PartitionState
from quorate.protocol.zone_master.view.events import ZoneEvents
from quorate.protocol.zone_master.zone import Zone

TROUBLES_REPEATED_MS = 30_000
"""By then an agent with very many troubles has named each again: 500 with each report."""


class PartitionReports:
    """Notes reports in the zone's parts, which are then decided about again."""

    def __init__(self, zone: Zone, events: ZoneEvents, lease_ms: int) -> None:
        self._parts = zone.parts
        self._nodes = zone.nodes
        self._dirty = zone.dirty
        self._events = events
        self._lease_ms = lease_ms
        self._no_quorum: dict[int, int] = {}  # partition -> when its primary last said so

    def note(self, partition: int, **changes: object) -> None:
        """Note `changes` in the partition's part, which is decided about again."""
        self._parts[partition] = msgspec.structs.replace(self._parts[partition], **changes)
        self._dirty.add(partition)

    def _of_term(self, node: str, partition: int, term: int) -> PartitionState | None:
        part = self._parts.get(partition)
        if part is None or part.row.term != term or part.row.primary is None:
            return None
        return part if part.row.primary.node == node else None

    def stored(self, node: str, message: RowsStored) -> None:
        """Note that the agent has these rows durably: the primary counts their owners."""
        behind = dict(message.behind)
        for partition, version in message.versions:
            part = self._parts.get(partition)
            if part is None or version < part.row.version:
                continue
            holder = self._nodes.holder(node)
            if part.uncounted and holder is not None and holder == part.row.primary:
                part = self._counted(part, behind.get(partition, ()))
            if part.row.active is None:
                continue
            voter = next((v for v in part.row.voters if v.node == node), None)
            if voter is None or holder is None or holder.store != voter.store:
                continue  # only the store that votes counts
            if voter not in part.stored:
                self.note(partition, stored=(*part.stored, voter))

    def _counted(self, part: PartitionState, behind: Collection[str]) -> PartitionState:
        """Note that the primary, which has this row, counts the owners.

        But for those that restarted before it did, and those that are `behind`. Of the owners of an
        earlier master's row it is not known whether they restarted: a primary that does not serve
        yet says nothing of them.
        """
        left: list[Holder] = []
        for each in part.uncounted:
            if each.incarnation > 0:
                if self._nodes.holder(each.node) != each:
                    left.append(each)
            elif each.node in behind or not part.has_served:
                left.append(Holder(each.node, each.store, BEHIND))
        counted = msgspec.structs.replace(part, uncounted=tuple(left))
        self._parts[part.row.partition] = counted
        return counted

    def activated(self, node: str, message: Activated, now: Now) -> None:
        """Note that the primary serves."""
        part = self._of_term(node, message.partition, message.term)
        if part is not None and not part.is_activation_over:
            uncounted = tuple(
                each
                for each in part.uncounted
                if each.incarnation != BEHIND or each.node in message.behind
            )
            self.note(
                message.partition, has_served=True, tried=(), better="", stuck="",
                since_ms=now.boot_ms, uncounted=uncounted,
            )  # fmt: skip

    def blocked(self, node: str, message: ActivationBlocked) -> None:
        """Note that the primary cannot activate because its log is too short, and `better` can."""
        part = self._of_term(node, message.partition, message.term)
        if part is not None and not part.is_activation_over:
            self.note(message.partition, better=message.better)

    def progressed(
        self, node: str, message: TransferProgress, has_newcomer_more: bool, now: Now
    ) -> None:
        """Note that a migration's destination has more, or a voter that an activation may need."""
        part = self._parts.get(message.partition)
        if has_newcomer_more:
            self.note(message.partition, progress_ms=now.boot_ms)
        elif part is not None and not part.is_activation_over and node in part.row.voter_nodes:
            self._filling(part, node, message, now)

    def _filling(
        self, part: PartitionState, node: str, message: TransferProgress, now: Now
    ) -> None:
        """Note how much a filling voter has in this term, before the primary serves."""
        before = dict(part.fills)
        if before.get(node) == message.bytes_done and not message.done:
            return
        has_more = message.done or message.bytes_done > before.get(node, -1)
        fills = before | {node: message.bytes_done}
        noted = msgspec.structs.replace(part, fills=tuple(fills.items()))
        if has_more and needs_filling(noted, self._nodes):
            noted = msgspec.structs.replace(noted, progress_ms=now.boot_ms)
        if message.done:
            del fills[node]
        self.note(message.partition, fills=tuple(fills.items()), progress_ms=noted.progress_ms)

    def _of_migration(self, partition: int, migration_id: str) -> PartitionState | None:
        part = self._parts.get(partition)
        if part is None or part.row.active is None:
            return None
        return part if part.row.active.migration_id == migration_id else None

    def caught_up(self, node: str, message: CaughtUp, now: Now) -> None:
        """Note that the primary is in joint mode and both majorities hold what was answered."""
        part = self._of_migration(message.partition, message.migration_id)
        if part is not None and self._of_term(node, message.partition, message.term):
            self._events.caught_up(part)
            if not part.caught_up:
                self.note(message.partition, caught_up_ms=now.boot_ms)

    def frozen(self, node: str, message: Frozen) -> None:
        """Note that the old primary will never serve again in its term."""
        part = self._of_migration(message.partition, message.migration_id)
        if part is not None and self._of_term(node, message.partition, message.term):
            self.note(message.partition, frozen=True)

    def prepared(self, message: Prepared) -> None:
        """Note that the destination stored, or refused, the prepared row."""
        part = self._of_migration(message.partition, message.migration_id)
        if part is not None and part.row.version + 1 == message.version:
            self.note(message.partition, prepared=message.accepted)

    def copy_ready(self, node: str, message: CopyReady) -> None:
        """Note that a voter holds everything that was acknowledged.

        It is not among the owners, or is one that was reported as behind.
        """
        part = self._of_term(node, message.partition, message.term)
        holder = self._nodes.holder(message.node)
        if part is None or holder is None or holder.store != message.store:
            return
        if message.incarnation not in (0, holder.incarnation):
            return  # it restarted since
        if message.node in part.row.owners:
            was_behind = Holder(message.node, message.store, BEHIND)
            left = tuple(each for each in part.uncounted if each != was_behind)
            self._parts[message.partition] = msgspec.structs.replace(part, uncounted=left)
            return
        ready = tuple(each for each in part.ready if each.node != message.node)
        if holder not in part.ready:
            self.note(message.partition, ready=(*ready, holder))

    def trouble(self, node: str, trouble: Trouble, now: Now) -> None:
        """Note that a primary is stuck."""
        part = self._of_term(node, trouble.partition, trouble.term)
        if part is None or trouble.since_ms < self._lease_ms:
            return
        # Frozen for a migration that was given up: it can serve again only in a new term.
        forgotten = trouble.kind is TroubleKind.FROZEN and part.freeze_ms < 0
        if trouble.kind is TroubleKind.NO_ROLE or forgotten:
            self.note(trouble.partition, stuck=trouble.kind, never_serves=True)
        elif trouble.kind is TroubleKind.NO_QUORUM and part.is_activation_over:
            self.note(trouble.partition, stuck=trouble.kind)
            self._no_quorum[trouble.partition] = now.boot_ms

    def troubles_told(self, node: str, report: AgentReport, now: Now) -> None:
        """Forget that primaries had no quorum if `node` does not say so any more.

        The troubles that the report names were taken in before. It names all of a zone or none, and
        leaves zones out only if it names very many.
        """
        told: dict[int, int] = {}
        for partition, told_ms in list(self._no_quorum.items()):
            part = self._parts.get(partition)
            if part is None or part.stuck != TroubleKind.NO_QUORUM:
                del self._no_quorum[partition]
            elif part.row.primary is not None and part.row.primary.node == node:
                told[partition] = told_ms
        is_whole = len(report.troubles) < TROUBLES_MAX or now.boot_ms in told.values()
        since_ms = now.boot_ms - (0 if is_whole else TROUBLES_REPEATED_MS)
        for partition, told_ms in told.items():
            if told_ms < since_ms:
                del self._no_quorum[partition]
                self.note(partition, stuck="")
