"""Which combinations the crash matrix has: what migration, who is hurt, when, and how."""

from __future__ import annotations

import enum
import itertools
from typing import NamedTuple

from migration_words import Kind, Moment, Role, why_impossible


class Fault(enum.StrEnum):
    """What is done to it."""

    CRASH = "crash"
    """Its connections break at once: what was on its way is lost."""
    POWER_LOSS = "power loss"
    """The machine: what it had not synced is lost, what it had sent may arrive."""
    FREEZE = "freeze"
    CUT_OUT = "cut out"
    CUT_IN = "cut in"
    CUT_BOTH = "cut both"
    LOST_FROM = "message from it lost"
    LOST_TO = "message to it lost"
    TWICE_FROM = "message from it twice"
    TWICE_TO = "message to it twice"
    FOLLOWED = "followed by another, goes on"
    """A master that does not know that it is followed by another, and goes on writing beside it."""
    FOLLOWED_FROZEN = "frozen, followed by another, goes on"
    """It wakes up when the other one leads."""
    FOLLOWED_CUT = "cut off from agents, followed by another, goes on"
    """It reaches the metastore all the time, and takes every agent for left."""
    FOLLOWED_STALLED = "cut off from the metastore, followed by another, goes on"
    """What it had begun to write arrives when the other one leads."""


MESSAGE_FAULTS = {
    Fault.LOST_FROM: (True, 0),
    Fault.LOST_TO: (False, 0),
    Fault.TWICE_FROM: (True, 2),
    Fault.TWICE_TO: (False, 2),
}
"""Whether the struck process sends the message, and how often it arrives."""

FOLLOWED = (Fault.FOLLOWED, Fault.FOLLOWED_FROZEN, Fault.FOLLOWED_CUT, Fault.FOLLOWED_STALLED)


class Case(NamedTuple):
    """One run.  The source, where nobody gives up its place, is the primary: the data's."""

    kind: Kind
    role: Role
    moment: Moment
    fault: Fault

    def __str__(self) -> str:
        return f"{self.kind}, {self.role}, {self.moment}: {self.fault}"


def whole() -> list[Case]:
    """Every combination, sensible or not."""
    return list(itertools.starmap(Case, itertools.product(Kind, Role, Moment, Fault)))


def why_not(case: Case) -> str:
    """Why the combination is left out; "" when it is not."""
    if case.role is Role.MASTER and case.fault is Fault.POWER_LOSS:
        return "a master has no disk: its machine's end is its own"
    if case.role is not Role.MASTER and case.fault in FOLLOWED:
        return "only a master is followed by another"
    return why_impossible(case.kind, case.moment, case.role)


def cases(kind: Kind, role: Role) -> list[Case]:
    """Those that make sense."""
    return [c for c in whole() if c.kind is kind and c.role is role and not why_not(c)]
