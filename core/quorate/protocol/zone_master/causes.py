"""Causes of a change of a row: whether a cause blames a node, and its sentence."""

import enum
from typing import NamedTuple


class Cause(enum.Enum):
    """The causes, each with its sentence. The `{}` are filled with `Why.about`, in its order."""

    PLACED = "first placement"
    STARTED = "{} started"
    COMMITTED = "{} committed"
    FOUND_PREPARED = "{} committed: its destination has stored the row"
    """A new master finds that its predecessor's migration was prepared."""
    GIVEN_UP = "{} failed: {}"
    UNWANTED = "{} failed: the target has changed"
    CANCELLED = "{} cancelled by a person"
    ROLLED_BACK = "{} rolled back"
    """A new master cannot know how far its predecessor's migration was."""
    TAKEN_OVER = "{}: {} takes over"
    PRIMARY_BACK = "the primary is back"
    ONE_SET = "both sets of voters were merged"
    LEFT = "{} left"
    LEFT_NO_QUORUM = "{} left, no quorum"
    NOT_COUNTED = "{} restarted before the primary counted it as an owner"
    OWNS_AGAIN = "{} is an owner again"
    REBUILT = "rebuilt from the agents' data"
    RESET = "{} left and the majority was lost: {} alone votes"
    GIVEN_UP_COPY = "the copies on {} that a reset left are not needed any more"
    STARTED_EMPTY = "every copy was lost: started empty"
    RESTARTED = "a person restarted the copy on {}: {} serves in a new term"
    WRITTEN_AGAIN = "restored after another client changed it"

    @property
    def blames_destination(self) -> bool:
        """Whether the same migration waits, longer each time, before it is tried again."""
        return self in (Cause.GIVEN_UP, Cause.CANCELLED)

    @property
    def is_cancellation(self) -> bool:
        """Whether the migration was given up although nothing failed."""
        return self in (Cause.UNWANTED, Cause.CANCELLED)

    @property
    def is_told_elsewhere(self) -> bool:
        """Whether users get no event that rows changed.

        Events of the migration tell of these causes, or they are of no interest.
        """
        return self in _TOLD_ELSEWHERE


_TOLD_ELSEWHERE = frozenset(
    {
        Cause.STARTED,
        Cause.COMMITTED,
        Cause.FOUND_PREPARED,
        Cause.GIVEN_UP,
        Cause.UNWANTED,
        Cause.CANCELLED,
        Cause.ROLLED_BACK,
        Cause.OWNS_AGAIN,
        Cause.STARTED_EMPTY,
        Cause.RESET,
    }
)


class Why(NamedTuple):
    """A cause and what it is about."""

    cause: Cause
    about: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The sentence for people, without a full stop."""
        return self.cause.value.format(*self.about)
