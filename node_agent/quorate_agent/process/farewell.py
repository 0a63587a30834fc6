"""Ends an agent with little effect on clients: others take over, clients are told where to go."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from quorate.protocol.agent.replicas import Replicas
from quorate_agent.machine.lasting import lasts
from quorate_agent.zones.runtime import ZoneRuntime

LEAVE_POLL_S = 0.02
"""Much less than a hand-over takes."""

NEWS_S = 0.3
"""How much later than this agent others may hear of a hand-over.

Until then a client sent to the new primary may be sent back, and go-redis gives up after a few
times.  So commands are forwarded meanwhile."""

FAREWELL_S = NEWS_S + 1.0
"""A client that sends a command in the second after that gets MOVED, and need not learn of the end
from a closed connection."""

ANSWERS_S = 5.0
"""As long as commands wait for a primary.  Clients that ask again for a partition that nobody
serves are not waited for without an end."""

CLOSING_S = 4.0
"""Seconds for closing after that: writes are made durable, connections are ended."""


async def leave_in_time(
    zones: Mapping[str, Replicas],
    runtimes: Mapping[str, ZoneRuntime],
    grace_s: float,
    has_master: Callable[[], bool],
    linger_s: float = 0.0,
) -> None:
    """Hand over, tell clients, see the last answers come, so that the process has ended after
    `grace_s`.

    If others are slow to take over, waiting for them is given up first.  Clients are accepted and
    told where to go for at least `linger_s`, as far as the grace lasts: a client behind a Service
    may know no other way in."""
    whole_s = max(grace_s - CLOSING_S, 0.0)
    clock = asyncio.get_running_loop().time
    lingers_until = clock() + linger_s
    with suppress(TimeoutError):
        async with asyncio.timeout(whole_s):
            await hand_over(zones, max(whole_s - 2 * FAREWELL_S, 0.0), has_master)
            await say_farewell(zones, runtimes)
            await asyncio.sleep(max(lingers_until - clock(), 0.0))
            await see_transactions_end(zones)  # including those that began meanwhile
            await see_answers_come(runtimes, has_master)


async def hand_over(
    zones: Mapping[str, Replicas], bound_s: float, has_master: Callable[[], bool]
) -> None:
    """Wait until others are primary of this agent's partitions, while there is a master to see to
    it."""
    await lasts(lambda: has_master() and _hands_over(zones), bound_s, LEAVE_POLL_S)


async def say_farewell(zones: Mapping[str, Replicas], runtimes: Mapping[str, ZoneRuntime]) -> None:
    """Tell clients where their primaries are now.

    Some look for another primary on MOVED but not when a connection ends; they would wait for this
    agent to return.
    """

    def have_to_hear() -> bool:
        has_clients = any(runtime.endpoint.overview.clients for runtime in runtimes.values())
        return has_clients and not _hands_over(zones)

    if await lasts(have_to_hear, NEWS_S, LEAVE_POLL_S):
        for runtime in runtimes.values():
            runtime.endpoint.forwards.is_leaving = True
        await lasts(have_to_hear, FAREWELL_S - NEWS_S, LEAVE_POLL_S)


async def see_transactions_end(zones: Mapping[str, Replicas]) -> None:
    """Wait for the transactions that this agent coordinates: no other agent would answer their
    clients."""

    def are_coordinated() -> bool:
        return any(zone.transactions.coordinates for zone in zones.values())

    await lasts(are_coordinated, FAREWELL_S, LEAVE_POLL_S)


async def see_answers_come(
    runtimes: Mapping[str, ZoneRuntime], has_master: Callable[[], bool]
) -> None:
    """Wait for the primaries that have taken over, while commands came here that they answer.

    A client whose connection ends before the reply may repeat a write that is executed."""

    def are_awaited() -> bool:
        return any(runtime.endpoint.waits_for_others for runtime in runtimes.values())

    await lasts(lambda: has_master() and are_awaited(), ANSWERS_S, LEAVE_POLL_S)


def _hands_over(zones: Mapping[str, Replicas]) -> bool:
    """Return whether any primary here has another owner that could take over."""
    return any(len(role.row.owners) > 1 for zone in zones.values() for role in zone.roles.values())
