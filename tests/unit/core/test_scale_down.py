"""A lost agent is waited for as long as the zone says, then a spare takes its place."""

import msgspec
import pytest

from quorate.facts.zone import SCALE_DOWN_MS, ZoneRecord
from quorate_lone_master.world import LoneMaster

BOOKS = ZoneRecord("uid-1", "books", 4, 3, scale_down_ms=40_000)
SPARE = ("a", "b", "c", "d")


def voters(world: LoneMaster, zone: ZoneRecord = BOOKS) -> set[str]:
    return {node for row in world.rows(zone).values() for node in row.voter_nodes}


def with_a_spare(*zones: ZoneRecord) -> LoneMaster:
    """Three agents have all copies when the fourth comes and the first is lost."""
    world = LoneMaster(*zones)
    world.fills = lambda zone, partition, node: False  # no copy has moved to d for balance
    world.connect("d")
    world.kill("a")
    return world


@pytest.mark.parametrize("after_ms", [5_000, 80_000])
def test_a_spare_takes_over_when_the_time_of_the_zone_is_up(after_ms: int) -> None:
    zone = msgspec.structs.replace(BOOKS, scale_down_ms=after_ms)
    world = with_a_spare(zone)
    world.pass_time(after_ms - 1_000)
    world.fills = lambda zone, partition, node: True
    assert "a" in voters(world, zone)

    world.pass_time(30_000)

    assert voters(world, zone) == {"b", "c", "d"}


def test_each_zone_has_its_own_time() -> None:
    patient = msgspec.structs.replace(BOOKS, uid="uid-2", name="patient", scale_down_ms=10**9)
    world = with_a_spare(BOOKS, patient)
    world.fills = lambda zone, partition, node: True
    world.pass_time(BOOKS.scale_down_ms + 30_000)

    assert "a" not in voters(world)
    assert "a" in voters(world, patient)


def test_a_shorter_time_counts_from_when_the_agent_left() -> None:
    world = with_a_spare(BOOKS)
    world.fills = lambda zone, partition, node: True
    world.pass_time(20_000)
    assert "a" in voters(world)

    world.master.set_zone(msgspec.structs.replace(BOOKS, scale_down_ms=15_000), world.now)
    world.pass_time(10_000)

    assert "a" not in voters(world)


def test_a_new_master_goes_on_counting() -> None:
    world = with_a_spare(BOOKS)
    world.fills = lambda zone, partition, node: True
    world.pass_time(BOOKS.scale_down_ms - 10_000)
    world.follow()
    world.same_processes = True
    world.connect("b", "c", "d")
    world.pass_time(5_000)
    assert "a" in voters(world)

    world.pass_time(20_000)

    assert "a" not in voters(world)


def test_the_default_is_five_minutes() -> None:
    assert ZoneRecord("uid-1", "books", 4, 3).scale_down_ms == SCALE_DOWN_MS == 300_000
