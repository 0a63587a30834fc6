"""What the metastore says of one partition: who owns it, who votes, which migration is under way.

Source: docs/protocol.md, section 2 (Hazelcast's partition table; Ignite 3's assignments).
Rows are ordered by version: +1 for each committed change, +2 past a migration commit whose outcome
is unknown.  Two different rows of a partition never share a version.
"""

import enum
from collections.abc import Collection

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.topology import Holder, Voter

REPLICAS_MAX = 7


class MigrationKind(enum.StrEnum):
    """What one migration does to a row (the names are Hazelcast's, SWAP and DROP are ours)."""

    MOVE = "MOVE"
    COPY = "COPY"
    SHIFT_UP = "SHIFT_UP"
    SHIFT_DOWN = "SHIFT_DOWN"
    SWAP = "SWAP"
    DROP = "DROP"


class Migration(msgspec.Struct, frozen=True, array_like=True):
    """One atomic change of one row: at most one newcomer, any reordering, at most one leaver.

    `destination` is the newcomer, or for a change of order the new primary; None when the
    change only drops or reorders backups.  `replicas` and `voters` are the row after the commit.
    """

    migration_id: str
    kind: MigrationKind
    source: str | None
    destination: Holder | None
    replicas: tuple[str | None, ...]
    voters: tuple[Voter, ...]


class PartitionRow(msgspec.Struct, frozen=True, array_like=True):
    """`replicas[replica_index]` is who is online and owns (index 0: primary); `voters` the quorum.

    `term` is the version under which `primary` was activated; a later version with the same
    primary keeps it.  `sets`: of a row that was rebuilt, and whose migration may have been
    committed, the voters before it and those after it, until its first activation is over;
    stores that are gone for good may stand in these alone.
    """

    partition: int
    version: int
    term: int
    primary: Holder | None
    replicas: tuple[str | None, ...]
    voters: tuple[Voter, ...]
    active: Migration | None = None
    sets: tuple[tuple[Voter, ...], ...] = ()

    @property
    def owners(self) -> tuple[str, ...]:
        """Names of the online owners, hottest first."""
        return tuple([node for node in self.replicas if node is not None])

    @property
    def voter_nodes(self) -> tuple[str, ...]:
        """Names of the quorum's members, offline ones included."""
        return tuple([voter.node for voter in self.voters])

    @property
    def voter_sets(self) -> tuple[tuple[Voter, ...], ...]:
        """Of each of these sets a quorum must agree: the voters, and `sets` while there are any."""
        return (self.voters, *self.sets)

    @property
    def destination(self) -> Holder | None:
        """The newcomer of the active migration, when there is one."""
        return self.active.destination if self.active is not None else None


def majority(count: int) -> int:
    """How many of `count` voters are a majority."""
    return count // 2 + 1


def quorum(voters: int, dead: int) -> int:
    """How many of `voters` must agree when the stores of `dead` of them are gone for good.

    A majority; when too few are left for one, all that are left, provided that every majority there
    ever was has one of them (docs/protocol.md, section 5).
    """
    needed, left = majority(voters), voters - dead
    return left if voters - needed < left < needed else needed


def is_quorum(row: PartitionRow, here: Collection[str], dead: Collection[str]) -> bool:
    """Whether the voters at the nodes `here` are a quorum of each of the row's sets of voters; at
    those of `dead` the stores that vote are gone for good."""
    for voters in row.voter_sets:
        nodes = [voter.node for voter in voters]
        needed = quorum(len(nodes), sum(node in dead for node in nodes))
        if sum(node in here for node in nodes) < needed:
            return False
    return True


def committed_row(row: PartitionRow) -> PartitionRow:
    """The row after its active migration: version + 1, a new term when the primary changes."""
    migration = row.active
    if migration is None:
        raise InvariantError(f"partition {row.partition}: no migration to commit in {row}")
    version = row.version + 1
    primary, term = row.primary, row.term
    if migration.replicas[0] != (primary.node if primary else None):
        primary, term = migration.destination, version
    return PartitionRow(row.partition, version, term, primary, migration.replicas, migration.voters)


def check_row(row: PartitionRow) -> None:
    """Raise InvariantError unless the row is well-formed: no owner twice, term <= version."""
    owners = [node for node in row.replicas if node is not None]
    owner_set, voter_set = set(owners), {voter.node for voter in row.voters}
    if len(owner_set) != len(owners):
        raise InvariantError(f"partition {row.partition}: an owner appears twice in {row.replicas}")
    if len(voter_set) != len(row.voters):
        raise InvariantError(f"partition {row.partition}: a voter appears twice in {row.voters}")
    if not owner_set <= voter_set:
        raise InvariantError(f"partition {row.partition}: owners {row.owners} outside {row.voters}")
    if row.term > row.version:
        raise InvariantError(f"partition {row.partition}: term {row.term} above {row.version}")
    if len(row.voters) > REPLICAS_MAX + 1:
        raise InvariantError(f"partition {row.partition}: {len(row.voters)} voters")
    if row.sets:
        _check_sets(row)
    if row.primary is not None and row.replicas[0] not in (None, row.primary.node):
        raise InvariantError(f"partition {row.partition}: {row.primary} is not at index 0")


def _check_sets(row: PartitionRow) -> None:
    where = f"partition {row.partition}: of two sets of voters"
    if row.active is not None:
        raise InvariantError(f"{where}, and {row.active.migration_id} is active")
    if len(row.sets) != 2:
        raise InvariantError(f"{where} there are {len(row.sets)}")
    for each in row.sets:
        if len(set(each)) != len(each):
            raise InvariantError(f"{where} one names a voter twice: {each}")
    if not set(row.voters) <= set().union(*row.sets):
        raise InvariantError(f"{where} none names one of the voters {row.voters}: {row.sets}")


def is_committed(before: PartitionRow, after: PartitionRow) -> bool:
    """Whether `after` is what the active migration of `before` was to make of it."""
    active = before.active
    return (
        active is not None
        and after.version == before.version + 1
        and after.replicas == active.replicas
    )


def is_hand_over(before: PartitionRow, after: PartitionRow) -> bool:
    """Whether `after` commits the migration of `before` and with it changes the primary.

    The master prepares such a row only when the old primary, which was serving, has reported
    Frozen: no lease of its term, or of an earlier one, is used any more.
    """
    return (
        before.active is not None
        and is_committed(before, after)
        and after.term == after.version
        and after.primary == before.active.destination
    )
