"""How one transaction over several partitions becomes all or nothing, seen from the agent that the
client asked.

Part after part is prepared, the lowest partition first: so nobody waits for locks in a circle.
When all are, the home decides; from then on it has the others finished by itself.  Whoever is
primary is asked, and asked again, until the bound is over.  Before a decision was asked for, the
coordinator alone knows that there will be none.  Source: docs/protocol.md, section 9.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas


ANSWERS_BYTES_MAX = 64 * 1024 * 1024
"""Of all parts together: they become one reply."""


class PartWanted(NamedTuple):
    """What a transaction wants of one partition."""

    partition: int
    keys: tuple[bytes, ...]
    commands: tuple[Words, ...]
    watched: tuple[Watched, ...]
    byte_count: int = 0  # of all that is asked


class Outcome(enum.Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    REFUSED = "refused"  # nothing happened, and a part said why
    TOO_LARGE = "too large"  # nothing happened: the answers would be
    NOT_EXECUTED = "not executed"  # nothing happened: no primary or no locks in time
    UNKNOWN = "unknown"


class Ended(NamedTuple):
    """The end of a transaction for its client: `answers` of each part, by partition."""

    cargo: object
    outcome: Outcome
    answers: Mapping[int, tuple[bytes, ...]] = MappingProxyType({})
    refusal: bytes = b""


class Stage(enum.Enum):
    """How far it is."""

    PREPARING = "preparing"
    DECIDING = "deciding"
    ABORTING = "aborting"


class Coordinator:
    """One attempt of one transaction.  `cargo` is the shell's; `wanted` in order of partition."""

    def __init__(
        self,
        replicas: Replicas,
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
        self.stage = Stage.PREPARING
        self._replicas = replicas
        self._prepared: list[PartPrepared] = []
        self._answers_bytes = 0
        self._asked_ms = -1
        self._asked = ""  # whom
        self.decides = 0  # how often the home was asked to
        self._to_abort: dict[int, None] = {}  # partitions that may still hold locks

    @property
    def home(self) -> int:
        """The partition where it is decided."""
        return self.wanted[0].partition

    @property
    def is_over(self) -> bool:
        """Whether an aborted one has nothing left to tidy up."""
        return self.stage is Stage.ABORTING and not self._to_abort

    def prepared(self, message: PartPrepared) -> Ended | None:
        """A part is prepared, or refused."""
        at = len(self._prepared)
        if self.stage is not Stage.PREPARING or message.partition != self.wanted[at].partition:
            return None  # said before
        if message.refusal:
            return self.abort(Outcome.REFUSED, message.refusal)
        self._answers_bytes += sum(map(len, message.answers))
        if self._answers_bytes > ANSWERS_BYTES_MAX:
            return self.abort(Outcome.TOO_LARGE)
        self._prepared.append(message)
        if not message.counter:
            self.stage = Stage.ABORTING  # nothing was locked
            return self.committed()
        self._asked_ms = -1
        if len(self._prepared) == len(self.wanted):
            self.stage = Stage.DECIDING
        return None

    def committed(self) -> Ended:
        """The home has decided so."""
        answers = {part.partition: part.answers for part in self._prepared}
        return Ended(self.cargo, Outcome.COMMITTED, answers)

    def not_committed(self) -> Ended | None:
        """The home has nothing of it.  None: it was aborted, and may be tried again in time.

        Asked a second time, it might also have committed, finished and forgotten it meanwhile, if
        it took us for gone."""
        if self.decides > 1:
            return Ended(self.cargo, Outcome.UNKNOWN)
        if self._replicas.now.boot_ms >= self.deadline_ms:
            return Ended(self.cargo, Outcome.NOT_EXECUTED)
        return None

    def abort(self, outcome: Outcome, refusal: bytes = b"") -> Ended:
        """Nobody was asked to decide: nothing will happen.  Whoever holds locks is told."""
        self.stage = Stage.ABORTING
        asked = self.wanted[: len(self._prepared) + 1]
        self._to_abort = {part.partition: None for part in asked}
        self._asked_ms = -1
        return Ended(self.cargo, outcome, refusal=refusal)

    def finished(self, message: PartFinished) -> None:
        """A part of an aborted one is gone."""
        self._to_abort.pop(message.partition, None)

    def look(self, now_ms: int, send: Callable[[str, TransactionMessage], None]) -> Ended | None:
        """Ask what is next, or again; the end when time is over."""
        if now_ms >= self.deadline_ms:
            if self.stage is Stage.PREPARING:
                return self.abort(Outcome.NOT_EXECUTED)
            grace = self._replicas.settings.park_bound_ms
            if now_ms >= self.deadline_ms + grace:
                if self.stage is Stage.DECIDING:
                    return Ended(self.cargo, Outcome.UNKNOWN)
                self._to_abort.clear()  # its parts ask the home, and find that it is not there
                return None
        match self.stage:
            case Stage.PREPARING:
                self._ask(now_ms, send, self.wanted[len(self._prepared)].partition)
            case Stage.DECIDING:
                self._ask(now_ms, send, self.home)
            case Stage.ABORTING:
                if self._is_due(now_ms, ""):
                    for partition in self._to_abort:
                        send(self._replicas.primary_of(partition), self._finish(partition))
        return None

    def _ask(
        self, now_ms: int, send: Callable[[str, TransactionMessage], None], partition: int
    ) -> None:
        node = self._replicas.primary_of(partition)
        if not node:
            return
        if self.stage is Stage.DECIDING:
            if self._is_due(now_ms, node):
                self.decides += 1
                send(node, self._decide())
        elif self._is_due(now_ms, node, self.wanted[len(self._prepared)].byte_count):
            send(node, self._prepare())

    def _is_due(self, now_ms: int, node: str, byte_count: int = 0) -> bool:
        """Whether to ask `node` now: it was not asked, or has not answered for some time."""
        retry_ms = self._replicas.settings.step_retry_ms + byte_count // BYTES_PER_MS
        if node == self._asked and self._asked_ms >= 0 and now_ms - self._asked_ms < retry_ms:
            return False
        self._asked, self._asked_ms = node, now_ms
        return True

    def _prepare(self) -> PreparePart:
        part = self.wanted[len(self._prepared)]
        return PreparePart(
            self._replicas.uid,
            self.name,
            part.partition,
            self.home,
            self._replicas.me,
            part.keys,
            part.commands,
            part.watched,
            self.resp3,
        )

    def _decide(self) -> Decide:
        own, *others = self._prepared
        names = tuple([(part.partition, part.term, part.counter) for part in others])
        return Decide(self._replicas.uid, self.name, own.partition, own.term, own.counter, names)

    def _finish(self, partition: int) -> FinishPart:
        return FinishPart(self._replicas.uid, self.name, partition, self.home, 0, 0, False)
