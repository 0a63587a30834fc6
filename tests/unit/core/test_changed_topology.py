"""What is under way when the topology changes again: kept if it serves, else given up soon."""

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.messages.master import CaughtUp, Prepared
from quorate.protocol.metastore import ShardKey
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "books", 64, 3)
MB = 1_000_000


def under_way(world: LoneMaster) -> dict[int, PartitionRow]:
    return {p: row for p, row in world.rows(ZONE).items() if row.active is not None}


def half_joined() -> LoneMaster:
    """e joined four nodes; some copies for it are under way, each with one MB of two."""
    world = LoneMaster(ZONE, nodes=("a", "b", "c", "d"))
    world.fills = lambda zone, partition, node: node != "e"
    world.connect("e")
    for _ in range(8):
        world.master.retries.succeeded("any", 0, "e")
    world.pass_time(1_000)
    assert len(under_way(world)) >= 6
    for partition in under_way(world):
        world.progress(ZONE, partition, "e", MB, 2 * MB)
    return world


def test_another_join_leaves_what_is_under_way_alone() -> None:
    world = half_joined()
    before = under_way(world)
    world.connect("f")
    world.pass_time(2_000)
    kept = [p for p, row in under_way(world).items() if before.get(p) == row]

    assert len(kept) >= len(before) - 1
    assert world.status(ZONE).bytes_wasted <= MB


def test_what_no_longer_serves_is_cancelled_and_its_bytes_are_counted() -> None:
    world = half_joined()
    before = under_way(world)
    assert world.master.drain("e", True, world.now) == ""
    world.pass_time(1_000)
    status = world.status(ZONE)

    assert under_way(world) == {}
    assert {p: world.rows(ZONE)[p].version - row.version for p, row in before.items()} == (
        dict.fromkeys(before, 2)
    )
    assert status.migrations_cancelled == len(before)
    assert status.migrations_failed == 0
    assert status.bytes_wasted == len(before) * MB
    assert len(world.said("MigrationCancelled")) == len(before)
    assert "the target has changed (to e)" in world.said("MigrationCancelled")[0]
    assert status.migrations_queued == 0


def test_a_cancelled_migration_is_not_held_against_its_destination() -> None:
    world = half_joined()
    count = len(under_way(world))
    world.master.drain("e", True, world.now)
    world.pass_time(1_000)
    world.master.drain("e", False, world.now)
    world.pass_time(1_000)

    assert len(under_way(world)) == count


def test_flapping_wastes_no_more_than_was_under_way_each_time() -> None:
    world = half_joined()
    cycles = 3
    under_way_max = len(under_way(world))
    for _ in range(cycles):
        world.master.drain("e", True, world.now)
        world.pass_time(1_000)
        world.master.drain("e", False, world.now)
        world.pass_time(1_000)
        for partition in under_way(world):
            world.progress(ZONE, partition, "e", MB, 2 * MB)
    status = world.status(ZONE)

    assert 0 < status.bytes_wasted <= cycles * under_way_max * MB
    world.fills = lambda zone, partition, node: True
    world.wait(lambda: world.status(ZONE).migrations_queued == 0 and not under_way(world))
    assert world.status(ZONE).bytes_wasted == status.bytes_wasted


def test_a_migration_whose_ends_are_even_goes_on() -> None:
    world = half_joined()
    before = under_way(world)
    even = next(iter(before))
    world.fills = lambda zone, partition, node: partition == even
    world.mute = lambda node: True
    world.pass_time(200)
    world.master.drain("e", True, world.now)
    world.pass_time(1_000)

    assert under_way(world)[even] == before[even]
    assert not any(p in under_way(world) for p in before if p != even)
    assert world.status(ZONE).migrations_cancelled == len(before) - 1
    world.fills = world.mute = lambda *_: False
    world.pass_time(1_000)
    assert world.rows(ZONE)[even].version >= before[even].version + 1
    assert world.status(ZONE).migrations_cancelled == len(before) - 1


