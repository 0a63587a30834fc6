"""Fills an agent's copies, and supplies the copies of other agents.

`fill.Fill` knows what one copy still needs, `supply` what a copy can give; this module turns their
questions and answers into messages.  Source: docs/protocol.md, section 5.
"""

from quorate.facts.time import Now
from quorate.protocol.agent import activation
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.fill import CATCH_UP_CHUNKS, Fill
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.supply import supply_keys, supply_snapshot, supply_updates
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Rejected, Sync
from quorate.protocol.messages.transfer import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Unavailable,
    Updates,
)


def told_to_adopt(zone: ZoneCopies, node: str, sync: Sync) -> None:
    """Adopt a primary's stored lineage, after fetching what is missing below it."""
    copy = zone.copies.get(sync.partition)
    if copy is None or not copy.present or copy.promise_term != sync.term:
        promised = copy.promise_term if copy is not None else 0
        zone.out.send(node, Rejected(zone.uid, sync.partition, sync.term, promised))
        return
    copy.hwm = max(copy.hwm, sync.hwm)
    if copy.adopted:
        zone.ack_due[sync.partition] = (node, copy, sync.term)
    elif sync.partition not in zone.fills:
        need = sync.lineage.last_first - 1
        row = zone.table[sync.partition]
        known = row.reset.term if row is not None and row.reset is not None else 0
        if known < sync.reset > copy.last_term:
            return  # the row of that reset has our rows set aside; the Sync is repeated
        if row is not None and zone.me.node not in row.voter_nodes:
            # Adoption by a newcomer is waited for only in joint mode.  So it first fetches what was
            # there before it; then only updates in flight are missing.
            need = max(need, sync.hwm)
        suppliers = _suppliers(zone, sync.partition, node)
        aside = zone.aside_by(row, copy)
        begin(zone, Fill(copy, sync.lineage, need, suppliers, zone.settings, aside=aside))


def _suppliers(zone: ZoneCopies, partition: int, primary: str) -> list[str]:
    """Return the nodes to ask for what is missing: the primary, and owners that are heard from.

    Those of our failure domain come first.  In its domain the primary is last, because it has the
    most to do.
    """
    row = zone.table[partition]
    now, leases = zone.now.boot_ms, zone.leases
    owners = row.owners if row is not None else ()
    heard = [
        node
        for node in owners
        if node not in (zone.me.node, primary) and leases.held_until(node) > now
    ]
    ours = zone.domains.get(zone.me.node, "")
    return sorted([*heard, primary], key=lambda node: zone.domains.get(node, "") != ours)


def begin(zone: ZoneCopies, fill: Fill) -> None:
    """Start filling a copy."""
    zone.fills[fill.copy.partition] = fill
    zone.touch(fill.copy)
    step(zone, fill)


def repair(zone: ZoneCopies, copy: Copy, primary: str) -> None:
    """Fetch updates that an adopted copy lacks although it was told of them."""
    suppliers = _suppliers(zone, copy.partition, primary)
    begin(zone, Fill(copy, copy.lineage, copy.hwm, suppliers, zone.settings))


def refused(zone: ZoneCopies, node: str, answer: Unavailable) -> None:
    """Ask another node, because the one that we asked cannot supply."""
    fill = zone.fills.get(answer.partition)
    if fill is not None and fill.term == answer.term:
        fill.unavailable(node)
        step(zone, fill)


def tick(zone: ZoneCopies, now: Now) -> None:
    """Go on with all fills, and report their progress now and then.

    Those that have their snapshots share what is applied of the updates behind them.
    """
    fills = list(zone.fills.values())
    sharing = sum(fill.has_snapshot for fill in fills)
    bytes_max = CATCH_UP_CHUNKS * zone.settings.transfer_chunk_bytes // max(sharing, 1)
    for fill in fills:
        has_begun = fill.bytes_done or fill.is_full
        if has_begun and now.boot_ms - fill.reported_ms >= zone.settings.retry_ms:
            fill.reported_ms = now.boot_ms
            zone.out.send(MASTER, fill.progress(zone.uid, done=False))
        step(zone, fill, max(bytes_max, 1))


