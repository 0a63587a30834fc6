"""A zone's planner says by which steps its copies move, and may be changed at any time."""

import msgspec
import pytest

from quorate.facts.partition_row import MigrationKind
from quorate.facts.zone import Planner, ZoneRecord
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "books", 6, 3, planner=Planner.STAGED)
MINIMAL = msgspec.structs.replace(ZONE, planner=Planner.MINIMAL)


def primaries(world: LoneMaster) -> list[str | None]:
    return sorted({row.replicas[0] or "" for row in world.rows(ZONE).values()})


def after_a_return(zone: ZoneRecord) -> LoneMaster:
    """b was away for a moment: the others have become primaries in its place."""
    world = LoneMaster(zone, nodes=("a", "b", "c"))
    world.kill("b")
    world.pass_time(1_000)
    assert primaries(world) == ["a", "c"]
    world.connect("b")
    world.pass_time(10_000)
    return world


def test_minimal_gives_a_returned_node_its_share_of_primaries() -> None:
    assert primaries(after_a_return(MINIMAL)) == ["a", "b", "c"]


def test_staged_gives_a_circle_up_and_is_at_rest() -> None:
    world = after_a_return(ZONE)

    assert primaries(world) == ["a", "c"]
    assert world.started == []
    assert world.status(ZONE).migrations_queued == 0
    assert world.status(ZONE).phase == "Available"


def test_another_planner_is_used_from_then_on() -> None:
    world = after_a_return(ZONE)
    world.master.set_zone(MINIMAL, world.now)
    world.pass_time(10_000)

    assert primaries(world) == ["a", "b", "c"]


@pytest.mark.parametrize("zone", [ZONE, MINIMAL], ids=["Staged", "Minimal"])
def test_a_node_that_drains_hands_everything_over_under_either_planner(zone: ZoneRecord) -> None:
    world = LoneMaster(zone, nodes=("a", "b", "c", "d"))
    assert world.master.drain("a", True, world.now) == ""
    world.pass_time(20_000)

    assert all("a" not in row.voter_nodes for row in world.rows(zone).values())
    assert {row.active.kind for _, row in world.started if row.active} >= {MigrationKind.MOVE}


def test_a_node_that_is_stopping_hands_its_primaries_over_though_two_change_places() -> None:
    world = LoneMaster(ZONE, nodes=("a", "b", "c"))
    assert primaries(world) == ["a", "b", "c"]
    world.master.agents["a"].leaving = True
    world.master.zones[ZONE.uid].topology_changed()
    world.pass_time(10_000)

    assert primaries(world) == ["b", "c"]
