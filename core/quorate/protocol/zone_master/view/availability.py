"""Whether a partition can be written and read, as far as the master knows."""

import enum
from collections.abc import Mapping

from quorate.facts.partition_row import PartitionRow, is_quorum
from quorate.protocol.members.membership import ZoneNodes
from quorate.protocol.messages.master import TroubleKind
from quorate.protocol.zone_master.partition_state import PartitionState


class Availability(enum.StrEnum):
    """The states of a partition, by the use that clients have of it. It is in exactly one of them.

    They are about the voters of its present row. Only a primary that serves is asked by clients,
    unless their connections said `READONLY`.
    """

    AVAILABLE = "AVAILABLE"
    """Its primary serves, and it has as many online owners as the zone declares copies."""
    DEGRADED = "DEGRADED"
    """Its primary serves, and copies are missing."""
    READ_ONLY = "READ_ONLY"
    """No primary serves, because no quorum of the voters is there. A copy that has adopted the
    row's term is online: its agent answers reads of `READONLY` connections."""
    UNAVAILABLE = "UNAVAILABLE"
    """No primary serves: another one is being elected or activated, or there is no quorum, and no
    copy is known that may be read. A partition without a row counts as this, too."""
    LOST = "LOST"
    """The stores of all voters are gone for good (`onAllCopiesLost` says what happens next)."""


def availability(part: PartitionState, copies: int, nodes: ZoneNodes) -> Availability:
    """Return the partition's state; `copies`: how many of it the zone declares."""
    row = part.row
    if serves_clients(part, nodes):
        is_short = len(row.owners) < copies
        return Availability.DEGRADED if is_short else Availability.AVAILABLE
    if nodes.is_lost(row):
        return Availability.LOST
    here = voters_online(row, nodes)
    reaches_none = part.stuck == TroubleKind.NO_QUORUM
    has_quorum = is_quorum(row, here, nodes.dead_voters(row)) and not reaches_none
    if has_quorum or not any(_may_be_read(part, node, nodes) for node in here):
        return Availability.UNAVAILABLE
    return Availability.READ_ONLY


def serves_clients(part: PartitionState, nodes: ZoneNodes) -> bool:
    """Return whether the partition's clients are served, as far as the master knows.

    In a planned hand-over they wait for a moment. The row alone does not tell: it names a primary
    that has died until the next one is written.
    """
    primary = part.row.primary
    is_there = primary is not None and nodes.holder(primary.node) == primary
    return is_there and not part.stuck and (part.serves or part.is_being_handed_over)


def voters_online(row: PartitionRow, nodes: ZoneNodes) -> set[str]:
    """Return the nodes of the row's voters that are online with the very stores that vote."""
    voters = {voter for each in row.voter_sets for voter in each}
    return {voter.node for voter in voters if nodes.voter_holder(voter) is not None}


def _may_be_read(part: PartitionState, node: str, nodes: ZoneNodes) -> bool:
    """Return whether the copy of `node` has adopted the row's term.

    Owners have, once the primary has served. Of other copies, and for a new master, only the
    agent's inventory tells; its newest one is of when the agent or the master came.
    """
    if part.has_served and node in part.row.owners:
        return True
    copy = nodes.report(node, part.row.partition)
    return copy is not None and copy.adopted and copy.last_term >= part.row.term


def data_loss(parts: Mapping[int, PartitionState], replicas: int) -> str:
    """Return which partitions narrowed to one voter and lack copies since, as a sentence, or ""."""
    rows = [part.row for part in parts.values() if part.row.reset is not None]
    narrow = [row for row in rows if row.left_by_reset or len(row.owners) < replicas]
    if not narrow:
        return ""
    left = sorted({voter.node for row in narrow for voter in row.left_by_reset})
    about = (
        f"{len(narrow)} partitions from {min(row.partition for row in narrow)} on lost the majority"
        " of their voters and narrowed to one of them; what it did not hold is lost"
    )
    return f"{about}; copies that were left: on {', '.join(left)}" if left else about
