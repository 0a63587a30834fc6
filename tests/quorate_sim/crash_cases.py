"""Which combinations the crash matrix has: what migration, who is hurt, when, and how."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from typing import NamedTuple

from migration_words import (
    WITH_DESTINATION,
    WITH_LEAVER,
    WITH_NEW_PRIMARY,
    WITH_NEWCOMER,
    Kind,
    Moment,
    Role,
)


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


NOT_SENSIBLE: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    (
        "nothing is filled where nobody comes",
        lambda c: c.moment is Moment.FILLING and c.kind not in WITH_NEWCOMER,
    ),
    (
        "nobody freezes where the primary stays",
        lambda c: c.moment is Moment.FROZEN and c.kind not in WITH_NEW_PRIMARY,
    ),
    (
        "nobody prepares where there is no destination",
        lambda c: (
            c.moment in (Moment.PREPARED_ROW_SENT, Moment.PREPARED_ROW_STORED)
            and c.kind not in WITH_DESTINATION
        ),
    ),
    (
        "nobody deletes where nobody leaves",
        lambda c: c.moment is Moment.SOURCE_DELETES and c.kind not in WITH_LEAVER,
    ),
    (
        "SHIFT_UP and DROP have no destination",
        lambda c: c.role is Role.DESTINATION and c.kind not in WITH_DESTINATION,
    ),
    (
        "the primary is the source, but where a backup leaves",
        lambda c: c.role is Role.PRIMARY and c.kind not in (Kind.MOVE_BACKUP, Kind.DROP),
    ),
    (
        "a master has no disk: its machine's end is its own",
        lambda c: c.role is Role.MASTER and c.fault is Fault.POWER_LOSS,
    ),
    (
        "only a master is followed by another",
        lambda c: c.role is not Role.MASTER and c.fault in FOLLOWED,
    ),
)
"""Why a combination is left out."""


def whole() -> list[Case]:
    """Every combination, sensible or not."""
    return list(itertools.starmap(Case, itertools.product(Kind, Role, Moment, Fault)))


def why_not(case: Case) -> str:
    """Why the combination is left out; "" when it is not."""
    return next((why for why, is_so in NOT_SENSIBLE if is_so(case)), "")


def cases(kind: Kind, role: Role) -> list[Case]:
    """Those that make sense."""
    return [c for c in whole() if c.kind is kind and c.role is role and not why_not(c)]
