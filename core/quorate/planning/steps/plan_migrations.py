"""Plan the migrations that bring one partition's row to its target, and their order.

Source: docs/protocol.md, section 6, planner `Minimal`. Stateless and pure: the same row and target
give the same steps. A plan that stops after any step is planned again from there without copying
anything twice.

A step is one atomic change of one row: at most one newcomer, any reordering, at most one leaver.
Only steps with a newcomer copy data, so there are exactly |target - current| of them.

    repairs     newcomer for a lost leaver (MOVE), or into a free place (COPY, SHIFT_DOWN)
    hand-over   an existing backup becomes the primary (SWAP)
    moves       newcomer for a leaver that is online (MOVE), lowest replica index first
    leavers     without a newcomer (DROP), offline ones first
    order       backups change places among themselves (SHIFT_UP)

Index 0 changes only to the step's destination: one node is asked to confirm the last counter and
becomes the holder of the new term. So a leaving primary hands over in a step of its own, unless the
newcomer is the next primary.
"""

from collections.abc import Collection, Sequence
from itertools import zip_longest

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import MigrationKind

Replicas = tuple[str | None, ...]


class PlannedMigration(msgspec.Struct, frozen=True):
    """One step. `replicas` and `voters` are the row after its commit.

    - `source`: of a MOVE or DROP the leaver (which may be lost), of a SHIFT_DOWN the node that
      gives up its place, of a SWAP the old primary, of a SHIFT_UP the node that moves up, of a COPY
      None.
    - `destination`: the newcomer, of a SWAP the new primary, else None.
    - `leaver`: the first of several, where voters are dropped whose stores are gone for good.
    """

    kind: MigrationKind
    source: str | None
    destination: str | None
    newcomer: str | None
    leaver: str | None
    replicas: Replicas
    voters: tuple[str, ...]


def plan_migrations(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    target: Sequence[str | None],
    lost: Collection[str] = (),
) -> tuple[PlannedMigration, ...]:
    """Return the steps from the row (`replicas`, `voters`) to `target`; () if there are none.

    `replicas` has None where a voter is offline; `target` names the wanted owners by replica index.
    A node of the target that votes but does not own (offline, or filling again) is waited for: its
    place stays None, and no copy is dropped on its account. A node of the target that is `lost` and
    has no vote is left out.

    Also () if there is no primary at index 0 to copy from, or no node of the target is online.
    """
    if tuple(replicas) == tuple(target) and len(voters) == len(target) and not lost:
        return ()  # the usual case
    goal = Goal(replicas, voters, target, lost)
    row = goal.start
    if not goal.is_in_reach():
        return ()
    votes = list(voters)
    pairs = goal.pairs()
    repairs = [(new, old) for new, old in pairs if old is None or old not in row]
    moves = [(new, old) for new, old in pairs if old is not None and old in row]

    steps: list[PlannedMigration] = []

    def step(newcomer: str | None, leaver: str | None, primary: str | None) -> None:
        nonlocal row
        after = goal.arrange(row, newcomer, leaver, primary)
        if newcomer is None and leaver is None and owners_in_place(after) == owners_in_place(row):
            return
        if leaver is not None and newcomer is not None:
            votes[votes.index(leaver)] = newcomer
        elif leaver is not None:
            votes.remove(leaver)
        elif newcomer is not None:
            votes.append(newcomer)
        steps.append(named_step(row, newcomer, leaver, after, tuple(votes)))
        row = after

    def primary_with(newcomer: str | None) -> str | None:
        """Return the primary after a step: the newcomer if the target says so, else as before."""
        return newcomer if newcomer == goal.primary else row[0]

    for newcomer, leaver in repairs:
        step(newcomer, leaver, primary_with(newcomer))
    if row[0] != goal.primary and goal.primary in row:
        step(None, None, goal.primary)
    for newcomer, leaver in moves:
        step(newcomer, leaver, primary_with(newcomer))
    for leaver in goal.leavers_of(row, votes):
        if leaver not in row or len(owners_of(row)) > len(goal.wanted):
            step(None, leaver, primary_with(None))
    step(None, None, goal.primary)
    return tuple(steps)


