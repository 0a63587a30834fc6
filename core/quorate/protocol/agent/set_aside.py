"""Splits a turn: partitions wait while their long values are written ahead of the batch.

The others end their turn without them: their rows, updates, Appends and Acks are sent.  The writes
of one partition keep their order, because either all of it waits or nothing.  A turn is not divided
if it says anything else (a promise, a stored row, a piece of a transfer, a transaction's message),
because that may concern what waits.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import record_names
from quorate.protocol.messages.replication import Batch

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas


T = TypeVar("T")


class SetAside(NamedTuple):
    """The part of the turn that belongs to the waiting partitions."""

    dirty: dict[int, Primary]
    touched: dict[int, Copy]
    ack_due: dict[int, tuple[str, Copy, int]]
    announcements: dict[str, list[Batch]]
    records: frozenset[bytes]


def may_be_divided(replicas: Replicas) -> bool:
    """Return whether the turn has only writes, Acks and positions of roles."""
    out = replicas.out
    return not (out.at_once or out.after_sync or replicas.adopting or replicas.refills.has_ended)


def set_aside(replicas: Replicas, waiting: Collection[int]) -> SetAside:
    """Remove from the turn what concerns the partitions in `waiting`, and return it."""
    announcements, replicas.announcements = replicas.announcements, {}
    kept: dict[str, list[Batch]] = {}
    for node, batches in announcements.items():
        for batch in batches:
            if batch.partition in waiting:
                kept.setdefault(node, []).append(batch)
            else:
                replicas.announce(node, batch)
    aside = SetAside(
        _taken(replicas.dirty, waiting),
        _taken(replicas.touched, waiting),
        _taken(replicas.ack_due, waiting),
        kept,
        record_names(waiting),
    )
    replicas.wrote = bool(replicas.touched)
    return aside


def _taken(of: dict[int, T], waiting: Collection[int]) -> dict[int, T]:
    return {partition: of.pop(partition) for partition in waiting if partition in of}


def put_back(replicas: Replicas, aside: SetAside) -> None:
    """Continue the turn of the waiting partitions, because that of the others has ended."""
    replicas.dirty = aside.dirty
    replicas.touched = aside.touched
    replicas.ack_due = aside.ack_due
    replicas.announcements = aside.announcements
