"""A zone's timers outlive masters, obey no wall clock, and fire once."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest

from quorate.facts.topology import Happening, NodeRecord
from quorate.facts.zone import NEVER_MS, ZoneRecord
from quorate.planning.target.data_nodes import TimerKind
from quorate.protocol.metastore import NodeKey, ShardKey, ZoneKey
from quorate_lone_master.world import LoneMaster, placed_master

HOUR_MS = 3_600_000
SLOW = ZoneRecord("uid-1", "books", 4, 2, scale_up_ms=60_000, scale_down_ms=100_000)


def data_nodes(world: LoneMaster, zone: ZoneRecord = SLOW) -> str:
    """The data nodes that are stored, so that they outlive the master."""
    record = world.stored[ZoneKey(zone.uid)]
    assert isinstance(record, ZoneRecord)
    assert record.data_nodes is not None
    assert record.data_nodes.nodes == world.status(zone).data_nodes
    return " ".join(record.data_nodes.nodes)


def owners(world: LoneMaster, zone: ZoneRecord = SLOW) -> set[str]:
    return {node for row in world.rows(zone).values() for node in row.owners}


def succeed(world: LoneMaster, nodes: Iterable[str], *, boot_off_ms: int, wall_off_ms: int) -> None:
    """Another machine's operator leads: its clocks show something else."""
    world.boot_off_ms, world.wall_off_ms = boot_off_ms, wall_off_ms
    world.follow()
    world.same_processes = True
    world.connect(*nodes)


def test_a_joiner_gets_copies_when_the_timer_fires_and_not_before() -> None:
    world = placed_master(SLOW)
    world.connect("d")
    world.pass_time(SLOW.scale_up_ms - 1_000)
    assert data_nodes(world) == "a b c"
    assert owners(world) == {"a", "b", "c"}
    (timer,) = world.status(SLOW).timers
    assert (timer.kind, timer.nodes) == (TimerKind.SCALE_UP, ("d",))
    assert timer.due_ms is not None
    assert abs(timer.due_ms - world.now.wall_ms - 1_000) <= 500

    world.pass_time(10_000)

    assert data_nodes(world) == "a b c d"
    assert owners(world) == {"a", "b", "c", "d"}
    assert world.status(SLOW).timers == ()
    assert world.said("DataNodesChanged") == ["added d: data nodes are now a, b, c, d"]


def test_joiners_of_one_window_enter_in_one_step() -> None:
    world = placed_master(SLOW)
    for node in ("d", "e", "f"):
        world.connect(node)
        world.pass_time(20_000)
    world.pass_time(SLOW.scale_up_ms)

    assert world.said("DataNodesChanged") == ["added d, e, f: data nodes are now a, b, c, d, e, f"]


def test_many_changes_at_once_start_both_timers() -> None:
    world = placed_master(SLOW)
    world.kill("a")
    world.connect("d", "e")
    world.pass_time(1_000)
    assert {(t.kind, t.nodes) for t in world.status(SLOW).timers} == {
        (TimerKind.SCALE_UP, ("d", "e")),
        (TimerKind.SCALE_DOWN, ("a",)),
    }

    world.pass_time(SLOW.scale_down_ms + 1_000)

    assert data_nodes(world) == "b c d e"


@pytest.mark.parametrize("wall_off_ms", [HOUR_MS, -HOUR_MS])
def test_a_wall_clock_that_is_set_changes_nothing(wall_off_ms: int) -> None:
    world = placed_master(SLOW)
    world.kill("a")
    world.pass_time(SLOW.scale_down_ms - 5_000)
    world.wall_off_ms = wall_off_ms
    world.pass_time(3_000)
    assert data_nodes(world) == "a b c"

    world.pass_time(10_000)

    assert data_nodes(world) == "b c"


