"""Fills an agent's copies, and supplies the copies of other agents.

`fill.Fill` knows what one copy still needs, `supply` what a copy can give; this module turns their
questions and answers into messages.  Source: docs/protocol.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.agent import activation
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.fill import Fill
from quorate.protocol.copies.outbox import MASTER
from quorate.protocol.copies.primary import Stage
from quorate.protocol.copies.supply import supply_keys, supply_snapshot, supply_updates
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

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas


def told_to_adopt(replicas: Replicas, node: str, sync: Sync) -> None:
    """Adopt a primary's stored lineage, after fetching what is missing below it."""
    copy = replicas.copies.get(sync.partition)
    if copy is None or not copy.present or copy.promise_term != sync.term:
        promised = copy.promise_term if copy is not None else 0
        replicas.out.send(node, Rejected(replicas.uid, sync.partition, sync.term, promised))
        return
    copy.hwm = max(copy.hwm, sync.hwm)
    if copy.adopted:
        replicas.ack_due[sync.partition] = (node, copy, sync.term)
    elif sync.partition not in replicas.fills:
        need = sync.lineage.last_first - 1
        row = replicas.table[sync.partition]
        if row is not None and replicas.me.node not in row.voter_nodes:
            # Adoption by a newcomer is waited for only in joint mode.  So it first fetches what was
            # there before it; then only updates in flight are missing.
            need = max(need, sync.hwm)
        suppliers = _suppliers(replicas, sync.partition, node)
        begin(replicas, Fill(copy, sync.lineage, need, suppliers, replicas.settings))


def _suppliers(replicas: Replicas, partition: int, primary: str) -> list[str]:
    """Return the nodes to ask for what is missing: the primary, and owners that are heard from.

    Those of our failure domain come first.  In its domain the primary is last, because it has the
    most to do.
    """
    row = replicas.table[partition]
    now, leases = replicas.now.boot_ms, replicas.leases
    owners = row.owners if row is not None else ()
    heard = [
        node
        for node in owners
        if node not in (replicas.me.node, primary) and leases.held_until(node) > now
    ]
    ours = replicas.domains.get(replicas.me.node, "")
    return sorted([*heard, primary], key=lambda node: replicas.domains.get(node, "") != ours)


def begin(replicas: Replicas, fill: Fill) -> None:
    """Start filling a copy."""
    replicas.fills[fill.copy.partition] = fill
    replicas.touch(fill.copy)
    step(replicas, fill)


def repair(replicas: Replicas, copy: Copy, primary: str) -> None:
    """Fetch updates that an adopted copy lacks although it was told of them."""
    suppliers = _suppliers(replicas, copy.partition, primary)
    begin(replicas, Fill(copy, copy.lineage, copy.hwm, suppliers, replicas.settings))


def refused(replicas: Replicas, node: str, answer: Unavailable) -> None:
    """Ask another node, because the one that we asked cannot supply."""
    fill = replicas.fills.get(answer.partition)
    if fill is not None and fill.term == answer.term:
        fill.unavailable(node)
        step(replicas, fill)


def step(replicas: Replicas, fill: Fill) -> None:
    """Adopt if nothing is missing, else ask for the next piece."""
    if fill.is_complete():
        was_adopted = fill.copy.adopted
        fill.finish()
        replicas.touch(fill.copy)
        del replicas.fills[fill.copy.partition]
        holder = fill.copy.promise_holder
        if holder is not None:
            replicas.ack_due[fill.copy.partition] = (holder.node, fill.copy, fill.term)
        replicas.out.send(MASTER, fill.progress(replicas.uid, done=True))
        if fill.is_full:
            replicas.full_copies += 1
            reasons, reason = replicas.full_reasons, fill.full_reason
            reasons[reason] = reasons.get(reason, 0) + 1
            replicas.upkeep.survey(fill.copy)
            if fill.is_refill:
                replicas.refills.ended(fill.copy.partition)
        elif not was_adopted:
            replicas.delta_copies += 1
        return
    if replicas.is_short_of_room and not _is_needed(replicas, fill):
        return  # continued when there is room
    for node, message in fill.ask(replicas.uid, replicas.now.boot_ms):
        replicas.out.send(node, message)


def _is_needed(replicas: Replicas, fill: Fill) -> bool:
    """Return whether the term may need this fill to serve: a voter's delta before it adopts."""
    row = replicas.table[fill.copy.partition]
    votes = row is not None and replicas.me.node in row.voter_nodes
    return votes and not fill.copy.adopted and not fill.is_full


def supply(replicas: Replicas, node: str, ask: FetchUpdates | FetchKeys | FetchSnapshot) -> None:
    """Answer a copy that lacks something; upkeep queues snapshots to limit their rate."""
    copy = replicas.copies.get(ask.partition)
    if copy is None:
        replicas.out.send(node, Unavailable(replicas.uid, ask.partition, ask.term))
        return
    match ask:
        case FetchUpdates():
            chunk = replicas.settings.transfer_chunk_bytes * 4
            replicas.out.send(node, supply_updates(replicas.uid, copy, ask, chunk))
        case FetchKeys():
            replicas.out.send(node, supply_keys(replicas.uid, copy, ask))
        case FetchSnapshot():
            replicas.upkeep.supply_later(node, copy, ask)


def send_snapshot(replicas: Replicas, node: str, copy: Copy, ask: FetchSnapshot) -> int:
    """Send one piece of a snapshot; return its bytes, for the rate limit."""
    answer = supply_snapshot(replicas.uid, copy, ask)
    replicas.out.send(node, answer)
    return sum(len(r[0]) + len(r[4] or b"") for r in getattr(answer, "rows", ()))


def take_updates(replicas: Replicas, node: str, answer: Updates) -> None:
    """Take in updates from a log that a fill or an activation asked for."""
    copy = replicas.copies.get(answer.partition)
    if copy is None or not copy.present or copy.promise_term != answer.term:
        return
    fill = replicas.fills.get(answer.partition)
    role = replicas.roles.get(answer.partition)
    lineage = copy.lineage
    if fill is not None:
        lineage = fill.lineage
    elif role is not None and role.plan is not None and role.stage is Stage.GATHERING:
        lineage = role.plan.lineage
    changed = False
    for raw in answer.updates:
        update = decode_update(raw)
        if not lineage.is_divergent(update.term, update.counter):
            changed |= copy.keep(update, raw)
    if changed:
        replicas.touch(copy)
    if fill is not None:
        fill.take_updates(node, answer)
        step(replicas, fill)
    elif role is not None:
        activation.updates_came(replicas, role, node, answer.reaches_from)


def take_keys(replicas: Replicas, node: str, answer: KeyRows) -> None:
    """Take in rows that replace what divergent updates touched."""
    fill = replicas.fills.get(answer.partition)
    role = replicas.roles.get(answer.partition)
    if fill is not None and fill.term == answer.term:
        fill.take_keys(answer)
        step(replicas, fill)
    elif role is not None and role.term == answer.term:
        activation.keys_came(replicas, role, node, answer)


def take_chunk(replicas: Replicas, node: str, chunk: SnapshotChunk) -> None:
    """Take in a piece of a snapshot."""
    fill = replicas.fills.get(chunk.partition)
    if fill is not None and fill.term == chunk.term and fill.may_ask(node):
        fill.take_chunk(chunk)
        replicas.touch(fill.copy)
        step(replicas, fill)
