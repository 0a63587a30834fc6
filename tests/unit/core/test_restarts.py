"""A person restarts or erases one copy: the row that follows, and what is refused."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import AgentReport
from quorate.protocol.recovery import Recovery, RecoveryAction, RecoveryAnswer
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 4, 3, scale_up_ms=0)


def restart(
    world: LoneMaster,
    partition: int,
    node: str,
    erase: bool = False,
    dry_run: bool = False,
    zone: ZoneRecord = ZONE,
) -> RecoveryAnswer:
    versions = {partition: world.rows(zone)[partition].version}
    asked = Recovery(RecoveryAction.RESTART, versions, node, erase, dry_run=dry_run)
    answer = world.master.recover(zone.uid, asked, world.now)
    world.write()
    return answer


def refused(answer: RecoveryAnswer) -> str:
    (refusal,) = answer.refusals
    return refusal.partition(": ")[2]


def row_of(world: LoneMaster, partition: int = 1) -> PartitionRow:
    return world.rows(ZONE)[partition]


def test_a_copy_of_a_rebuilt_row_is_not_erased_before_the_row_serves() -> None:
    world = placed_master(ZONE)
    row = row_of(world)
    part = world.master.zones[ZONE.uid].parts[1]
    sets = (row.voters, (*row.voters[:2], Voter("d", "store-d")))
    rebuilt = msgspec.structs.replace(row, sets=sets)
    world.master.zones[ZONE.uid].parts[1] = msgspec.structs.replace(part, row=rebuilt)

    why = refused(restart(world, 1, row.owners[2], erase=True, dry_run=True))

    assert why == "its row is being changed: look again in a moment"


def test_a_backup_restarts_in_a_new_term_of_the_same_primary() -> None:
    world = placed_master(ZONE)
    before = row_of(world)
    primary, other, node = before.owners
    (told,) = restart(world, 1, node, dry_run=True).partitions
    assert told.sentence == (
        f"{primary} would serve in a new term, in which the copy on {node} promises and catches up"
        " anew"
    )
    assert row_of(world) == before

    restart(world, 1, node)

    after = row_of(world)
    assert (after.term, after.primary) == (before.version + 1, before.primary)
    assert (after.owners, after.voters) == ((primary, other), before.voters)
    world.pass_time(2_000)
    assert {*row_of(world).owners} == {*before.owners}
    assert world.said("RowChanged")[-1].startswith(
        f"a person restarted the copy on {node}: {primary} serves in a new term"
    )


def test_a_primary_that_restarts_hands_its_role_to_another_owner() -> None:
    world = placed_master(ZONE)
    node, successor, _ = row_of(world).owners
    restart(world, 1, node)

    assert row_of(world).primary is not None
    assert row_of(world).replicas[0] == successor
    assert node not in row_of(world).owners


@pytest.mark.parametrize("index", [0, 2])
def test_an_erased_copy_is_dropped_although_the_target_names_it_and_made_anew(index: int) -> None:
    world = placed_master(ZONE)
    before = row_of(world)
    node = before.owners[index]
    (told,) = restart(world, 1, node, erase=True, dry_run=True).partitions
    assert told.sentence.startswith(f"the copy on {node} would be dropped")
    world.fills = lambda zone, partition, node: False
    restart(world, 1, node, erase=True)
    world.pass_time(5_000)
    assert row_of(world).active is not None, "it is wanted although the target names the node"
    world.fills = lambda zone, partition, to: to != node
    world.wait(lambda: node not in row_of(world).voter_nodes)
    assert len(row_of(world).voters) == 2
    world.fills = lambda zone, partition, node: True

    world.wait(lambda: node in row_of(world).owners)

    dropped, made = (row.active for _, row in world.started[:2])
    assert dropped is not None
    assert (dropped.kind, dropped.source) == ("DROP", node)
    assert made is not None
    assert made.destination is not None
    assert made.destination.node == node


def test_an_erasure_is_begun_although_the_target_changes_at_the_same_time() -> None:
    world = placed_master(ZONE)
    world.fills = lambda zone, partition, node: False
    _, other, node = row_of(world).owners
    world.master.receive(other, AgentReport(1, leaving=True), world.now)

    restart(world, 1, node, erase=True)

    active = row_of(world).active
    assert active is not None
    assert active.is_erasure


def test_a_copy_that_may_be_the_last_healthy_one_is_not_touched() -> None:
    world = placed_master(ZONE)
    primary, other, node = row_of(world).owners
    world.kill(other)
    world.pass_time(1_000)
    before = row_of(world)

    for erase in (False, True):
        assert refused(restart(world, 1, node, erase)) == (
            "it may be the last healthy copy: the others that are there and own"
            f" ({primary}) are no quorum of {', '.join(before.voter_nodes)}: start agents that are"
            " away, or wait until copies have caught up"
        )
    assert row_of(world) == before


@pytest.mark.parametrize("replicas", [1, 2])
def test_of_one_or_two_copies_none_is_touched(replicas: int) -> None:
    zone = msgspec.structs.replace(ZONE, replicas=replicas)
    world = LoneMaster(zone)
    node = world.rows(zone)[1].owners[0]

    assert "the last healthy copy" in refused(restart(world, 1, node, zone=zone))


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("", "no agent is named: name the one whose copy is to be restarted"),
        ("d", "agent d has no copy of it that votes: name one of "),
        ("b", "agent b is away: its copies catch up when it is started"),
        ("c", "the copy of c is gone for good, and is made anew without that"),
    ],
)
def test_an_agent_without_a_copy_to_restart_is_refused(node: str, why: str) -> None:
    world = placed_master(ZONE)
    world.connect("d")
    world.fills = lambda zone, partition, node: False
    world.kill("b", "c")
    world.connect("c", store="other")
    partition = next(p for p, row in world.rows(ZONE).items() if "d" not in row.voter_nodes)

    assert refused(restart(world, partition, node)).startswith(why)


def test_a_running_migration_is_not_broken_off() -> None:
    world = placed_master(ZONE)
    world.fills = lambda zone, partition, node: False
    world.connect("d")
    world.wait(lambda: len(world.status(ZONE).migrations) > 0)
    moving = world.status(ZONE).migrations[0].partition

    assert refused(restart(world, moving, row_of(world, moving).owners[0])) == (
        "a migration is running: wait for its end, or cancel it first"
    )
