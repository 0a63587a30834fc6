"""Applies a committed row on an agent: to its copy of the partition, and to its role as primary.

Source: docs/protocol.md, sections 2 and 4.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from quorate.facts.partition_row import PartitionRow, is_hand_over
from quorate.facts.time import Now
from quorate.protocol.agent import activation
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas


def take(replicas: Replicas, row: PartitionRow, now: Now) -> None:
    """Take in one row of the master; ignore one that is not newer."""
    known = replicas.table[row.partition]
    if known is not None and row.version <= known.version:
        return
    replicas.table[row.partition] = row
    copy = replicas.copies.get(row.partition)
    role = replicas.roles.get(row.partition)
    carried: Primary | None = None
    if role is not None and (row.primary != replicas.me or row.term != role.term):
        if row.primary == replicas.me and role.persisted:
            carried = role
        else:
            replicas.end_role(role)
        role = None
    if not replicas.names_me(row):
        if copy is not None and copy.present and row.version > copy.version:
            replicas.drop_fill(row.partition)
            earlier = copy.promise_holder
            copy.evict(row)
            if copy.promise_holder is not None:
                replicas.promise_moved(copy, earlier, copy.promise_holder)
            replicas.touch(copy)
        return
    copy = replicas.copy_of(row.partition)
    handed_over = copy.row is not None and is_hand_over(copy.row, row)
    if row.version > copy.version:
        copy.set_row(row)
        replicas.touch(copy)
    if role is not None:
        role.follow(row)
        replicas.renew_lease(role)
        activation.step(replicas, role, now)
    elif row.primary == replicas.me and row.term >= copy.promise_term:
        _begin_role(replicas, copy, row, carried, handed_over, now)
    elif carried is not None:
        replicas.end_role(carried)


def _begin_role(
    replicas: Replicas,
    copy: Copy,
    row: PartitionRow,
    carried: Primary | None,
    handed_over: bool,
    now: Now,
) -> None:
    """Begin our role as primary.  `carried`: our role in the term before, whose writes are kept."""
    earlier = copy.promise_holder
    activated = row.term == copy.promise_term and copy.last_term >= row.term
    if activated or not copy.promise(row.term, replicas.me):
        if carried is not None:
            replicas.end_role(carried)
        return  # a term is activated once; serving again takes a new term
    replicas.touch(copy)
    replicas.promise_moved(copy, earlier, replicas.me)
    replicas.drop_fill(row.partition)
    role = Primary(copy, row, replicas.me, replicas.stores, now.boot_ms)
    role.lease_until = copy.lease_until
    role.hand_over = handed_over
    if carried is not None:
        # The same process in a new term: it holds everything that it has reserved, so the new term
        # keeps that, and what waits for acknowledgement goes on waiting.
        role.waiters, role.pending = carried.waiters, carried.pending
        role.turn = []
        carried.waiters, carried.pending, carried.serving_until = deque(), {}, 0
        replicas.dirty.pop(row.partition, None)
    replicas.own_leases.pop(row.partition, None)
    replicas.roles[row.partition] = role
    replicas.primaries[row.partition] = role
    activation.step(replicas, role, now)
