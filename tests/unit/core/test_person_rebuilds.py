"""A person has invalid rows discarded and rebuilt: no valid one, and none of which too little is
known."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ConsistencyMode, WriteMode, ZoneRecord
from quorate.protocol.messages.events import Reason
from quorate.protocol.metastore import UNREADABLE, DamagedRow, ShardKey, ZoneKey
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "books", 8, 3)
SHARD = ShardKey(ZONE.uid, 0)
WHY = "PartitionTable uid-1-000, row of partition 5: an owner twice"


def damaged(
    partition: int = 5, version: int = 40, why: str = WHY, term: int | None = None
) -> DamagedRow:
    return DamagedRow(partition, version, version if term is None else term, why)


def aside(
    *rows: DamagedRow, zone: ZoneRecord = ZONE, agents: tuple[str, ...] = ("a", "b", "c")
) -> LoneMaster:
    """The next master finds these rows invalid; the agents know what they were told."""
    world = LoneMaster(zone, rebuilds=True)
    world.wait(lambda: _is_placed(world))
    found = rows or (damaged(),)
    gone = {each.partition for each in found}
    world.stored[SHARD] = tuple(row for row in stored(world).values() if row.partition not in gone)
    world.follow()
    world.master.damaged(SHARD, found)
    world.connect(*agents)
    world.pass_time(3_000)
    return world


def _is_placed(world: LoneMaster) -> bool:
    record = world.stored.get(ZoneKey(ZONE.uid))
    return isinstance(record, ZoneRecord) and record.placed


def stored(world: LoneMaster) -> dict[int, PartitionRow]:
    rows = world.stored[SHARD]
    assert isinstance(rows, tuple)
    return {row.partition: row for row in rows if isinstance(row, PartitionRow)}


def rebuild(
    world: LoneMaster, versions: dict[int, int], *, dry_run: bool = False
) -> RecoveryAnswer:
    asked = Recovery(RecoveryAction.REBUILD, versions, dry_run=dry_run)
    answer = world.master.recover(ZONE.uid, asked, world.now)
    world.write()
    return answer


def test_an_invalid_row_is_replaced_by_one_that_agents_know() -> None:
    world = aside()
    assert world.status(ZONE).unavailable_partitions == (5,)
    assert "have them rebuilt" in world.status(ZONE).ownership

    answer = rebuild(world, {5: 40})

    assert answer.refusals == ()
    row = stored(world)[5]
    assert answer.partitions[0].row == row
    assert row.version == row.term > RECOVERY_GAP
    assert {*row.voter_nodes} == {"a", "b", "c"}
    world.wait(lambda: world.status(ZONE).available == 8)
    assert world.status(ZONE).ownership == ""
    assert world.said(Reason.ROW_DISCARDED) == [
        "partition 5: a person had its row rebuilt from the agents' data; what was stored: " + WHY
    ]
    world.master.reloaded(SHARD, tuple(stored(world).values()), world.now)
    world.pass_time(1_000)
    assert world.status(ZONE).available == 8


def test_a_dry_run_tells_the_number_and_changes_nothing() -> None:
    world = aside()
    before = dict(world.stored)

    answer = rebuild(world, {5: 0}, dry_run=True)

    [shown] = answer.partitions
    assert (shown.partition, shown.version) == (5, 40)
    assert f"its invalid row would be discarded ({WHY}); by what a, b, c know" in shown.sentence
    assert "every acknowledged write is found" in shown.sentence
    assert "start" not in shown.sentence
    assert world.stored == before
    assert 5 not in world.rows(ZONE)


def test_a_valid_row_is_never_rebuilt_and_refuses_the_whole() -> None:
    world = aside()
    version = world.rows(ZONE)[4].version
    before = dict(world.stored)

    answer = rebuild(world, {4: version, 5: 40})

    [refused] = answer.refusals
    assert f"partition 4: its row is valid (version {version}), so there is nothing" in refused
    assert world.stored == before


@pytest.mark.parametrize(
    ("version", "said"), [(0, "none was named"), (41, "41 was named"), (1, "1 was named")]
)
def test_another_row_than_the_one_that_was_seen_is_refused(version: int, said: str) -> None:
    world = aside()

    answer = rebuild(world, {5: version})

    assert f"its invalid row is number 40, and {said}: {WHY}; look again" in answer.refusals[0]
    assert 5 not in stored(world)


def test_too_few_reports_are_waited_for_by_name() -> None:
    world = aside(agents=("a",))

    answer = rebuild(world, {5: 40})

    assert "waiting for the reports of b, c" in answer.refusals[0]
    assert 5 not in stored(world)
    world.connect("b")
    world.pass_time(3_000)
    shown = rebuild(world, {5: 40}, dry_run=True)
    assert "(start c first, if that may be)" in shown.partitions[0].sentence
    assert rebuild(world, {5: 40}).refusals == ()


def test_agents_that_were_not_asked_yet_are_asked() -> None:
    world = aside()
    for agent in world.master.agents.values():
        agent.rows.clear()
    answer = rebuild(world, {5: 40})
    assert "a, b, c are being asked: try again in a moment" in answer.refusals[0]

    assert rebuild(world, {5: 40}).refusals == ()


def test_an_online_agent_that_has_not_reported_yet_is_waited_for_beside_a_quorum() -> None:
    world = aside()
    world.master.agents["c"].rows.clear()

    [refused] = rebuild(world, {5: 40}, dry_run=True).refusals

    assert "its row cannot be rebuilt yet: waiting for the reports of c; they are" in refused
    [shown] = rebuild(world, {5: 40}, dry_run=True).partitions
    assert "by what a, b, c know" in shown.sentence


def test_an_agent_that_refuses_the_zone_is_not_waited_for_and_knows_nothing() -> None:
    world = aside()
    world.master.agents["c"].rows.clear()
    world.knows = lambda node, uid: node != "c"
    world.master.zones[ZONE.uid].nodes.refused("c", "no room", world.now)

    [shown] = rebuild(world, {5: 40}, dry_run=True).partitions

    assert "by what a, b know" in shown.sentence
    assert "(start c first, if that may be)" in shown.sentence


@pytest.mark.parametrize(
    ("version", "term"), [(UNREADABLE, 10**12), (10**12, UNREADABLE), (10**12, 7), (7, 10**12)]
)
def test_the_highest_number_that_can_be_read_is_exceeded(version: int, term: int) -> None:
    world = aside(damaged(version=version, term=term))
    [shown] = rebuild(world, {5: 0}, dry_run=True).partitions

    [done] = rebuild(world, {5: shown.version}).partitions

    assert done.row is not None
    assert done.row.version > 10**12
    assert done.row.term > 10**12


def test_a_row_whose_version_cannot_be_read_has_a_number_by_what_is_wrong_with_it() -> None:
    world = aside(damaged(version=UNREADABLE))
    [shown] = rebuild(world, {5: 0}, dry_run=True).partitions
    assert 0 < shown.version <= 1 << 32

    assert rebuild(world, {5: shown.version}).refusals == ()
    world.wait(lambda: world.status(ZONE).available == 8)


@pytest.mark.parametrize(
    ("version", "term"), [(1 << 60, 40), (40, 1 << 60), (UNREADABLE, 1 << 60), (UNREADABLE + 1, 40)]
)
def test_a_number_that_is_garbage_can_only_be_removed_by_hand(version: int, term: int) -> None:
    world = aside(damaged(version=version, term=term))
    [shown] = rebuild(world, {5: 0}, dry_run=True).refusals

    assert "its version or term is garbage: remove it from its object" in shown


def test_an_object_that_cannot_be_read_goes_as_a_whole() -> None:
    why = "PartitionTable uid-1-000 cannot be read: shard is missing"
    every = [damaged(p, UNREADABLE, why) for p in range(ZONE.partitions)]
    world = aside(*every)

    answer = rebuild(world, {5: 0}, dry_run=True)
    assert "name all of its partitions (0, 1, 2, 3, 4, 5, 6, 7)" in answer.refusals[0]
    every_one = dict.fromkeys(range(8), 0)
    assert "are being asked" in rebuild(world, every_one, dry_run=True).refusals[0]
    shown = rebuild(world, every_one, dry_run=True)
    assert shown.refusals == ()
    assert rebuild(world, {p.partition: p.version for p in shown.partitions}).refusals == ()
    world.wait(lambda: world.status(ZONE).available == 8)


def written_over(world: LoneMaster, found: DamagedRow, version: int = 40) -> None:
    """A person has the row rebuilt, and its write meets an object that was changed meanwhile."""
    asked = Recovery(RecoveryAction.REBUILD, {5: version}, dry_run=False)
    assert world.master.recover(ZONE.uid, asked, world.now).refusals == ()
    assert SHARD in [key for key, _ in world.master.take_outputs().writes]
    others = tuple(stored(world).values())
    world.master.reloaded(SHARD, others, world.now, [found])


@pytest.mark.parametrize("version", [40, 10**12])
def test_a_write_that_meets_the_same_invalid_row_is_made_again(version: int) -> None:
    world = aside(damaged(version=version))
    written_over(world, damaged(version=version), version)
    assert "set aside" not in world.status(ZONE).ownership
    assert world.said(Reason.ROW_DISCARDED) == []

    world.wait(lambda: world.status(ZONE).available == 8)
    assert stored(world)[5].version > version
    assert len(world.said(Reason.ROW_SET_ASIDE)) == 1
    assert len(world.said(Reason.ROW_DISCARDED)) == 1
    assert world.said(Reason.OWNERSHIP_LOST) == []


def test_it_is_set_aside_again_if_too_little_is_known_by_then() -> None:
    world = aside(damaged(version=10**12))
    asked = Recovery(RecoveryAction.REBUILD, {5: 10**12}, dry_run=False)
    assert world.master.recover(ZONE.uid, asked, world.now).refusals == ()
    assert SHARD in [key for key, _ in world.master.take_outputs().writes]
    for agent in world.master.agents.values():
        agent.rows.clear()

    world.master.reloaded(
        SHARD, tuple(stored(world).values()), world.now, [damaged(version=10**12)]
    )
    world.pass_time(2_000)

    assert world.status(ZONE).unavailable_partitions == (5,)
    assert 5 not in stored(world)
    assert len(world.said(Reason.ROW_SET_ASIDE)) == 2
    assert world.said(Reason.OWNERSHIP_LOST) == []
    assert world.said(Reason.ROW_DISCARDED) == []


def test_a_row_that_is_broken_again_in_the_same_way_is_set_aside_again() -> None:
    broken = damaged(version=UNREADABLE)
    world = aside(broken)
    [shown] = rebuild(world, {5: 0}, dry_run=True).partitions
    assert rebuild(world, {5: shown.version}).refusals == ()
    world.wait(lambda: world.status(ZONE).available == 8)

    others = tuple(row for row in stored(world).values() if row.partition != 5)
    world.stored[SHARD] = others
    world.master.reloaded(SHARD, others, world.now, [broken])
    world.pass_time(2_000)

    assert world.status(ZONE).unavailable_partitions == (5,)
    assert 5 not in stored(world)


def test_a_write_of_unknown_outcome_is_told_once_it_is_read() -> None:
    world = aside()
    asked = Recovery(RecoveryAction.REBUILD, {5: 40}, dry_run=False)
    assert world.master.recover(ZONE.uid, asked, world.now).refusals == ()
    [rows] = [rows for key, rows in world.master.take_outputs().writes if key == SHARD]
    assert isinstance(rows, tuple)

    world.stored[SHARD] = rows
    world.master.reloaded(SHARD, rows, world.now)
    world.write()

    assert len(world.said(Reason.ROW_DISCARDED)) == 1


def test_an_invalid_row_that_was_changed_since_is_set_aside_again() -> None:
    world = aside()
    written_over(world, damaged(version=50))
    world.pass_time(2_000)

    assert world.status(ZONE).unavailable_partitions == (5,)
    assert 5 not in stored(world)


def test_other_decisions_about_it_say_what_to_do() -> None:
    world = aside()
    asked = Recovery(RecoveryAction.RESET, {5: 40}, dry_run=True)

    answer = world.master.recover(ZONE.uid, asked, world.now)

    [refused] = answer.refusals
    assert "its stored row is invalid: repair it, or have it rebuilt (`rebuild`)" in refused


def test_a_lost_row_is_rebuilt_without_a_decision() -> None:
    world = aside()
    world.knows = lambda node, uid: False
    for agent in world.master.agents.values():
        agent.rows.clear()
    world.master.reloaded(SHARD, tuple(stored(world).values()), world.now)
    world.pass_time(1_000)

    answer = rebuild(world, {5: 40})

    assert "it has no row, and gets one without a decision: " in answer.refusals[0]


def of_no_quorum(*left: str, nodes: tuple[str, ...] = ("a", "b", "c")) -> LoneMaster:
    """The next master finds no row of the zone; only the stores of `left` are there still."""
    world = LoneMaster(ZONE, rebuilds=True, nodes=nodes)
    world.wait(lambda: _is_placed(world))
    del world.stored[SHARD]
    world.follow()
    for node in ("a", "b", "c"):
        world.same_processes = node in left
        world.connect(node, store="" if node in left else f"other-{node}")
    world.pass_time(5_000)
    return world


def test_a_lost_row_without_a_quorum_is_rebuilt_and_then_reset_as_a_person_decides() -> None:
    world = of_no_quorum("a")
    assert "the stores of b, c are gone for good, which leaves no quorum: have them rebuilt" in (
        world.status(ZONE).ownership
    )
    [told] = rebuild(world, {5: 0}, dry_run=True).partitions
    assert "the newest row of it that was told is number 1, of a, b, c" in told.sentence
    assert "number 1, and 7 was named: look again" in rebuild(world, {5: 7}).refusals[0]

    every = dict.fromkeys(range(ZONE.partitions), told.version)
    assert rebuild(world, every).refusals == ()
    world.wait(lambda: len(world.rows(ZONE)) == ZONE.partitions)
    versions = {p: row.version for p, row in world.rows(ZONE).items()}
    asked = Recovery(RecoveryAction.RESET, versions, dry_run=False)
    assert world.master.recover(ZONE.uid, asked, world.now).refusals == ()
    world.write()

    world.wait(lambda: world.status(ZONE).available == ZONE.partitions)
    assert not world.status(ZONE).rebuilding


def test_a_lost_row_without_any_store_is_rebuilt_and_then_reopened() -> None:
    world = of_no_quorum()
    versions = dict.fromkeys(range(ZONE.partitions), 1)
    assert rebuild(world, versions).refusals == ()
    world.wait(lambda: world.status(ZONE).lost == ZONE.partitions)
    world.pass_time(1_000)

    rows = world.rows(ZONE).items()
    asked = Recovery(RecoveryAction.REOPEN, {p: row.version for p, row in rows}, dry_run=False)
    assert world.master.recover(ZONE.uid, asked, world.now).refusals == ()
    world.write()

    world.wait(lambda: world.status(ZONE).available == ZONE.partitions)


def test_a_lost_row_is_not_rebuilt_while_an_agent_may_serve_by_a_newer_one() -> None:
    world = of_no_quorum("a", nodes=("a", "b", "c", "d"))
    short = [p for p in range(ZONE.partitions) if "start or remove d" in _judged(world, p)]
    assert short

    world.connect("d", store="other-d")
    world.pass_time(3_000)

    assert all("it is not served before it is reset" in _judged(world, p) for p in short)


def _judged(world: LoneMaster, partition: int) -> str:
    """The reason why the partition is not rebuilt, or what that would do."""
    answer = rebuild(world, {partition: 0}, dry_run=True)
    return "; ".join([*answer.refusals, *(each.sentence for each in answer.partitions)])


def test_an_invalid_row_without_a_quorum_is_rebuilt_too() -> None:
    world = aside(agents=("a",))
    for node in ("b", "c"):
        world.connect(node, store=f"other-{node}")
    world.pass_time(5_000)
    [would] = rebuild(world, {5: 0}, dry_run=True).partitions
    assert "its invalid row is number" in rebuild(world, {5: 40}).refusals[0]

    [told] = rebuild(world, {5: would.version}).partitions

    assert told.sentence.startswith("its invalid row is discarded (")
    assert "which leaves no quorum: it is not served before it is reset" in told.sentence
    world.wait(lambda: stored(world)[5].version > 40)


def test_a_write_of_a_row_without_a_quorum_is_made_again() -> None:
    world = aside(agents=("a",))
    for node in ("b", "c"):
        world.connect(node, store=f"other-{node}")
    world.pass_time(5_000)
    [would] = rebuild(world, {5: 0}, dry_run=True).partitions

    written_over(world, damaged(), would.version)

    world.wait(lambda: stored(world).get(5) is not None)
    assert len(world.said(Reason.ROW_SET_ASIDE)) == 1


def test_with_primary_sync_it_says_what_may_be_lost() -> None:
    high = msgspec.structs.replace(
        ZONE, mode=ConsistencyMode.HIGH_AVAILABILITY, write_mode=WriteMode.PRIMARY_SYNC
    )
    world = aside(zone=high)

    [shown] = rebuild(world, {5: 0}, dry_run=True).partitions

    assert "writes that only its former primary has may be lost" in shown.sentence
