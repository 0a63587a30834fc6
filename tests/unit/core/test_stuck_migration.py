"""A primary whose lease has lapsed while a migration is active: perhaps only its destination is
silent, so the migration is given up before another primary is chosen."""

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate_lone_master.world import LoneMaster, moving_master

ZONE = ZoneRecord("uid-1", "books", 6, 3)


def say_stuck(world: LoneMaster, row: PartitionRow) -> PartitionRow:
    """The primary has had no quorum for some time; return the row that follows."""
    assert row.primary is not None
    since_ms = world.settings.lease_ms
    trouble = Trouble(ZONE.uid, row.partition, row.term, TroubleKind.NO_QUORUM, since_ms)
    unreached = world.unreached.get(row.primary.node, ())
    told = AgentReport(1, (trouble,), unreached=unreached)
    world.master.receive(row.primary.node, told, world.now)
    world.master.tick(world.now)
    world.write()
    return world.rows(ZONE)[row.partition]


@pytest.fixture
def moving() -> tuple[LoneMaster, PartitionRow]:
    return moving_master(ZONE)


def test_the_migration_is_given_up_and_the_term_goes_on(
    moving: tuple[LoneMaster, PartitionRow],
) -> None:
    world, row = moving

    after = say_stuck(world, row)

    assert after.active is None
    assert (after.version, after.term) == (row.version + 2, row.term)
    assert (after.primary, after.replicas) == (row.primary, row.replicas)


def test_the_primary_is_given_the_time_to_learn_that(
    moving: tuple[LoneMaster, PartitionRow],
) -> None:
    """A report from before it knew of the new row says nothing of its voters."""
    world, row = moving
    given_up = say_stuck(world, row)

    assert say_stuck(world, given_up) == given_up
    world.pass_time(world.settings.lease_ms // 2)
    assert world.rows(ZONE)[row.partition].term == row.term, "it is not stuck any more"


def test_a_primary_that_stays_stuck_is_replaced(moving: tuple[LoneMaster, PartitionRow]) -> None:
    world, row = moving
    given_up = say_stuck(world, row)
    world.ms += world.settings.lease_ms

    after = say_stuck(world, given_up)

    assert after.term > row.term
    assert after.primary is not None
    assert row.primary is not None
    assert after.primary.node != row.primary.node


def test_a_primary_that_is_cut_off_is_replaced_at_once(
    moving: tuple[LoneMaster, PartitionRow],
) -> None:
    world, row = moving
    assert row.primary is not None
    node = row.primary.node
    others = tuple(each for each in row.voter_nodes if each != node)
    world.unreached = {node: others, **dict.fromkeys(others, (node,))}
    world.pass_time(100)
    row = world.rows(ZONE)[row.partition]
    assert row.active is not None

    after = say_stuck(world, row)

    assert after.term > row.term
    assert after.primary is not None
    assert after.primary.node in others


def test_it_waits_before_it_is_tried_again(moving: tuple[LoneMaster, PartitionRow]) -> None:
    world, row = moving
    assert row.active is not None

    say_stuck(world, row)

    told = f"{row.active.migration_id} failed: a has no quorum during it (to d)"
    assert told in world.said("MigrationFailed")
    world.pass_time(500)
    assert world.rows(ZONE)[row.partition].active is None
