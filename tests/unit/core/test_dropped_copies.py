"""When a copy that a reset left is not kept any more."""

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ConsistencyMode, ZoneRecord
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 1, 3, mode=ConsistencyMode.HIGH_AVAILABILITY, reset_ms=5_000)


def _reset() -> LoneMaster:
    """Only a is left of three; the partition has narrowed to it."""
    world = placed_master(ZONE)
    world.kill("b", "c")
    world.wait(lambda: world.rows(ZONE)[0].reset is not None)
    return world


def _left(row: PartitionRow) -> set[str]:
    return {voter.node for voter in row.left_by_reset}


def test_a_copy_whose_store_is_gone_for_good_is_not_kept() -> None:
    world = _reset()
    assert _left(world.rows(ZONE)[0]) == {"b", "c"}
    world.fills = lambda zone, partition, node: False

    world.connect("c", store="another")

    world.wait(lambda: _left(world.rows(ZONE)[0]) == {"b"})


def test_a_master_that_has_not_heard_the_voters_decides_nothing_about_such_a_copy() -> None:
    """The voters may know a newer row: this one may be an older state's."""
    world = _reset()
    row = world.rows(ZONE)[0]
    world.follow()
    world.connect("c", store="another")

    world.pass_time(2 * world.settings.failure_detection_ms)

    assert world.rows(ZONE)[0] == row
    world.connect("a")
    world.wait(lambda: _left(world.rows(ZONE)[0]) == {"b"})
