"""Agents that are the last choice as primaries, because what they run on is to be emptied."""

from collections import Counter

import pytest

from quorate.facts.zone import Planner, ZoneRecord
from quorate_lone_master.world import LoneMaster

NODES = ("a", "b", "c")


def primaries(world: LoneMaster, zone: ZoneRecord) -> list[str | None]:
    return [row.replicas[0] for row in world.rows(zone).values()]


@pytest.mark.parametrize("planner", Planner)
def test_primaries_leave_at_once_and_return_afterwards(planner: Planner) -> None:
    zone = ZoneRecord("uid-1", "books", 12, 3, planner=planner)
    world = LoneMaster(zone, nodes=NODES)
    before = primaries(world, zone)
    voters = {partition: row.voters for partition, row in world.rows(zone).items()}
    assert "a" in before

    world.master.keep_primaries_off({"a"}, world.now)
    world.pass_time(2_000)

    assert set(primaries(world, zone)) == {"b", "c"}
    assert {partition: row.voters for partition, row in world.rows(zone).items()} == voters
    assert world.status(zone).phase == "Available"
    states = {node.name: node.state for node in world.master.status().nodes}
    assert states == {"a": "Cordoned", "b": "Online", "c": "Online"}

    world.master.keep_primaries_off((), world.now)
    if planner is Planner.MINIMAL:  # Staged leaves two owners that have changed places
        world.wait(lambda: Counter(primaries(world, zone)) == Counter(before))


def test_they_lead_where_nobody_else_can() -> None:
    zone = ZoneRecord("uid-1", "books", 12, 3)
    world = LoneMaster(zone, nodes=NODES)
    world.master.keep_primaries_off({"a", "b", "unknown"}, world.now)
    world.pass_time(2_000)
    assert set(primaries(world, zone)) == {"c"}

    world.kill("c")
    world.pass_time(2_000)
    assert set(primaries(world, zone)) == {"a", "b"}

    world.connect("c")
    world.wait(lambda: set(primaries(world, zone)) == {"c"})


def test_they_leave_once_their_successors_are_reached_again() -> None:
    zone = ZoneRecord("uid-1", "books", 6, 2)
    world = LoneMaster(zone, nodes=("a", "b"))
    before = primaries(world, zone)
    world.unreached = {"a": ("b",), "b": ("a",)}
    world.pass_time(2_000)
    world.master.keep_primaries_off({"a"}, world.now)
    world.pass_time(60_000)
    assert primaries(world, zone) == before

    world.unreached = {}
    world.wait(lambda: set(primaries(world, zone)) == {"b"})


def test_all_of_them_lead_as_before() -> None:
    zone = ZoneRecord("uid-1", "books", 12, 3)
    world = LoneMaster(zone, nodes=NODES)
    before = primaries(world, zone)
    world.master.keep_primaries_off(NODES, world.now)
    world.pass_time(2_000)

    assert primaries(world, zone) == before
