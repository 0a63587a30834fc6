"""A person resets partitions without a quorum: to which copy, what is lost, and what is refused."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import NEVER_MS, ConsistencyMode, ZoneRecord
from quorate.protocol.messages.master import CopyReport, CopySummaries
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate_lone_master.world import LoneMaster, moving_master, placed_master

STRONG = ZoneRecord("uid-1", "books", 4, 3)
HIGH = msgspec.structs.replace(STRONG, mode=ConsistencyMode.HIGH_AVAILABILITY, reset_ms=NEVER_MS)


def reset(
    world: LoneMaster,
    *partitions: int,
    node: str = "",
    dry_run: bool = False,
    version: int = 0,
    zone: ZoneRecord = STRONG,
) -> RecoveryAnswer:
    """Reset partitions, named with their present rows unless a `version` is given."""
    rows = world.rows(zone)
    versions = {p: version or (rows[p].version if p in rows else 1) for p in partitions}
    asked = Recovery(RecoveryAction.RESET, versions, node, dry_run=dry_run)
    answer = world.master.recover(zone.uid, asked, world.now)
    world.write()
    return answer


def narrowed(zone: ZoneRecord = STRONG, *left: str) -> LoneMaster:
    """Agents have left, all but one if they are not named, and it was noticed."""
    world = placed_master(zone)
    world.kill(*(left or ("b", "c")))
    world.pass_time(1_000)
    return world


def refused(answer: RecoveryAnswer, partition: int) -> str:
    (refusal,) = answer.refusals
    about, _, why = refusal.partition(": ")
    assert (about, answer.partitions) == (f"zone books, partition {partition}", ())
    return why


def led_by(rows: dict[int, PartitionRow], node: str) -> int:
    """The first partition whose primary is on that node."""
    return next(p for p, row in rows.items() if row.replicas[0] == node)


def test_a_reset_is_no_failover() -> None:
    world = narrowed()
    before, counted = world.rows(STRONG), world.status(STRONG).failovers

    reset(world, *before)

    after = world.rows(STRONG)
    assert any(before[p].primary != row.primary is not None for p, row in after.items())
    assert {row.voter_nodes for row in after.values()} == {("a",)}
    assert world.status(STRONG).failovers == counted


def test_in_a_strong_zone_nothing_is_reset_before_a_person_decides_it() -> None:
    world = narrowed()
    world.pass_time(60_000)
    assert all(row.reset is None for row in world.rows(STRONG).values())
    before = world.rows(STRONG)

    answer = reset(world, 1, 2)

    assert [(each.partition, each.version) for each in answer.partitions] == [
        (1, before[1].version),
        (2, before[2].version),
    ]
    for partition, row in world.rows(STRONG).items():
        if partition not in (1, 2):
            assert row == before[partition]
            continue
        assert row.voter_nodes == ("a",)
        assert row.reset is not None
        assert (row.reset.term, row.term) == (row.version, row.version)
        assert {voter.node for voter in row.reset.others} == {"b", "c"}
    assert "2 partitions from 1 on lost the majority" in world.status(STRONG).data_loss
    (said,) = world.said("DataLossAccepted")
    assert "2 partitions from 1 on" in said
    assert "as a person decided: acknowledged writes that only the others had are lost" in said


def test_those_that_return_vote_again_and_what_the_reset_left_is_let_go() -> None:
    world = narrowed()
    reset(world, *range(4))
    world.same_processes = True
    world.connect("b", "c")
    world.wait(lambda: world.status(STRONG).available == 4)
    world.pass_time(1_000)

    for row in world.rows(STRONG).values():
        assert {*row.voter_nodes} == {"a", "b", "c"}
        assert row.left_by_reset == ()
    assert world.status(STRONG).data_loss == ""


def test_copies_on_removed_agents_are_given_up_once_the_partition_is_whole() -> None:
    zone = msgspec.structs.replace(STRONG, scale_down_ms=5_000)
    world = narrowed(zone)
    reset(world, *range(4))
    world.connect("d", "e")
    world.wait(lambda: all(row.left_by_reset == () for row in world.rows(zone).values()))

    assert all({*row.voter_nodes} == {"a", "d", "e"} for row in world.rows(zone).values())


def test_a_dry_run_names_the_copies_and_what_may_be_lost_and_changes_nothing() -> None:
    world = placed_master(STRONG)
    partition = led_by(world.rows(STRONG), "b")
    row = world.rows(STRONG)[partition]
    world.serves = lambda node: False
    world.kill("b", "c")
    world.connect("c", store="other")
    world.pass_time(5_000)
    for node, lwm in (("a", 240), ("b", 245), ("c", 238)):
        world.master.agents[node].inventory[STRONG.uid] = {}
        tell(world, node, row, lwm)
    before = world.rows(STRONG)

    answer = reset(world, partition, dry_run=True)

    at = f"at term {row.term}, counter"
    fates = standing(row, {"a": "is there", "b": "left 5 s ago", "c": "is gone for good"})
    others = standing(row, {"b": f"{at} 245", "c": f"{at} 238"})
    assert answer.refusals == ()
    assert answer.partitions[0].sentence == (
        f"{fates}; it would narrow to a (its primary, {at} 240): of the others: {others}; at least"
        " 5 updates are lost, and every write that was acknowledged without it after these"
        " reports, which can be a minute old, is lost"
    )
    assert world.rows(STRONG) == before


def tell(world: LoneMaster, node: str, row: PartitionRow, lwm: int) -> None:
    """The agent's last report on the partition's copy."""
    told = CopyReport(row.partition, row.version, None, "", row.term, lwm, lwm, True)
    world.master.agents[node].inventory[STRONG.uid][row.partition] = told


def standing(row: PartitionRow, told: dict[str, str]) -> str:
    return ", ".join(f"{node} {told[node]}" for node in row.voter_nodes if node in told)


def test_where_the_primary_is_there_nothing_is_lost() -> None:
    world = narrowed()
    mine = led_by(world.rows(STRONG), "a")
    sentence = reset(world, mine, dry_run=True).partitions[0].sentence

    assert "it would narrow to a (its primary, " in sentence
    assert sentence.endswith(": the primary is there, and has every acknowledged write")


def test_the_primary_is_chosen_before_others_whose_reports_are_newer() -> None:
    zone = msgspec.structs.replace(STRONG, replicas=5)
    world = LoneMaster(zone, nodes=("a", "b", "c", "d", "e"))
    partition = led_by(world.rows(zone), "d")
    world.kill("a", "b", "c")
    world.pass_time(5_000)
    world.master.agents["e"].inventory[zone.uid] = {}
    tell(world, "e", world.rows(zone)[partition], 500)
    answer = reset(world, partition)

    assert answer.refusals == ()
    assert world.rows(zone)[partition].voter_nodes == ("d",)


def test_the_copy_that_is_named_is_the_one() -> None:
    zone = msgspec.structs.replace(STRONG, replicas=5)
    world = LoneMaster(zone, nodes=("a", "b", "c", "d", "e"))
    world.kill("a", "b", "c")
    world.pass_time(5_000)
    for node in "de":
        reset(world, 0 if node == "d" else 1, node=node)

    assert [world.rows(zone)[p].voter_nodes for p in (0, 1)] == [("d",), ("e",)]


def test_high_availability_is_reset_at_once_and_what_an_owner_has_is_all() -> None:
    world = narrowed(HIGH)
    others = next(p for p, row in world.rows(HIGH).items() if row.replicas[0] != "a")
    dry = reset(world, others, dry_run=True, zone=HIGH).partitions[0].sentence
    reset(world, others, zone=HIGH)

    assert dry.endswith(": it was an owner, so it has every acknowledged write")
    assert world.rows(HIGH)[others].voter_nodes == ("a",)
    assert world.said("DataLossAccepted")[0].endswith("every acknowledged write")


def test_a_partition_with_a_quorum_is_not_reset() -> None:
    world = narrowed(STRONG, "c")
    before = world.rows(STRONG)

    assert "a quorum of its voters is there (a, b of " in refused(reset(world, 2), 2)
    assert world.rows(STRONG) == before


def test_one_refusal_refuses_the_whole() -> None:
    world = narrowed()
    before = world.rows(STRONG)
    answer = reset(world, 1, 9)

    assert answer == RecoveryAnswer(
        refusals=("zone books, partition 9: there is none: write a number from 0 to 3",)
    )
    assert world.rows(STRONG) == before


def test_a_row_that_has_changed_refuses_and_says_how_it_is() -> None:
    world = narrowed()
    version = world.rows(STRONG)[1].version
    reset(world, 1)
    row = world.rows(STRONG)[1]

    assert refused(reset(world, 1, version=version), 1) == (
        f"its row has changed: it is at version {row.version}, and version {version} was named;"
        " primary a, voters a, no migration is running; look again"
    )


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("x", "there is no agent x: name one of a, b, c, d"),
        ("d", "agent d holds no copy of it: name one of "),
        ("b", "the copy of b is not there: start that agent, or name another"),
        ("c", "the copy of c is gone for good: it has another store now; name another"),
    ],
)
def test_a_node_that_cannot_be_the_survivor_is_refused(node: str, why: str) -> None:
    world = narrowed()
    world.connect("c", store="other")
    world.connect("d")
    before = world.rows(STRONG)

    assert refused(reset(world, 1, node=node), 1).startswith(why)
    assert world.rows(STRONG)[1].voters == before[1].voters


def test_without_any_copy_there_is_nothing_to_narrow_to() -> None:
    world = narrowed(STRONG, "a", "b", "c")
    holders = ", ".join(world.rows(STRONG)[1].voter_nodes)
    assert refused(reset(world, 1), 1) == f"none of its copies is there: start one of {holders}"

    for node in "abc":
        world.connect(node, store=f"other-{node}")
    assert "gone for good: it can be reopened without data" in refused(reset(world, 1), 1)


def test_a_copy_that_a_reset_left_can_be_named_when_the_survivor_is_away() -> None:
    world = narrowed()
    reset(world, 1)
    world.kill("a")
    world.same_processes = True
    world.connect("b")
    world.pass_time(1_000)
    assert "b, left by a reset, is there" in reset(world, 1, dry_run=True).partitions[0].sentence
    reset(world, 1, node="b")

    row = world.rows(STRONG)[1]
    assert row.voter_nodes == ("b",)
    assert {voter.node for voter in row.left_by_reset} == {"a", "c"}


def test_a_new_master_waits_for_the_agents_to_greet() -> None:
    world = narrowed()
    world.follow()
    world.connect("a")
    assert "has only begun to lead" in refused(reset(world, 1), 1)

    world.pass_time(world.settings.failure_detection_ms + 1_000)

    assert reset(world, 1).refusals == ()


def test_a_migration_that_was_found_is_looked_into_first() -> None:
    zone = msgspec.structs.replace(STRONG, scale_up_ms=0)
    world = placed_master(zone)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.wait(lambda: len(world.status(zone).migrations) > 0)
    moving = world.status(zone).migrations[0].partition
    part = world.master.zones[zone.uid].parts[moving]
    world.kill("b", "c")
    world.pass_time(1_000)
    found = msgspec.structs.replace(part, resolved=False)
    world.master.zones[zone.uid].parts[moving] = found

    why = refused(reset(world, moving, version=part.row.version), moving)
    assert why == "it is being found out whether its migration was committed: try again"


@pytest.mark.parametrize("mode", list(ConsistencyMode))
def test_a_new_master_narrows_what_was_moving_once_all_who_are_there_have_told(
    mode: ConsistencyMode,
) -> None:
    zone = msgspec.structs.replace(STRONG, mode=mode, reset_ms=5_000)
    world, moving = moving_master(zone)
    world.follow()
    world.same_processes = True

    world.connect("a", "d")
    world.pass_time(world.settings.failure_detection_ms + 30_000)

    if mode is ConsistencyMode.STRONG_CONSISTENCY:
        assert world.rows(zone)[moving.partition] == moving
        assert reset(world, moving.partition, zone=zone).refusals == ()
    row = world.rows(zone)[moving.partition]
    assert (row.voter_nodes, row.active) == (("a",), None)
    assert {voter.node for voter in row.left_by_reset} == {"b", "c", "d"}


def test_a_destination_that_is_complete_can_be_named_when_a_new_master_finds_no_quorum() -> None:
    world, moving = moving_master(STRONG)
    world.follow()
    world.same_processes = True
    world.connect("a", "d")
    world.tell_prepared(STRONG, moving)
    world.pass_time(world.settings.failure_detection_ms + 30_000)

    said = refused(reset(world, moving.partition), moving.partition)
    assert said.startswith("d has everything, and a migration was about to make it a voter")
    assert reset(world, moving.partition, node="d").refusals == ()
    row = world.rows(STRONG)[moving.partition]
    assert (row.voter_nodes, row.active) == (("d",), None)
    assert {voter.node for voter in row.left_by_reset} == {"a", "b", "c"}


def test_the_summaries_are_what_a_copy_is_known_to_have() -> None:
    world = narrowed()
    row = world.rows(STRONG)[0]
    world.master.agents["a"].inventory[STRONG.uid] = {}
    tell(world, "a", row, 5)
    world.master.receive("a", CopySummaries(STRONG.uid, ((0, 10, row.term, 77),)), world.now)

    assert f"term {row.term}, counter 77" in reset(world, 0, dry_run=True).partitions[0].sentence


def test_nothing_is_reset_while_an_agent_would_delete_what_the_reset_leaves() -> None:
    world = placed_master(STRONG, nodes=("a", "b", "c", "d"))
    world.kill("b", "c", "d")
    old = world.rows(STRONG)[0].voter_nodes[0]
    world.kill("a")
    world.formats[old] = 3
    world.connect(old)
    world.pass_time(1_000)

    why = refused(reset(world, 0), 0)

    assert why == f"{old} would delete what the reset leaves: upgrade them first"
    world.kill(old)
    del world.formats[old]
    world.connect(old)
    world.pass_time(1_000)
    assert reset(world, 0).refusals == ()
    left = world.rows(STRONG)[0].left_by_reset[0].node
    world.formats[left] = 3
    refusal = world.master.refusal(world.hello(left, 9))
    assert refusal is not None
    assert "needs frame format 4; it speaks 3" in refusal.reason
