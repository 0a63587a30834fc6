"""Coordinates one transaction over several partitions, on the agent that received EXEC.

Parts are prepared one after the other, the lowest partition first, so that transactions cannot
deadlock.  When all are prepared, the home decides; from then on the home has the other parts
finished by itself.  Each step is sent to the present primary, and repeated until the time limit.
Until it has asked for the decision, the coordinator knows that the transaction cannot commit.
Source: docs/protocol.md, section 9.
"""

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.clients import Words
from quorate.protocol.messages.transactions import (
    BYTES_PER_MS,
    Decide,
    FinishPart,
    PartFinished,
    PartPrepared,
    PreparePart,
    TransactionMessage,
    Watched,
)

ANSWERS_BYTES_MAX = 64 * 1024 * 1024
"""Limit on the answers of all parts together: they become one reply."""

REPEAT_MS_MAX = 1_000
"""A part that is not answered is sent again after pauses that double, but grow by no more than
this, or twice the time in which it arrives if that is longer."""


class PartWanted(NamedTuple):
    """The share of a transaction in one partition."""

    partition: int
    keys: tuple[bytes, ...]
    commands: tuple[Words, ...]
    watched: tuple[Watched, ...]
    byte_count: int = 0  # size of the whole request


class Outcome(enum.Enum):
    """Outcome of a transaction."""

    COMMITTED = "committed"
    REFUSED = "refused"  # nothing happened; a part gave the reason
    TOO_LARGE = "too large"  # nothing happened: the answers exceed the limit
    NOT_EXECUTED = "not executed"  # nothing happened: no primary or no locks in time
    UNKNOWN = "unknown"


class Ended(NamedTuple):
    """The end of a transaction for its client.  `answers`: partition -> the answers of its part."""

    cargo: object
    outcome: Outcome
    answers: Mapping[int, tuple[bytes, ...]] = MappingProxyType({})
    refusal: bytes = b""


class AttemptStage(enum.Enum):
    """The stage of a transaction attempt."""

    PREPARING = "preparing"
    DECIDING = "deciding"
    ABORTING = "aborting"


