"""The metastore's row of one partition: its owners, its voters, its active migration.

Source: docs/protocol.md, section 2 (Hazelcast's partition table; Ignite 3's assignments). Rows are
ordered by version: +1 for each committed change, +2 past a migration whose commit has an unknown
outcome. Two different rows of a partition never share a version.
"""

import enum
from collections.abc import Collection

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.topology import Holder, Voter

REPLICAS_MAX = 7
VOTERS_MAX = REPLICAS_MAX + 1
"""The most voters of a row: a newcomer may vote before another one leaves."""
LEFT_MAX = VOTERS_MAX
"""The most stores of which a row says that a reset left them."""
LINKS_MAX = 3
"""The most links before the row's own voters; older ones are forgotten."""

ERASURE = "/erase"
"""The end of the ids of migrations that drop a copy for a person."""


class MigrationKind(enum.StrEnum):
    """Kinds of change of a row by one migration (Hazelcast's names; SWAP and DROP are ours)."""

    MOVE = "MOVE"
    COPY = "COPY"
    SHIFT_UP = "SHIFT_UP"
    SHIFT_DOWN = "SHIFT_DOWN"
    SWAP = "SWAP"
    DROP = "DROP"


class Migration(msgspec.Struct, frozen=True, array_like=True):
    """One atomic change of one row: at most one newcomer, any reordering, at most one leaver.

    Several voters leave in one DROP if their stores are gone for good; `source` is the first.

    `destination` is the newcomer or, if only the order changes, the new primary; None if the change
    only drops or reorders backups. `replicas` and `voters` are the row after the commit.
    """

    migration_id: str
    kind: MigrationKind
    source: str | None
    destination: Holder | None
    replicas: tuple[str | None, ...]
    voters: tuple[Voter, ...]

    @property
    def is_erasure(self) -> bool:
        """Whether a person has the copy of `source` dropped, so that it is made anew."""
        return self.migration_id.endswith(ERASURE)


class Link(msgspec.Struct, frozen=True, array_like=True):
    """Voters of a partition, and the term of the reset that ended their part of its history.

    `needed`: how many of those that the reset left must say what they hold before it is certain
    that nothing acknowledged is missing; 0: the survivor had all of it.
    """

    ended: int
    voters: tuple[Voter, ...]
    needed: int = 0


class Reset(msgspec.Struct, frozen=True, array_like=True):
    """The last reset of a partition, which forced its voters to one survivor.

    - `term`: the term that the reset began.
    - `others`: the stores that voted before it, or were a destination, and have not voted since.
      They keep their copies, count for no quorum, and get no new updates.
    - `links`: the voters before each reset since the partition last had all its copies, oldest
      first; with the row's own voters they are the chain of assignments (IEP-131, phase 2).
    """

    term: int
    others: tuple[Voter, ...]
    links: tuple[Link, ...] = ()


class PartitionRow(msgspec.Struct, frozen=True, array_like=True):
    """One partition's row in the metastore.

    `replicas[replica_index]` names the online owners (index 0: the primary); `voters` count for the
    quorum, online or not. `term` is the version under which `primary` was activated; a later
    version with the same primary keeps it.

    `sets` is set only in a row that was rebuilt while its migration may have been committed. It
    holds the voters before and after that migration, until the first activation is over. Stores
    that are gone for good may be named in `sets` alone.

    `reset` is None if the voters were never forced.
    """

    partition: int
    version: int
    term: int
    primary: Holder | None
    replicas: tuple[str | None, ...]
    voters: tuple[Voter, ...]
    active: Migration | None = None
    sets: tuple[tuple[Voter, ...], ...] = ()
    reset: Reset | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        """Names of the online owners, in the order of their replica indexes."""
        return tuple([node for node in self.replicas if node is not None])

    @property
    def voter_nodes(self) -> tuple[str, ...]:
        """Names of the voters, including those that are offline."""
        return tuple([voter.node for voter in self.voters])

    @property
    def voter_sets(self) -> tuple[tuple[Voter, ...], ...]:
        """The sets of voters that must each give a quorum: `voters`, and `sets` if present."""
        return (self.voters, *self.sets)

    @property
    def left_by_reset(self) -> tuple[Voter, ...]:
        """The stores that a reset left, and that keep their copies."""
        return self.reset.others if self.reset is not None else ()

    @property
    def destination(self) -> Holder | None:
        """The destination of the active migration; None without one."""
        return self.active.destination if self.active is not None else None


