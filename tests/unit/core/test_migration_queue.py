"""Migrations of all zones wait in one queue: its order, its limits, losses, failed destinations."""

from itertools import pairwise

import msgspec

from quorate.facts.partition_row import Migration, PartitionRow
from quorate.facts.zone import NEVER_MS, SCALE_DOWN_MS, ZoneRecord
from quorate.planning.queue.retries import FIRST_WAIT_MS
from quorate.protocol.messages.master import AgentReport
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster, placed_master

BOOKS = ZoneRecord("uid-1", "books", 32, 2)
SHOPS = ZoneRecord("uid-2", "shops", 32, 2)
DELAY_MS = 10_000
WIDE = ZoneRecord("uid-3", "wide", 64, 3, scale_down_ms=DELAY_MS)


def active(world: LoneMaster, *zones: ZoneRecord) -> list[tuple[PartitionRow, Migration]]:
    return [
        (row, row.active)
        for zone in zones
        for row in world.rows(zone).values()
        if row.active is not None
    ]


def to(world: LoneMaster, node: str, *zones: ZoneRecord) -> list[int]:
    """Partitions under way to a node."""
    return [
        row.partition
        for row, migration in active(world, *zones)
        if migration.destination is not None and migration.destination.node == node
    ]


def target_of(world: LoneMaster, zone: ZoneRecord) -> tuple[tuple[str, ...], ...]:
    return world.master.zones[zone.uid].target or ()


def voted_by(rows: dict[int, PartitionRow], node: str) -> list[int]:
    """Partitions of which a node has a vote."""
    return [partition for partition, row in rows.items() if node in row.voter_nodes]


def _copies(row: PartitionRow) -> bool:
    assert row.active is not None
    return any(voter not in row.voters for voter in row.active.voters)


def trust(world: LoneMaster, node: str) -> None:
    """As it is after many transfers to the node."""
    for _ in range(8):
        world.master.retries.succeeded("any", 0, node)


def joined(*zones: ZoneRecord, limit: int = 4) -> LoneMaster:
    """Three nodes hold the zones, a fourth one joins and is not even with anything."""
    settings = msgspec.structs.replace(DEFAULTS, migrations_per_node=limit)
    world = LoneMaster(*zones, settings=settings)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    trust(world, "d")
    world.pass_time(1_000)
    return world


def test_the_limit_of_a_node_holds_for_all_zones_together() -> None:
    world = joined(BOOKS, SHOPS)

    assert len(to(world, "d", BOOKS, SHOPS)) == 4


def test_a_new_node_is_not_given_more_than_two_at_once() -> None:
    world = LoneMaster(BOOKS)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.pass_time(1_000)

    assert len(to(world, "d", BOOKS)) == 2


def test_the_limit_of_a_zone_leaves_room_to_others() -> None:
    settings = msgspec.structs.replace(DEFAULTS, migrations_per_zone=1)
    world = LoneMaster(BOOKS, SHOPS, settings=settings)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.pass_time(1_000)

    assert len(active(world, BOOKS)) == len(active(world, SHOPS)) == 1


def test_the_zone_whose_copies_are_smaller_comes_first() -> None:
    world = LoneMaster(BOOKS, SHOPS)
    world.fills = lambda zone, partition, node: False
    for node in ("a", "b", "c"):
        world.report(node, {BOOKS.uid: 5_000, SHOPS.uid: 100})
    world.connect("d")
    world.pass_time(1_000)

    assert len(to(world, "d", SHOPS)) == 2
    assert to(world, "d", BOOKS) == []


def test_bytes_under_way_are_limited_by_what_agents_tell_of_their_copies() -> None:
    settings = msgspec.structs.replace(DEFAULTS, migration_bytes_per_node=1_500)
    world = LoneMaster(BOOKS, settings=settings)
    world.fills = lambda zone, partition, node: False
    for node in ("a", "b", "c"):
        world.report(node, {BOOKS.uid: 1_000})
    world.connect("d")
    world.pass_time(1_000)

    assert len(to(world, "d", BOOKS)) == 1


def test_a_loss_pauses_moves_for_balance_until_it_is_repaired() -> None:
    world = LoneMaster(WIDE, nodes=("a", "b", "c", "d"))
    world.fills = lambda zone, partition, node: False
    world.connect("e")
    trust(world, "e")
    world.pass_time(1_000)
    running = to(world, "e", WIDE)
    began = len(world.started)
    world.kill("a")
    world.fills = lambda zone, partition, node: True
    world.pass_time(DELAY_MS - 1_000)
    moves = [row.active.source for _, row in world.started[began:] if row.active and _copies(row)]
    rows = world.rows(WIDE)

    assert [p for p in running if "e" in rows[p].voter_nodes], "what runs goes on"
    assert set(moves) <= {"a"}, "nothing leaves who has a copy"
    assert sum("e" in owners for owners in target_of(world, WIDE)) > len(voted_by(rows, "e"))

    world.pass_time(30_000)
    assert voted_by(world.rows(WIDE), "a") == []
    assert world.status(WIDE).migrations_queued == 0
    assert world.status(WIDE).phase == "Available"


