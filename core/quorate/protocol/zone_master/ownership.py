"""Every change of ownership, as a pure function from one partition's row to its next one.

Source: docs/protocol.md, sections 2, 6 and 7. Each result is a well-formed row with a higher
version. The caller writes it under compare-and-set and publishes it only after that.
"""

from collections.abc import Collection, Sequence

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import (
    LEFT_MAX,
    LINKS_MAX,
    Link,
    Migration,
    PartitionRow,
    Reset,
    check_row,
    majority,
    reset_without,
)
from quorate.facts.topology import Holder, Voter


def _checked(before: PartitionRow, after: PartitionRow) -> PartitionRow:
    check_row(after)
    if after.version <= before.version or after.term < before.term:
        raise InvariantError(f"partition {before.partition}: {after} does not follow {before}")
    return after


def _step(row: PartitionRow) -> int:
    """Return the version step: 2 past a migration whose commit may have been prepared, else 1."""
    return 1 if row.active is None else 2


def without_owners(row: PartitionRow, left: frozenset[str], new_term: bool = False) -> PartitionRow:
    """Return the row in which owners that left are null; they stay voters.

    An active migration is given up. After a Freeze the primary needs a `new_term` to serve again.
    """
    version = row.version + _step(row)
    replicas = tuple(None if node in left else node for node in row.replicas)
    after = msgspec.structs.replace(row, version=version, replicas=replicas, active=None)
    if new_term:
        after = msgspec.structs.replace(after, term=version)
    return _checked(row, after)


def activated(row: PartitionRow, holder: Holder, left: frozenset[str]) -> PartitionRow:
    """Return the row with a new term under `holder`, which moves to index 0.

    Owners that left become null.
    """
    version = row.version + _step(row)
    kept = [None if node in left else node for node in row.replicas]
    if holder.node in kept:
        kept[kept.index(holder.node)] = kept[0]
    elif kept[0] is not None and None in kept:
        kept[kept.index(None)] = kept[0]
    kept[0] = holder.node
    after = msgspec.structs.replace(
        row, version=version, term=version, primary=holder, replicas=tuple(kept), active=None
    )
    return _checked(row, after)


def with_owner(row: PartitionRow, node: str) -> PartitionRow:
    """Return the row with an online voter that holds everything answered as an owner again.

    Index 0 belongs to the primary, also while it is away: another node moves there only in a new
    term.
    """
    replicas = list(row.replicas)
    if row.primary is not None and node == row.primary.node:
        replicas[0] = node
    elif None in replicas[1:]:
        replicas[replicas.index(None, 1)] = node
    else:
        replicas.append(node)
    after = msgspec.structs.replace(row, version=row.version + 1, replicas=tuple(replicas))
    return _checked(row, after)


def reset_to(
    row: PartitionRow, survivor: Holder, above: int = 0, has_all: bool = False
) -> PartitionRow:
    """Return the row in which `survivor` alone votes, and serves in a new term.

    All others that voted, and the destination of an active migration, keep their copies. What only
    they hold is lost unless the survivor can still fetch it. The version is at least `above`.
    `has_all`: the survivor has every acknowledged update.
    """
    version = max(row.version + _step(row), above)
    destination = row.destination
    moving = [] if destination is None else [Voter(destination.node, destination.store)]
    # Those that voted last come last: they are kept if there are too many.
    known = {voter.node: voter for voter in (*row.left_by_reset, *moving)}
    stores = {node: voter for node, voter in known.items() if node not in row.voter_nodes}
    stores |= {voter.node: voter for voter in row.voters}
    voter = stores.pop(survivor.node)
    link = Link(version, row.voters, 0 if has_all else _to_be_heard(row, voter))
    links = (*(row.reset.links if row.reset is not None else ()), link)
    after = PartitionRow(
        row.partition,
        version,
        version,
        survivor,
        (survivor.node,),
        (voter,),
        reset=Reset(version, tuple(stores.values())[-LEFT_MAX:], links[-LINKS_MAX:]),
    )
    return _checked(row, after)


def _to_be_heard(row: PartitionRow, survivor: Voter) -> int:
    """Return how many of the other voters must be heard, so that each possible quorum has one that
    was heard, or the survivor.

    A row with sets had quorums of each set. Stores of a set that are gone for good may have been
    in them, and do not vote any more.
    """
    others = sum(voter != survivor for voter in row.voters)

    def needed(voters: tuple[Voter, ...]) -> int:
        gone = sum(voter not in row.voters for voter in voters)
        return others + 1 - max(majority(len(voters)) - gone, 1)

    return max(needed(voters) for voters in row.voter_sets)


def without_links(row: PartitionRow) -> PartitionRow:
    """Return the reset row, not written yet, after which nothing is waited for at a restart."""
    if row.reset is None:
        return row
    return msgspec.structs.replace(row, reset=Reset(row.reset.term, row.reset.others))


def without_left(row: PartitionRow, nodes: Collection[str]) -> PartitionRow:
    """Return the row that keeps no copy any more which a reset left on `nodes`."""
    after = msgspec.structs.replace(
        row, version=row.version + 1, reset=reset_without(row.reset, nodes)
    )
    return _checked(row, after)


def with_one_set(row: PartitionRow) -> PartitionRow:
    """Return the row without its sets of voters.

    A quorum of each set, and of all voters together, must have adopted the row's term. From then on
    a quorum of all voters together has everything that either set had.
    """
    return _checked(row, msgspec.structs.replace(row, version=row.version + 1, sets=()))


def started_empty(row: PartitionRow, holders: Sequence[Holder], version: int) -> PartitionRow:
    """Return the row over empty stores, the first of them the primary's, in a new term.

    The stores of all voters are gone for good, so no copy and no promise is left. `version` is
    above every one that an agent could know.
    """
    return _checked(
        row,
        PartitionRow(
            row.partition,
            version,
            version,
            holders[0],
            tuple(holder.node for holder in holders),
            tuple(Voter(holder.node, holder.store) for holder in holders),
        ),
    )


def started(row: PartitionRow, migration: Migration) -> PartitionRow:
    """Return the row in which the migration is active."""
    return _checked(row, msgspec.structs.replace(row, version=row.version + 1, active=migration))


def failed(row: PartitionRow, new_term: bool) -> PartitionRow:
    """Return the row in which the migration is given up.

    After a Freeze the primary needs a `new_term` to serve again.
    """
    version = row.version + 2
    after = msgspec.structs.replace(
        row, version=version, active=None, term=version if new_term else row.term
    )
    return _checked(row, after)
