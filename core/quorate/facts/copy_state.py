"""What a copy may become: the states of one copy of a partition, and every way between them.

Source: Ignite 2's partition states; docs/protocol.md, section 2.
"""

import enum

from quorate.facts.errors import InvariantError


class State(enum.StrEnum):
    """What one copy is worth."""

    ABSENT = "ABSENT"
    """Nothing was ever here."""
    MOVING = "MOVING"
    """Data, perhaps, but not of the term it has promised: it votes, its acknowledgements do not."""
    OWNING = "OWNING"
    """It has adopted the term it promised: it counts, and supplies others."""
    RENTING = "RENTING"
    """A committed row newer than the copy names this agent nowhere: its data goes."""
    EVICTED = "EVICTED"
    """Its data is gone, its promise stays as long as the store."""
    LOST = "LOST"
    """The stores of all voters are gone for good.  Only the master can tell; agents keep what is
    there, and nothing leads out of it but a decision of a person."""


TRANSITIONS: dict[tuple[State, State], str] = {
    (State.ABSENT, State.MOVING): "a row names this agent, or it promised a term of a row to come",
    (State.EVICTED, State.MOVING): "a row names this agent again",
    (State.MOVING, State.OWNING): "it adopts the term: everything below it is there",
    (State.OWNING, State.MOVING): "it promises a higher term",
    (State.MOVING, State.RENTING): "a newer committed row does not name it",
    (State.OWNING, State.RENTING): "a newer committed row does not name it",
    (State.RENTING, State.EVICTED): "its rows and log are removed, its promise is kept",
    (State.MOVING, State.LOST): "every voter's store is gone for good",
    (State.OWNING, State.LOST): "every voter's store is gone for good",
}
"""Why a copy goes from one state to another; what is not listed does not happen."""


def check_transition(partition: int, before: State, after: State) -> None:
    """Raise InvariantError unless `after` is `before` or a transition leads to it."""
    if before is not after and (before, after) not in TRANSITIONS:
        raise InvariantError(f"partition {partition}: a copy that is {before} becomes {after}")