def is_reached(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    target: Sequence[str | None],
    lost: Collection[str] = (),
) -> bool:
    """Return whether the row is what `target` asks for, as far as the online nodes permit."""
    goal = Goal(replicas, voters, target, lost)
    return goal.is_final(goal.start) and sorted(voters) == sorted(goal.wanted)


def check_plan(
    replicas: Sequence[str | None],
    voters: Sequence[str],
    target: Sequence[str | None],
    steps: Sequence[PlannedMigration],
    lost: Collection[str] = (),
) -> None:
    """Raise InvariantError unless every step is one safe atomic change and the last one arrives.

    I-1: no step takes the OWNING copies below min(before, target). I-8: each step is complete in
    itself (one newcomer, one leaver, all others stay), and no node is copied to without need.
    """
    goal = Goal(replicas, voters, target, lost)
    row, votes = goal.start, tuple(voters)
    for number, step in enumerate(steps, 1):
        _check_step(f"step {number} of the plan for {target}: {step}", goal, row, votes, step)
        row, votes = step.replicas, step.voters
    if not goal.is_in_reach():
        if steps:
            raise InvariantError(f"plan for {target} from {replicas} has nothing to go to: {steps}")
        return
    copied = [step.newcomer for step in steps if step.newcomer is not None]
    if sorted(copied) != sorted(goal.newcomers):
        raise InvariantError(f"plan for {target} copies to {copied}, needed: {goal.newcomers}")
    leavers = goal.leavers_of(row, votes)
    if leavers and all(node in row for node in leavers) and len(owners_of(row)) <= len(goal.wanted):
        return  # they leave when the voters that the target waits for are back
    if leavers or not goal.is_final(row):
        raise InvariantError(f"plan for {target} from {replicas} ends at {row}, voters {votes}")


def _check_step(
    what: str, goal: "Goal", row: Replicas, votes: tuple[str, ...], step: PlannedMigration
) -> None:
    gone = set() if step.leaver is None else {step.leaver}
    come = set() if step.newcomer is None else {step.newcomer}
    owners, after = owners_of(row), owners_of(step.replicas)
    if sorted(after) != sorted((set(owners) - gone) | come):
        raise InvariantError(f"I-8: {what} changes more owners than it says, from {row}")
    if sorted(step.voters) != sorted((set(votes) - gone) | come) or not gone <= set(votes):
        raise InvariantError(f"I-8: {what} changes more voters than it says, from {votes}")
    if come & set(votes):
        raise InvariantError(f"I-8: {what} copies to a voter of {votes}")
    if row == step.replicas and votes == step.voters:
        raise InvariantError(f"I-8: {what} changes nothing")
    if step.replicas[0] is None or step.replicas[0] not in (row[0], step.destination):
        raise InvariantError(f"I-8: {what} makes a primary of neither the old one nor destination")
    if len(after) < min(len(owners), len(goal.wanted)):
        raise InvariantError(f"I-1: {what} leaves {len(after)} OWNING copies of {len(owners)}")


