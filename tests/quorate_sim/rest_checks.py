"""A zone that says it has nothing to do until some time must have nothing to do now."""

from __future__ import annotations

from collections.abc import Iterator

from quorate.facts.errors import InvariantError
from quorate.facts.time import Now
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Peer


def check_rest(core: AgentCore, now: Now) -> None:
    """Raise InvariantError unless a tick of each zone that is not due changes and sends nothing.

    To be called behind the tick of the agent.  What a zone must do by time alone is thereby found
    within one tick of when it was due, however late the zone would have been looked at."""
    if not core.registered:
        return
    for uid, zone in core.zones.items():
        due_ms = zone.look_ms
        if due_ms <= now.boot_ms:
            continue
        before = dict(_state(zone))
        zone.tick(now)
        after = dict(_state(zone))
        if before != after:
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            what = ", ".join(f"{n} {before.get(n)} to {after.get(n)}" for n in sorted(changed)[:5])
            raise InvariantError(
                f"{core.node}, zone {uid}: not due before {due_ms}, and at {now.boot_ms} a tick "
                f"changes {what}"
            )
        if zone.look_ms <= now.boot_ms:
            raise InvariantError(
                f"{core.node}, zone {uid}: not due before {due_ms}, and at {now.boot_ms} it is"
            )
        zone.look_ms = due_ms


def _state(zone: Replicas) -> Iterator[tuple[str, object]]:
    """Everything that a tick may change, by name."""
    out, upkeep = zone.out, zone.upkeep
    yield "has work", zone.has_work
    yield "messages", (len(out.at_once), len(out.after_sync), len(zone.announcements))
    yield "touched", (*zone.touched,)
    yield "fills", (*zone.fills,)
    yield "refused rows", (*zone.refused_rows,)
    yield "refills", zone.refills.partitions
    yield "repairs", zone.repairs.to_hand_over
    yield "gaps", dict(upkeep._stalled)
    yield "surveys", dict(zone.surveys)
    yield "purging", dict(zone.purging)
    yield "snapshots", len(upkeep._snapshots)
    yield "marks", len(upkeep._marks)
    yield "digests", dict(upkeep._digests_asked)
    yield "held back", dict(zone.transactions.parts.waiting._held_back)
    for partition, copy in zone.copies.items():
        yield f"copy {partition}", _copy(copy)
    for partition, role in zone.roles.items():
        yield f"role {partition}", _role(role)
        for node, peer in role.peers.items():
            yield f"peer {node} of {partition}", _peer(peer)


def _copy(copy: Copy) -> tuple[object, ...]:
    return (
        copy.lwm,
        copy.hwm,
        copy.durable_lwm,
        copy.answered,
        copy.majority,
        copy.settled,
        copy.log_from,
        copy.last_term,
        copy.promise_term,
        len(copy.tombstones),
        len(copy.expiring.heap),
    )


def _role(role: Primary) -> tuple[object, ...]:
    return (
        role.term,
        role.stage,
        role.persisted,
        role.acked,
        role.frozen,
        role.announced,
        role.lease.lapsed_ms,
        role.gave_up_ms,
        role.serving_until,
        len(role.waiters),
        len(role.lasting),
        len(role.turn),
        len(role.parts),
        role.has_reported,
        role.announced_ms,
        dict(role.retries._sent_ms),
    )


def _peer(peer: Peer) -> tuple[object, ...]:
    return (peer.promised, peer.adopted, peer.ready, peer.lwm, peer.asked_ms, peer.progress_ms)
