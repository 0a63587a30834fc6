"""Decide which active migrations are kept when the target changes.

A new target is computed as if the active migrations had ended (`row_when_done`). So it asks for the
same copies again where balance permits, and transferred data is not thrown away.
"""

from collections.abc import Collection, Sequence

from quorate.facts.partition_row import PartitionRow
from quorate.planning.target.distribute_partitions import placed_voters


def row_when_done(row: PartitionRow, online: Collection[str]) -> tuple[str | None, ...]:
    """Return the owners and voters from which to compute a new target.

    These are the row's after its active migration, if that can end: its destination must be in
    `online`. Otherwise they are the present ones.
    """
    migration = row.active
    if migration is not None and (
        migration.destination is None or migration.destination.node in online
    ):
        voters = [voter.node for voter in migration.voters]
        return placed_voters(migration.replicas, voters)
    return placed_voters(row.replicas, row.voter_nodes)


def still_serves(row: PartitionRow, target: Sequence[str | None]) -> bool:
    """Return whether the row's active migration leads to `target`; False if there is none.

    Its newcomer must be in the target and its leaver must not. If it only changes roles, its
    primary must be the target's, or the present one. A migration that copies data is kept whatever
    its primary, because a second change of roles is cheaper than a second transfer.
    """
    migration = row.active
    if migration is None:
        return False
    before = row.voter_nodes
    after = [voter.node for voter in migration.voters]
    newcomers = [node for node in after if node not in before]
    if any(node not in target for node in newcomers):
        return False
    if any(node not in after and node in target for node in before):
        return False
    primary = migration.replicas[0]
    return bool(newcomers) or primary in (row.replicas[0], target[0])
