"""The part of a voter or a destination: it promises, keeps and prepares for primary and master.

Source: docs/protocol.md, sections 4 to 6.
"""

from quorate.protocol.copies.copy import decode_update
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.master import Prepared, PreparedRow
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Batch, Fence, FenceAck, FenceRefused, Rejected


def append(zone: ZoneCopies, node: str, batch: Batch) -> None:
    """Keep a primary's updates if their term is the promised one, else send Rejected.

    While room is short, updates are dropped as if lost in transit: the rest of the room is for
    promises and rows.
    """
    copy = zone.copies.get(batch.partition)
    if copy is None or not copy.present or copy.promise_term != batch.term:
        promised = copy.promise_term if copy is not None else 0
        zone.out.send(node, Rejected(zone.uid, batch.partition, batch.term, promised))
        return
    changed = False
    keep = copy.keep
    for raw in batch.updates if not zone.is_short_of_room else ():
        if keep(decode_update(raw), raw):
            changed = True
    if batch.hwm > copy.hwm:
        copy.hwm = batch.hwm
    if batch.majority > copy.majority:
        copy.majority = batch.majority
    if batch.settled > copy.settled:
        copy.settled = batch.settled
        zone.purge(copy)
    if changed:
        zone.touched[batch.partition] = copy
        zone.wrote = True
    zone.ack_due[batch.partition] = (node, copy, batch.term)


def fence(zone: ZoneCopies, node: str, ask: Fence) -> None:
    """Promise a primary's term, or refuse it."""
    row = zone.table[ask.partition]
    if row is not None and row.version >= ask.term and not zone.names_me(row):
        promised = row.term if row.term > ask.term else 0
        zone.out.send(node, FenceRefused(zone.uid, ask.partition, ask.term, promised))
        return  # as far as we know we are no voter, or not yet
    copy = zone.copy_of(ask.partition)
    earlier = copy.promise_holder
    fresh = ask.term > copy.promise_term
    if not copy.promise(ask.term, ask.holder):
        zone.out.send(node, FenceRefused(zone.uid, ask.partition, ask.term, copy.promise_term))
        return
    if fresh:
        zone.touch(copy)
        role = zone.roles.get(ask.partition)
        if role is not None:
            zone.end_role(role)
        zone.drop_fill(ask.partition)
        zone.promise_moved(copy, earlier, ask.holder)
    zone.out.send_durable(
        node,
        FenceAck(
            zone.uid,
            ask.partition,
            ask.term,
            zone.me.store,
            copy.lineage,
            copy.lwm,
            copy.held(),
            max(0, copy.lease_until - zone.now.boot_ms),
            copy.adopted,
            copy.is_alive,
        ),
    )


def prepare(zone: ZoneCopies, message: PreparedRow) -> None:
    """As the destination, store the row that ends the migration, or refuse it with a reason."""
    row = message.row
    copy = zone.copies.get(row.partition)
    reason = ""
    if copy is None or copy.row is None or copy.version < row.version - 1:
        return  # the row that starts the migration is in flight: the master asks again
    active = copy.row.active
    stored = copy.prepared == row and copy.prepared_migration == message.migration_id
    if stored or copy.row == row:
        pass  # an earlier answer was lost
    elif copy.version >= row.version:
        reason = f"row {copy.version} is committed here"
    elif active is None or active.migration_id != message.migration_id:
        reason = "another migration is active here"
    elif active.destination != zone.me:
        reason = f"{zone.me} is not its destination {active.destination}"
    elif copy.last_term != copy.row.term:
        reason = "this store has not caught up"
    else:
        copy.prepare(row, message.migration_id)
        zone.touch(copy)
    zone.out.send_durable(
        MASTER,
        Prepared(zone.uid, row.partition, message.migration_id, row.version, not reason, reason),
    )
