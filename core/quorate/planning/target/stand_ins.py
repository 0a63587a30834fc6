"""Let other nodes stand in for absent ones where a copy is to leave an agent soon.

A node that is waited for counts as online in a target, so it keeps its share and gets more when it
is back. But a copy that moves off an agent, because a person drains it, must not wait for that:
the node may be waited for without end. Such a copy goes to a node that is there. When the absent
node is back, the next target gives it its share.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from quorate.planning.target.distribute_partitions import DataNode, Distribution


def is_drained(
    voters: Iterable[str], wanted: Collection[str], gives_away: Callable[[str], bool]
) -> bool:
    """Return whether a partition has a copy, or a vote, to move off an agent that is to have none.

    `wanted`: its target. `gives_away`: whether the copies of an agent are to move off it.
    """
    return any(gives_away(node) and node not in wanted for node in voters)


def with_stand_ins(
    target: Distribution,
    current: Sequence[Sequence[str | None]],
    partitions: Iterable[int],
    nodes: Sequence[DataNode],
    absent: Collection[str],
) -> Distribution:
    """Return the target with nodes that are there in place of newcomers that are not.

    - `current[partition]`: its owners and voters, counting an active migration as done.
    - `partitions`: those that have a copy to move off an agent. All others stay as they are.
    - `absent`: nodes of the target that are not there.

    A node that has a copy already, or is getting one, is taken first; then one of a failure domain
    that the partition does not use yet; then one with few copies for its weight. Where no node is
    left, the absent one stays.
    """
    there = {node.name: node for node in nodes if node.online and node.name not in absent}
    copies = dict.fromkeys(there, 0)
    for assigned in target.assignments:
        for name in assigned:
            if name in copies:
                copies[name] += 1
    domains = {node.name: node.failure_domain or f"\0{node.name}" for node in nodes}
    assignments = list(target.assignments)
    for partition in partitions:
        present, owners = current[partition], list(assignments[partition])
        for at, name in enumerate(owners):
            if name not in absent or name in present:
                continue
            used = {domains.get(owner) for owner in owners if owner != name}
            free = [other for other in there if other not in owners]
            if not free:
                break
            owners[at] = min(
                free,
                key=lambda other: (
                    other not in present,
                    domains[other] in used,
                    copies[other] / there[other].weight,
                    other,
                ),
            )
            copies[owners[at]] += 1
        assignments[partition] = tuple(owners)
    return msgspec.structs.replace(target, assignments=tuple(assignments))
