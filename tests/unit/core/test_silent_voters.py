"""A voter in memory that is only silent is dropped after its time, if no agent takes its place."""

import msgspec
import pytest

from quorate.facts.partition_row import MigrationKind, PartitionRow
from quorate.facts.zone import NEVER_MS, Planner, StorageKind, ZoneRecord
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate.protocol.metastore import ShardKey
from quorate_lone_master.world import LoneMaster, placed_master

FIVE = ("a", "b", "c", "d", "e")
AFTER_MS = 10_000
ZONE = ZoneRecord(
    "uid-1", "cache", 1, 5, storage=StorageKind.IN_MEMORY, scale_down_ms=AFTER_MS
)  # fmt: skip
ON_DISK = msgspec.structs.replace(ZONE, storage=StorageKind.PERSISTENT)


def row(world: LoneMaster) -> PartitionRow:
    return world.rows(ZONE)[0]


def voters(world: LoneMaster) -> set[str]:
    return {*row(world).voter_nodes}


def placed(zone: ZoneRecord = ZONE, nodes: tuple[str, ...] = FIVE) -> LoneMaster:
    world = placed_master(zone, nodes=nodes)
    assert voters(world) == {*FIVE}
    return world


def drops(world: LoneMaster) -> list[set[str]]:
    """The leavers of each DROP that began."""
    began = [each for _, each in world.started if each.active is not None]
    return [
        {voter.node for voter in each.voters} - {voter.node for voter in each.active.voters}
        for each in began
        if each.active is not None and each.active.kind is MigrationKind.DROP
    ]


@pytest.mark.parametrize("planner", Planner)
def test_two_silent_ones_leave_in_one_drop_and_a_third_may_be_lost(planner: Planner) -> None:
    """Of five voters three must be there; of the three that are left, two."""
    world = placed(msgspec.structs.replace(ZONE, planner=planner))
    world.kill("d", "e")
    world.pass_time(AFTER_MS - 1_000)
    assert voters(world) == {*FIVE}
    world.pass_time(3_000)

    assert voters(world) == {"a", "b", "c"}
    assert drops(world) == [{"d", "e"}]
    assert "d is offline, and its votes are given up" in world.status(ZONE).sentence
    lost = row(world).owners[0]
    world.kill(lost)
    world.wait(lambda: lost not in row(world).owners)
    world.wait(lambda: world.status(ZONE).unavailable == 0, 5_000)


def stuck(world: LoneMaster) -> str:
    """What the zone says when its primary has reported that no quorum grants it leases."""
    primary = row(world).primary
    assert primary is not None
    trouble = Trouble(ZONE.uid, 0, row(world).term, TroubleKind.NO_QUORUM, 10_000)
    world.master.receive(primary.node, AgentReport(1, (trouble,)), world.now)
    return world.status(ZONE).sentence


def test_of_three_that_are_left_two_stay_and_two_wait_for_each_other() -> None:
    """A majority of the voters before has each change: silence alone leaves no voter alone."""
    world = placed()
    for node, left in (("e", 4), ("d", 3), ("c", 2), ("b", 2)):
        world.kill(node)
        world.pass_time(AFTER_MS + 3_000)
        assert len(row(world).voters) == left

    assert voters(world) == {"a", "b"}
    assert "wait for a quorum (partitions 0): start agents that are away: b" in stuck(world)


def test_without_a_majority_it_waits_and_says_for_whom() -> None:
    world = placed()
    world.kill("c", "d", "e")
    world.pass_time(AFTER_MS + 10_000)

    assert voters(world) == {*FIVE}
    assert drops(world) == []
    assert "wait for a quorum (partitions 0): start agents that are away: c, d, e" in stuck(world)


def test_it_is_not_dropped_before_a_majority_of_the_old_voters_has_the_row() -> None:
    world = placed()
    world.stores = lambda node: node == "a"
    world.kill("d", "e")
    world.pass_time(AFTER_MS + 5_000)
    assert drops(world) == [{"d", "e"}]
    assert voters(world) == {*FIVE}
    assert row(world).active is not None

    world.stores = lambda node: True
    world.wait(lambda: voters(world) == {"a", "b", "c"}, 200_000)


