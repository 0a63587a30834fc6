"""Why the master changes a row: the cause, whom it blames, and the sentence that tells it."""

import enum
from typing import NamedTuple


class Cause(enum.Enum):
    """Each with its sentence; `{}` stands for what it is about, in the order of `Why.about`."""

    PLACED = "first placement"
    STARTED = "{} started"
    COMMITTED = "{} committed"
    FOUND_PREPARED = "{} committed: its destination has stored the row"
    """By a new master, in its predecessor's place."""
    GIVEN_UP = "{} failed: {}"
    UNWANTED = "{} failed: the target has changed"
    ROLLED_BACK = "{} rolled back"
    """By a new master: it cannot know how far its predecessor's migration was."""
    TAKEN_OVER = "{}: {} takes over"
    PRIMARY_BACK = "the primary is back"
    ONE_SET = "both sets of voters are one"
    LEFT = "{} left"
    LEFT_NO_QUORUM = "{} left, no quorum"
    OWNS_AGAIN = "{} owns again"
    REBUILT = "rebuilt from what agents have"
    WRITTEN_AGAIN = "as it was before another changed it"

    @property
    def blames_destination(self) -> bool:
        """Whether the same migration waits, longer each time, before it is tried again."""
        return self is Cause.GIVEN_UP

    @property
    def is_told_elsewhere(self) -> bool:
        """Whether Events of the migration tell it, or nobody asks; of all others users are told
        that rows changed."""
        return self in _TOLD_ELSEWHERE


_TOLD_ELSEWHERE = frozenset(
    {
        Cause.STARTED,
        Cause.COMMITTED,
        Cause.FOUND_PREPARED,
        Cause.GIVEN_UP,
        Cause.UNWANTED,
        Cause.ROLLED_BACK,
        Cause.OWNS_AGAIN,
    }
)


class Why(NamedTuple):
    """A cause and what it is about."""

    cause: Cause
    about: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """For people, without a full stop."""
        return self.cause.value.format(*self.about)
