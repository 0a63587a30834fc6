"""What a zone's status counts as served."""

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
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


def _led_by(lone: LoneMaster, node: str) -> list[int]:
    rows = lone.rows(ZONE).values()
    return [row.partition for row in rows if row.primary is not None and row.primary.node == node]


def test_partitions_of_a_dead_primary_are_unavailable_before_a_row_says_so() -> None:
    lone = LoneMaster(ZONE)
    lone.wait(lambda: lone.status(ZONE).phase == "Available")
    of_a = _led_by(lone, "a")
    assert of_a

    lone.master.agent_disconnected("a", True, lone.now)  # nothing can be written

    status = lone.status(ZONE)
    assert status.phase == "Unavailable"
    assert list(status.unavailable_partitions) == of_a
    assert status.sentence == f"{len(of_a)} partitions have no serving primary"
    lone.write()
    lone.wait(lambda: lone.status(ZONE).unavailable == 0)


def test_partitions_whose_primary_says_that_it_has_no_quorum_are_unavailable() -> None:
    lone = LoneMaster(ZONE)
    lone.wait(lambda: lone.status(ZONE).phase == "Available")
    partition = _led_by(lone, "a")[0]
    term = lone.rows(ZONE)[partition].term
    since_ms = lone.settings.lease_ms

    trouble = Trouble(ZONE.uid, partition, term, TroubleKind.NO_QUORUM, since_ms)
    lone.master.receive("a", AgentReport(2, troubles=(trouble,)), lone.now)

    assert lone.status(ZONE).unavailable_partitions == (partition,)
    lone.wait(lambda: lone.status(ZONE).unavailable == 0)
