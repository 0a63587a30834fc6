"""What a primary's role consists of: its stage, and what it repeats until it is answered.

Source: docs/protocol.md, section 5.
"""

import enum

from quorate.facts.errors import InvariantError


class Stage(enum.IntEnum):
    """How far the activation of a role is."""

    FENCING = 1
    """Too few voters have promised the term."""
    GATHERING = 2
    """A quorum of the voters has promised. The copy fetches what it lacks of what they hold."""
    ADOPTING = 3
    """The copy has adopted the term, perhaps not durably yet; a quorum of the voters has not."""
    WAITING = 4
    """A quorum of the voters has adopted. An earlier primary may still have its lease."""
    SERVING = 5
    """Commands are taken while a quorum grants the lease, until the role is frozen."""


TRANSITIONS: dict[tuple[Stage, Stage], str] = {
    (Stage.FENCING, Stage.GATHERING): "a quorum of the voters has promised the term",
    (Stage.GATHERING, Stage.FENCING): "a voter must promise again, and without it is no quorum",
    (Stage.GATHERING, Stage.ADOPTING): "nothing is missing",
    (Stage.FENCING, Stage.ADOPTING): "after a hand-over nothing is to be gathered",
    (Stage.ADOPTING, Stage.WAITING): "a quorum of the voters has adopted, this copy durably",
    (Stage.WAITING, Stage.SERVING): "leases of earlier primaries are over, or it was handed over",
}
"""The reason for each allowed transition. All others are errors. A role may end in any stage."""


def check_transition(partition: int, before: Stage, after: Stage) -> None:
    """Raise InvariantError unless `after` equals `before` or is an allowed transition from it."""
    if before is not after and (before, after) not in TRANSITIONS:
        raise InvariantError(
            f"partition {partition}: a role that is {before.name} becomes {after.name}"
        )


NEVER_MS = -(1 << 40)
"""A boot time before all others."""


class Retry(enum.IntEnum):
    """What a role sends again until it is answered, or has had its effect."""

    UPDATES = 1
    """`FetchUpdates`, to each node that holds some that are missing."""
    KEYS = 2
    """`FetchKeys`, to the one node that supplies rows."""
    BLOCKED = 3
    """`ActivationBlocked`, to the master."""
    CAUGHT_UP = 4
    """`CaughtUp`, to the master."""
    FROZEN = 5
    """`Frozen`, to the master."""
    READY = 6
    """`CopyReady`, to the master, for each node whose copy is ready."""
    POSITION = 7
    """The role's position, to each node whose copy is behind."""


class Retries:
    """When a role last sent what it repeats: by what it is, and by the node that it concerns.

    What goes to the master, or to one node at a time, is kept under the empty node.
    """

    __slots__ = ("_sent_ms",)

    def __init__(self) -> None:
        self._sent_ms: dict[tuple[Retry, str], int] = {}

    def sent_ms(self, what: Retry, node: str = "") -> int:
        """Return when it was last sent (boot ms); NEVER_MS: not yet, or it was answered."""
        return self._sent_ms.get((what, node), NEVER_MS)

    def note_sent(self, what: Retry, now_ms: int, node: str = "") -> None:
        """Note that it is sent now."""
        self._sent_ms[what, node] = now_ms

    def note_answered(self, what: Retry, node: str = "") -> None:
        """Note that it was answered, or has changed: it is sent at once when it is needed again."""
        self._sent_ms.pop((what, node), None)

    def forget(self) -> None:
        """Forget all of it, so that everything is sent at once."""
        self._sent_ms.clear()
