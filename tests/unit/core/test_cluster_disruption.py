"""What the master says of restarts: true of its own rows, one agent after the other."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow, majority
from quorate.facts.zone import NEVER_MS, StorageKind, ZoneRecord
from quorate.protocol.messages.master import AgentReport
from quorate_lone_master.world import LoneMaster, placed_master

ON_DISK = ZoneRecord("uid-1", "books", 12, 3)
IN_MEMORY = ZoneRecord("uid-2", "sessions", 12, 3, StorageKind.IN_MEMORY)
NODES = ("a", "b", "c", "d")


def voters_up_to_date(world: LoneMaster, zone: ZoneRecord, row: PartitionRow) -> int:
    nodes = world.master.zones[zone.uid].nodes
    holders = {voter: nodes.holder(voter.node) for voter in row.voters}
    return sum(
        holder is not None and holder.store == voter.store and voter.node in row.owners
        for voter, holder in holders.items()
    )


def test_each_agent_is_restarted_once_and_no_partition_falls_below_its_majority() -> None:
    world = LoneMaster(ON_DISK, IN_MEMORY, nodes=NODES)
    restarted: list[str] = []
    while len(restarted) < len(NODES):

        def next_one() -> str | None:
            now = world.master.disruption((), restarted)
            waiting = [each for each in now.agents if each.name not in restarted]
            return waiting[0].name if waiting[0].may_restart else None

        world.wait(lambda: next_one() is not None)
        name = next_one()
        assert name is not None
        world.kill(name)
        for zone in (ON_DISK, IN_MEMORY):
            for row in world.rows(zone).values():
                enough = majority(len(row.voters))
                assert voters_up_to_date(world, zone, row) >= enough, (name, row)
        world.pass_time(500)
        world.connect(name)
        restarted.append(name)

    assert sorted(restarted) == list(NODES)


def test_while_one_is_away_nobody_may_follow_and_the_sentence_names_it() -> None:
    world = LoneMaster(ON_DISK)
    world.kill("c")
    now = world.master.disruption()

    assert [each.name for each in now.agents if each.may_restart] == ["c"]
    assert "partition 0 of Zone books" in now.of("a").restart_waits_for
    assert now.unavailable_max == 0


def test_while_an_agent_is_ending_it_counts_as_away() -> None:
    world = LoneMaster(ON_DISK)
    assert world.master.disruption().of("a").may_restart
    world.master.receive("c", AgentReport(1, leaving=True), world.now)
    now = world.master.disruption()

    assert [each.name for each in now.agents if each.may_restart] == ["c"]
    assert "c is offline" in now.of("a").restart_waits_for
    assert now.unavailable_max == 0
    world.kill("c")
    world.connect("c")
    world.wait(lambda: world.master.disruption().unavailable_max == 1)


def test_a_new_master_lets_nobody_restart_before_it_has_heard_of_the_rows() -> None:
    world = LoneMaster(ON_DISK)
    assert world.master.disruption().unavailable_max == 1
    world.follow()
    now = world.master.disruption()

    assert not any(each.may_restart for each in now.agents)
    assert now.unavailable_max == 0
    world.connect("a", "b", "c")
    world.wait(lambda: world.master.disruption().unavailable_max == 1)


def test_a_partition_that_is_not_served_holds_its_voters() -> None:
    world = LoneMaster(nodes=NODES)
    world.serves = lambda node: False
    world.master.set_zone(ON_DISK, world.now)
    world.pass_time(500)
    now = world.master.disruption()

    assert "partition 0 of Zone books is not served" in " ".join(
        each.restart_waits_for for each in now.agents
    )
    assert not any(each.may_restart for each in now.agents)
    assert now.unavailable_max == 0


def test_copies_that_no_agent_can_take_do_not_stop_a_rolling_restart() -> None:
    """Five copies are asked for, and only three of the agents fit the zone."""
    zone = msgspec.structs.replace(ON_DISK, filter="disk=ssd")
    fits = {name: {"disk": "ssd"} for name in "abc"}
    world = placed_master(zone, nodes=tuple("abcde"), attributes=fits)
    world.master.set_zone(msgspec.structs.replace(zone, replicas=5), world.now)
    world.pass_time(5_000)
    assert world.status(zone).misfits

    assert all(each.may_restart for each in world.master.disruption((), ["d"]).agents)

    world.attributes["e"] = {"disk": "ssd"}
    world.full["e"] = {zone.uid: "/data: 0 MiB left on the disk"}
    world.connect("e")
    world.pass_time(1_000)
    waits = world.master.disruption((), ["d"]).of("a").restart_waits_for
    assert waits.endswith("of Zone books has all its copies again"), "one can take more now"


@pytest.mark.parametrize("scale_up_ms", [0, 60_000, NEVER_MS])
def test_a_copy_in_memory_that_a_restart_cost_is_waited_for_until_it_is_made_anew(
    scale_up_ms: int,
) -> None:
    """Its votes are given up meanwhile, and the scale-up timer may have to fire for the agent."""
    zone = msgspec.structs.replace(
        IN_MEMORY, partitions=4, replicas=5, scale_up_ms=scale_up_ms, scale_down_ms=0
    )
    world = placed_master(zone, nodes=tuple("abcde"))

    def voters() -> set[int]:
        return {len(row.voters) for row in world.rows(zone).values()}

    world.kill("a")
    world.wait(lambda: voters() == {4})
    assert not world.master.disruption((), ["a"]).of("b").may_restart
    world.connect("a")

    if scale_up_ms == NEVER_MS:
        assert world.master.disruption((), ["a"]).of("b").may_restart, "it gets none by itself"
        return
    while not world.master.disruption((), ["a"]).of("b").may_restart:
        assert world.ms < 2 * 60_000
        world.pass_time(100)
    assert voters() == {5}


def test_an_agent_that_never_came_may_be_started_anew() -> None:
    world = LoneMaster(ON_DISK)
    now = world.master.disruption(gone={"e"})

    assert now.of("e").may_restart
