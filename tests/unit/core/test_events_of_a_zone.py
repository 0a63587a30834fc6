"""What the master tells of migrations, of lost partitions and of a zone that is in its place."""

from pathlib import Path

from quorate.facts.partition_row import committed_row
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.events import MEANINGS, Event, Reason
from quorate.protocol.messages.master import AgentReport, AsideReport, CopyReport, Inventory
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-1", "books", 8, 2)
GOES_WELL = [
    Reason.MIGRATION_STARTED,
    Reason.MIGRATION_CAUGHT_UP,
    Reason.MIGRATION_SWITCHED,
    Reason.MIGRATION_FINISHED,
]
OF_MIGRATIONS = {reason for reason in Reason if reason.value.startswith("Migration")}


def _by_partition(events: list[Event]) -> dict[int, list[Reason]]:
    found: dict[int, list[Reason]] = {}
    for event in events:
        if event.partition is not None and event.reason in OF_MIGRATIONS:
            found.setdefault(event.partition, []).append(event.reason)
    return found


def test_a_new_zone_is_told_of_and_nothing_is_said_to_have_moved() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(3_000)
    assert world.said(Reason.ZONE_CREATED) == ["8 partitions of 2 copies"]
    assert sorted(world.said(Reason.NODE_JOINED)) == [f"{node} joined" for node in "abc"]
    assert world.said(Reason.ZONE_REBALANCED) == []
    assert _by_partition(world.events) == {}


def test_an_agent_joins_and_each_migration_is_told_step_by_step_until_the_zone_is_rebalanced() -> (
    None
):
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.events.clear()
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.ZONE_REBALANCED)))
    told = _by_partition(world.events)
    assert told
    for steps in told.values():
        # A partition may need several migrations; each of them is told whole.
        assert steps == GOES_WELL * (len(steps) // len(GOES_WELL))
    assert world.status(ZONE).migrations_done == sum(len(s) for s in told.values()) // 4
    assert world.events[-1].reason is Reason.ZONE_REBALANCED
    world.pass_time(5_000)
    assert len(world.said(Reason.ZONE_REBALANCED)) == 1


def test_a_migration_names_its_ends_and_the_partition_of_its_row() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.ZONE_REBALANCED)))
    first = next(e for e in world.events if e.reason is Reason.MIGRATION_STARTED)
    assert first.zone == ZONE.uid
    assert first.message.endswith(f"(books/{first.partition}/2)")
    assert " > d " in first.message


def test_what_an_agent_repeats_is_told_once() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.mute = lambda node: node == "d"
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.MIGRATION_CAUGHT_UP)))
    world.pass_time(1_000)  # every step of it, the primary says again that it is even
    for steps in _by_partition(world.events).values():
        assert steps == GOES_WELL[:2]


def test_a_migration_whose_destination_leaves_is_reverted_and_has_failed() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.events.clear()
    world.fills = lambda zone, partition, node: node != "d"
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.MIGRATION_STARTED)))
    under_way = set(_by_partition(world.events))
    world.kill("d")
    world.pass_time(2_000)
    told = _by_partition(world.events)
    for partition in under_way:
        assert told[partition][:3] == [
            Reason.MIGRATION_STARTED,
            Reason.MIGRATION_REVERTED,
            Reason.MIGRATION_FAILED,
        ]
    assert all("d left" in said for said in world.said(Reason.MIGRATION_REVERTED))


def test_a_migration_that_leads_nowhere_any_more_is_reverted_and_cancelled() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.fills = lambda zone, partition, node: node != "d"
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.MIGRATION_STARTED)))
    world.events.clear()
    assert world.master.drain("d", True, world.now) == ""
    world.wait(lambda: bool(world.said(Reason.MIGRATION_CANCELLED)))
    assert len(world.said(Reason.MIGRATION_REVERTED)) == len(world.said(Reason.MIGRATION_CANCELLED))
    assert world.said(Reason.MIGRATION_FAILED) == []


def test_another_master_goes_on_with_what_it_finds_under_way() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.fills = lambda zone, partition, node: node != "d"
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.MIGRATION_STARTED)))
    under_way = set(_by_partition(world.events))

    world.events.clear()
    world.fills = lambda zone, partition, node: True
    world.master = Master(2, DEFAULTS, world.now)
    world.master.load(dict(world.stored), world.now)
    world.connect("a", "b", "c", "d")
    world.wait(lambda: bool(world.said(Reason.ZONE_REBALANCED)))

    told = _by_partition(world.events)
    for partition in under_way:
        assert told[partition][0] is Reason.MIGRATION_REVERTED
    for steps in told.values():
        begun = steps.count(Reason.MIGRATION_STARTED)
        assert begun == steps.count(Reason.MIGRATION_FINISHED)
    assert world.said(Reason.ZONE_CREATED) == []
    # Neither end is to blame for the change of masters.
    assert world.said(Reason.MIGRATION_FAILED) == []
    retries = world.master.retries
    assert not any(retries.is_held_back(ZONE.uid, p, "d", world.ms) for p in under_way)


