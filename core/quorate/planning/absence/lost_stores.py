"""Whether an agent's store may be given up for good without losing an acknowledged write.

A majority of a partition's voters acknowledges each write. So the stores that are left have every
such write if each possible majority contains one of them: of `n` voters with the majority `m`, at
least `n - m + 1` must be left. What a reset left is in no majority any more, but may have
acknowledged writes, until the partition has all its copies again.

Source: docs/protocol.md, sections 5 and 7.
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
    """Return a sentence on what a zone would lose without the present store of `node`, or "".

    `nodes`: the registrations by name. `away`: further agents that may not come back. The store of
    an agent that is registered as left counts as missing.
    """

    gone = {node, *away}

    def is_left(voter: Voter) -> bool:
        is_here = voter.node not in gone and _is_present(voter, nodes, persistent)
        return is_here and nodes[voter.node].left_since_ms is None

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
                missing = f": {others} missing as well" if others else ""
                found.append(
                    f"partition {row.partition} of Zone {zone} would keep {len(left)} of"
                    f" {len(voters)} copies, and needs {needed} to know every write{missing}"
                )
                break
    if not found:
        return ""
    return found[0] + (f"; and {len(found) - 1} more partitions" if len(found) > 1 else "")


def left_on(
    node: str,
    zone: str,
    persistent: bool,
    rows: Sequence[PartitionRow],
    nodes: Mapping[str, NodeRecord],
) -> str:
    """Return a sentence on copies that resets left in the present store of `node`, or ""."""
    left = [
        row.partition
        for row in rows
        if any(v.node == node and _is_present(v, nodes, persistent) for v in row.left_by_reset)
    ]
    if not left:
        return ""
    return (
        f"a reset left copies of Zone {zone} on {node}, of {len(left)} partitions from {left[0]}"
        " on: acknowledged writes that only these have, if there are any, are lost with them"
    )


def _is_present(voter: Voter, nodes: Mapping[str, NodeRecord], persistent: bool) -> bool:
    record = nodes.get(voter.node)
    return record is not None and record.zone_store(persistent) == voter.store
