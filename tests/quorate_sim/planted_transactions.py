"""How transactions across partitions stay whole: these rules switched off."""

from contextlib import AbstractContextManager

import msgspec

from quorate.protocol.copies.open_part import OpenPart
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.transactions import (
    COORDINATOR,
    AskDecision,
    Decision,
    FinishPart,
    PreparePart,
    TransactionMessage,
)
from quorate.protocol.storage import Operation
from quorate.protocol.transactions import parts
from quorate.protocol.transactions.coordinator import Coordinator, Ended
from quorate.protocol.transactions.lock_queue import LockQueue
from quorate.protocol.transactions.parts import Parts
from quorate_sim.changed import changed


def locks_forgotten() -> AbstractContextManager[None]:
    """A new primary does not look for what was prepared before it."""

    def load(role: Primary, now_ms: int) -> None:
        role.parts.clear()
        role.locks.clear()

    return changed(parts, "load", load)


def locks_ignored() -> AbstractContextManager[None]:
    """A part is prepared over keys that wait for another's decision."""

    def may_lock(self: LockQueue, role: Primary, ask: PreparePart) -> bool:
        return True

    return changed(LockQueue, "may_lock", may_lock)


def any_part_is_meant() -> AbstractContextManager[None]:
    """A decision commits whatever part has its transaction's name, also one prepared twice."""

    finish = Parts.finish

    def finish_any(self: Parts, node: str, ask: FinishPart) -> None:
        role = self._serving(ask.partition)
        known = role.parts.get(ask.transaction) if role is not None else None
        if known is not None:
            ask = msgspec.structs.replace(ask, term=known.term, counter=known.counter)
        finish(self, node, ask)

    return changed(Parts, "finish", finish_any)


def decision_forgotten_early() -> AbstractContextManager[None]:
    """The home forgets a decision although parts of it are not committed yet."""

    def decide(self: OpenPart, decision: Decision) -> None:
        self.state = decision
        self.left = {COORDINATOR: (0, 0)}

    return changed(OpenPart, "decide", decide)


def asked_twice_and_believed() -> AbstractContextManager[None]:
    """A home that has nothing of a transaction is believed, also when it was asked before."""

    def not_committed(self: Coordinator) -> Ended | None:
        return None

    return changed(Coordinator, "not_committed", not_committed)


def open_is_aborted() -> AbstractContextManager[None]:
    """A home that is asked about what is not decided says that it is aborted."""

    def tell(self: Parts, node: str, ask: AskDecision) -> None:
        abort = FinishPart(
            ask.zone, ask.transaction, ask.partition, ask.home, ask.term, ask.counter, False
        )
        self._send(node, abort)

    return changed(Parts, "tell_decision", tell)


def told_before_durable() -> AbstractContextManager[None]:
    """What a part says is said before it is acknowledged."""

    def write(
        self: Parts,
        role: Primary,
        operations: tuple[Operation, ...],
        node: str,
        message: TransactionMessage | None,
    ) -> None:
        role.write(operations)
        self._zone.commands_wrote(role)
        if message is not None:
            self._send(node, message)

    return changed(Parts, "_write", write)