def majority(count: int) -> int:
    """Return how many of `count` voters are a majority."""
    return count // 2 + 1


def quorum(voters: int, dead: int) -> int:
    """Return how many of `voters` must agree if the stores of `dead` of them are gone for good.

    This is a majority. If fewer are left than that, it is all that are left, provided that every
    possible majority contains one of them (docs/protocol.md, section 5).
    """
    needed, left = majority(voters), voters - dead
    return left if voters - needed < left < needed else needed


def is_quorum(row: PartitionRow, here: Collection[str], dead: Collection[str]) -> bool:
    """Return whether the voters at the nodes `here` are a quorum of each set of voters of the row.

    `dead`: nodes whose voting store is gone for good.
    """
    for voters in row.voter_sets:
        nodes = [voter.node for voter in voters]
        needed = quorum(len(nodes), sum(node in dead for node in nodes))
        if sum(node in here for node in nodes) < needed:
            return False
    return True


def committed_row(row: PartitionRow) -> PartitionRow:
    """Return the row after its active migration: version + 1, a new term if the primary changes.

    InvariantError if no migration is active.
    """
    migration = row.active
    if migration is None:
        raise InvariantError(f"partition {row.partition}: no migration to commit in {row}")
    version = row.version + 1
    primary, term = row.primary, row.term
    if migration.replicas[0] != (primary.node if primary else None):
        primary, term = migration.destination, version
    return PartitionRow(
        row.partition,
        version,
        term,
        primary,
        migration.replicas,
        migration.voters,
        reset=reset_without(row.reset, {voter.node for voter in migration.voters}),
    )


def reset_without(reset: Reset | None, nodes: Collection[str]) -> Reset | None:
    """Return the reset without what `nodes` had before it: they vote again, or are given up."""
    if reset is None:
        return None
    others = tuple(voter for voter in reset.others if voter.node not in nodes)
    return Reset(reset.term, others, reset.links if others else ())


def check_row(row: PartitionRow) -> None:
    """Raise InvariantError unless the row is well-formed (no owner twice, term <= version, …)."""
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
    if len(row.voters) > VOTERS_MAX:
        raise InvariantError(f"partition {row.partition}: {len(row.voters)} voters")
    if row.sets:
        _check_sets(row)
    if row.reset is not None and row.reset.term > row.term:
        raise InvariantError(f"partition {row.partition}: reset {row.reset} above {row.term}")
    if len(row.left_by_reset) > LEFT_MAX:
        raise InvariantError(f"partition {row.partition}: {len(row.left_by_reset)} stores left")
    ends = [link.ended for link in row.reset.links] if row.reset is not None else []
    if len(ends) > LINKS_MAX or ends != sorted(set(ends)):
        raise InvariantError(f"partition {row.partition}: a chain of links that ended in {ends}")
    if not voter_set.isdisjoint(voter.node for voter in row.left_by_reset):
        raise InvariantError(f"partition {row.partition}: {row.left_by_reset} vote: {row.voters}")
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
    """Return whether `after` is the row that the active migration of `before` leads to."""
    active = before.active
    return (
        active is not None
        and after.version == before.version + 1
        and after.replicas == active.replicas
    )


def is_hand_over(before: PartitionRow, after: PartitionRow) -> bool:
    """Return whether `after` commits the migration of `before` and thereby changes the primary.

    The master prepares such a row only after the old primary, which was serving, has reported
    Frozen. So no lease of its term, or of an earlier one, is in use any more.
    """
    return (
        before.active is not None
        and is_committed(before, after)
        and after.term == after.version
        and after.primary == before.active.destination
    )
