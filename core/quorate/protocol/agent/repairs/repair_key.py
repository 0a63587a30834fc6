"""Repairs single keys at a person's request: the primary writes the row that the copies shall have.

It is used when copies of a key differ and a person chose which row is right.  The row is written as
an ordinary update, so every copy gets it, and a client may overwrite it at any time.  It is written
only if the primary's row is still the one that the person saw (compare and set, by its counter and
term).  A repeated request writes nothing: once the row is there, it says whether a quorum has it.

A primary whose own row is wrong hands over first: it reports the partition as it does for a refill
(refill.py), and the master keeps the primary off its agent while that is asked for.
Source: docs/protocol.md, section 5.
"""

from quorate.facts.keyspace import is_reserved, key_partition
from quorate.facts.time import Now
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.waiters import Clientless
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.tools import (
    ASKED_MS_MAX,
    HandedOver,
    HandOver,
    KeyRepaired,
    RepairKey,
)
from quorate.protocol.storage import Row


class KeyRepairs:
    """The repairs of one zone's keys on one agent."""

    def __init__(self, zone: ZoneCopies) -> None:
        self._zone = zone
        self._asked_ms: dict[int, int] = {}

    @property
    def to_hand_over(self) -> tuple[int, ...]:
        """The partitions for which a tool asks for another primary."""
        return tuple(sorted(self._asked_ms))

    def repair(self, ask: RepairKey, now: Now) -> KeyRepaired:
        """Write the row, or say how far it is, or why it is not written."""
        zone, key = self._zone, ask.key
        if is_reserved(key) or key_partition(key, zone.record.partitions) != ask.partition:
            return KeyRepaired(problem=f"no client's key of partition {ask.partition}")
        role = zone.roles.get(ask.partition)
        if role is None or not role.serves(now.boot_ms):
            return KeyRepaired(waits_for=f"agent {zone.me.node} to serve as its primary")
        if key in role.locks:
            return KeyRepaired(waits_for="a transaction that has locked the key")
        row = role.copy.get(key)
        if not _is_expected(ask, role, row):
            if _is_wanted(ask, row):
                return _progress(role, row)
            return KeyRepaired(changed=_version(row))
        if ask.value is not None and zone.why_full:
            return KeyRepaired(problem=f"no room on agent {zone.me.node}: {zone.why_full}")
        role.write(((key, ask.value, ask.expires_at),))
        role.wait(Clientless((key,)))  # clients see the row once a quorum has it
        zone.commands_wrote(role)
        return _progress(role, role.copy.get(key))

    def hand_over(self, ask: HandOver, now: Now) -> HandedOver:
        """Report the partition as one whose primary should be another agent; repeated."""
        zone, partition = self._zone, ask.partition
        copy = zone.copies.get(partition)
        if copy is None or not copy.present:
            self._asked_ms.pop(partition, None)
            return HandedOver(problem=f"partition {partition}: no copy on agent {zone.me.node}")
        self._asked_ms[partition] = now.boot_ms
        zone.wake()
        is_primary = partition in zone.roles or zone.primary_of(partition) == zone.me.node
        return HandedOver(done=not is_primary)

    def tick(self, now: Now) -> None:
        """Drop requests older than ASKED_MS_MAX; cheap when there are none."""
        for partition, asked_ms in list(self._asked_ms.items()):
            if now.boot_ms - asked_ms >= ASKED_MS_MAX:
                del self._asked_ms[partition]


def _is_expected(ask: RepairKey, role: Primary, row: Row | None) -> bool:
    """Return whether nothing has written the key since the person saw its row, or saw none."""
    if row is None and ask.value is None:
        return True  # a backup may have it still; no client's write is overwritten
    if ask.term:
        return row is not None and (row.counter, row.term) == (ask.counter, ask.term)
    return row is None and not role.copy.written_since({ask.key: ask.counter})


def _is_wanted(ask: RepairKey, row: Row | None) -> bool:
    """Return whether the row is as it is to be written, by this request or otherwise."""
    if row is None or row.value is None:
        return ask.value is None
    return (row.value, row.expires_at) == (ask.value, ask.expires_at)


def _progress(role: Primary, row: Row | None) -> KeyRepaired:
    counter, term = (row.counter, row.term) if row is not None else (0, 0)
    if role.acked < counter:
        return KeyRepaired(counter, term, waits_for="a quorum of the copies")
    return KeyRepaired(counter, term, done=True)


def _version(row: Row | None) -> str:
    if row is None:
        return "it is deleted"
    what = "deleted" if row.value is None else "written"
    return f"it is {what} with counter {row.counter} of term {row.term}"
