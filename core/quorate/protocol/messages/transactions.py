"""Messages among agents about transactions across partitions, and the rows that store them.

The messages are part of `message.Message`.  `transaction` identifies one attempt of one
transaction.  Its *home* is the lowest of its partitions, where it is decided.  (term, counter)
identify the update that prepared a part, and so tell it from any other part of the same name.
Source: docs/protocol.md, section 9.
"""

import msgspec

from quorate.facts.topology import Holder
from quorate.protocol.messages.clients import Words
from quorate.protocol.storage import Operation

Watched = tuple[bytes, int, int]
"""A key, and the (term, counter) that its row must still have.  Term 0 means: there is no row, and
there has been none since that counter."""

PartName = tuple[int, int, int]
"""(partition, term, counter) of a prepared part."""


class PreparePart(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """Lock `keys` once no other transaction has them, execute `commands`, keep what they would
    write.

    Without commands and watched keys it locks nothing: the reply says how the rows of `keys` are.
    """

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
        """Whether the message only reads the state of rows."""
        return not self.commands and not self.watched


class PartPrepared(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """Either the replies of the commands, in case it is committed, or `refusal`: why nothing is
    kept.

    Counter 0 without a refusal: there is nothing to decide, and the answers say how the rows of the
    keys are.
    """

    zone: str
    transaction: bytes
    partition: int
    home: int
    term: int
    counter: int
    answers: tuple[bytes, ...]
    refusal: bytes


class Decide(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """Asks the home to commit, if its part is still (term, counter).  `others` are the other
    parts."""

    zone: str
    transaction: bytes
    partition: int
    term: int
    counter: int
    others: tuple[PartName, ...]


class Decided(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """Says that the transaction is durably committed, or that the home does not have it.

    If it does not have it, the transaction is aborted, provided that no Decide was sent before.  A
    commit is repeated until the coordinator confirms it (PartFinished).
    """

    zone: str
    transaction: bytes
    home: int
    committed: bool


class FinishPart(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """Write what the part kept (`commit`), or discard it.  Counter 0: abort the part, whichever it
    is."""

    zone: str
    transaction: bytes
    partition: int
    home: int
    term: int
    counter: int
    commit: bool


COORDINATOR = -1
"""The partition in a PartFinished with which a coordinator confirms a decision."""


class PartFinished(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """Says that the named part durably no longer exists."""

    zone: str
    transaction: bytes
    partition: int
    home: int


class AskDecision(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """Asks the home what became of a transaction.  The reply is a FinishPart, once it is
    decided."""

    zone: str
    transaction: bytes
    home: int
    partition: int
    term: int
    counter: int


BYTES_PER_MS = 10_000
"""Speed at which a large message is assumed to travel (10 MB per second).  It is not repeated while
it may be in flight, because a repetition makes a slow link slower still."""


TransactionMessage = (
    PreparePart | PartPrepared | Decide | Decided | FinishPart | PartFinished | AskDecision
)


class Part(msgspec.Struct, frozen=True, array_like=True, tag="part"):
    """The row of a prepared part that is neither committed nor aborted yet: its keys are locked.

    `room`, for zones in memory: padding as large as what the rows of `operations` take beside their
    keys and values.  It reserves room for them on every copy until they replace the part.
    """

    home: int
    coordinator: Holder
    keys: tuple[bytes, ...]
    operations: tuple[Operation, ...]
    answers: tuple[bytes, ...]
    room: bytes = b""


class Decision(msgspec.Struct, frozen=True, array_like=True, tag="decision"):
    """The home's row for a committed transaction.

    It stays while parts of the transaction are unfinished, or its coordinator may not know the
    outcome.
    """

    coordinator: Holder
    others: tuple[PartName, ...]
