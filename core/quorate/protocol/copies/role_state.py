"""The parts of a primary's role: its stage, other copies, what it gathers and repeats.

Source: docs/protocol.md, section 5.
"""

import enum
from typing import NamedTuple

from quorate.facts.errors import InvariantError
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import Migration
from quorate.protocol.messages.replication import FenceAck
from quorate.protocol.storage import Row


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
    """Messages that a role repeats until they are answered, or have had their effect.

    After which time is decided in agent/activation.py (`_begin_try`, `ready_due_ms`).
    """

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


class Peer:
    """Another copy as the primary sees it: of a voter, or of a migration's destination.

    - `promised`, `adopted`: whether its present process and store have, in this term
    - `answer`: its last report with a promise; None: none, or that of an earlier process
    - `lwm`: its LWM, which counts only once it has adopted; -1: unknown
    - `asked_ms`: the boot time at which a Fence or Sync was last sent; -1: one is sent at once
    - `told`: a Sync was sent with the last Fence
    - `progress_ms`: the boot time at which it last promised, adopted or raised its LWM
    - `lease_until`: the boot time, in ms, at which every lease is over that the copy granted to
      earlier primaries; -1 until it has reported
    - `ready`: no CopyReady is due, because it is an owner or no voter
    - `is_behind`: the master was told that it is an owner and lacks what was acknowledged
    - `ready_ms`: the boot time at which it was first reported as ready; -1: not, or it is an owner
    """

    __slots__ = (
        "adopted",
        "answer",
        "asked_ms",
        "is_behind",
        "lease_until",
        "lwm",
        "progress_ms",
        "promised",
        "ready",
        "ready_ms",
        "told",
    )

    def __init__(self) -> None:
        self.promised = False
        self.adopted = False
        self.ready = False
        self.is_behind = False
        self.ready_ms = -1
        self.lwm = -1
        self.answer: FenceAck | None = None
        self.asked_ms = -1
        self.lease_until = -1
        self.progress_ms = 0
        self.told = False


class CountedVoters:
    """The row's voters as they are counted outside joint mode, where there is one set of them.

    - `nodes`, `peers`: the other voters; one whose store is gone for good is a Peer that says
      nothing
    - `votes`: whether the role's own copy counts
    - `quorum_index`: the index of the number that a quorum reaches, when the numbers of all voters
      are in rising order
    """

    __slots__ = ("nodes", "peers", "quorum_index", "votes")

    def __init__(
        self, nodes: tuple[str, ...], peers: tuple[Peer, ...], votes: bool, quorum_index: int
    ) -> None:
        self.nodes = nodes
        self.peers = peers
        self.votes = votes
        self.quorum_index = quorum_index


class GatherPlan:
    """The log entries and copies that an activation fetches before it adopts.

    - `undo`: keys whose rows `supplier` gives; None: the own log cannot tell which keys
    - `wanted`: node -> the counter ranges to fetch from it
    - `top`: the LWM under `lineage` after that; `prefix`: up to it, own rows are valid
    """

    __slots__ = ("lineage", "prefix", "supplier", "top", "undo", "wanted")

    def __init__(
        self,
        lineage: Lineage,
        prefix: int,
        top: int,
        undo: set[bytes] | None,
        supplier: str,
        wanted: dict[str, list[tuple[int, int]]],
    ) -> None:
        self.lineage = lineage
        self.prefix = prefix
        self.top = top
        self.undo = undo
        self.supplier = supplier
        self.wanted = wanted


class Gathering:
    """Everything that an activation has fetched so far.

    - `plan`: what was missing when it was last computed; None: not yet
    - `rows`: key -> its row at the plan's supplier (None: it has none), for keys of `plan.undo`
    - `is_blocked`: the last node that supplied updates had none of those that are missing
    """

    __slots__ = ("is_blocked", "plan", "rows")

    def __init__(self) -> None:
        self.plan: GatherPlan | None = None
        self.rows: dict[bytes, Row | None] = {}
        self.is_blocked = False


class JointMode:
    """A migration for which both sets of voters, and the destination, must agree.

    `hwm`: the counter that was the highest when joint mode began.  Once they hold everything up to
    it, they have caught up.
    """

    __slots__ = ("hwm", "migration")

    def __init__(self, migration: Migration, hwm: int) -> None:
        self.migration = migration
        self.hwm = hwm


class FrozenFor(NamedTuple):
    """The migration for which a role has stopped serving, and the boot time in ms since when."""

    migration_id: str
    since_ms: int
