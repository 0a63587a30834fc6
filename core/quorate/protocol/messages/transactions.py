"""What agents say to each other of transactions across partitions, and the rows they keep of them.

The messages are part of `message.Message`.  `transaction` names one attempt of one transaction;
its *home* is the lowest of its partitions, where it is decided.  (term, counter) are those of the
update that prepared a part: they tell it from any other part of the same name.
Source: docs/protocol.md, section 9.
"""

import msgspec

from quorate.facts.topology import Holder
from quorate.protocol.messages.clients import Words
from quorate.protocol.storage import Operation

Watched = tuple[bytes, int, int]
"""A key, and the (term, counter) that its row must still have; with term 0 there must be none, and
have been none since that counter."""

PartName = tuple[int, int, int]
"""(partition, term, counter) of a part that was prepared."""


class PreparePart(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """Lock `keys` once nobody else has them, execute `commands`, keep what they would write.

    Without commands and conditions nothing is locked: it is told how the rows of `keys` are."""

    zone: str
    transaction: bytes
    partition: int
    home: int
    coordinator: Holder
    keys: tuple[bytes, ...]
    commands: tuple[Words, ...]
    watched: tuple[Watched, ...]
    resp3: bool

    @property
    def looks(self) -> bool:
        """Whether it only asks."""
        return not self.commands and not self.watched


class PartPrepared(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """What the commands answer, should it be committed; or, with `refusal`, why nothing is kept.

    Counter 0 and no refusal: nothing is to be decided; the answers say how the keys' rows are."""

    zone: str
    transaction: bytes
    partition: int
    home: int
    term: int
    counter: int
    answers: tuple[bytes, ...]
    refusal: bytes


class Decide(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """To the home: commit, if your part is still (term, counter).  `others`: the other parts."""

    zone: str
    transaction: bytes
    partition: int
    term: int
    counter: int
    others: tuple[PartName, ...]


class Decided(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """Committed for good; or not there, so it is aborted, if nobody was asked to decide before.

    The first is said again until the coordinator has confirmed it (PartFinished)."""

    zone: str
    transaction: bytes
    home: int
    committed: bool


class FinishPart(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """Write what was kept, or forget it.  Counter 0: whichever part it is, it is aborted."""

    zone: str
    transaction: bytes
    partition: int
    home: int
    term: int
    counter: int
    commit: bool


COORDINATOR = -1
"""The partition of a PartFinished by which a coordinator confirms a decision."""


class PartFinished(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """The part that was named is not there any more: durably."""

    zone: str
    transaction: bytes
    partition: int
    home: int


class AskDecision(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """To the home: what became of it?  Answered by FinishPart, once it is decided."""

    zone: str
    transaction: bytes
    home: int
    partition: int
    term: int
    counter: int


BYTES_PER_MS = 10_000
"""What is said again while it may be on its way still makes a slow link slower: what is large is
waited for as long as it takes at 10 MB per second."""


TransactionMessage = (
    PreparePart | PartPrepared | Decide | Decided | FinishPart | PartFinished | AskDecision
)


class Part(msgspec.Struct, frozen=True, array_like=True, tag="part"):
    """The row of a part that is prepared and not yet committed or aborted: its keys are locked.

    `room`: in memory, as much as the rows of `operations` take beside their keys and values: there
    is room for them on every copy when they take its place."""

    home: int
    coordinator: Holder
    keys: tuple[bytes, ...]
    operations: tuple[Operation, ...]
    answers: tuple[bytes, ...]
    room: bytes = b""


class Decision(msgspec.Struct, frozen=True, array_like=True, tag="decision"):
    """The row, at the home, of a transaction that is committed, while parts of it may be left or
    its coordinator may not have heard of it."""

    coordinator: Holder
    others: tuple[PartName, ...]
