"""A majority is lost in a HIGH_AVAILABILITY zone: only a voter that was there then is chosen."""

import pytest

from quorate.facts.zone import NEVER_MS, ConsistencyMode, ZoneRecord
from quorate.protocol.messages.master import ZoneReady
from quorate_lone_master.world import LoneMaster, placed_master

AGES_STORED_MS = 20_000
"""Within this time the ages of leaves are stored if a timer counts from them."""
RESET_MS = 60_000


def _placed(scale_down_ms: int = 300_000) -> tuple[LoneMaster, ZoneRecord, tuple[str, ...]]:
    """A master, its zone, and the owners of the only partition, the primary first."""
    zone = ZoneRecord(
        "uid-1",
        "books",
        1,
        3,
        mode=ConsistencyMode.HIGH_AVAILABILITY,
        reset_ms=RESET_MS,
        scale_down_ms=scale_down_ms,
    )
    world = placed_master(zone)
    return world, zone, world.rows(zone)[0].owners


def _followed(world: LoneMaster, *there: str) -> None:
    """Another master begins, and the same processes greet it."""
    world.follow()
    world.same_processes = True
    world.connect(*there)
    world.pass_time(2 * RESET_MS)


@pytest.mark.parametrize(
    ("scale_down_ms", "away_ms"), [(NEVER_MS, AGES_STORED_MS), (300_000, 1_000)]
)
def test_one_that_came_later_is_not_chosen_by_the_next_master_either(
    scale_down_ms: int, away_ms: int
) -> None:
    """Neither its join nor the leaves have an age in the metastore yet."""
    world, zone, (first, second, third) = _placed(scale_down_ms)
    world.kill(third)
    world.pass_time(5_000)  # the others go on without it
    world.kill(first, second)
    world.pass_time(away_ms)
    world.connect(third)
    world.pass_time(1_000)

    _followed(world, third)

    assert {*world.rows(zone)[0].voter_nodes} == {first, second, third}
    assert world.said("DataLossAccepted") == []


def test_one_that_was_there_is_chosen_by_the_next_master_too() -> None:
    """The leaves have an age in the metastore, and its join has none: no timer counts from it."""
    world, zone, (first, second, third) = _placed()
    world.kill(first, second)
    world.pass_time(AGES_STORED_MS)

    _followed(world, third)

    assert world.rows(zone)[0].voter_nodes == (third,)


def test_of_those_lost_one_after_the_other_the_last_one_counts() -> None:
    world, zone, (first, second, third) = _placed()
    world.kill(second)
    world.pass_time(1_000)
    world.kill(third)
    world.connect(third)
    world.wait(lambda: third in world.rows(zone)[0].owners)
    world.kill(first)

    _followed(world, third)

    assert world.rows(zone)[0].voter_nodes == (third,)


@pytest.mark.parametrize("returns", [False, True])
def test_one_that_refuses_the_zone_is_lost_from_then_on(returns: bool) -> None:
    world, zone, (first, second, third) = _placed()
    world.kill(*((first, third) if returns else (first,)))
    refusal = ZoneReady(zone.uid, 0, problem="no room")
    world.master.receive(second, refusal, world.now)
    world.pass_time(1_000)
    if returns:
        world.connect(third)

    world.pass_time(2 * RESET_MS)

    narrowed = len(world.rows(zone)[0].voters) == 1
    assert narrowed is not returns
