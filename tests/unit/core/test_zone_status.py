"""What a zone's status counts as served."""

from quorate.facts.zone import ZoneRecord
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-z", "z", 8, 3)


def _with_primaries_on_their_way_to_d() -> LoneMaster:
    """Agent d has joined, was made primary of some partitions, and does not serve them yet."""
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    world.serves = lambda node: node != "d"
    world.connect("d")
    world.wait(lambda: "d" in _primaries(world))
    return world


def _primaries(world: LoneMaster) -> set[str]:
    return {row.primary.node for row in world.rows(ZONE).values() if row.primary is not None}


def test_a_planned_hand_over_makes_no_partition_unavailable() -> None:
    world = _with_primaries_on_their_way_to_d()

    status = world.status(ZONE)

    assert (status.unavailable, status.phase) == (0, "Rebalancing")
    assert status.available + status.degraded == ZONE.partitions
    assert status.migrations_running >= 1


def test_a_zone_is_not_at_rest_before_the_last_new_primary_serves() -> None:
    world = _with_primaries_on_their_way_to_d()
    world.serves = lambda node: True
    world.wait(lambda: world.status(ZONE).phase == "Available")

    assert "d" in _primaries(world)
    assert world.status(ZONE).migrations_running == 0


def test_a_new_primary_that_does_not_serve_within_its_bound_makes_its_partition_unavailable() -> (
    None
):
    world = _with_primaries_on_their_way_to_d()
    world.serves = lambda node: False

    world.pass_time(DEFAULTS.activation_bound_ms + 1_000)

    assert world.status(ZONE).unavailable > 0


def test_a_new_primary_that_is_lost_makes_its_partition_unavailable() -> None:
    world = _with_primaries_on_their_way_to_d()
    world.serves = lambda node: False

    world.kill("d")

    assert world.status(ZONE).unavailable > 0


def test_a_primary_that_follows_a_lost_one_is_no_hand_over() -> None:
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    world.serves = lambda node: False

    world.kill("a")

    status = world.status(ZONE)
    assert status.unavailable > 0
    assert status.migrations_running == 0