@pytest.mark.parametrize("boot_off_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("wall_off_ms", [HOUR_MS, -HOUR_MS])
def test_another_machines_master_counts_on(boot_off_ms: int, wall_off_ms: int) -> None:
    """Late by what was not stored, a quarter of a minute, and the time without a master."""
    world = placed_master(SLOW)
    world.kill("a")
    world.connect("d")
    world.pass_time(50_000)
    succeed(world, "bcd", boot_off_ms=boot_off_ms, wall_off_ms=wall_off_ms)
    world.pass_time(9_000)
    assert data_nodes(world) == "a b c"

    world.pass_time(18_000)
    assert data_nodes(world) == "a b c d"
    succeed(world, "bcd", boot_off_ms=-boot_off_ms, wall_off_ms=-wall_off_ms)
    world.pass_time(20_000)
    assert data_nodes(world) == "a b c d"

    world.pass_time(40_000)

    assert data_nodes(world) == "b c d"
    assert len(world.said("DataNodesChanged")) == 2


def test_a_timer_that_fired_does_not_fire_again_under_the_next_master() -> None:
    world = placed_master(SLOW)
    world.kill("a")
    world.pass_time(SLOW.scale_down_ms + 5_000)
    assert data_nodes(world) == "b c"
    succeed(world, "bc", boot_off_ms=5, wall_off_ms=0)
    world.pass_time(2 * SLOW.scale_down_ms)

    assert world.said("DataNodesChanged") == ["removed a: data nodes are now b, c"]


def test_a_shorter_time_counts_from_the_join_and_fires_at_once_if_it_is_over() -> None:
    world = placed_master(SLOW)
    world.connect("d")
    world.pass_time(30_000)
    world.master.set_zone(msgspec.structs.replace(SLOW, scale_up_ms=40_000), world.now)
    world.pass_time(5_000)
    assert data_nodes(world) == "a b c"

    world.master.set_zone(msgspec.structs.replace(SLOW, scale_up_ms=20_000), world.now)
    world.pass_time(2_000)

    assert data_nodes(world) == "a b c d"


def test_never_waits_until_it_is_another_time() -> None:
    world = placed_master(patient := msgspec.structs.replace(SLOW, scale_up_ms=NEVER_MS))
    world.connect("d")
    world.pass_time(300_000)
    assert data_nodes(world) == "a b c"
    assert [(timer.nodes, timer.due_ms) for timer in world.status(SLOW).timers] == [(("d",), None)]

    world.master.set_zone(msgspec.structs.replace(patient, scale_up_ms=10_000), world.now)
    world.pass_time(2_000)

    assert data_nodes(world) == "a b c d"


def test_a_zone_that_waits_for_nothing_that_will_happen_is_at_rest() -> None:
    world = placed_master(msgspec.structs.replace(SLOW, scale_up_ms=NEVER_MS))
    world.connect("d")
    world.pass_time(60_000)
    before = dict(world.stored)
    assert world.master.zones[SLOW.uid].is_idle

    world.pass_time(300_000)

    assert world.stored == before, "ages are stored only while a timer counts from them"


def test_ages_are_stored_while_a_timer_counts_from_them() -> None:
    world = placed_master(SLOW)
    world.connect("d")
    ages: list[int] = []
    for _ in range(5):
        record = world.stored[NodeKey("d")]
        assert isinstance(record, NodeRecord)
        assert record.since is not None
        ages.append(record.since.age_ms)
        world.pass_time(15_000)

    assert ages[0] == 0
    assert [after - before for before, after in pairwise(ages[1:])] == [15_000] * 3
    world.pass_time(60_000)
    at_the_end = world.stored[NodeKey("d")]
    world.pass_time(60_000)
    assert world.stored[NodeKey("d")] == at_the_end


def test_agents_are_told_of_no_timer() -> None:
    world = placed_master(SLOW)
    told = world.master.zones[SLOW.uid].told
    assert told.data_nodes is None
    assert world.master.zones[SLOW.uid].record.data_nodes is not None


def test_agents_that_register_with_a_new_cluster_wait_for_no_timer() -> None:
    world = LoneMaster(patient := msgspec.structs.replace(SLOW, scale_up_ms=NEVER_MS))
    world.connect("d")
    world.pass_time(1_000)
    assert data_nodes(world, patient) == "a b c d"

    world.pass_time(world.settings.failure_detection_ms)
    world.connect("e")
    world.pass_time(60_000)

    assert data_nodes(world, patient) == "a b c d"


def test_a_placement_that_cannot_be_written_takes_who_is_there_when_it_can() -> None:
    world = LoneMaster(nodes=("a", "b", "c"))
    world.refused = lambda key: isinstance(key, ShardKey)
    world.master.set_zone(wide := msgspec.structs.replace(SLOW, replicas=3), world.now)
    world.pass_time(1_000)
    world.kill("c")
    world.connect("d")
    world.pass_time(10_000)

    world.refused = lambda key: False
    world.pass_time(10_000)

    assert world.status(wide).available == wide.partitions
    assert owners(world, wide) == {"a", "b", "d"}


def test_short_absences_of_others_do_not_put_off_what_a_lost_agent_needs() -> None:
    world = placed_master(SLOW)
    world.kill("a")
    for _ in range(4):
        world.pass_time(SLOW.scale_down_ms // 5)
        world.kill("b")
        world.connect("b")
    assert data_nodes(world) == "a b c"

    world.pass_time(SLOW.scale_down_ms // 5 + 1_000)

    assert data_nodes(world) == "b c"


def test_who_comes_back_does_not_start_the_time_of_those_that_are_away_again() -> None:
    world = placed_master(SLOW, nodes=("a", "b", "c", "d"))
    world.kill("a", "d")
    world.pass_time(SLOW.scale_down_ms - 10_000)
    world.connect("d")
    world.pass_time(11_000)

    assert data_nodes(world) == "b c d"


@pytest.mark.parametrize("since", [None, Happening(3, 284_000, 1)])
def test_a_leave_that_another_version_wrote_counts_from_when_it_is_read(
    since: Happening | None,
) -> None:
    """That version keeps what it does not know: the age of an earlier leave."""
    world = placed_master(SLOW)
    world.kill("a")
    key = NodeKey("a")
    record = world.stored[key]
    assert isinstance(record, NodeRecord)
    world.stored[key] = msgspec.structs.replace(record, since=since)
    succeed(world, "bc", boot_off_ms=0, wall_off_ms=0)
    world.pass_time(SLOW.scale_down_ms - 1_000)
    assert data_nodes(world) == "a b c"

    world.pass_time(2_000)

    assert data_nodes(world) == "b c"


def test_a_time_in_which_the_master_did_not_run_is_not_counted() -> None:
    """A machine that slept: what agents sent meanwhile is still unread."""
    world = placed_master(SLOW)
    world.kill("a")
    world.pass_time(5_000)
    world.ms += 10 * SLOW.scale_down_ms
    world.pass_time(2_000)
    assert data_nodes(world) == "a b c"

    world.pass_time(SLOW.scale_down_ms)

    assert "a" not in data_nodes(world)


def test_a_leave_that_is_read_first_after_a_sleep_counts_from_then() -> None:
    world = placed_master(SLOW)
    world.pass_time(5_000)
    world.ms += 10 * SLOW.scale_down_ms
    world.kill("a")
    world.pass_time(SLOW.scale_down_ms - 1_000)
    assert data_nodes(world) == "a b c"

    world.pass_time(3_000)

    assert "a" not in data_nodes(world)


def test_a_slow_master_counts_all_the_same() -> None:
    world = placed_master(SLOW)
    world.kill("a")
    for _ in range(SLOW.scale_down_ms // 1_300):
        world.ms += 1_200
        world.pass_time(100)
    world.pass_time(3_000)

    assert data_nodes(world) == "b c"


def test_a_zone_whose_timer_fires_much_later_is_at_rest_until_then() -> None:
    world = placed_master(SLOW)
    world.connect("d")
    world.pass_time(20_000)
    assert world.master.zones[SLOW.uid].is_idle

    world.pass_time(SLOW.scale_up_ms - 20_000 + 600)

    assert data_nodes(world) == "a b c d"


@pytest.mark.parametrize("up_ms", [60_000, NEVER_MS])
def test_a_drain_counts_the_data_nodes_that_remain(up_ms: int) -> None:
    world = placed_master(zone := msgspec.structs.replace(SLOW, replicas=3, scale_up_ms=up_ms))
    world.connect("d")
    world.pass_time(1_000)

    said = world.master.drain("a", True, world.now)
    assert "zone books needs 3 agents and 2 would remain" in said
    assert ("ScaleUpSeconds" if up_ms == NEVER_MS else "wait until it may use d") in said

    world.kill("a")
    assert world.master.drain("a", True, world.now) == "", "its copies are missing anyway"
    world.pass_time(5_000)
    assert world.status(zone).degraded == 4
