"""Rows are lost, put back to an older state, or damaged, while zones are declared: no zone that was
stored is placed afresh, and one partition's trouble is not another's."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.master import CopyReport, Inventory
from quorate.protocol.metastore import DamagedRow, Key, NodeKey, ShardKey, Value, ZoneKey
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "books", 128, 3)
OTHER = ZoneRecord("uid-2", "carts", 8, 3)
FIRST, SECOND = ShardKey(ZONE.uid, 0), ShardKey(ZONE.uid, 1)


def _placed(*zones: ZoneRecord) -> LoneMaster:
    world = LoneMaster(*zones, rebuilds=True)
    world.wait(lambda: all(_is_noted(world, zone) for zone in zones))
    return world


def _is_noted(world: LoneMaster, zone: ZoneRecord) -> bool:
    record = world.stored.get(ZoneKey(zone.uid))
    return isinstance(record, ZoneRecord) and record.placed


def _rows(world: LoneMaster, *keys: Key) -> dict[int, PartitionRow]:
    shards = [world.stored[key] for key in keys]
    return {row.partition: row for rows in shards if isinstance(rows, tuple) for row in rows}


def _follow(world: LoneMaster, *lost: Key) -> None:
    """Another master, which finds no more of `lost`; the agents know what they were told."""
    for key in lost:
        del world.stored[key]
    world.follow()


def test_a_shard_that_is_lost_is_rebuilt_above_all_that_agents_know_and_never_placed_afresh() -> (
    None
):
    world = _placed(ZONE)
    before = _rows(world, FIRST)
    _follow(world, SECOND)

    world.connect("a", "b", "c")
    world.wait(lambda: SECOND in world.stored)

    rebuilt = _rows(world, SECOND)
    assert sorted(rebuilt) == list(range(64, 128))
    assert {row.version for row in rebuilt.values()} == {2 * RECOVERY_GAP + 1}
    world.wait(lambda: world.status(ZONE).phase == "Available")
    assert {
        p: (r.version, r.voters) for p, r in _rows(world, FIRST).items()
    }.keys() == before.keys()
    assert all(row.version < RECOVERY_GAP for row in _rows(world, FIRST).values())
    assert len(world.said(Reason.OWNERSHIP_LOST)) == 1
    assert "64 partitions (from 64 on): have no row" in world.said(Reason.OWNERSHIP_LOST)[0]
    world.wait(lambda: bool(world.said(Reason.OWNERSHIP_REBUILT)))
    assert not world.status(ZONE).rebuilding


def test_without_a_quorum_lost_rows_wait_and_who_is_missing_is_named() -> None:
    world = _placed(ZONE, OTHER)
    _follow(world, SECOND)

    world.connect("a")
    world.pass_time(10_000)

    status = world.status(ZONE)
    assert SECOND not in world.stored
    assert status.rebuilding
    assert "waiting for the reports of b, c" in status.ownership
    assert "waiting for the reports of b, c" in world.said(Reason.REBUILD_WAITS)[-1]
    world.connect("b")
    world.wait(lambda: SECOND in world.stored)


def test_a_rebuilt_row_that_is_lost_again_waits_for_no_store_of_its_sets_that_is_gone() -> None:
    zone = ZoneRecord("uid-3", "notes", 1, 2)
    world = _placed(zone)
    row, shard = world.rows(zone)[0], ShardKey(zone.uid, 0)
    assert row.primary is not None
    first = Voter(row.primary.node, row.primary.store)
    others = [Voter(node, f"store-{node}") for node in sorted({"a", "b", "c"} - {first.node})]
    sets = tuple((first, other) for other in others)
    narrowed = msgspec.structs.replace(
        row, version=9, replicas=(first.node, None), voters=(first,), sets=sets
    )
    world.stored[shard] = (narrowed,)
    world.serves = lambda node: False  # so the sets are not done with
    world.follow()
    world.connect("a", "b", "c")
    world.pass_time(1_000)
    assert world.rows(zone)[0].sets == sets
    _follow(world, shard)

    world.connect(first.node)
    for other in others:
        world.connect(other.node, store=f"{other.store}-2")
    world.wait(lambda: shard in world.stored)

    assert world.rows(zone)[0].voters == (first,)
    assert world.rows(zone)[0].sets == sets


def test_an_agent_that_may_have_the_last_copies_is_neither_drained_nor_removed() -> None:
    world = _placed(ZONE)
    _follow(world, FIRST, SECOND)
    world.connect("a")
    world.pass_time(5_000)

    for refused in (world.master.drain("a", True, world.now), world.master.forget("a", world.now)):
        assert refused.startswith("node a: rows of zone books are not known, and it may have the")
    assert world.master.zones[ZONE.uid].names("a")
    world.connect("b", "c")
    world.wait(lambda: len(world.rows(ZONE)) == 128)
    assert "needs 3 agents" in world.master.drain("a", True, world.now)


def test_while_one_zone_waits_the_other_goes_on() -> None:
    world = _placed(ZONE, OTHER)
    world.knows = lambda node, uid: uid == OTHER.uid  # of the first zone nobody can tell anything
    _follow(world, SECOND)
    world.connect("a", "b", "c")
    world.wait(lambda: world.status(ZONE).rebuilding)

    world.kill("a")
    world.wait(lambda: world.status(OTHER).unavailable == 0)

    assert SECOND not in world.stored
    rows = world.rows(OTHER).values()
    assert all(row.primary is not None and row.primary.node != "a" for row in rows)


@pytest.mark.parametrize("known_by", ["the zone's record", "the declared zone", "agents"])
def test_all_rows_lost_are_rebuilt_whoever_knows_that_there_were_any(known_by: str) -> None:
    world = _placed(ZONE)
    head = world.stored[ZoneKey(ZONE.uid)]
    assert isinstance(head, ZoneRecord)
    lost: list[Key] = [FIRST, SECOND]
    if known_by != "the zone's record":
        lost.append(ZoneKey(ZONE.uid))
    _follow(world, *lost)
    world.master.set_zone(
        msgspec.structs.replace(ZONE, placed=known_by == "the declared zone"), world.now
    )

    world.connect("a", "b", "c")
    world.wait(lambda: {FIRST, SECOND} <= world.stored.keys())

    world.wait(lambda: len(world.rows(ZONE)) == 128)
    assert all(row.version > RECOVERY_GAP for row in world.rows(ZONE).values())


def test_a_placement_that_was_cut_short_goes_on_beside_a_rebuild() -> None:
    world = LoneMaster(rebuilds=True)
    world.refused = lambda key: key == SECOND
    world.master.set_zone(ZONE, world.now)
    world.wait(lambda: FIRST in world.stored)
    world.pass_time(1_000)
    assert not _is_noted(world, ZONE)
    world.refused = lambda key: False
    _follow(world, FIRST)  # it was stored after the next master had read

    world.connect("a", "b", "d")
    world.wait(lambda: FIRST in world.stored)
    world.pass_time(10_000)
    assert SECOND not in world.stored, "c may know of a row"
    world.connect("c")
    world.wait(lambda: SECOND in world.stored)

    assert {row.version for row in _rows(world, SECOND).values()} == {1}
    assert all(row.version > RECOVERY_GAP for row in _rows(world, FIRST).values())
    world.wait(lambda: _is_noted(world, ZONE) and not world.status(ZONE).rebuilding)
    assert world.status(ZONE).phase == "Available"


def test_a_zone_that_agents_told_is_not_placed_afresh_before_those_with_rows_are_back() -> None:
    world = _placed(ZONE)
    world.stored.clear()
    world.follow(recovering=True)

    world.connect("d", "e", "f")
    told = Inventory(ZONE.uid, (), last=False, record=ZONE, rows=True)
    world.master.receive("d", told, world.now)
    world.pass_time(10_000)

    assert not world.stored.keys() & {FIRST, SECOND}
    assert "no online agent knows its row" in world.status(ZONE).ownership
    world.connect("a", "b", "c")
    world.wait(lambda: len(world.rows(ZONE)) == 128)
    assert all({*row.voter_nodes} == {"a", "b", "c"} for row in world.rows(ZONE).values())


@pytest.mark.parametrize("is_declared_so", [True, False], ids=["declared so", "stored so"])
def test_a_placed_zone_is_not_placed_afresh_on_agents_that_know_nothing_of_it(
    is_declared_so: bool,
) -> None:
    world = _placed(ZONE)
    lost: list[Key] = [FIRST, SECOND]
    _follow(world, *lost, *([ZoneKey(ZONE.uid)] if is_declared_so else []))
    world.master.set_zone(msgspec.structs.replace(ZONE, placed=is_declared_so), world.now)

    world.connect("d", "e", "f")
    world.pass_time(10_000)

    assert not world.stored.keys() & {FIRST, SECOND}
    assert world.status(ZONE).phase == "Unavailable"
    assert "no online agent knows its row" in world.status(ZONE).ownership
    world.connect("a", "b", "c")
    world.wait(lambda: len(world.rows(ZONE)) == 128)
    assert all({*row.voter_nodes} == {"a", "b", "c"} for row in world.rows(ZONE).values())


def test_rows_that_are_older_than_agents_know_are_withdrawn_and_rebuilt_alone() -> None:
    world = _placed(ZONE)
    older = dict(world.stored)
    world.kill("a")
    world.wait(lambda: world.status(ZONE).unavailable == 0)
    changed = {p for p, row in world.rows(ZONE).items() if row.version > 1}
    assert changed
    newest = world.rows(ZONE)
    world.stored = older

    world.follow()
    world.connect("a", "b", "c")
    world.wait(lambda: world.status(ZONE).phase == "Available")

    assert world.master.outdated == ""
    for partition, row in world.rows(ZONE).items():
        assert row.version >= newest[partition].version
        assert (row.version > RECOVERY_GAP) == (partition in changed)
    assert "and the metastore holds 1" in world.said(Reason.OWNERSHIP_LOST)[0]


def test_a_withdrawn_row_does_not_come_back_with_a_write_that_was_under_way() -> None:
    world = _placed(OTHER)
    key = ShardKey(OTHER.uid, 0)
    rows = world.stored[key]
    zone = world.master.zones[OTHER.uid]
    zone.withdraw({3: 7}, "agent c has row 7")

    world.master.written(key, rows, world.now)

    assert 3 not in zone.parts
    world.wait(lambda: 3 in zone.parts)
    assert zone.parts[3].row.version > 7 + RECOVERY_GAP


def test_agents_are_asked_anew_when_a_row_is_withdrawn_while_another_is_rebuilt() -> None:
    """What they told before may be older than what this master has decided since then."""
    world = _placed(OTHER)
    row = world.rows(OTHER)[5]
    zone = world.master.zones[OTHER.uid]
    zone.withdraw({3: 7}, "agent c has row 7")
    world.knows = lambda node, uid: False
    world.pass_time(1_000)
    for node in ("a", "b", "c"):
        told = CopyReport(5, row.version, None, "", 1, 0, 0, True, 0, 1, row)
        world.master.receive(node, Inventory(OTHER.uid, (told,), rows=True), world.now)
    asked: list[str] = []
    world.knows = lambda node, uid: asked.append(node) is None

    zone.withdraw({5: 9}, "agent c has row 9")
    world.wait(lambda: 5 in zone.parts)

    assert sorted({*asked}) == ["a", "b", "c"]


@pytest.mark.parametrize("is_rebuilding", [True, False])
def test_agents_are_asked_anew_when_a_row_that_was_led_from_is_set_aside_and_removed(
    is_rebuilding: bool,
) -> None:
    """They told the row that it had before this master moved the partition, say."""
    world = _placed(OTHER)
    key, row = ShardKey(OTHER.uid, 0), world.rows(OTHER)[5]
    world.knows = lambda node, uid: False
    if is_rebuilding:
        world.master.zones[OTHER.uid].withdraw({3: 7}, "agent c has row 7")
        world.pass_time(1_000)
    for node in ("a", "b", "c"):
        told = CopyReport(5, row.version, None, "", 1, 0, 0, True, 0, 1, row)
        world.master.receive(node, Inventory(OTHER.uid, (told,), rows=True), world.now)
    asked: list[str] = []
    world.knows = lambda node, uid: asked.append(node) is None
    others = tuple(each for p, each in world.rows(OTHER).items() if p != 5)

    world.master.reloaded(key, others, world.now, [_damaged(5, version=1 << 40)])
    world.master.reloaded(key, others, world.now)
    world.wait(lambda: 5 in world.master.zones[OTHER.uid].parts)

    assert sorted({*asked}) == ["a", "b", "c"]


def test_a_row_that_waits_to_be_written_gives_way_to_one_that_another_has_stored() -> None:
    world = LoneMaster(OTHER, nodes=("a", "b", "c", "d"), rebuilds=True)
    world.wait(lambda: _is_noted(world, OTHER))
    key = ShardKey(OTHER.uid, 0)
    before = world.rows(OTHER)
    lost = next(p for p, row in before.items() if "a" not in row.voter_nodes)
    world.master.agent_disconnected("a", True, world.now)
    assert key in dict(world.master.take_outputs().writes)  # of which nothing is heard yet
    world.master.zones[OTHER.uid].withdraw({lost: 7}, "agent c has row 7")
    world.pass_time(3_000)  # it is rebuilt, and waits
    another = msgspec.structs.replace(before[lost], version=10 * RECOVERY_GAP)
    world.stored[key] = stored = tuple({**before, lost: another}.values())

    world.master.reloaded(key, stored, world.now)
    written = dict(world.master.take_outputs().writes).get(key, stored)

    assert isinstance(written, tuple)
    assert another in written


def test_an_older_row_is_not_led_from_before_a_quorum_of_its_voters_has_told() -> None:
    world = _placed(OTHER)
    _follow(world)

    world.connect("a")
    world.pass_time(10_000)

    assert {row.version for row in world.rows(OTHER).values()} == {1}
    world.connect("b")
    world.wait(lambda: world.status(OTHER).unavailable == 0)


def test_a_shard_that_is_deleted_under_a_master_is_written_again_as_it_was() -> None:
    world = _placed(ZONE)
    before = world.stored.pop(SECOND)

    world.master.reloaded(SECOND, None, world.now)
    world.write()

    assert world.stored[SECOND] == before
    assert (
        "64 partitions (from 64 on): another client deleted"
        in world.said(Reason.RECORD_RESTORED)[0]
    )
    assert world.status(ZONE).phase == "Available"


def test_older_rows_put_back_under_a_master_are_written_over() -> None:
    world = _placed(ZONE)
    older = world.stored[FIRST]
    world.kill("a")
    world.wait(lambda: world.status(ZONE).unavailable == 0)
    newest = world.stored[FIRST]
    assert newest != older
    assert isinstance(older, tuple)

    world.stored[FIRST] = older
    world.master.reloaded(FIRST, older, world.now)

    known = world.rows(ZONE)  # nothing is decided from the older ones
    assert tuple(known[partition] for partition in range(64)) == newest
    world.pass_time(2_000)
    assert world.stored[FIRST] == newest
    assert world.said(Reason.OWNERSHIP_LOST) == []
    assert world.status(ZONE).unavailable == 0


def test_a_registration_that_is_deleted_under_a_master_is_written_again() -> None:
    world = _placed(OTHER)
    before = world.stored.pop(NodeKey("b"))

    world.master.reloaded(NodeKey("b"), None, world.now)
    world.write()

    assert world.stored[NodeKey("b")] == before
    assert "registration of b" in world.said(Reason.RECORD_RESTORED)[0]


def _damaged(partition: int, version: int = 1) -> DamagedRow:
    return DamagedRow(partition, version, version, "PartitionTable uid-1-000: an owner twice")


def test_a_stored_row_that_is_none_is_set_aside_alone_until_it_is_repaired() -> None:
    world = _placed(ZONE, OTHER)
    rows = world.stored[FIRST]
    assert isinstance(rows, tuple)
    world.stored[FIRST] = rows[:5] + rows[6:]
    world.follow()
    world.master.damaged(FIRST, [_damaged(5)])
    world.connect("a", "b", "c")
    world.wait(lambda: world.status(ZONE).unavailable == 1)

    status = world.status(ZONE)
    assert status.unavailable_partitions == (5,)
    assert "partition 5 set aside: PartitionTable uid-1-000: an owner twice" in status.ownership
    assert "repair these rows, or have them rebuilt" in status.ownership
    assert not status.rebuilding
    world.kill("a")
    world.wait(lambda: world.status(ZONE).unavailable == 1 and world.status(OTHER).unavailable == 0)
    world.pass_time(3_000)
    stored = world.stored[FIRST]
    assert isinstance(stored, tuple)
    world.stored[FIRST] = repaired = (*stored, rows[5])

    world.master.reloaded(FIRST, repaired, world.now)

    world.wait(lambda: world.status(ZONE).unavailable == 0)
    assert world.status(ZONE).ownership == ""
    assert world.said(Reason.ROW_REPAIRED) == ["partition 5 is no longer set aside"]


@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("partition", [70, 5_000, 1 << 62])
def test_a_damaged_row_elsewhere_than_its_place_sets_no_partition_aside(
    partition: int, is_loaded: bool
) -> None:
    world = _placed(ZONE)
    rows = world.stored[FIRST]
    assert isinstance(rows, tuple)
    stray = [_damaged(partition, version=9)]

    if is_loaded:
        world.follow()
        world.master.damaged(FIRST, stray)
        world.connect("a", "b", "c")
    else:
        world.master.reloaded(FIRST, rows, world.now, stray)
    world.pass_time(6_000)

    status = world.status(ZONE)
    assert (status.phase, status.ownership) == ("Available", "")


def test_the_objects_of_a_zone_whose_rows_are_all_set_aside_go_with_the_zone() -> None:
    world = _placed(OTHER)
    shard = ShardKey(OTHER.uid, 0)
    world.stored[shard] = ()
    world.follow()
    world.master.damaged(shard, [_damaged(p) for p in range(OTHER.partitions)])
    world.connect("a", "b", "c")
    world.pass_time(2_000)

    world.master.set_zone(msgspec.structs.replace(OTHER, placed=True, deleting=True), world.now)

    world.wait(lambda: shard not in world.stored)


def test_a_set_aside_row_that_is_removed_is_rebuilt() -> None:
    world = _placed(ZONE)
    rows = world.stored[FIRST]
    assert isinstance(rows, tuple)
    world.stored[FIRST] = without = rows[:5] + rows[6:]
    world.follow()
    world.master.damaged(FIRST, [_damaged(5, version=1 << 40)])
    world.connect("a", "b", "c")
    world.wait(lambda: world.status(ZONE).unavailable == 1)

    world.master.reloaded(FIRST, without, world.now)

    world.wait(lambda: world.status(ZONE).phase == "Available")
    assert world.rows(ZONE)[5].version > RECOVERY_GAP


def test_a_row_damaged_under_a_master_is_written_again_and_a_higher_one_set_aside() -> None:
    world = _placed(ZONE)
    rows = world.stored[FIRST]
    assert isinstance(rows, tuple)

    world.master.reloaded(FIRST, rows[1:], world.now, [_damaged(0)])
    world.write()
    assert world.stored[FIRST] == rows
    world.master.reloaded(FIRST, rows[1:], world.now, [_damaged(0, version=9)])
    world.pass_time(1_000)

    assert world.status(ZONE).unavailable_partitions == (0,)


@pytest.mark.parametrize("is_aside", [True, False])
def test_a_row_that_another_stored_with_too_few_copies_gets_the_others(is_aside: bool) -> None:
    world = _placed(OTHER)
    world.wait(lambda: world.status(OTHER).phase == "Available")
    shard, rows = ShardKey(OTHER.uid, 0), list(_rows(world, ShardKey(OTHER.uid, 0)).values())
    if is_aside:
        world.master.reloaded(shard, tuple(rows[1:]), world.now, [_damaged(0, version=9)])
        world.pass_time(1_000)
    rows[0] = msgspec.structs.replace(
        rows[0], version=9, replicas=(*rows[0].replicas[:2], None), voters=rows[0].voters[:2]
    )
    world.stored[shard] = tuple(rows)

    world.master.reloaded(shard, tuple(rows), world.now)

    world.wait(lambda: len(world.rows(OTHER)[0].owners) == 3)


def test_a_registration_that_is_lost_is_no_reason_to_take_its_partitions_over() -> None:
    world = _placed(OTHER)
    before = world.rows(OTHER)
    _follow(world, NodeKey("a"))
    world.same_processes = True

    world.connect("b", "c")
    world.pass_time(1_000)
    world.connect("a")
    world.pass_time(5_000)

    assert {p: row.term for p, row in world.rows(OTHER).items()} == {
        p: row.term for p, row in before.items()
    }


def test_an_older_image_of_an_agent_whose_registration_is_lost_is_known_by_rows() -> None:
    world = _placed(OTHER)
    record = world.stored[NodeKey("a")]
    assert isinstance(record, NodeRecord)
    newer = tuple(
        msgspec.structs.replace(row, primary=Holder("a", "store-a", 7))
        if row.primary is not None and row.primary.node == "a"
        else row
        for row in world.rows(OTHER).values()
    )
    world.stored[ShardKey(OTHER.uid, 0)] = newer
    _follow(world, NodeKey("a"))

    refused = world.master.refusal(world.hello("a", incarnation=3))

    assert refused is not None
    assert "older image" in refused.reason
    assert world.master.refusal(world.hello("a", incarnation=8)) is None


def test_a_new_zone_is_placed_although_agents_keep_others() -> None:
    world = LoneMaster(OTHER)
    world.wait(lambda: world.status(OTHER).phase == "Available")

    assert {row.version for row in world.rows(OTHER).values()} == {1}


def test_a_copy_that_was_evicted_by_a_newer_row_shows_that_the_metastore_is_older() -> None:
    world = _placed(OTHER)
    master = Master(9, DEFAULTS, world.now, rebuilds=True)
    stored: dict[Key, Value] = dict(world.stored)
    world.master = master
    master.load(stored, world.now)
    told = CopyReport(3, 7, None, "", 0, 0, 0, False)
    world.connect("a", "b", "c")
    master.receive("c", Inventory(OTHER.uid, (told,), last=False), world.now)

    assert master.told_newer().rows == {(OTHER.uid, 3): (7, "c")}
    assert Voter("c", "store-c") in world.rows(OTHER)[3].voters
