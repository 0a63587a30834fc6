"""Applies a committed row on an agent: to its copy of the partition, and to its role as primary.

Source: docs/protocol.md, sections 2 and 4.
"""

from collections import deque

from quorate.facts.partition_row import PartitionRow, is_hand_over
from quorate.facts.time import Now
from quorate.protocol.agent import activation
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.zone_copies import ZoneCopies


def take(zone: ZoneCopies, row: PartitionRow, now: Now) -> None:
    """Take in one row of the master; ignore one that is not newer."""
    known = zone.table[row.partition]
    if known is not None and row.version <= known.version:
        return
    zone.table[row.partition] = row
    copy = zone.copies.get(row.partition)
    role = zone.roles.get(row.partition)
    carried: Primary | None = None
    if role is not None and (row.primary != zone.me or row.term != role.term):
        if row.primary == zone.me and role.persisted:
            carried = role
        else:
            zone.end_role(role)
        role = None
    if not zone.names_me(row):
        if copy is not None and copy.present and row.version > copy.version:
            zone.drop_fill(row.partition)
            earlier = copy.promise_holder
            copy.evict(row, zone.aside_by(row, copy))
            zone.end_search(row.partition)
            zone.note_aside(copy)
            if copy.promise_holder is not None:
                zone.promise_moved(copy, earlier, copy.promise_holder)
            zone.touch(copy)
        return
    copy = zone.copy_of(row.partition)
    handed_over = copy.row is not None and is_hand_over(copy.row, row)
    if row.version > copy.version:
        copy.set_row(row)
        zone.touch(copy)
    _leave_former_primary(zone, copy, row)
    if role is not None:
        role.follow(row)
        zone.renew_lease(role)
        activation.step(zone, role, now)
    elif row.primary == zone.me and row.term >= copy.promise_term:
        _begin_role(zone, copy, row, carried, handed_over, now)
    elif carried is not None:
        zone.end_role(carried)


def _leave_former_primary(zone: ZoneCopies, copy: Copy, row: PartitionRow) -> None:
    """Promise the term of a reset that left our copy: its former primary is obeyed no more."""
    me, earlier = zone.me, copy.promise_holder
    is_left = any((v.node, v.store) == (me.node, me.store) for v in row.left_by_reset)
    if is_left and row.primary is not None and row.term > copy.promise_term:
        copy.promise(row.term, row.primary)
        zone.drop_fill(row.partition)
        zone.promise_moved(copy, earlier, row.primary)
        zone.touch(copy)


def _begin_role(
    zone: ZoneCopies,
    copy: Copy,
    row: PartitionRow,
    carried: Primary | None,
    handed_over: bool,
    now: Now,
) -> None:
    """Begin our role as primary.  `carried`: our role in the term before, whose writes are kept."""
    earlier = copy.promise_holder
    activated = row.term == copy.promise_term and copy.last_term >= row.term
    if activated or not copy.promise(row.term, zone.me):
        if carried is not None:
            zone.end_role(carried)
        return  # a term is activated once; serving again takes a new term
    zone.touch(copy)
    zone.promise_moved(copy, earlier, zone.me)
    zone.drop_fill(row.partition)
    by_all, alone = zone.record.acknowledges_by_all, zone.record.acknowledges_alone
    role = Primary(copy, row, zone.me, zone.stores, now.boot_ms, by_all, alone)
    role.lease_until = copy.lease_until
    role.handed_over = handed_over
    if carried is not None:
        # The same process in a new term: it holds everything that it has reserved, so the new term
        # keeps that, and what waits for acknowledgement goes on waiting.
        role.waiters, role.pending = carried.waiters, carried.pending
        role.lasting = carried.lasting
        role.turn = []
        carried.waiters, carried.pending, carried.serving_until = deque(), {}, 0
        carried.lasting = deque()
        zone.dirty.pop(row.partition, None)
    zone.own_leases.pop(row.partition, None)
    zone.roles[row.partition] = role
    zone.primaries[row.partition] = role
    activation.step(zone, role, now)
