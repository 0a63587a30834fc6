"""Who waits for locks: transactions, in the order in which they came; FLUSHALL before later ones.

Locks themselves are their role's, with the parts that have them (parts.py).  Source:
docs/protocol.md, section 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.facts.time import Now
from quorate.protocol.copies.primary import Primary
from quorate.protocol.messages.transactions import Part, PreparePart

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas

HELD_BACK_MS = 500
"""How long transactions wait for a FLUSHALL that is asked for no more: its client went away."""

IN_DOUBT_MS = 1_000
"""Parts are prepared, decided, finished in a few milliseconds each; in a busy cluster in tens."""


class LockQueue:
    """Those who wait, in the partitions whose primary is here."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._waiting: dict[int, dict[bytes, tuple[str, PreparePart]]] = {}
        self._unlocked: dict[int, None] = {}  # partitions where they may go on
        self._held_back: dict[int, int] = {}  # partitions where all of them wait, until when

    def may_lock(self, role: Primary, ask: PreparePart) -> bool:
        """Whether nobody has its keys, or has come before it to get them."""
        if not role.locks.keys().isdisjoint(ask.keys):
            return False
        if ask.partition in self._held_back and not ask.looks:
            return False
        keys = frozenset(ask.keys)
        for transaction, (_, earlier) in self._waiting.get(ask.partition, {}).items():
            if transaction == ask.transaction:
                break
            if not keys.isdisjoint(earlier.keys):
                return False
        return True

    def add(self, node: str, ask: PreparePart) -> None:
        """Let it wait, in its old place when it waits already; `node` is told."""
        self._waiting.setdefault(ask.partition, {})[ask.transaction] = (node, ask)

    def remove(self, partition: int, transaction: bytes) -> None:
        """It waits no more."""
        self._waiting.get(partition, {}).pop(transaction, None)

    def unlocked(self, partition: int) -> None:
        """Locks were given back there."""
        self._unlocked[partition] = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits, or is held back."""
        return not (self._held_back or any(self._waiting.values()))

    @property
    def has_unlocked(self) -> bool:
        """Whether anybody may go on."""
        return bool(self._unlocked)

    def take_unlocked(self) -> list[tuple[str, PreparePart]]:
        """All who may go on now; they wait until they have their locks."""
        unlocked, self._unlocked = self._unlocked, {}
        return [each for p in unlocked for each in self._waiting.get(p, {}).values()]

    def hold_back(self) -> bool:
        """Whether nobody has locks here; if somebody has, nobody gets more of them for a while.

        Asked again and again, it comes true: partition after partition is held back, the lowest
        first, as those who have locks ask for more; so nobody waits in a circle.  Nobody is held
        back for the sake of locks that are kept for long, by a part in doubt."""
        self._replicas.wake()
        before, self._held_back = self._held_back, {}
        roles = sorted(self._replicas.roles.items())
        is_free = not any(role.locks for _, role in roles)
        if not is_free and not any(map(self._is_in_doubt, self._replicas.roles.values())):
            for partition, role in roles:
                self._held_back[partition] = self._replicas.now.boot_ms + HELD_BACK_MS
                if role.locks:
                    break
        self._unlocked.update(dict.fromkeys([p for p in before if p not in self._held_back]))
        return is_free

    def _is_in_doubt(self, role: Primary) -> bool:
        """Whether somebody has had locks there for longer than it takes to decide."""
        if not role.locks:
            return False
        since = self._replicas.now.boot_ms - IN_DOUBT_MS
        return any(
            part.since_ms <= since and isinstance(part.state, Part) for part in role.parts.values()
        )

    def tick(self, now: Now) -> None:
        """Nobody is held back for ever, nor waits where no primary is here."""
        for partition, until_ms in list(self._held_back.items()):
            if until_ms <= now.boot_ms:
                del self._held_back[partition]
                self._unlocked[partition] = None
        for partition in list(self._waiting):
            role = self._replicas.primaries[partition]
            if role is None or not role.serves(now.boot_ms):
                del self._waiting[partition]  # asked again, of whoever is primary then
