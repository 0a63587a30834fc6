"""What a zone's status counts as served, and what it says is pending and planned."""

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster, placed_master

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


def test_what_is_pending_and_planned_is_shown_until_the_zone_is_at_rest() -> None:
    lone = placed_master(ZONE)
    assert (lone.status(ZONE).planned, lone.status(ZONE).intents) == (0, ())
    lone.fills = lambda zone, partition, node: False
    rows = lone.rows(ZONE)

    lone.connect("d")
    lone.wait(lambda: lone.status(ZONE).migrations_running > 0)

    status, target = lone.status(ZONE), lone.master.zones[ZONE.uid].target
    assert target is not None
    changed = [p for p, row in rows.items() if row.replicas != target[p]]
    active = {p for p, row in lone.rows(ZONE).items() if row.active is not None}
    assert [each.partition for each in status.intents] == [p for p in changed if p not in active]
    assert status.planned == len(changed) - len(active) > 0
    for intent in status.intents:
        planned = (intent.stable, intent.planned)
        assert planned == (rows[intent.partition].replicas, target[intent.partition])
    lone.fills = lambda zone, partition, node: True
    lone.wait(lambda: lone.status(ZONE).phase == "Available")
    assert (lone.status(ZONE).planned, lone.status(ZONE).intents) == (0, ())


def test_a_target_that_changes_under_a_running_migration_is_planned_behind_it() -> None:
    lone = placed_master(ZONE)
    lone.mute = lambda node: node == "d"
    lone.connect("d")
    lone.wait(lambda: any(row.active is not None for row in lone.rows(ZONE).values()))
    lone.pass_time(1_000)  # both ends are even: the migration is not given up

    lone.master.drain("d", True, lone.now)
    lone.pass_time(2_000)

    running = {p: row for p, row in lone.rows(ZONE).items() if row.active is not None}
    intents = {each.partition: each for each in lone.status(ZONE).intents}
    assert running
    for partition, row in running.items():
        assert "d" in (intents[partition].pending or ())
        assert "d" not in (intents[partition].planned or ("d",))
        assert intents[partition].stable == row.replicas


def test_failovers_are_counted_and_hand_overs_are_not() -> None:
    world = placed_master(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    world.connect("d")
    world.wait(lambda: "d" in _primaries(world) and world.status(ZONE).phase == "Available")
    assert world.status(ZONE).migrations_done > 0
    assert world.status(ZONE).failovers == 0

    its = sum(row.primary.node == "a" for row in world.rows(ZONE).values() if row.primary)
    world.kill("a")
    world.wait(lambda: "a" not in _primaries(world))

    assert world.status(ZONE).failovers == its > 0
