"""Partitions whose every copy is lost: who begins again without data, when, and who does not."""

import msgspec
import pytest

from quorate.facts.zone import ConsistencyMode, StorageKind, ZoneRecord
from quorate.protocol.messages.master import CopyReport, Inventory, ZoneReady
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate_lone_master.world import LoneMaster, moving_master, placed_master

CACHE = ZoneRecord("uid-1", "cache", 4, 3, storage=StorageKind.IN_MEMORY, start_empty=True)


def stores(world: LoneMaster, zone: ZoneRecord = CACHE) -> set[tuple[str, str]]:
    rows = world.rows(zone).values()
    return {(voter.node, voter.store) for row in rows for voter in row.voters}


def restart(world: LoneMaster, *nodes: str) -> None:
    """Processes end, and others follow over the same folders."""
    world.kill(*nodes)
    world.connect(*nodes)


def test_who_was_restarted_whole_begins_again() -> None:
    world = LoneMaster(CACHE)
    before = {p: row.version for p, row in world.rows(CACHE).items()}
    restart(world, "a", "b", "c")
    world.pass_time(2_000)

    assert world.status(CACHE).available == 4
    assert stores(world) == {("a", "store-a.2"), ("b", "store-b.2"), ("c", "store-c.2")}
    for partition, row in world.rows(CACHE).items():
        assert row.version > before[partition]
        assert row.term > before[partition], "no promise of a former term is worth anything"
    (said,) = world.said("StartedEmpty")
    assert said.startswith("4 partitions from 0 on start empty: every copy was lost")


def test_who_is_away_is_waited_for_and_named() -> None:
    world = LoneMaster(CACHE)
    world.kill("a", "b", "c")
    world.connect("a", "b")
    world.pass_time(5_000)
    before = world.rows(CACHE)
    assert world.status(CACHE).available == 0
    assert "LOST" not in world.status(CACHE).sentence, "c may still have all of it"

    world.connect("c")
    world.pass_time(2_000)

    assert world.status(CACHE).available == 4
    assert all(row.version > before[p].version for p, row in world.rows(CACHE).items())


def test_another_data_node_that_is_away_is_waited_for_too() -> None:
    """It may have a newer row, of which an older metastore knows nothing."""
    world = LoneMaster(CACHE, nodes=("a", "b", "c", "d"))
    one = {p: row for p, row in world.rows(CACHE).items() if "d" not in row.voter_nodes}
    assert one
    world.kill("a", "b", "c", "d")
    world.connect("a", "b", "c")
    world.pass_time(3_000)
    assert world.rows(CACHE)[min(one)].voters == one[min(one)].voters
    said = world.status(CACHE).sentence
    assert "start empty once these agents have told what they have, or are removed: d" in said

    world.connect("d")
    world.pass_time(3_000)

    assert world.status(CACHE).available == 4


def test_a_newer_row_that_an_agent_knows_is_no_loss() -> None:
    """The metastore was put back: the agents' row counts, and it is rebuilt, not started empty."""
    world = LoneMaster(CACHE, nodes=("a", "b", "c", "d"), rebuilds=True)
    partition = next(p for p, row in world.rows(CACHE).items() if "d" not in row.voter_nodes)
    row = world.rows(CACHE)[partition]
    world.pass_time(world.settings.failure_detection_ms)
    world.kill("a", "b", "c", "d")
    world.connect("a", "b", "c")
    world.master.agent_connected(world.hello("d", 2), world.now)
    world.write()
    newer = CopyReport(partition, row.version + 5, None, "", row.term + 5, 7, 7, True, 100)
    world.master.receive("d", Inventory(CACHE.uid, (newer,), last=False), world.now)
    world.master.receive("d", Inventory("", ()), world.now)
    world.ms += 600  # less than a stall, long enough for a look at everything
    world.master.tick(world.now)
    assert set(world.master.zones[CACHE.uid].decided) == set(range(4)) - {partition}

    world.write()  # the metastore was read again, and has nothing newer
    world.pass_time(500)

    kept = world.master.zones[CACHE.uid].parts.get(partition)
    assert kept is None, "its row is older than what an agent has: it is rebuilt"


