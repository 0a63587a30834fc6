"""Choose the next change of one row: remove voters that are gone for good, restore them, go on.

A node that comes back without its data (an InMemory restart, a lost volume) is not the same voter:
it could promise twice. So its old voter is removed first, and then a new copy is made on it. All
that are known to be gone are removed together; their copies are made one after the other.
Source: Ignite 3, IGNITE-16668 (switch.reduce, switch.append); docs/protocol.md, section 6.
"""

from collections.abc import Collection, Sequence

from quorate.facts.partition_row import quorum
from quorate.facts.zone import Planner
from quorate.planning.steps.plan_migrations import PlannedMigration, named_step, plan_migrations
from quorate.planning.steps.plan_staged import plan_staged

_PLANS = {Planner.MINIMAL: plan_migrations, Planner.STAGED: plan_staged}


def plan_step(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    wanted: Sequence[str],
    lost: Collection[str],
    dead: Collection[str],
    size: int,
    planner: Planner = Planner.MINIMAL,
    given_up: Collection[str] = (),
) -> PlannedMigration | None:
    """Return the first step from the row towards `wanted` (nodes by replica index), or None.

    - `dead`: voters whose store is gone for good. Their nodes may be online, with another store.
    - `lost`: nodes that are not online, and voters whose store is not.
    - `size`: the zone's replicas. In a row of up to `size` voters, a voter that is only lost stays
      one until another replaces it in the same step.
    - `given_up`: voters that are dropped, if they are lost, and if no newcomer replaces them.
      `wanted` names none of them.

    With the planner Staged the row ends at `plan_staged.reachable_target`, which may differ from
    `wanted`.
    """
    appended = [n for n in wanted if n not in voters and n not in lost]
    leavers = [node for node in voters if node in dead]
    if not appended and _is_quorum_there(voters, lost, dead):
        leavers = [n for n in voters if n in dead or (n in given_up and n in lost)]
    if leavers and (len(voters) >= len(wanted) or not appended):
        # Voters that were removed before are restored first, so a row does not shrink from loss to
        # loss.
        return _without(leavers, replicas, voters)
    steps = _PLANS[planner](replicas, voters, wanted, lost)
    if not steps or len(steps[0].voters) < min(len(voters), size):
        return None
    return steps[0]


def _is_quorum_there(voters: Sequence[str], lost: Collection[str], dead: Collection[str]) -> bool:
    """Return whether enough voters are online to commit a row without those that are silent."""
    there = [node for node in voters if node not in lost and node not in dead]
    return len(there) >= quorum(len(voters), sum(node in dead for node in voters))


def _without(
    leavers: Sequence[str], replicas: Sequence[str | None], voters: Sequence[str]
) -> PlannedMigration:
    after = [None if node in leavers else node for node in replicas]
    for _ in range(min(len(leavers), after.count(None))):
        del after[len(after) - 1 - after[::-1].index(None)]
    left = tuple(node for node in voters if node not in leavers)
    return named_step(tuple(replicas), None, leavers[0], tuple(after), left)
