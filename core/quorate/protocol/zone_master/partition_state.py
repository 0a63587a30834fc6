"""The master's knowledge of one partition, and its changes with the partition's row."""

from typing import Protocol

import msgspec

from quorate.facts.partition_row import PartitionRow, committed_row
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages.master import CopyReport

UNHEARD, BEHIND = 0, -1
"""Incarnations of `PartitionState.uncounted` that are not known."""


class Nodes(Protocol):
    """The agents as one zone sees them, from what the master knows."""

    def holder(self, node: str) -> Holder | None:
        """Return the online incarnation of `node`; None if it has left or is not registered."""

    def gone(self, node: str, store: str) -> bool:
        """Return whether `node` has left, or is online with another store than `store`."""

    def dead_voters(self, row: PartitionRow) -> tuple[str, ...]:
        """Return the row's voters whose store is gone for good: the node registered another."""

    def reported(self, node: str) -> bool:
        """Return whether `node` has reported its inventory to this master (or has left)."""

    def asked_ms(self, node: str) -> int:
        """Return the time since when the inventory of `node` is expected; -1: it is not online."""

    def report(self, node: str, partition: int) -> CopyReport | None:
        """Return what `node` last reported of its copy."""

    def leaving(self, node: str) -> bool:
        """Return whether `node` asked for its primaries to be taken over."""

    def reach_each_other(self, one: str, other: str) -> bool:
        """Return whether neither of the two has reported that it does not reach the other."""


class PartitionState(msgspec.Struct, frozen=True):
    """Everything the master knows of one partition, with its row.

    The flags are about `row.active` and `row.term`. They are reset with every new row that changes
    either.

    - `resolved`: this master started the active migration, or asked about it.
    - `has_served`: the primary has reported that it serves in the row's term.
    - `served_ms`: until when an earlier term served, as far as this master knows; -1: never.
    - `never_serves`: it has reported that it will not, or not any more.
    - `ready`: copies that may become owners, as the primary reported.
    - `uncounted`: owners of which the primary has not reported that it counts them: with FULL_SYNC,
      updates may have been acknowledged without them. Incarnation UNHEARD: an earlier master's row,
      or one that was rebuilt; BEHIND: the primary counts it by now, but has not reported that it
      has what was acknowledged.
    - `stored`: voters that have reported that they have this row, or a newer one, durably.
    - `unheard`: a new master has read the row and not yet heard which rows its voters have.
    - `progress_ms`: when the destination last had more than before; before the primary serves, when
      a filling voter had that it cannot serve without (`needs_filling`).
    - `fills`: voters that are filling before the primary serves, with the bytes that each has.
    - `unwanted`: the migration does not lead to the row's target any more.
    - `handed_over`: the row's term began with the commit of a migration.
    """

    row: PartitionRow
    since_ms: int
    resolved: bool = False
    tried: tuple[str, ...] = ()
    better: str = ""
    progress_ms: int = -1
    fills: tuple[tuple[str, int], ...] = ()
    caught_up_ms: int = -1
    freeze_ms: int = -1
    freeze_sent_ms: int = -1
    frozen: bool = False
    prepare_ms: int = -1
    prepare_sent_ms: int = -1
    prepared: bool | None = None
    ready: tuple[Holder, ...] = ()
    stuck: str = ""
    unwanted: bool = False
    unheard: bool = False
    uncounted: tuple[Holder, ...] = ()
    stored: tuple[Voter, ...] = ()
    handed_over: bool = False
    has_served: bool = False
    served_ms: int = -1
    never_serves: bool = False

    @property
    def caught_up(self) -> bool:
        """Whether the primary has reported that both majorities hold what was answered."""
        return self.caught_up_ms >= 0

    @property
    def is_activation_over(self) -> bool:
        """Whether it is known that the primary serves in the row's term, or never will."""
        return self.has_served or self.never_serves

    @property
    def serves(self) -> bool:
        """Whether the row has the primary at index 0, and its activation is over.

        If it never serves, `stuck` says why, until the row changes.
        """
        return self.is_activation_over and self.row.replicas[0] is not None

    @property
    def is_being_handed_over(self) -> bool:
        """Whether a planned new primary is about to serve: clients wait and are not refused.

        This ends with the activation, or with the row: after `activation_bound_ms` another voter is
        made primary, and that is no hand-over.
        """
        is_on_its_way = self.handed_over and not self.is_activation_over and not self.stuck
        return is_on_its_way and self.row.replicas[0] is not None


def read_part(row: PartitionRow, now_ms: int, *, unheard: bool = True) -> PartitionState:
    """Return the part of a row that another process wrote; `unheard`: see PartitionState."""
    resolved = row.active is None
    owners = tuple(Holder(v.node, v.store, UNHEARD) for v in row.voters if v.node in row.owners)
    return PartitionState(row, now_ms, resolved=resolved, unheard=unheard, uncounted=owners)


def adopt_row(part: PartitionState, row: PartitionRow, now_ms: int) -> PartitionState:
    """Return the part after its row was written or read, without facts about an older term."""
    before = part.row
    same_migration = (
        row.active is not None
        and before.active is not None
        and row.active.migration_id == before.active.migration_id
    )
    uncounted = tuple(
        {
            each.node: each for each in (*part.uncounted, *part.ready) if each.node in row.owners
        }.values()
    )
    if row.term != before.term:
        # The counts of an earlier primary are not this one's.
        unheard = {each.node: Holder(each.node, each.store, UNHEARD) for each in uncounted}
        uncounted = tuple(
            unheard[each.node] if each.incarnation == BEHIND else each for each in uncounted
        )
        return PartitionState(
            row,
            now_ms,
            tried=part.tried,
            resolved=row.active is None,
            handed_over=before.active is not None and row == committed_row(before),
            served_ms=now_ms if part.has_served else part.served_ms,
            uncounted=uncounted,
        )
    kept = msgspec.structs.replace(
        part,
        row=row,
        ready=tuple(each for each in part.ready if each.node not in row.owners),
        stuck="",
        uncounted=uncounted,
        stored=(),
        caught_up_ms=now_ms if part.caught_up else -1,  # this row must be stored, too
    )
    if same_migration:
        return kept
    return msgspec.structs.replace(
        kept,
        resolved=True,
        unwanted=False,
        progress_ms=now_ms,
        caught_up_ms=-1,
        freeze_ms=-1,
        freeze_sent_ms=-1,
        frozen=False,
        prepare_ms=-1,
        prepare_sent_ms=-1,
        prepared=None,
    )