class Coordinator:
    """One attempt of one transaction.  `cargo` belongs to the shell; `wanted` is in order of
    partition."""

    def __init__(
        self,
        zone: ZoneCopies,
        name: bytes,
        wanted: tuple[PartWanted, ...],
        resp3: bool,
        cargo: object,
        deadline_ms: int,
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.resp3 = resp3
        self.cargo = cargo
        self.deadline_ms = deadline_ms
        self.stage = AttemptStage.PREPARING
        self._zone = zone
        self._prepared: list[PartPrepared] = []
        self._answers_bytes = 0
        self._asked_ms = -1
        self._asked = ""  # the node that was asked last
        self._repeats = 0  # how often it was asked again
        self.decides = 0  # number of Decide messages sent
        self._to_abort: dict[int, None] = {}  # partitions that may still hold locks

    @property
    def home(self) -> int:
        """The partition where the transaction is decided."""
        return self.wanted[0].partition

    @property
    def is_over(self) -> bool:
        """Whether the transaction was aborted and no part is left to clean up."""
        return self.stage is AttemptStage.ABORTING and not self._to_abort

    def prepared(self, message: PartPrepared) -> Ended | None:
        """Take in the reply of a part; return the end if it ends the transaction."""
        at = len(self._prepared)
        if (
            self.stage is not AttemptStage.PREPARING
            or message.partition != self.wanted[at].partition
        ):
            return None  # a repeated reply
        if message.refusal:
            return self.abort(Outcome.REFUSED, message.refusal)
        self._answers_bytes += sum(map(len, message.answers))
        if self._answers_bytes > ANSWERS_BYTES_MAX:
            return self.abort(Outcome.TOO_LARGE)
        self._prepared.append(message)
        if not message.counter:
            self.stage = AttemptStage.ABORTING  # nothing was locked
            return self.committed()
        self._asked_ms = -1
        if len(self._prepared) == len(self.wanted):
            self.stage = AttemptStage.DECIDING
        return None

    def committed(self) -> Ended:
        """Return the end after the home has committed."""
        answers = {part.partition: part.answers for part in self._prepared}
        return Ended(self.cargo, Outcome.COMMITTED, answers)

    def not_committed(self) -> Ended | None:
        """Return the end if the home does not have the transaction; None: it may be tried again.

        After more than one Decide the outcome is unknown: if the home took this coordinator for
        gone, it may have committed, finished and forgotten the transaction.
        """
        if self.decides > 1:
            return Ended(self.cargo, Outcome.UNKNOWN)
        if self._zone.now.boot_ms >= self.deadline_ms:
            return Ended(self.cargo, Outcome.NOT_EXECUTED)
        return None

    def abort(self, outcome: Outcome, refusal: bytes = b"") -> Ended:
        """Abort the transaction, before any Decide was sent; its parts are to release their
        locks."""
        self.stage = AttemptStage.ABORTING
        asked = self.wanted[: len(self._prepared) + 1]
        self._to_abort = {part.partition: None for part in asked}
        self._asked_ms = -1
        return Ended(self.cargo, outcome, refusal=refusal)

    def finished(self, message: PartFinished) -> None:
        """Note that a part of an aborted transaction is gone."""
        self._to_abort.pop(message.partition, None)

    def look(self, now_ms: int, send: Callable[[str, TransactionMessage], None]) -> Ended | None:
        """Send the next message if it is due; return the end when the time is over."""
        if now_ms >= self.deadline_ms:
            if self.stage is not AttemptStage.ABORTING and not self.decides:
                return self.abort(Outcome.NOT_EXECUTED)  # also if the home has no primary
            grace = self._zone.park_bound_ms
            if now_ms >= self.deadline_ms + grace:
                if self.stage is AttemptStage.DECIDING:
                    return Ended(self.cargo, Outcome.UNKNOWN)
                self._to_abort.clear()  # its parts ask the home and are aborted
                return None
        match self.stage:
            case AttemptStage.PREPARING:
                self._ask(now_ms, send, self.wanted[len(self._prepared)].partition)
            case AttemptStage.DECIDING:
                self._ask(now_ms, send, self.home)
            case AttemptStage.ABORTING:
                if self._is_due(now_ms, ""):
                    for partition in self._to_abort:
                        send(self._zone.primary_of(partition), self._finish(partition))
        return None

    def _ask(
        self, now_ms: int, send: Callable[[str, TransactionMessage], None], partition: int
    ) -> None:
        node = self._zone.primary_of(partition)
        if not node:
            return
        if self.stage is AttemptStage.DECIDING:
            if self._is_due(now_ms, node):
                self.decides += 1
                send(node, self._decide())
        elif self._is_due(now_ms, node, self.wanted[len(self._prepared)].byte_count):
            send(node, self._prepare())

    def _is_due(self, now_ms: int, node: str, byte_count: int = 0) -> bool:
        """Return whether to ask `node` now: it was not asked, or has not answered for some time.

        A primary does not answer while a part waits for its locks.  So a large part, which may have
        arrived, is repeated less and less often.
        """
        if node != self._asked or self._asked_ms < 0:
            self._repeats = 0
        else:
            arrival_ms = byte_count // BYTES_PER_MS
            more_ms = min(arrival_ms << self._repeats, max(REPEAT_MS_MAX, 2 * arrival_ms))
            if now_ms - self._asked_ms < self._zone.settings.step_retry_ms + more_ms:
                return False
            self._repeats += 1
        self._asked, self._asked_ms = node, now_ms
        return True

    def _prepare(self) -> PreparePart:
        part = self.wanted[len(self._prepared)]
        return PreparePart(
            self._zone.uid,
            self.name,
            part.partition,
            self.home,
            self._zone.me,
            part.keys,
            part.commands,
            part.watched,
            self.resp3,
        )

    def _decide(self) -> Decide:
        own, *others = self._prepared
        names = tuple([(part.partition, part.term, part.counter) for part in others])
        return Decide(self._zone.uid, self.name, own.partition, own.term, own.counter, names)

    def _finish(self, partition: int) -> FinishPart:
        return FinishPart(self._zone.uid, self.name, partition, self.home, 0, 0, False)
