"""When a zone's copies must be looked at again because of the time alone.

An agent has hundreds of zones, most of them idle: a look at each, ten times per heartbeat, costs a
tenth of a core.  An idle zone is looked at every `IDLE_LOOK_MS`, and exactly when a lease ends or a
key expires before that; whatever happens in it has it looked at by the next tick
(`Replicas.look_ms`).  What is forgotten here is therefore late by `IDLE_LOOK_MS` at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.facts.time import Now
from quorate.protocol.copies.primary import Primary

if TYPE_CHECKING:
    from quorate.protocol.agent.replicas import Replicas

IDLE_LOOK_MS = 500


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
    due_ms = now.boot_ms + IDLE_LOOK_MS
    for role in replicas.roles.values():
        if not _is_idle(role, now.boot_ms):
            return now.boot_ms
        due_ms = min(due_ms, role.serving_until)
        expiring = role.copy.expiring
        if expiring:
            due_ms = min(due_ms, now.boot_ms + max(expiring[0][0] - now.wall_ms, 0))
    return due_ms


def _is_idle(role: Primary, now_ms: int) -> bool:
    """Whether the role waits for nothing, and its copies know where it stands."""
    copy = role.copy
    return (
        role.serves(now_ms)
        and role.persisted
        and not role.waiters
        and not role.parts
        and role.is_quiet()
        and role.announced == (copy.majority, max(copy.settled, role.settled()))
        and all(peer.lwm >= copy.lwm for peer in role.peers.values())
    )
