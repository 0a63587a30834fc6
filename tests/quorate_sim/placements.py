"""Which failure domains and weights a seed's agents have; planner, timer and mode of its zones.

All of it comes from a random stream of its own: what else a seed draws does not depend on it.
"""

from random import Random

import msgspec

from quorate.facts.zone import NEVER_MS, ConsistencyMode, Planner, WriteMode, ZoneRecord

_AGENTS_MAX = 9
"""More than a seed ever has, with those that join."""


class Placement(msgspec.Struct, frozen=True):
    """What an agent says of itself in its Hello."""

    failure_domain: str = ""
    weight: int = 1


def draw_placements(seed: int) -> tuple[Placement, ...]:
    """Of agent a1, a2, …; empty in seeds where every agent is like the others."""
    r = Random(f"{seed} placement")
    domains = r.choice((0, 0, 2, 2, 3))
    weights = r.choice(((1,), (1,), (1, 2), (1, 2, 4)))
    if not domains and weights == (1,):
        return ()
    first = r.randrange(domains or 1)
    return tuple(
        # The first agents have a domain each, so that few agents are enough to have all of them.
        Placement(
            f"d{(at + first) % domains if at < domains else r.randrange(domains)}"
            if domains
            else "",
            r.choice(weights),
        )
        for at in range(_AGENTS_MAX)
    )


def draw_planners(seed: int, zones: tuple[ZoneRecord, ...]) -> tuple[ZoneRecord, ...]:
    """The zones, some of them with the planner Staged."""
    r = Random(f"{seed} planner")
    planners = (Planner.MINIMAL, Planner.MINIMAL, Planner.STAGED)
    return tuple(msgspec.structs.replace(zone, planner=r.choice(planners)) for zone in zones)


def draw_timers(seed: int, zones: tuple[ZoneRecord, ...]) -> tuple[ZoneRecord, ...]:
    """The zones, some of which take a newcomer's copies only after a while."""
    r = Random(f"{seed} timer")
    return tuple(
        msgspec.structs.replace(zone, scale_up_ms=r.choice((0, 0, 700, 4000))) for zone in zones
    )


def is_high(seed: int) -> bool:
    """Whether the seed's zones are in HIGH_AVAILABILITY."""
    return seed % 17 in (3, 16)


def draw_modes(seed: int, zones: tuple[ZoneRecord, ...]) -> tuple[ZoneRecord, ...]:
    """The zones, in few seeds in HIGH_AVAILABILITY with a time of their own."""
    if not is_high(seed):
        return zones
    r, isolated = Random(f"{seed} mode"), Random(f"{seed} isolation")
    return tuple(
        msgspec.structs.replace(
            zone,
            mode=ConsistencyMode.HIGH_AVAILABILITY,
            reset_ms=r.choice((0, 500, 2500)),
            write_mode=WriteMode.PRIMARY_SYNC if seed % 17 == 16 else WriteMode.FULL_SYNC,
            isolation_ms=isolated.choice((NEVER_MS, NEVER_MS, 2000, 5000)),
        )
        for zone in zones
    )