def test_one_that_is_back_in_time_keeps_its_vote() -> None:
    world = placed()
    world.fills = lambda zone, partition, node: False
    world.kill("d", "e")
    world.pass_time(AFTER_MS + 3_000)
    assert row(world).active is not None

    world.same_processes = True
    world.connect("e")
    world.pass_time(1_000)
    world.fills = lambda zone, partition, node: True
    world.wait(lambda: voters(world) == {"a", "b", "c", "e"})
    assert drops(world) == [{"d", "e"}, {"d"}]


def test_one_that_is_back_too_late_gets_a_new_copy() -> None:
    world = placed()
    world.kill("d", "e")
    world.pass_time(AFTER_MS + 3_000)
    assert voters(world) == {"a", "b", "c"}

    world.same_processes = True
    world.connect("d", "e")
    world.wait(lambda: world.status(ZONE).available == 1)
    assert voters(world) == {*FIVE}
    kinds = [each.active.kind for _, each in world.started if each.active is not None]
    assert kinds[-2:] == [MigrationKind.COPY, MigrationKind.COPY]


def test_a_spare_takes_its_place_and_nothing_is_dropped() -> None:
    world = placed(nodes=(*FIVE, "f"))
    world.kill("e")
    world.pass_time(AFTER_MS + 5_000)

    assert voters(world) == {"a", "b", "c", "d", "f"}
    assert drops(world) == []


def test_one_that_is_dead_leaves_with_those_that_are_silent() -> None:
    world = placed()
    world.kill("d", "e")
    world.refused = lambda key: isinstance(key, ShardKey)  # no row before both are known
    world.pass_time(AFTER_MS + 3_000)
    world.master.processes_ended({"d": ["d-1"]})
    world.pass_time(1_000)
    world.refused = lambda key: False
    world.wait(lambda: voters(world) == {"a", "b", "c"})

    assert drops(world) == [{"d", "e"}]


def test_a_copy_on_disk_keeps_its_vote() -> None:
    """It may be the last one, and it catches up by what it missed."""
    world = placed(ON_DISK)
    world.kill("d", "e")
    world.pass_time(AFTER_MS + 30_000)

    assert voters(world) == {*FIVE}


def test_a_timer_that_never_fires_drops_nothing() -> None:
    world = placed(msgspec.structs.replace(ZONE, scale_down_ms=NEVER_MS))
    world.kill("d", "e")
    world.pass_time(AFTER_MS + 30_000)

    assert voters(world) == {*FIVE}


def test_the_next_master_begins_the_drop_anew() -> None:
    world = placed()
    world.fills = lambda zone, partition, node: False
    world.kill("d", "e")
    world.pass_time(AFTER_MS + 3_000)
    active = row(world)
    assert active.active is not None

    world.follow()
    world.same_processes = True
    world.connect("a", "b", "c")
    world.wait(lambda: row(world).version > active.version)
    assert row(world).active is None
    assert voters(world) == {*FIVE}
    world.fills = lambda zone, partition, node: True
    world.wait(lambda: voters(world) == {"a", "b", "c"})


def test_one_that_no_longer_fits_keeps_its_vote() -> None:
    """Its copy stays where it is while too few agents fit, as if it were there."""
    attributes = {node: {"disk": "ssd"} for node in FIVE} | {"e": {"disk": "hdd"}}
    world = placed_master(ZONE, nodes=FIVE, attributes=attributes)
    world.master.set_zone(msgspec.structs.replace(ZONE, filter="disk=ssd"), world.now)
    world.kill("e")
    world.pass_time(AFTER_MS + 10_000)

    assert voters(world) == {*FIVE}


def test_a_spare_whose_disk_is_full_keeps_the_vote_until_it_has_room() -> None:
    world = placed()
    world.full["f"] = {ZONE.uid: "/data: 0 MiB left on the disk"}
    world.connect("f")
    world.pass_time(1_000)
    world.kill("e")
    world.pass_time(AFTER_MS + 5_000)
    assert voters(world) == {*FIVE}
    assert world.status(ZONE).full == {"f": "/data: 0 MiB left on the disk"}

    del world.full["f"]
    world.wait(lambda: voters(world) == {"a", "b", "c", "d", "f"})
    assert drops(world) == []
