"""A plan is made from what the master knows, and changes nothing of it."""

import pytest

from quorate.facts.zone import NEVER_MS, ZoneRecord
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 12, 2)


def test_a_plan_counts_steps_bytes_and_copies_and_changes_nothing() -> None:
    world = LoneMaster(ZONE)
    for node in ("a", "b", "c"):
        world.report(node, {ZONE.uid: 100})
    zone = world.master.zones[ZONE.uid]
    before = world.rows(ZONE)
    joined, lost = zone.preview((), 1, world.now), zone.preview(("c",), 0, world.now)
    world.pass_time(5_000)

    assert (joined.copies, joined.bytes, joined.worst_copies) == (6, 600, 2)
    assert (lost.copies, lost.bytes, lost.worst_copies) == (8, 800, 1)
    assert world.rows(ZONE) == before
    assert world.started == []


def test_sizes_are_known_a_minute_after_data_was_written() -> None:
    world = LoneMaster(ZONE)
    world.sizes = {ZONE.uid: 700}
    world.pass_time(61_000)

    assert world.master.zones[ZONE.uid].preview((), 1, world.now).bytes == 6 * 700


def test_what_a_join_was_said_to_move_is_what_it_moves() -> None:
    world = LoneMaster(ZONE)
    said = world.master.zones[ZONE.uid].preview((), 1, world.now)
    world.connect("new-1")
    world.pass_time(20_000)
    done = [(r.partition, r.active.kind, r.active.source) for _, r in world.started if r.active]

    assert sorted(done) == sorted((s.partition, s.kind, s.source) for s in said.steps)


def test_a_drain_beside_an_agent_that_is_away_is_planned_with_stand_ins() -> None:
    zone = ZoneRecord("uid-1", "books", 16, 3, scale_down_ms=NEVER_MS)
    world = placed_master(zone, nodes=tuple("abcde"))
    world.kill("a")
    world.pass_time(5_000)
    assert world.master.zones[zone.uid].preview((), 0, world.now).stand_ins == ()
    assert world.master.drain("b", True, world.now) == ""
    world.write()
    said = world.master.zones[zone.uid].preview((), 0, world.now).stand_ins
    world.pass_time(60_000)

    assert {each.instead_of for each in said} == {"a"}
    rows = world.rows(zone)
    assert all(each.node in rows[each.partition].owners for each in said)


def test_an_unknown_node_is_named_with_the_known_ones() -> None:
    world = LoneMaster(ZONE)

    with pytest.raises(ValueError, match="node x is not registered: registered nodes are a, b, c"):
        world.master.zones[ZONE.uid].preview(("x",), 0, world.now)
