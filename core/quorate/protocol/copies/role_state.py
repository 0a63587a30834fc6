"""The stages of a primary's role, and the allowed transitions between them.

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
