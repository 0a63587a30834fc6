"""Whether an agent's store may be given up for good without losing an acknowledged write.

A write is acknowledged by a majority of a partition's voters. So what is left has every such write
if every majority there ever was has one of those that are left: of `n` voters with the majority
`m`, at least `n - m + 1` must be left. Source: docs/protocol.md, section 5.
"""

from collections.abc import Collection, Mapping, Sequence

from quorate.facts.partition_row import PartitionRow, majority
from quorate.facts.topology import NodeRecord, Voter


def lost_without(
    node: str,
    zone: str,
    persistent: bool,
    rows: Sequence[PartitionRow],
    nodes: Mapping[str, NodeRecord],
    away: Collection[str] = (),
) -> str:
    """Return a sentence on what would be lost of a zone with the present store of `node`; empty if
    nothing would.

    `nodes`: the registrations by name. `away`: further agents that are not known to come back. Of a
    registration that says that its agent has left, the store counts as not there.
    """

    def is_left(voter: Voter) -> bool:
        record = nodes.get(voter.node)
        return (
            voter.node != node
            and voter.node not in away
            and record is not None
            and record.left_since_ms is None
            and record.zone_store(persistent) == voter.store
        )

    found: list[str] = []
    for row in rows:
        moving = (row.active.voters,) if row.active is not None else ()
        for voters in (*row.voter_sets, *moving):
            if node not in {voter.node for voter in voters}:
                continue
            left = [voter for voter in voters if is_left(voter)]
            needed = len(voters) - majority(len(voters)) + 1
            if len(left) < needed:
                others = ", ".join(v.node for v in voters if v.node != node and v not in left)
                missing = f": {others} not there either" if others else ""
                found.append(
                    f"partition {row.partition} of Zone {zone} would keep {len(left)} of"
                    f" {len(voters)} copies, and needs {needed} to know every write{missing}"
                )
                break
    if not found:
        return ""
    return found[0] + (f"; and {len(found) - 1} more partitions" if len(found) > 1 else "")
