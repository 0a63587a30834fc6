"""A person reopens LOST partitions: without data, and not while a copy of one may exist."""

import msgspec
import pytest

from quorate.facts.partition_row import Reset
from quorate.facts.topology import Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 4, 3)


def reopen(world: LoneMaster, *partitions: int, dry_run: bool = False) -> RecoveryAnswer:
    rows = world.rows(ZONE)
    versions = {partition: rows[partition].version for partition in partitions}
    asked = Recovery(RecoveryAction.REOPEN, versions, dry_run=dry_run)
    answer = world.master.recover(ZONE.uid, asked, world.now)
    world.write()
    return answer


def lost(zone: ZoneRecord = ZONE, *nodes: str) -> LoneMaster:
    """The stores of these agents, else of all three, were followed by others."""
    world = placed_master(zone)
    world.kill("a", "b", "c")
    for node in nodes or ("a", "b", "c"):
        world.connect(node, store=f"new-{node}")
    world.pass_time(5_000)
    return world


@pytest.mark.parametrize("storage", list(StorageKind))
def test_lost_partitions_that_are_named_begin_again_without_data(storage: StorageKind) -> None:
    world = lost(msgspec.structs.replace(ZONE, storage=storage))
    before = world.rows(ZONE)
    assert world.status(ZONE).lost == 4

    answer = reopen(world, 1, 2)

    assert answer.refusals == ()
    assert [each.partition for each in answer.partitions] == [1, 2]
    world.pass_time(1_000)
    assert (world.status(ZONE).available, world.status(ZONE).lost) == (2, 2)
    for partition, row in world.rows(ZONE).items():
        if partition not in (1, 2):
            assert row == before[partition]
            continue
        assert row.version == row.term == RECOVERY_GAP
        assert {voter.store.split(".")[0] for voter in row.voters} == {"new-a", "new-b", "new-c"}
    assert world.said("StartedEmpty") == [
        "2 partitions from 1 on start empty: every copy was lost, and a person reopened them"
    ]


def test_a_dry_run_names_the_stores_that_are_gone_and_changes_nothing() -> None:
    world = lost()
    before = world.rows(ZONE)
    (told,) = reopen(world, 1, dry_run=True).partitions
    stores = ", ".join(f"{node} (store store-{node})" for node in before[1].voter_nodes)

    assert told.sentence.startswith(
        f"every store that had it is gone for good: {stores}; it would begin again without data on "
    )
    assert world.rows(ZONE) == before


def test_while_one_store_may_come_back_it_is_named_and_nothing_is_reopened() -> None:
    world = lost(ZONE, "a", "b")
    before = world.rows(ZONE)

    (refusal,) = reopen(world, 1).refusals
    assert refusal == (
        "zone books, partition 1: not all of its copies are gone for good: c is away; start those"
        " that are away, and one whose data no longer exists with an empty folder"
    )
    assert world.rows(ZONE) == before

    world.connect("c", store="new-c")
    world.pass_time(1_000)

    assert reopen(world, 1).refusals == ()


def test_a_copy_that_a_reset_left_may_have_it_all() -> None:
    world = lost()
    part = world.master.zones[ZONE.uid].parts[1]
    left = Reset(part.row.term, (Voter("d", "store-d"),))
    row = msgspec.structs.replace(part.row, reset=left)
    world.master.zones[ZONE.uid].parts[1] = msgspec.structs.replace(part, row=row)

    assert "gone for good: d is not registered; start" in reopen(world, 1).refusals[0]


def test_every_agent_must_have_told_what_it_has() -> None:
    world = lost()
    world.connect("d")
    world.pass_time(500)
    world.kill("d")
    (refusal,) = reopen(world, 1).refusals
    assert refusal == (
        "zone books, partition 1: agents that may know a newer row of it have not told what they"
        " have: start or remove d"
    )


def test_a_partition_with_copies_is_not_reopened() -> None:
    world = placed_master(ZONE)

    assert "gone for good: " in reopen(world, 1).refusals[0]
    assert " is there" in reopen(world, 1).refusals[0]


def test_a_new_master_waits_for_the_agents_to_greet() -> None:
    world = lost()
    world.follow()
    for node in ("a", "b", "c"):
        world.connect(node, store=f"new-{node}")
    assert "has only begun to lead" in reopen(world, 1).refusals[0]

    world.pass_time(5_000)

    assert reopen(world, 1).refusals == ()
