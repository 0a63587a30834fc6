"""FLUSHALL: one update in each partition that this agent serves, and one reply for all of them."""

from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.waiters import Waiter
from quorate_agent.clients.connection import Slot


class PartOfFlush(Waiter):
    """Waits for the update of one partition."""

    __slots__ = ("slot",)

    def __init__(self, slot: Slot, since_ms: int) -> None:
        super().__init__((None,), None, since_ms)
        self.slot = slot

    def ended(self, problem: bytes = b"") -> bool:
        """Note that this partition is done, or failed with `problem`; return whether FLUSHALL is
        answered."""
        slot = self.slot
        slot.left -= 1
        if problem:
            slot.reply = problem
        slot.done = slot.left == 0
        return slot.done


def may_flush(replicas: Replicas, now_ms: int) -> bool:
    """Return whether all keys of this agent may be removed now.

    They may not while a primary cannot serve, or while a transaction holds locks.  Calling this has
    an effect: while locks are held, later transactions wait, so that repeated calls succeed."""
    if not all(role.serves(now_ms) for role in replicas.roles.values()):
        return False
    return replicas.transactions.parts.waiting.hold_back()


def flush_all(replicas: Replicas, slot: Slot, now_ms: int) -> None:
    """Remove every key of this agent's partitions; `slot` is done when all of them are removed."""
    roles = list(replicas.roles.values())
    slot.left = len(roles)
    slot.done = not roles
    for role in roles:
        role.write(((None, None, 0),))
        slot.connection.written |= 1 << role.copy.partition
        replicas.commands_wrote(role)
        role.wait(PartOfFlush(slot, now_ms))
