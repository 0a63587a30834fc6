"""Which migrations carry out the stages of Hazelcast's planner, without losing a copy on the way.

The alternative to `plan_migrations`, with the same arguments and the same answer.  The order is
that of `stage_migrations`; three things differ, so that no step takes the copies below
min(before, target) and each node is copied to once:

    a node that is displaced but wanted elsewhere keeps its copy, behind the target's places, until
        a later stage gives it its place: that one moves no data
    a node that is displaced and not wanted leaves with the newcomer that takes its place, or else
        when every newcomer has its copy
    a newcomer in a free place takes the vote of an offline leaver

Where the target would have owners change places in a circle, they stay: the row does not reach the
target but `reachable_target`.
"""

from collections.abc import Collection, Sequence

from quorate.facts.partition_row import REPLICAS_MAX
from quorate.planning.plan_migrations import (
    Goal,
    PlannedMigration,
    Replicas,
    named_step,
    owners_in_place,
    owners_of,
)
from quorate.planning.stage_migrations import (
    Stage,
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
    """The steps from the row (`replicas`, `voters`) to `target`; () when there is nothing to do.

    Offline voters and lost nodes are treated as by `plan_migrations`.
    """
    if tuple(replicas) == tuple(target) and len(voters) == len(target) and not lost:
        return ()  # nearly every row, nearly always
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
    """The target with what is given up: who would change places in a circle stays in place."""
    goal = Goal(replicas, voters, target, lost)
    fixed = without_cycles(goal.start, goal.places)[: len(goal.places)]
    absent = [node for node in goal.wanted if node not in fixed]
    return tuple(absent.pop(0) if node is None and absent else node for node in fixed)


class _Walk:
    """The row and its voters after the `steps` so far, and the row of the stages beside it."""

    __slots__ = ("_goal", "_row", "_staged", "_votes", "steps")

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._row: Replicas = goal.start
        self._staged: Replicas = goal.start
        self._votes = list(goal.voters)
        self.steps: list[PlannedMigration] = []

    def carry_out(self, stage: Stage) -> None:
        """One stage, as one step or, where nobody's place changes, as none."""
        is_clear = stage.kind == StageKind.CLEAR
        if is_clear and stage.source not in self._goal.wanted:
            return  # it leaves in the end
        self._staged = staged_row(self._staged, stage)
        if is_clear:
            return  # a colder place, which a later stage gives it, is all it needs
        newcomer = None if stage.destination in self._votes else stage.destination
        self._step(newcomer, None if newcomer is None else self._leaver_with(stage))

    def let_leavers_go(self) -> None:
        """Drop the voters that the target does not name, unless one that it does is waited for."""
        wanted = len(self._goal.wanted)
        for leaver in self._goal.leavers_of(self._row, self._votes):
            if leaver not in self._row or len(owners_of(self._row)) > wanted:
                self._step(None, leaver)

    def _leaver_with(self, stage: Stage) -> str | None:
        """Who loses its vote to the newcomer of this stage."""
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
        """Each node where the stages have it, the others behind the target's places."""
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