class Goal:
    """The target as far as it can be reached now, and the ways to get nearer to it.

    `wanted`: the members in order of replica index. `places`: the `replicas` to arrive at.
    """

    __slots__ = ("newcomers", "places", "primary", "start", "voters", "wanted")

    def __init__(
        self,
        replicas: Sequence[str | None],
        voters: Sequence[str],
        target: Sequence[str | None],
        lost: Collection[str],
    ) -> None:
        self.start: Replicas = tuple(None if node in lost else node for node in replicas)
        self.voters = tuple(voters)
        places = [node if node in voters or node not in lost else None for node in target]
        self.wanted = tuple(node for node in places if node is not None)
        self.newcomers = tuple(node for node in self.wanted if node not in voters)
        online = [node for node in self.wanted if node not in voters or node in self.start]
        if online and places[0] not in online:
            # The intended primary is not online: the present primary stays, or else the member with
            # the lowest replica index.
            now = self.start[0] if self.start else None
            stand_in = now if now in online else online[0]
            at = places.index(stand_in)
            places[at], places[0] = places[0], stand_in
        self.primary = places[0] if online else None
        self.places = [node if node in online else None for node in places]

    def is_in_reach(self) -> bool:
        """Return whether there is a primary to copy from and an online member of the target."""
        return bool(self.start) and self.start[0] is not None and self.primary is not None

    def pairs(self) -> list[tuple[str, str | None]]:
        """Return each newcomer, lowest index first, with the voter it replaces, if any."""
        newcomers = sorted(self.newcomers, key=self.places.index)
        leavers: list[str | None] = [*self.leavers_of(self.start, self.voters)]
        return list(zip_longest(newcomers, leavers[: len(newcomers)]))

    def leavers_of(self, row: Replicas, votes: Sequence[str]) -> list[str]:
        """Return the voters that the target does not name, in the order of leaving.

        Offline ones come first, then the highest replica index. The primary is the last; but if the
        next primary is a newcomer, it replaces the present one, unless a leaver is offline.
        """
        offline = [node for node in votes if node not in row and node not in self.wanted]
        online = [node for node in reversed(row) if node is not None and node not in self.wanted]
        if row[0] in online and self.primary in self.newcomers:
            online.insert(0, online.pop())
        return offline + online

    def arrange(
        self, row: Replicas, newcomer: str | None, leaver: str | None, primary: str | None
    ) -> Replicas:
        """Return the row after a step: `primary` first, the others near their places."""
        owners = [node for node in row if node is not None and node != leaver]
        if newcomer is not None:
            owners.append(newcomer)
        after: list[str | None] = [None] * max(len(row), len(self.places), len(owners))
        after[0] = primary
        left = [node for node in owners if node != primary]
        for at, node in enumerate(self.places):
            if at and node is not None and node in left:
                after[at] = node
                left.remove(node)
        for node in left[:]:
            at = row.index(node) if node in row else 0
            if after[at] is None:
                after[at] = node
                left.remove(node)
        for node in left:
            after[after.index(None)] = node
        while len(after) > len(self.places) and after[-1] is None:
            after.pop()
        return tuple(after)

    def is_final(self, row: Replicas) -> bool:
        """Return whether every owner is where the target wants it."""
        return owners_in_place(row) == owners_in_place(self.places)


def owners_of(row: Replicas) -> list[str]:
    """Return the owners, lowest replica index first."""
    return [node for node in row if node is not None]


def owners_in_place(row: Sequence[str | None]) -> list[tuple[int, str]]:
    """Return the owners with their replica index, to compare rows of different width."""
    return [(at, node) for at, node in enumerate(row) if node is not None]


def named_step(
    row: Replicas,
    newcomer: str | None,
    leaver: str | None,
    after: Replicas,
    voters: tuple[str, ...],
) -> PlannedMigration:
    """Return the step with its kind and source, as PlannedMigration defines them."""
    destination, source = newcomer, leaver
    if newcomer is not None and leaver is not None:
        kind = MigrationKind.MOVE
    elif newcomer is not None:
        at = after.index(newcomer)
        source = row[at] if at < len(row) else None
        kind = MigrationKind.COPY if source is None else MigrationKind.SHIFT_DOWN
    elif leaver is not None:
        kind = MigrationKind.DROP
    elif row[0] != after[0]:
        kind, source, destination = MigrationKind.SWAP, row[0], after[0]
    else:
        kind = MigrationKind.SHIFT_UP
        source = next(
            (n for at, n in enumerate(after) if n is not None and row.index(n) > at), None
        )
    return PlannedMigration(kind, source, destination, newcomer, leaver, after, voters)
