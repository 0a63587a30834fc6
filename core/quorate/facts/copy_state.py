"""The states of one copy of a partition, and the allowed transitions between them.

Source: Ignite 2's partition states; docs/protocol.md, section 2.
"""

import enum

from quorate.facts.errors import InvariantError


class State(enum.StrEnum):
    """State of one copy."""

    ABSENT = "ABSENT"
    """This agent never had a copy."""
    MOVING = "MOVING"
    """The copy has not adopted the term it promised, and may lack data: it votes, but its
    acknowledgements do not count."""
    OWNING = "OWNING"
    """It has adopted the term it promised: its acknowledgements count, and it supplies others."""
    RENTING = "RENTING"
    """A committed row newer than the copy does not name this agent: the data is to be removed."""
    EVICTED = "EVICTED"
    """The data is removed. The promise is kept as long as the store."""


TRANSITIONS: dict[tuple[State, State], str] = {
    (State.ABSENT, State.MOVING): "a row names this agent, or it promised a term of a row to come",
    (State.EVICTED, State.MOVING): "a row names this agent again",
    (State.MOVING, State.OWNING): "it adopts the term: everything below it is there",
    (State.OWNING, State.MOVING): "it promises a higher term",
    (State.MOVING, State.RENTING): "a newer committed row does not name it",
    (State.OWNING, State.RENTING): "a newer committed row does not name it",
    (State.RENTING, State.EVICTED): "its rows and log are removed, its promise is kept",
}
"""The reason for each allowed transition. All others are errors."""


def check_transition(partition: int, before: State, after: State) -> None:
    """Raise InvariantError unless `after` equals `before` or is an allowed transition from it."""
    if before is not after and (before, after) not in TRANSITIONS:
        raise InvariantError(f"partition {partition}: a copy that is {before} becomes {after}")
