"""The time at which a tick must next visit a zone's copies because of time alone.

A zone is visited when the first of these is due, and at the latest after `IDLE_LOOK_MS`:

- a key expires
- a lease ends that a role shares with no other (of the others the agent notes it: zones_awake.py)
- a role repeats what was not answered, or announces its position (`_role_due_ms`)
- logs and digests are checked (upkeep.py)

While copies are filled or transactions run, every tick visits the zone.  Any event in the zone has
the next tick visit it (`ZoneCopies.wake`).  The simulator checks after every tick that zones which
are not due have nothing to do (tests/quorate_sim/rest_checks.py).
"""

from quorate.facts.time import Now
from quorate.protocol.agent.activation import ready_due_ms
from quorate.protocol.agent.repairs.refill import Refills
from quorate.protocol.agent.repairs.repair_key import KeyRepairs
from quorate.protocol.agent.upkeep import Upkeep
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Retry, Stage
from quorate.protocol.copies.zone_copies import ZoneCopies
from quorate.protocol.transactions.transactions import Transactions

IDLE_LOOK_MS = 10_000
"""Work whose due time is overlooked here is at most this late.

With 200 zones at rest, this makes 20 visits per second in all.
"""


def next_look_ms(
    zone: ZoneCopies,
    upkeep: Upkeep,
    refills: Refills,
    repairs: KeyRepairs,
    transactions: Transactions,
    now: Now,
) -> int:
    """Return the boot time by which `Replicas.tick` has something to do; `now`: at once.

    Also sets `zone.in_progress`, unless only the end of a lease or an expiry is waited for.
    """
    now_ms = now.boot_ms
    zone.in_progress = bool(
        zone.fills
        or zone.refused_rows
        or refills.partitions
        or repairs.to_hand_over
        or not upkeep.is_idle
        or not transactions.is_idle
    )
    due_ms = min(now_ms + IDLE_LOOK_MS, upkeep.check_ms, max(upkeep.aside_due_ms(now), now_ms))
    if zone.in_progress:
        due_ms = now_ms
    for role in zone.roles.values():
        if not _is_idle(role):
            zone.in_progress = True
            due_ms = min(due_ms, max(_role_due_ms(zone, role, now_ms), now_ms))
        expiring = role.copy.expiring.heap
        if expiring:
            due_ms = min(due_ms, now_ms + max(expiring[0][0] - now.wall_ms, 0))
    for role in zone.own_leases.values():
        due_ms = min(due_ms, max(role.serving_until, now_ms))
    return due_ms


def _is_idle(role: Primary) -> bool:
    """Return whether the role waits for nothing but its lease, and its copies know its position."""
    copy = role.copy
    return (
        role.persisted
        and not role.frozen
        and not role.waiters
        and not role.lasting
        and role.acked >= copy.lwm
        and not role.parts
        and role.is_quiet()
        and role.announced == (copy.majority, copy.settled)
        and role.settled() <= copy.settled
        and all(peer.lwm >= copy.lwm for peer in role.peers.values())
    )


def _role_due_ms(zone: ZoneCopies, role: Primary, now_ms: int) -> int:
    """Return when `activation.tick` has something to do for a role that is not idle (boot ms).

    Steps that are short, or few at a time, are looked at with every tick: gathering updates,
    migrations, transactions.
    """
    settings, copy = zone.settings, role.copy
    if role.stage is Stage.GATHERING or role.row.active is not None or role.frozen or role.parts:
        return now_ms
    if role.others():  # asked after a reset, or after a restart of all
        return now_ms
    if role.answers_alone and (role.waiters or not role.persisted):
        return now_ms
    dues: list[int] = []
    if role.waiters:
        lease = role.lease
        if not lease.lapsed_ms:
            dues.append(lease.ms)
        elif role.gave_up_ms != lease.lapsed_ms:
            dues.append(lease.lapsed_ms + zone.park_bound_ms)
    voters = role.row.voter_nodes
    for node, peer in role.peers.items():
        if not peer.promised:
            if zone.stores.get(node) == role.stores.get(node):
                dues.append(peer.asked_ms + settings.retry_ms if peer.asked_ms >= 0 else now_ms)
        elif not peer.adopted:
            if role.persisted:
                dues.append(peer.asked_ms + settings.retry_ms if peer.asked_ms >= 0 else now_ms)
        elif role.persisted:
            if peer.lwm < copy.lwm:
                told_ms = role.retries.sent_ms(Retry.POSITION, node)
                repair_ms = peer.progress_ms + settings.repair_ms
                dues.append(max(repair_ms, told_ms + settings.retry_ms))
            is_away = role.is_full_sync and node not in zone.online
            if not peer.ready and node in voters and peer.lwm >= role.acked and not is_away:
                dues.append(ready_due_ms(zone, role, node, peer))
    if role.stage is Stage.WAITING:
        ends = [peer.lease_until for peer in role.peers.values()]
        dues += [end for end in (role.lease_until, *ends) if end > now_ms]
    position = (copy.majority, max(copy.settled, role.settled()))
    if role.persisted and (position != role.announced or position[1] != copy.settled):
        dues.append(role.announced_ms + settings.announce_ms)
    return min(dues, default=now_ms + IDLE_LOOK_MS)
