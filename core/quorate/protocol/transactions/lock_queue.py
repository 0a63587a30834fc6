"""The queue for locks: transactions wait in order of arrival; FLUSHALL precedes later ones.

The locks themselves belong to the role, with the parts that have them (parts.py).  Source:
docs/protocol.md, section 9.
"""

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.transactions import Part, PreparePart

HELD_BACK_MS = 500
"""How long transactions wait after the last attempt of a FLUSHALL: its client may be gone."""

IN_DOUBT_MS = 1_000
"""A part that is undecided for this long is in doubt.  Usually a part is prepared, decided and
finished in a few milliseconds each, in a busy cluster in tens of milliseconds."""

WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Bound for the bytes of the parts of one zone that wait.  One part may wait whatever its size."""

WORD_BYTES = 50
"""About the bytes that a word of a command, or a key, takes beside its own."""


class _Waiting(NamedTuple):
    """A part in the queue; `node`: where its reply goes."""

    node: str
    ask: PreparePart
    byte_count: int


class LockQueue:
    """The parts that wait for locks, in the partitions whose primary is here."""

    def __init__(self, zone: ZoneCopies) -> None:
        self._zone = zone
        self._waiting: dict[int, dict[bytes, _Waiting]] = {}
        self._bytes = 0  # of all that wait
        self._unlocked: dict[int, None] = {}  # partitions whose parts may try again
        self._held_back: dict[int, int] = {}  # partition -> until when all its parts wait

    def may_lock(self, role: Primary, ask: PreparePart) -> bool:
        """Return whether no key of the part is locked, or wanted by an earlier part."""
        if not role.locks.keys().isdisjoint(ask.keys):
            return False
        if ask.partition in self._held_back and not ask.looks:
            return False
        keys = frozenset(ask.keys)
        for transaction, earlier in self._waiting.get(ask.partition, {}).items():
            if transaction == ask.transaction:
                break
            if not keys.isdisjoint(earlier.ask.keys):
                return False
        return True

    def add(self, node: str, ask: PreparePart) -> None:
        """Queue the part, or keep its place in the queue; the reply goes to `node`.

        One for which there is no room is forgotten: its coordinator asks again.
        """
        parts = self._waiting.setdefault(ask.partition, {})
        queued = parts.get(ask.transaction)
        if queued is not None:
            parts[ask.transaction] = _Waiting(node, ask, queued.byte_count)
            return
        byte_count = _byte_count(ask)
        if not self._bytes or self._bytes + byte_count <= WAITING_BYTES_MAX:
            parts[ask.transaction] = _Waiting(node, ask, byte_count)
            self._bytes += byte_count

    def remove(self, partition: int, transaction: bytes) -> None:
        """Remove the part from the queue."""
        removed = self._waiting.get(partition, {}).pop(transaction, None)
        if removed is not None:
            self._bytes -= removed.byte_count

    def remove_ended(self, has_ended: Callable[[Holder], bool]) -> None:
        """Remove parts whose coordinator has ended: they would keep their keys from others."""
        for partition, parts in self._waiting.items():
            ended = [name for name, each in parts.items() if has_ended(each.ask.coordinator)]
            for name in ended:
                self.remove(partition, name)
            if ended:
                self.unlocked(partition)  # for those behind them

    def unlocked(self, partition: int) -> None:
        """Note that locks were released in the partition."""
        self._unlocked[partition] = None

    @property
    def is_idle(self) -> bool:
        """Whether no part waits and no partition is held back."""
        return not (self._held_back or any(self._waiting.values()))

    @property
    def has_unlocked(self) -> bool:
        """Whether parts may try again."""
        return bool(self._unlocked)

    def take_unlocked(self) -> list[tuple[str, PreparePart]]:
        """Return all parts that may try again; they stay queued until they have their locks."""
        unlocked, self._unlocked = self._unlocked, {}
        waiting = [each for p in unlocked for each in self._waiting.get(p, {}).values()]
        return [(each.node, each.ask) for each in waiting]

    def hold_back(self) -> bool:
        """Return whether no key is locked here; otherwise hold back partitions to reach that.

        FLUSHALL repeats this call.  A partition that is held back grants no new locks for a while.
        Held back are the partitions up to the first one with locks, in rising order, as
        transactions lock them; so there is no deadlock.  While a part is in doubt none is held
        back, because its locks may last long.
        """
        self._zone.wake()
        before, self._held_back = self._held_back, {}
        roles = sorted(self._zone.roles.items())
        is_free = not any(role.locks for _, role in roles)
        if not is_free and not any(map(self._is_in_doubt, self._zone.roles.values())):
            for partition, role in roles:
                self._held_back[partition] = self._zone.now.boot_ms + HELD_BACK_MS
                if role.locks:
                    break
        self._unlocked.update(dict.fromkeys([p for p in before if p not in self._held_back]))
        return is_free

    def _is_in_doubt(self, role: Primary) -> bool:
        """Return whether a part has had locks there for longer than a decision takes."""
        if not role.locks:
            return False
        since = self._zone.now.boot_ms - IN_DOUBT_MS
        return any(
            part.since_ms <= since and isinstance(part.state, Part) for part in role.parts.values()
        )

    def tick(self, now: Now) -> None:
        """Release partitions held back for too long; drop parts where this agent does not serve."""
        for partition, until_ms in list(self._held_back.items()):
            if until_ms <= now.boot_ms:
                del self._held_back[partition]
                self._unlocked[partition] = None
        for partition in list(self._waiting):
            role = self._zone.primaries[partition]
            if role is None or not role.serves(now.boot_ms):
                parts = self._waiting.pop(partition)  # the coordinator asks the next primary
                self._bytes -= sum([each.byte_count for each in parts.values()])


def _byte_count(ask: PreparePart) -> int:
    words = [*ask.keys, *[each[0] for each in ask.watched], *chain.from_iterable(ask.commands)]
    return sum(map(len, words)) + WORD_BYTES * len(words)
