"""Turn the stages of Hazelcast's planner into migrations, without losing a copy on the way.

The alternative to `plan_migrations`, with the same arguments and result. The order is that of
`stage_migrations`. Three things differ, so that no step takes the copies below min(before, target)
and each node is copied to once:

- A displaced node that is wanted elsewhere keeps its copy, behind the target's places, until a
  later stage gives it its place. That stage moves no data.
- A displaced node that is not wanted leaves with the newcomer that takes its place, or else after
  every newcomer has its copy.
- A newcomer in a free place takes the vote of an offline leaver.

If the target would have owners change places in a cycle, they stay: the row reaches
`reachable_target` instead of the target.
"""

from collections.abc import Collection, Sequence

from quorate.facts.partition_row import REPLICAS_MAX
from quorate.planning.steps.plan_migrations import (
    Goal,
    PlannedMigration,
    Replicas,
    named_step,
    owners_in_place,
    owners_of,
)
from quorate.planning.steps.stage_migrations import (
    PlannedStage,
    StageKind,
    stage_migrations,
    staged_row,
    with_copies_first,
    without_cycles,
)


def plan_staged(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    target: Sequence[str | None],
    lost: Collection[str] = (),
) -> tuple[PlannedMigration, ...]:
    """Return the steps from the row (`replicas`, `voters`) to `target`; () if there are none.

    Offline voters and lost nodes are treated as by `plan_migrations`.
    """
    if tuple(replicas) == tuple(target) and len(voters) == len(target) and not lost:
        return ()  # the usual case
    goal = Goal(replicas, voters, target, lost)
    if not goal.is_in_reach():
        return ()
    walk = _Walk(goal)
    for stage in with_copies_first(stage_migrations(goal.start, goal.places)):
        walk.carry_out(stage)
    walk.let_leavers_go()
    return tuple(walk.steps)


def reachable_target(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    target: Sequence[str | None],
    lost: Collection[str] = (),
) -> Replicas:
    """Return the target in which owners that would change places in a cycle keep theirs."""
    goal = Goal(replicas, voters, target, lost)
    fixed = without_cycles(goal.start, goal.places)[: len(goal.places)]
    absent = [node for node in goal.wanted if node not in fixed]
    return tuple(absent.pop(0) if node is None and absent else node for node in fixed)


class _Walk:
    """The row and its voters after the `steps` so far, and the row that the stages lead to."""

    __slots__ = ("_goal", "_row", "_staged", "_votes", "steps")

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._row: Replicas = goal.start
        self._staged: Replicas = goal.start
        self._votes = list(goal.voters)
        self.steps: list[PlannedMigration] = []

    def carry_out(self, stage: PlannedStage) -> None:
        """Carry out one stage as one step, or as none if no node changes its place."""
        is_clear = stage.kind == StageKind.CLEAR
        if is_clear and stage.source not in self._goal.wanted:
            return  # it leaves in the end
        self._staged = staged_row(self._staged, stage)
        if is_clear:
            return  # it only needs a colder place, which a later stage gives it
        newcomer = None if stage.destination in self._votes else stage.destination
        self._step(newcomer, None if newcomer is None else self._leaver_with(stage))

    def let_leavers_go(self) -> None:
        """Drop the voters that the target does not name, unless one that it names is waited for."""
        wanted = len(self._goal.wanted)
        for leaver in self._goal.leavers_of(self._row, self._votes):
            if leaver not in self._row or len(owners_of(self._row)) > wanted:
                self._step(None, leaver)

    def _leaver_with(self, stage: PlannedStage) -> str | None:
        """Return the voter, if any, that loses its vote to the newcomer of this stage."""
        leavers = self._goal.leavers_of(self._row, self._votes)
        if stage.source in leavers:
            return stage.source
        offline = [node for node in leavers if node not in self._row]
        if offline:
            return offline[0]
        if len(self._votes) > REPLICAS_MAX:  # no row has room for one more
            return next(node for node in leavers if node != self._row[0])
        return None

    def _step(self, newcomer: str | None, leaver: str | None) -> None:
        nodes = [node for node in owners_of(self._row) if node != leaver]
        if newcomer is not None:
            nodes.append(newcomer)
        after = self._arranged(nodes)
        if newcomer is None and leaver is None and after == self._row:
            return
        if leaver is not None and newcomer is not None:
            self._votes[self._votes.index(leaver)] = newcomer
        elif leaver is not None:
            self._votes.remove(leaver)
        elif newcomer is not None:
            self._votes.append(newcomer)
        self.steps.append(named_step(self._row, newcomer, leaver, after, tuple(self._votes)))
        self._row = after

    def _arranged(self, nodes: Sequence[str]) -> Replicas:
        """Return the row with `nodes` where the stages put them, the others behind the target."""
        width = len(self._goal.places)
        after = [node if node in nodes else None for node in self._staged]
        kept = dict(owners_in_place(self._row))
        left = [node for node in nodes if node not in after]
        for at, node in kept.items():
            if node in left and width <= at < len(after) and after[at] is None:
                after[at] = node
                left.remove(node)
        for node in left:
            free = [at for at in range(width, len(after)) if after[at] is None]
            if free:
                after[free[0]] = node
            else:
                after.append(node)
        while len(after) > width and after[-1] is None:
            after.pop()
        return tuple(after)
