"""Which migrations under way still serve when the topology, and with it the target, has changed.

A new target is made as if what is under way were done (`row_when_done`): then it asks for the same
copies again wherever balance permits, and what has been transferred is not thrown away.
"""

from collections.abc import Collection, Sequence

from quorate.facts.partition_row import PartitionRow
from quorate.planning.distribute_partitions import placed_voters


def row_when_done(row: PartitionRow, online: Collection[str]) -> tuple[str | None, ...]:
    """The owners and voters to make a new target from: after the active migration, if it can end.

    It cannot when its newcomer, or who is to be primary, is not in `online`.
    """
    migration = row.active
    if migration is not None and (
        migration.destination is None or migration.destination.node in online
    ):
        voters = [voter.node for voter in migration.voters]
        return placed_voters(migration.replicas, voters)
    return placed_voters(row.replicas, row.voter_nodes)


def still_serves(row: PartitionRow, target: Sequence[str | None]) -> bool:
    """Whether the row's active migration leads to `target`; False when there is none.

    Its newcomer must be wanted and its leaver not.  If it only changes roles, its primary must be
    the target's; one that copies is kept all the same, because a second change of roles is cheaper
    than a second transfer.
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
