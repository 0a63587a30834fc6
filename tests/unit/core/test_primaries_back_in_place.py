"""A role that another took over although nothing was lost returns to its place, but not at once."""

from itertools import pairwise

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import Planner, ZoneRecord
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "books", 6, 3)
NODES = ("a", "b", "c")


def primaries(world: LoneMaster) -> list[str | None]:
    return [row.replicas[0] for row in world.rows(ZONE).values()]


def meant(world: LoneMaster) -> list[str]:
    return [nodes[0] for nodes in world.master.zones[ZONE.uid].target or ()]


def owned(world: LoneMaster) -> list[tuple[str | None, ...]]:
    return [row.replicas for row in world.rows(ZONE).values()]


def get_stuck(world: LoneMaster, node: str) -> list[PartitionRow]:
    """The node says that no quorum grants it leases; its rows, which others then take over."""
    rows = [row for row in world.rows(ZONE).values() if row.replicas[0] == node]
    since_ms = world.settings.lease_ms
    troubles = tuple(
        Trouble(ZONE.uid, row.partition, row.term, TroubleKind.NO_QUORUM, since_ms) for row in rows
    )
    unreached = world.unreached.get(node, ())
    world.master.receive(node, AgentReport(1, troubles, unreached=unreached), world.now)
    world.master.tick(world.now)  # before the next report, which names none of them
    world.write()
    world.pass_time(100)
    return rows


def cut_off(world: LoneMaster, node: str) -> None:
    """The node and the others do not reach each other; the master reaches all."""
    others = tuple(each for each in NODES if each != node)
    world.unreached = {node: others, **dict.fromkeys(others, (node,))}


def test_a_role_that_was_taken_over_returns_when_its_node_is_reached_again() -> None:
    world = LoneMaster(ZONE, nodes=NODES)
    before = owned(world)
    cut_off(world, "a")
    taken = get_stuck(world, "a")
    assert len(taken) == 2
    assert "a" not in primaries(world)

    world.unreached = {}
    world.wait(lambda: primaries(world) == meant(world))

    assert owned(world) == before
    world.pass_time(1_000)
    assert world.status(ZONE).migrations_queued == 0
    assert len(world.said("ZoneRebalanced")) == 1


def test_a_node_that_the_others_do_not_reach_gets_no_role() -> None:
    world = LoneMaster(ZONE, nodes=NODES)
    cut_off(world, "a")
    taken = get_stuck(world, "a")
    rows = world.rows(ZONE)

    world.pass_time(120_000)

    assert world.rows(ZONE) == rows
    assert world.status(ZONE).migrations_queued == len(taken)
    assert world.said("ZoneRebalanced") == []  # they are not in their places, and it is not said


def test_a_primary_that_reports_nothing_stuck_keeps_its_role_while_it_is_cut_off() -> None:
    world = LoneMaster(ZONE, nodes=NODES)
    cut_off(world, "a")
    world.connect("d")  # everything is looked at again
    world.unreached["d"] = ("a",)
    world.pass_time(30_000)

    kept = [partition for partition, node in enumerate(meant(world)) if node == "a"]
    assert kept
    assert {primaries(world)[partition] for partition in kept} == {"a"}


def test_a_node_that_is_stuck_again_and_again_gets_its_role_ever_more_rarely() -> None:
    """Its reports say that all is well, but no quorum serves it."""
    world = LoneMaster(ZONE, nodes=NODES)
    taken_at: dict[int, list[int]] = {}
    while world.ms < 600_000:
        if "a" in primaries(world):
            for row in get_stuck(world, "a"):
                taken_at.setdefault(row.partition, []).append(world.ms)
        world.pass_time(500)

    assert len(taken_at) == 2
    for times in taken_at.values():
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert len(times) >= 10, times
        # After about 1, 2, 4, … 32 s and then every 40 to 60 s; some are taken at two looks.
        assert len(times) <= 2 * 20, times
        assert max(pauses[-4:]) >= 40_000, pauses


def test_staged_leaves_a_circle_of_two_where_it_is() -> None:
    zone = ZoneRecord("uid-1", "books", 6, 3, planner=Planner.STAGED)
    world = LoneMaster(zone, nodes=NODES)
    get_stuck(world, "a")
    rows = world.rows(zone)

    world.pass_time(60_000)

    assert world.rows(zone) == rows
    assert world.status(zone).migrations_queued == 0