def test_another_master_tells_of_a_commit_that_it_finds_as_of_any_other() -> None:
    world = LoneMaster(ZONE)
    world.pass_time(2_000)
    world.mute = lambda node: node == "d"  # it stores the row and says nothing
    world.connect("d")
    world.wait(lambda: bool(world.said(Reason.MIGRATION_CAUGHT_UP)))
    rows = [row for row in world.rows(ZONE).values() if row.active is not None]

    world.events.clear()
    world.same_processes = True
    world.follow()
    world.connect("a", "b", "c")
    world.master.agent_connected(world.hello("d", 1), world.now)
    told = tuple(
        CopyReport(
            row.partition,
            row.version,
            committed_row(row),
            row.active.migration_id,
            row.term,
            0,
            0,
            True,
        )
        for row in rows
        if row.active is not None
    )
    world.master.receive("d", Inventory(ZONE.uid, told, last=False), world.now)
    world.master.receive("d", Inventory("", ()), world.now)
    world.pass_time(200)
    switched = [e.partition for e in world.events if e.reason is Reason.MIGRATION_SWITCHED]
    assert sorted(switched) == [row.partition for row in rows]
    assert world.said(Reason.ROW_CHANGED) == []


def test_partitions_whose_stores_are_all_gone_are_told_as_lost_once_each() -> None:
    world = LoneMaster(ZONE, nodes=("a", "b"))
    world.pass_time(2_000)
    world.kill("a", "b")
    for node in ("a", "b"):
        world.connect(node, store=f"other-{node}")
    world.pass_time(5_000)
    lost = [event for event in world.events if event.reason is Reason.PARTITION_LOST]
    assert sorted(event.partition or 0 for event in lost) == list(range(8))
    assert {event.kind for event in lost} == {"Warning"}
    assert "(a, b)" in lost[0].message or "(b, a)" in lost[0].message


def test_a_partition_that_is_merely_without_primary_is_not_lost() -> None:
    world = LoneMaster(ZONE, nodes=("a", "b"))
    world.pass_time(2_000)
    world.kill("a", "b")
    world.pass_time(20_000)
    assert world.said(Reason.PARTITION_LOST) == []


def test_an_agent_without_room_is_told_of_once_and_so_is_its_end() -> None:
    world = LoneMaster(ZONE)
    world.events.clear()
    for _ in range(3):
        world.master.receive("b", AgentReport(1, full={"uid-1": "/data: 0 bytes left"}), world.now)
        assert world.status(ZONE).full == {"b": "/data: 0 bytes left"}
    world.write()
    assert world.said(Reason.STORAGE_FULL) == ["agent b: /data: 0 bytes left"]
    assert world.said(Reason.STORAGE_HAS_ROOM) == []
    world.pass_time(1_000)  # its next reports are without it
    assert world.status(ZONE).full == {}
    assert world.said(Reason.STORAGE_FULL) == ["agent b: /data: 0 bytes left"]
    assert world.said(Reason.STORAGE_HAS_ROOM) == ["agent b has room again"]


def test_of_an_agent_that_has_left_nobody_knows_whether_it_has_room() -> None:
    world = LoneMaster(ZONE)
    world.master.receive("b", AgentReport(1, full={"uid-1": "/data: 0 bytes left"}), world.now)
    world.kill("b")
    assert world.status(ZONE).full == {}


def test_rows_that_agents_have_set_aside_are_counted_and_told_when_dropped_early() -> None:
    world = LoneMaster(ZONE)
    world.events.clear()
    for dropped in (1, 1, 3, 0, 1):  # a new process of the agent counts anew
        report = AgentReport(1, aside={"uid-1": AsideReport(2, 900, dropped)})
        world.master.receive("b", report, world.now)
        assert world.status(ZONE).aside == {"b": (2, 900)}
    world.write()
    assert [said[:36] for said in world.said(Reason.ASIDE_DROPPED)] == [
        f"agent b has dropped rows of {count} copies" for count in (1, 2, 1)
    ]
    world.kill("b")
    assert world.status(ZONE).aside == {}


def test_the_catalogue_is_in_the_documents_word_by_word() -> None:
    text = (Path(__file__).parents[3] / "docs" / "events.md").read_text()
    for reason in Reason:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{reason.value}` |"))
        assert row.endswith(f"| {MEANINGS[reason]} |")
