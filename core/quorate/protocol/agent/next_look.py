"""When a tick must visit a zone's copies because of time alone.

A zone with something in progress is visited by every tick.  Another zone is visited when the first
of these is due, and at the latest after `IDLE_LOOK_MS`:

- a key expires
- a lease ends that a role shares with no other (of the others the agent notes it: zones_awake.py)
- logs and digests are checked (upkeep.py)

Any event in the zone has the next tick visit it (`Replicas.wake`).  The simulator checks after
every tick that zones which are not due have nothing to do (tests/quorate_sim/rest_checks.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.facts.time import Now
from quorate.protocol.copies.primary import Primary

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas

IDLE_LOOK_MS = 10_000
"""Work whose due time is overlooked here is at most this late.

With 200 zones at rest, this makes 20 visits per second in all.
"""


def next_look_ms(replicas: Replicas, now: Now) -> int:
    """Return the boot time by which `replicas.tick` has something to do; `now`: at once."""
    is_busy = (
        replicas.fills
        or replicas.refused_rows
        or replicas.refills.partitions
        or not replicas.upkeep.is_idle
        or not replicas.transactions.is_idle
    )
    if is_busy:
        return now.boot_ms
    due_ms = min(now.boot_ms + IDLE_LOOK_MS, replicas.upkeep.check_ms)
    for role in replicas.roles.values():
        if not _is_idle(role):
            return now.boot_ms
        expiring = role.copy.expiring
        if expiring:
            due_ms = min(due_ms, now.boot_ms + max(expiring[0][0] - now.wall_ms, 0))
    for role in replicas.own_leases.values():
        due_ms = min(due_ms, max(role.serving_until, now.boot_ms))
    return due_ms


def _is_idle(role: Primary) -> bool:
    """Return whether the role waits for nothing but its lease, and its copies know its position."""
    copy = role.copy
    return (
        role.persisted
        and not role.frozen
        and not role.waiters
        and not role.parts
        and role.is_quiet()
        and role.announced == (copy.majority, copy.settled)
        and role.settled() <= copy.settled
        and all(peer.lwm >= copy.lwm for peer in role.peers.values())
    )