def test_what_a_failed_migration_moved_was_moved_in_vain() -> None:
    world = half_joined()
    count = len(under_way(world))
    world.kill("e")
    world.pass_time(1_000)

    assert world.status(ZONE).bytes_wasted == count * MB
    assert world.status(ZONE).migrations_failed == count


def test_a_store_that_is_gone_for_good_is_let_go_though_its_node_is_wanted_again() -> None:
    world = LoneMaster(ZONE, nodes=("a", "b", "c"))
    world.kill("c")
    world.connect("c", store="new")
    world.wait(lambda: world.status(ZONE).missing_copies == {}, 120_000)

    assert world.status(ZONE).migrations_cancelled == 0


def test_a_store_that_is_gone_for_good_is_let_go_where_only_its_node_is_wanted() -> None:
    """Its reduction was cancelled and begun again, as fast as rows are written."""
    two = ZoneRecord("uid-1", "books", 2, 2)
    world = LoneMaster(two, nodes=("a", "b"))
    world.fills = lambda zone, partition, node: False
    world.master.set_zone(msgspec.structs.replace(two, replicas=1), world.now)
    world.kill("b")
    world.connect("b", store="new")
    world.pass_time(3_000)
    world.fills = lambda zone, partition, node: True
    world.pass_time(10_000)

    assert world.status(two).migrations_cancelled == 0
    assert {row.replicas for row in world.rows(two).values()} == {("a",), ("b",)}


def test_several_stores_that_are_gone_for_good_are_let_go_in_one_step() -> None:
    """Then another loss leaves a majority; with their votes it would leave none."""
    zone = ZoneRecord("uid-1", "books", 2, 5)
    world = LoneMaster(zone, nodes=("a", "b", "c", "d", "e"))
    world.fills = lambda zone, partition, node: node not in ("d", "e")
    world.kill("d", "e")
    world.refused = lambda key: isinstance(key, ShardKey)  # no row before both are known
    world.connect("d", "e", store="new")
    world.refused = lambda key: False
    world.wait(lambda: all(len(row.voters) == 3 for row in world.rows(zone).values()))
    drops = [row.active for _, row in world.started if row.active is not None]
    assert [drop.kind for drop in drops if drop.destination is None] == ["DROP", "DROP"]
    assert any("DROP d, e (" in said for said in world.said("MigrationStarted"))

    world.kill("c")
    world.wait(lambda: world.status(zone).unavailable == 0)

    world.fills = lambda zone, partition, node: True
    world.connect("c")
    world.wait(lambda: world.status(zone).available == 2)
    assert {len(row.voters) for row in world.rows(zone).values()} == {5}


def test_a_commit_that_waits_to_be_written_is_decided_anew_when_its_destination_is_gone() -> None:
    """A shard's rows are written one after the other; meanwhile the newcomer's memory was lost."""
    zone = ZoneRecord("uid-1", "books", 8, 2, StorageKind.IN_MEMORY)
    world = LoneMaster(zone, nodes=("a", "b"))
    world.fills = lambda zone, partition, node: node != "c"
    world.connect("c")
    world.wait(lambda: len(under_way(world)) >= 2)
    first, second = list(under_way(world).values())[:2]

    def end(row: PartitionRow) -> None:
        assert row.primary is not None
        assert row.active is not None
        name, at = row.active.migration_id, row.partition
        even = CaughtUp(zone.uid, at, name, row.version, row.term)
        world.master.receive(row.primary.node, even, world.now)
        world.master.receive("c", Prepared(zone.uid, at, name, row.version + 1, True), world.now)

    end(first)
    held = [(k, v) for k, v in world.master.take_outputs().writes if isinstance(k, ShardKey)]
    assert held
    end(second)
    world.kill("c")
    world.connect("c")
    for key, value in held:
        world.master.written(key, value, world.now)
    world.write()

    row = world.rows(zone)[second.partition]
    assert "c" not in row.voter_nodes
    assert row.version == second.version + 2