def step(zone: ZoneCopies, fill: Fill, catch_up_bytes: int = 0) -> None:
    """Adopt if nothing is missing, else ask for the next piece.

    `catch_up_bytes`: so much of what came behind a snapshot is applied before (`Fill.catch_up`).
    """
    if fill.catch_up(catch_up_bytes):
        if catch_up_bytes:
            zone.touch(fill.copy)
        return  # the next tick goes on
    if fill.is_complete():
        was_adopted = fill.copy.adopted
        if fill.aside is not None:
            fill.aside = zone.aside_by(zone.table[fill.copy.partition], fill.copy)
        fill.finish()
        zone.note_aside(fill.copy)
        zone.touch(fill.copy)
        del zone.fills[fill.copy.partition]
        holder = fill.copy.promise_holder
        if holder is not None:
            zone.ack_due[fill.copy.partition] = (holder.node, fill.copy, fill.term)
        zone.out.send(MASTER, fill.progress(zone.uid, done=True))
        if fill.is_full:
            zone.full_copies += 1
            reasons, reason = zone.full_reasons, fill.full_reason
            reasons[reason] = reasons.get(reason, 0) + 1
            zone.survey(fill.copy)
            if fill.refill is not None:
                zone.refilled[fill.copy.partition] = fill.refill
        elif not was_adopted:
            zone.delta_copies += 1
        return
    if zone.is_short_of_room and not _is_needed(zone, fill):
        return  # continued when there is room
    for node, message in fill.ask(zone.uid, zone.now.boot_ms):
        zone.out.send(node, message)


def _is_needed(zone: ZoneCopies, fill: Fill) -> bool:
    """Return whether the term may need this fill to serve: a voter's delta before it adopts."""
    row = zone.table[fill.copy.partition]
    votes = row is not None and zone.me.node in row.voter_nodes
    return votes and not fill.copy.adopted and not fill.is_full


def supply(zone: ZoneCopies, node: str, ask: FetchUpdates | FetchKeys) -> int:
    """Answer a copy that lacks updates, or rows of single keys; return the answer's bytes."""
    copy = zone.copies.get(ask.partition)
    answer: Updates | KeyRows | Unavailable
    if copy is None:
        answer = Unavailable(zone.uid, ask.partition, ask.term)
    elif isinstance(ask, FetchUpdates):
        chunk = zone.settings.transfer_chunk_bytes * 4
        answer = supply_updates(zone.uid, copy, ask, chunk)
    else:
        answer = supply_keys(zone.uid, copy, ask)
    zone.out.send(node, answer)
    return _size(answer)


def send_snapshot(zone: ZoneCopies, node: str, ask: FetchSnapshot) -> int:
    """Send one piece of a snapshot; return its bytes."""
    copy = zone.copies.get(ask.partition)
    if copy is None:
        zone.out.send(node, Unavailable(zone.uid, ask.partition, ask.term))
        return 0
    answer = supply_snapshot(zone.uid, copy, ask)
    zone.out.send(node, answer)
    return _size(answer)


def _size(answer: Updates | KeyRows | SnapshotChunk | Unavailable) -> int:
    """Return the bytes of an answer, for the agent's limit (supply_rate.py)."""
    match answer:
        case Updates():
            return sum(map(len, answer.updates))
        case KeyRows() | SnapshotChunk():
            return sum(len(key) + len(value or b"") for key, *_, value in answer.rows)
        case Unavailable():
            return 0


def take_updates(zone: ZoneCopies, node: str, answer: Updates) -> None:
    """Take in updates from a log that a fill or an activation asked for."""
    copy = zone.copies.get(answer.partition)
    if copy is None or not copy.present or copy.promise_term != answer.term:
        return
    fill = zone.fills.get(answer.partition)
    role = zone.roles.get(answer.partition)
    lineage = copy.lineage
    if fill is not None:
        lineage = fill.lineage
    elif role is not None and role.stage is Stage.GATHERING and role.gathering.plan is not None:
        lineage = role.gathering.plan.lineage
    changed = False
    for raw in answer.updates:
        update = decode_update(raw)
        if not lineage.is_divergent(update.term, update.counter):
            changed |= copy.keep(update, raw)
    if changed:
        zone.touch(copy)
    if fill is not None:
        fill.take_updates(node, answer)
        step(zone, fill)
    elif role is not None:
        activation.updates_came(zone, role, node, answer.reaches_from)


def take_keys(zone: ZoneCopies, node: str, answer: KeyRows) -> None:
    """Take in rows that replace what divergent updates touched."""
    fill = zone.fills.get(answer.partition)
    role = zone.roles.get(answer.partition)
    if fill is not None and fill.term == answer.term:
        fill.take_keys(answer)
        step(zone, fill)
    elif role is not None and role.term == answer.term:
        activation.keys_came(zone, role, node, answer)


def take_chunk(zone: ZoneCopies, node: str, chunk: SnapshotChunk) -> None:
    """Take in a piece of a snapshot."""
    fill = zone.fills.get(chunk.partition)
    if fill is not None and fill.term == chunk.term and fill.may_ask(node):
        fill.take_chunk(node, chunk)
        zone.touch(fill.copy)
        step(zone, fill)
