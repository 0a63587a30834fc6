"""Undoes a turn whose batch found no room: everything returns to what the storage holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.agent.outbox import MASTER, Outbox
from quorate.protocol.copies.primary import Stage
from quorate.protocol.messages.master import Inventory

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas


def go_back(replicas: Replicas) -> None:
    """Reset copies, roles and rows to what the storage holds, because the batch was not written."""
    for copy in replicas.touched.values():
        lwm, durable_lwm, majority = copy.lwm, copy.durable_lwm, copy.majority
        copy.recover()
        copy.majority = majority  # that of an earlier turn
        copy.durable_lwm = min(durable_lwm, copy.lwm)  # earlier turns may still be synced
        row = replicas.table[copy.partition]
        if (
            row is not None
            and row.version > copy.version
            and (copy.present or replicas.names_me(row))
        ):
            replicas.refused_rows[copy.partition] = row
            replicas.table[copy.partition] = copy.row
        role = replicas.roles.get(copy.partition)
        if role is None:
            continue
        if copy.promise_term != role.term:
            replicas.end_role(role)  # it began in this turn: our own promise is not stored
            continue
        role.turn = []
        role.flushed = min(role.flushed, copy.lwm)
        role.joint_hwm = min(role.joint_hwm, copy.lwm)
        for waiter in role.take_undone(copy.lwm):
            # Reads are done again, because what they saw may be a refused write.
            finished = replicas.finished
            (finished.refused if waiter.keys else finished.again).append(waiter)
        if role.stage is Stage.SERVING:
            replicas.transactions.parts.load(role, replicas.now.boot_ms)
        if lwm != copy.lwm and not role.persisted:
            replicas.end_role(role)
    for partition in list(replicas.fills):
        if partition in replicas.touched:
            del replicas.fills[partition]
    replicas.refills.undone()
    for role in replicas.adopting:
        replicas.end_role(role)
    replicas.dirty = {}
    replicas.touched = {}
    replicas.ack_due = {}
    replicas.adopting = []
    # Drop also messages that need no sync: rows and updates of this turn, whose counters are given
    # out again, may have been read for a transfer.  What is lost is requested again.
    asked = any(isinstance(message, Inventory) for _, message in replicas.out.after_sync)
    replicas.announcements = {}
    replicas.out = Outbox()
    if asked:  # the master does not repeat this request
        replicas.out.send_durable(MASTER, Inventory(replicas.uid, replicas.inventory(), last=False))