@pytest.mark.parametrize("storage", list(StorageKind))
def test_without_it_they_stay_lost(storage: StorageKind) -> None:
    zone = msgspec.structs.replace(CACHE, storage=storage, start_empty=False)
    world = LoneMaster(zone)
    world.kill("a", "b", "c")
    for node in "abc":
        world.connect(node, store=f"other-{node}")
    world.pass_time(30_000)

    assert world.status(zone).lost == 4
    assert world.said("StartedEmpty") == []


def test_a_new_master_starts_them_empty_as_well() -> None:
    world = LoneMaster(CACHE)
    world.kill("a", "b", "c")
    world.follow()
    world.connect("a", "b", "c")
    world.pass_time(world.settings.failure_detection_ms - 500)
    assert world.said("StartedEmpty") == [], "an agent that is not registered may still greet"

    world.pass_time(5_000)

    assert world.status(CACHE).available == 4


def test_a_new_master_starts_those_empty_that_were_moving() -> None:
    world, _ = moving_master(CACHE)
    world.follow()
    world.connect("a", "b", "c", "d")

    world.wait(lambda: world.status(CACHE).available == 4)

    assert all(row.active is None for row in world.rows(CACHE).values())


def test_a_destination_that_has_everything_is_no_loss_for_a_new_master() -> None:
    world, moving = moving_master(CACHE)
    world.follow()
    world.connect("a", "b", "c")
    world.same_processes = True
    world.connect("d")
    world.tell_prepared(CACHE, moving)
    world.pass_time(30_000)

    assert world.rows(CACHE)[moving.partition] == moving


def test_copies_that_a_reset_left_and_that_are_gone_too_are_not_waited_for() -> None:
    high = msgspec.structs.replace(CACHE, mode=ConsistencyMode.HIGH_AVAILABILITY, reset_ms=1_000)
    world = placed_master(high)
    world.kill("b", "c")
    world.wait(lambda: all(row.left_by_reset for row in world.rows(high).values()))
    world.follow()
    world.connect("a", "b", "c")

    world.wait(lambda: world.status(high).available == 4)

    assert all(not row.left_by_reset for row in world.rows(high).values())


def test_a_minority_that_was_restarted_changes_nothing_for_the_others() -> None:
    world = LoneMaster(CACHE)
    restart(world, "c")
    world.pass_time(10_000)

    assert world.status(CACHE).available == 4
    assert world.said("StartedEmpty") == []
    assert stores(world) == {("a", "store-a.1"), ("b", "store-b.1"), ("c", "store-c.2")}


def test_an_agent_that_refuses_the_zone_has_told_nothing_of_it() -> None:
    world = LoneMaster(one := msgspec.structs.replace(CACHE, replicas=1))
    world.pass_time(5_000)
    world.kill("a", "b", "c")
    world.connect("a", "c")
    refusal = ZoneReady(one.uid, 0, "its disk is not mounted yet")
    world.master.agent_connected(world.hello("b", 2), world.now)
    world.write()
    world.master.receive("b", refusal, world.now)
    world.master.receive("b", Inventory("", ()), world.now)
    world.pass_time(5_000)

    assert world.said("StartedEmpty") == []
    assert "or are removed: b" in world.status(one).sentence


def test_the_new_row_is_above_every_version_that_an_agent_may_know() -> None:
    """After the metastore was put back another row may have the next numbers."""
    world = LoneMaster(CACHE)
    world.pass_time(5_000)
    restart(world, "a", "b", "c")
    world.pass_time(2_000)

    assert {row.version for row in world.rows(CACHE).values()} == {RECOVERY_GAP}
    assert {row.term for row in world.rows(CACHE).values()} == {RECOVERY_GAP}
