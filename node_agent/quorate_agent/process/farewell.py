"""How an agent ends so that its clients notice little: who takes over, and what they are told."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from quorate.protocol.agent.replicas import Replicas
from quorate_agent.machine.lasting import lasts
from quorate_agent.zones.runtime import ZoneRuntime

LEAVE_POLL_S = 0.02
"""Much less than a hand-over takes."""

NEWS_S = 0.3
"""Others may hear of a hand-over so much later than we do: until then a client sent to the new
primary may be sent back, and go-redis gives up after a few times.  Commands are forwarded
meanwhile."""

FAREWELL_S = NEWS_S + 1.0
"""A client that says something in the second behind that is told MOVED, and need not find out from
a connection that ends."""

CLOSING_S = 4.0
"""Time for closing after that: writes are made durable, connections are ended."""


async def leave_in_time(
    zones: Mapping[str, Replicas],
    runtimes: Mapping[str, ZoneRuntime],
    grace_s: float,
    has_master: Callable[[], bool],
    linger_s: float = 0.0,
) -> None:
    """Hand over, tell clients, see transactions end: all so that the process has ended after
    `grace_s`.  Where others are slow to take over, that is given up first.

    Clients are taken in, and told where to go, for `linger_s` at least, as far as the grace lasts:
    behind a Service one may come that knows no other way in."""
    whole_s = max(grace_s - CLOSING_S, 0.0)
    lingers_until = time.monotonic() + linger_s
    with suppress(TimeoutError):
        async with asyncio.timeout(whole_s):
            await hand_over(zones, max(whole_s - 2 * FAREWELL_S, 0.0), has_master)
            await say_farewell(zones, runtimes)
            await asyncio.sleep(max(lingers_until - time.monotonic(), 0.0))
            await see_transactions_end(zones)  # also of those that began meanwhile


async def hand_over(
    zones: Mapping[str, Replicas], bound_s: float, has_master: Callable[[], bool]
) -> None:
    """Wait until others are primary of what this agent was, as long as a master sees to it."""
    await lasts(lambda: has_master() and _hands_over(zones), bound_s, LEAVE_POLL_S)


async def say_farewell(zones: Mapping[str, Replicas], runtimes: Mapping[str, ZoneRuntime]) -> None:
    """Tell clients where their primaries are now.

    Some look for another primary when they hear MOVED, and not when a connection ends: then they
    wait for this very agent.
    """

    def have_to_hear() -> bool:
        has_clients = any(runtime.endpoint.overview.clients for runtime in runtimes.values())
        return has_clients and not _hands_over(zones)

    if await lasts(have_to_hear, NEWS_S, LEAVE_POLL_S):
        for runtime in runtimes.values():
            runtime.endpoint.forwards.is_leaving = True
        await lasts(have_to_hear, FAREWELL_S - NEWS_S, LEAVE_POLL_S)


async def see_transactions_end(zones: Mapping[str, Replicas]) -> None:
    """Wait for those that this agent coordinates: nobody else would tell their clients."""

    def are_coordinated() -> bool:
        return any(zone.transactions.coordinates for zone in zones.values())

    await lasts(are_coordinated, FAREWELL_S, LEAVE_POLL_S)


def _hands_over(zones: Mapping[str, Replicas]) -> bool:
    """Whether any primary here has another owner that could take over."""
    return any(len(role.row.owners) > 1 for zone in zones.values() for role in zone.roles.values())
