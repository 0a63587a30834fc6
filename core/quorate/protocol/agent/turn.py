"""A turn of one zone: its results, its updates as messages, how it is divided or undone.

It is divided while long values of some partitions are written ahead of the batch.  The others end
their turn without them: their rows, updates, Appends and Acks are sent.  The writes of one
partition keep their order, because either all of it waits or nothing.  A turn is not divided if it
says anything else (a promise, a stored row, a piece of a transfer, a transaction's message),
because that may concern what waits.

It is undone if its batch found no room: everything returns to what the storage holds.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.record import record_names
from quorate.protocol.copies.reports import inventory
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.master import Inventory
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER, Outbox
from quorate.protocol.messages.replication import Append, Batch
from quorate.protocol.transactions import parts

APPEND_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of updates per message.  A longer update, which clients may write, has a message of its
own."""

T = TypeVar("T")


class Turn(NamedTuple):
    """The result of a flush: `sends` are sent now, the rest when `synced` is called with it."""

    sends: list[tuple[str, Message]]
    after_sync: list[tuple[str, Message]]
    durable: list[tuple[Copy, int, int]]
    acks: list[tuple[str, Copy, int]]
    adopted: list[Primary]
    refilled: dict[int, str]
    wrote: bool


def appends(zone: str, roles: Iterable[Primary]) -> Iterator[tuple[tuple[str, ...], Append]]:
    """Take the updates of these roles' turns; yield them as messages, with the nodes of each."""
    groups: dict[tuple[str, ...], list[Batch]] = {}
    size = 0
    for role in roles:
        updates, role.turn = role.turn, []
        peers = tuple(node for node, peer in role.peers.items() if peer.promised)
        if not updates or not peers:
            continue
        of_role = sum(map(len, updates))
        if size + of_role > APPEND_BYTES_MAX:
            yield from _messages(zone, groups)
            groups, size = {}, 0
        if of_role <= APPEND_BYTES_MAX:
            groups.setdefault(peers, []).append(role.batch(updates))
            size += of_role
            continue
        # Two of them may exceed a frame.  Each message names its own update and none behind it,
        # because a copy asks again for an update that it was told of and does not get.
        for behind, update in zip(range(len(updates) - 1, -1, -1), updates, strict=True):
            yield from _messages(zone, {peers: [role.batch([update], behind)]})
    yield from _messages(zone, groups)


def _messages(
    zone: str, groups: dict[tuple[str, ...], list[Batch]]
) -> Iterator[tuple[tuple[str, ...], Append]]:
    for nodes, batches in groups.items():
        yield nodes, Append(zone, tuple(batches))


class SetAside(NamedTuple):
    """The part of the turn that belongs to the waiting partitions."""

    dirty: dict[int, Primary]
    touched: dict[int, Copy]
    ack_due: dict[int, tuple[str, Copy, int]]
    announcements: dict[str, list[Batch]]
    records: frozenset[bytes]


def may_be_divided(zone: ZoneCopies) -> bool:
    """Return whether the turn has only writes, Acks and positions of roles."""
    out = zone.out
    return not (out.at_once or out.after_sync or zone.adopting or zone.refilled)


def set_aside(zone: ZoneCopies, waiting: Collection[int]) -> SetAside:
    """Remove from the turn what concerns the partitions in `waiting`, and return it."""
    announcements, zone.announcements = zone.announcements, {}
    kept: dict[str, list[Batch]] = {}
    for node, batches in announcements.items():
        for batch in batches:
            if batch.partition in waiting:
                kept.setdefault(node, []).append(batch)
            else:
                zone.announce(node, batch)
    aside = SetAside(
        _taken(zone.dirty, waiting),
        _taken(zone.touched, waiting),
        _taken(zone.ack_due, waiting),
        kept,
        record_names(waiting),
    )
    zone.wrote = bool(zone.touched)
    return aside


def _taken(of: dict[int, T], waiting: Collection[int]) -> dict[int, T]:
    return {partition: of.pop(partition) for partition in waiting if partition in of}


def put_back(zone: ZoneCopies, aside: SetAside) -> None:
    """Continue the turn of the waiting partitions, because that of the others has ended."""
    zone.dirty = aside.dirty
    zone.touched = aside.touched
    zone.ack_due = aside.ack_due
    zone.announcements = aside.announcements


def go_back(zone: ZoneCopies) -> None:
    """Reset copies, roles and rows to what the storage holds, because the batch was not written."""
    for copy in zone.touched.values():
        lwm, durable_lwm, majority, settled = (
            copy.lwm,
            copy.durable_lwm,
            copy.majority,
            copy.settled,
        )
        answered, alive_in = copy.answered, copy.last_term if copy.is_alive else -1
        surveyed = copy.surveyed
        copy.recover()
        zone.note_aside(copy)
        if surveyed and copy.present:
            zone.survey(copy)
        zone.purge(copy)  # the turn may have dropped some
        copy.is_alive = copy.last_term == alive_in
        # Those of an earlier turn:
        copy.majority, copy.settled, copy.answered = majority, settled, answered
        copy.durable_lwm = min(durable_lwm, copy.lwm)  # earlier turns may still be synced
        row = zone.table[copy.partition]
        if row is not None and row.version > copy.version and (copy.present or zone.names_me(row)):
            zone.refused_rows[copy.partition] = row
            zone.table[copy.partition] = copy.row
        role = zone.roles.get(copy.partition)
        if role is None:
            continue
        if copy.promise_term != role.term:
            zone.end_role(role)  # it began in this turn: our own promise is not stored
            continue
        role.turn = []
        role.flushed = min(role.flushed, copy.lwm)
        if role.joint is not None:
            role.joint.hwm = min(role.joint.hwm, copy.lwm)
        for waiter in role.take_undone(copy.lwm):
            # Reads are done again, because what they saw may be a refused write.
            finished = zone.finished
            (finished.refused if waiter.keys else finished.again).append(waiter)
        if role.stage is Stage.SERVING:
            parts.load(role, zone.now.boot_ms)
        if lwm != copy.lwm and not role.persisted:
            zone.end_role(role)
    for partition in list(zone.fills):
        if partition in zone.touched:
            del zone.fills[partition]
    zone.refilled = {}  # these begin again
    for role in zone.adopting:
        zone.end_role(role)
    zone.dirty = {}
    zone.touched = {}
    zone.ack_due = {}
    zone.adopting = []
    for role in zone.roles.values():  # the master gives up a primary that never reports
        role.has_reported = False
    # Drop also messages that need no sync: rows and updates of this turn, whose counters are given
    # out again, may have been read for a transfer.  What is lost is requested again.
    inventories = [each for _, each in zone.out.after_sync if isinstance(each, Inventory)]
    zone.announcements = {}
    zone.out = Outbox()
    if inventories:  # the master does not repeat this request
        zone.repeat_reports()
    for each in inventories:
        told = msgspec.structs.replace(each, copies=inventory(zone, each.rows))
        if each is zone.inventory_due:
            zone.inventory_due = told
        zone.out.send_durable(MASTER, told)