def test_a_repair_that_keeps_failing_does_not_pause_moves_for_ever() -> None:
    world = LoneMaster(
        ZoneRecord("uid-1", "books", 32, 3, scale_down_ms=DELAY_MS), nodes=("a", "b", "c", "f")
    )
    world.refuses = lambda node: node == "d"
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.kill("a")
    world.pass_time(DELAY_MS + 1_000)
    world.fills = lambda zone, partition, node: True
    world.connect("e")
    world.pass_time(20_000)

    moved = [row.active for _, row in world.started if row.active and _copies(row)]
    assert [m for m in moved if m.source in ("b", "c", "f") and _named(m) == ["e"]]


def test_what_failed_waits_longer_each_time_and_per_destination() -> None:
    zone = ZoneRecord("uid-1", "books", 1, 3, scale_down_ms=DELAY_MS)
    world = LoneMaster(zone, nodes=("a", "b", "e"))
    world.refuses = lambda node: node == "c"
    world.connect("c")
    world.kill("b")
    world.pass_time(DELAY_MS)
    times = []
    for _ in range(40 * FIRST_WAIT_MS // 100):
        before = len(world.started)
        world.pass_time(100)
        if len(world.started) > before:
            times.append(world.ms)

    pauses = [after - before for before, after in pairwise(times)]
    assert [round(pause / FIRST_WAIT_MS) for pause in pauses[:3]] == [2, 4, 8]
    (stuck,) = world.status(zone).stuck
    assert (stuck.partition, stuck.destination) == (0, "c")
    assert stuck.attempts == len(times) + 1, "one failed before it was counted"
    assert "failed: the destination refused the prepared row" in stuck.why

    world.refuses = lambda node: False
    world.connect("d")  # another destination for the same partition does not wait
    world.pass_time(2_000)
    world.connect("c")  # a new process: it is tried at once
    world.pass_time(2_000)
    assert world.status(zone).missing_copies == {}
    assert world.status(zone).stuck == ()


def seconds_until_replaced(failing: str) -> float:
    """Ten spares take what a lost node had; `failing` never is even."""
    zone = ZoneRecord("uid-1", "books", 256, 3, scale_down_ms=DELAY_MS)
    spares = tuple(f"s{at}" for at in range(10))
    world = LoneMaster(zone, nodes=("a", "b", "c", *spares))
    world.fills = lambda uid, partition, node: node != failing
    world.kill("a")
    begun = world.ms

    def others_are_done() -> bool:
        left = [
            row
            for row in world.rows(zone).values()
            if len(row.owners) < 3 and (row.active is None or failing not in _named(row.active))
        ]
        waits = [row for row in left if failing not in _wanted(world, zone, row)]
        return world.ms - begun > DELAY_MS and not waits

    world.wait(others_are_done, 300_000)
    return (world.ms - begun - DELAY_MS) / 1000


def _named(migration: Migration) -> list[str]:
    return [migration.destination.node] if migration.destination is not None else []


def _wanted(world: LoneMaster, zone: ZoneRecord, row: PartitionRow) -> tuple[str, ...]:
    return target_of(world, zone)[row.partition]


def test_one_destination_of_ten_that_fails_delays_the_others_by_less_than_a_twentieth() -> None:
    well = seconds_until_replaced("nobody")
    one_fails = seconds_until_replaced("s3")

    assert one_fails <= max(1.05 * well, well + 0.1)


def test_no_copy_is_begun_on_a_node_without_room_until_it_has_some() -> None:
    """What has begun goes on, and so does the other zone."""
    world = LoneMaster(BOOKS, SHOPS)
    world.connect("d")
    begun = set(to(world, "d", BOOKS)) | set(voted_by(world.rows(BOOKS), "d"))
    world.full["d"] = {BOOKS.uid: "/data: 0 MiB left on the disk"}
    world.master.receive("d", AgentReport(1, full=world.full["d"]), world.now)
    world.wait(lambda: len(voted_by(world.rows(SHOPS), "d")) == 16)
    world.pass_time(5_000)

    assert set(voted_by(world.rows(BOOKS), "d")) == begun
    assert len(begun) < 16
    assert world.status(BOOKS).full == {"d": "/data: 0 MiB left on the disk"}

    del world.full["d"]
    world.wait(lambda: len(voted_by(world.rows(BOOKS), "d")) == 16)


def test_a_drain_does_not_wait_for_an_agent_that_is_waited_for_for_ever() -> None:
    zone = ZoneRecord("uid-1", "books", 16, 3, scale_down_ms=NEVER_MS)
    world = placed_master(zone, nodes=tuple("abcde"))
    world.kill("a")
    world.pass_time(5_000)
    owning = {p: len(row.owners) for p, row in world.rows(zone).items()}
    assert world.master.drain("b", True, world.now) == ""

    for _ in range(120):
        world.pass_time(500)
        rows = world.rows(zone)
        assert all(len(rows[p].owners) >= count for p, count in owning.items())
        assert all(len(row.voters) == 3 for row in rows.values())

    assert voted_by(world.rows(zone), "b") == []
    assert voted_by(world.rows(zone), "a"), "what it has counts when it is back"
    world.connect("a")
    world.pass_time(30_000)
    assert world.status(zone).phase == "Available"


def test_moves_for_balance_wait_during_a_drain_beside_a_loss() -> None:
    """The newcomer gets what the lost and the drained agent had, and nothing else."""
    zone = ZoneRecord("uid-1", "books", 32, 3, scale_down_ms=NEVER_MS)
    world = placed_master(zone, nodes=tuple("abcd"))
    world.kill("a")
    world.pass_time(5_000)
    world.connect("e")
    world.pass_time(5_000)
    before = world.rows(zone)
    moves = sum("e" in owners for owners in target_of(world, zone)) - len(voted_by(before, "e"))
    assert moves > 10, "they wait"
    assert world.master.drain("b", True, world.now) == ""
    world.pass_time(60_000)

    after = world.rows(zone)
    assert voted_by(after, "b") == []
    for node in "cd":
        assert {*voted_by(before, node)} <= {*voted_by(after, node)}


def stuck_to(destination: str, scale_down_ms: int = SCALE_DOWN_MS) -> tuple[LoneMaster, ZoneRecord]:
    """Moves to a newcomer fail until they count as stuck."""
    zone = ZoneRecord("uid-1", "books", 4, 3, scale_down_ms=scale_down_ms)
    world = placed_master(zone, nodes=tuple("abc"))
    world.refuses = lambda node: node == destination
    world.connect(destination)
    world.wait(lambda: bool(world.status(zone).stuck))
    return world, zone


def test_a_move_that_is_not_wanted_any_more_is_not_stuck() -> None:
    world, zone = stuck_to("d")
    assert world.master.drain("d", True, world.now) == ""
    world.pass_time(1_000)
    assert world.status(zone).stuck == ()

    assert world.master.drain("d", False, world.now) == ""
    world.wait(lambda: bool(world.status(zone).stuck), 120_000)


def test_an_unwanted_move_is_not_stuck_either_where_another_copy_is_waited_for() -> None:
    world, zone = stuck_to("d")
    world.kill("a")
    world.pass_time(5_000)
    assert world.status(zone).stuck
    assert world.master.drain("d", True, world.now) == ""
    world.pass_time(1_000)

    assert world.status(zone).stuck == ()


def test_a_move_to_an_agent_that_is_away_for_a_moment_stays_stuck() -> None:
    world, zone = stuck_to("d")
    world.kill("d")
    world.pass_time(5_000)
    (stuck,) = world.status(zone).stuck
    world.pass_time(60_000)
    assert world.status(zone).stuck == (stuck,)


def test_an_agent_that_is_no_data_node_for_a_moment_is_not_tried_anew_when_it_is_back() -> None:
    world, zone = stuck_to("d", scale_down_ms=0)
    world.wait(lambda: min(each.attempts for each in world.status(zone).stuck) >= 6, 120_000)
    stuck, started = world.status(zone).stuck, len(world.started)
    world.same_processes = True
    world.kill("d")
    world.pass_time(1_000)
    assert world.status(zone).stuck == (), "nothing is to be moved to it now"

    world.connect("d")
    world.pass_time(1_000)

    assert world.status(zone).stuck == stuck
    assert len(world.started) == started

    world.kill("d")
    world.pass_time(1_000)
    assert world.master.drain("d", True, world.now) == ""
    world.pass_time(1_000)
    assert world.master.drain("d", False, world.now) == ""
    world.connect("d")
    world.pass_time(1_000)

    assert len(world.started) > started, "a drain ends what failed"
