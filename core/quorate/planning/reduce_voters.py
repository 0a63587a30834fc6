"""Which voter leaves first when stores are gone for good: a row is reduced before it grows again.

A node that comes back without what it held (an InMemory restart, a lost volume) is not the voter it
was: it could promise twice.  Its old self is removed, and only then a new copy is made on it.
Source: Ignite 3, IGNITE-16668 (switch.reduce, switch.append); docs/protocol.md, section 6.
"""

from collections.abc import Collection, Sequence

from quorate.planning.plan_migrations import PlannedMigration, named_step


def reduce_voters(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    dead: Collection[str],
    wanted: Sequence[str],
    online: Collection[str],
) -> PlannedMigration | None:
    """The DROP that is due, None when there is none (or something goes before it).

    `dead`: voters whose store is gone for good; `wanted`: the row's target; `online`: nodes that
    could take a copy.  What was removed is first brought back, as long as one of `wanted` is there
    for it: so that never more than one is missing on account of a reduction.
    """
    due = [node for node in voters if node in dead]
    if not due:
        return None
    if len(voters) < len(wanted) and any(n in online and n not in voters for n in wanted):
        return None
    leaver = due[0]
    after = [None if node == leaver else node for node in replicas]
    if None in after:
        del after[len(after) - 1 - after[::-1].index(None)]
    left = tuple(node for node in voters if node != leaver)
    return named_step(tuple(replicas), None, leaver, tuple(after), left)
