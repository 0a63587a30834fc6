"""With FULL_SYNC an owner has every acknowledged write once the primary counts it as an owner."""

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import ConsistencyMode, ZoneRecord
from quorate.protocol.messages.master import CopyReady
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.decide_partition import PartitionState, decide
from quorate_lone_master.agents import Agents
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 1, 3, mode=ConsistencyMode.HIGH_AVAILABILITY, reset_ms=1_000)


def returned(world: LoneMaster) -> tuple[str, str, str]:
    """The primary, an owner, and a node that left, is back, and is no owner yet."""
    row = world.rows(ZONE)[0]
    assert row.primary is not None
    primary, other, back = row.owners
    world.fills = lambda zone, partition, node: False
    world.kill(back)
    world.wait(lambda: back not in world.rows(ZONE)[0].owners)
    world.connect(back)
    world.pass_time(1_000)
    assert world.rows(ZONE)[0].owners == (primary, other)
    return primary, other, back


def owns_again(world: LoneMaster, node: str) -> None:
    """The primary reports that the node's copy is ready; the row that says so is written."""
    world.fills = lambda zone, partition, each: True
    world.wait(lambda: node in world.rows(ZONE)[0].owners)
    world.fills = lambda zone, partition, each: False


def said_of_the_loss(world: LoneMaster, *lost: str) -> str:
    world.kill(*lost)
    world.wait(lambda: world.rows(ZONE)[0].reset is not None)
    (said,) = world.said("DataLossAccepted")
    return said.rpartition(": ")[2]


def test_an_owner_that_the_primary_counts_has_everything() -> None:
    world = placed_master(ZONE)
    primary, other, back = returned(world)
    owns_again(world, back)

    assert "it was an owner, so it has every" in said_of_the_loss(world, primary, other)


def test_nobody_says_so_of_one_that_the_primary_may_not_count_yet() -> None:
    world = placed_master(ZONE)
    primary, other, back = returned(world)
    world.stores = lambda node: node != primary
    owns_again(world, back)

    assert "in 1 of them it was no owner" in said_of_the_loss(world, primary, other)
    reset = world.rows(ZONE)[0].reset
    assert reset is not None
    assert reset.links[-1].needed > 0  # others are waited for should all restart


def test_a_new_master_learns_it_from_the_primary() -> None:
    world = placed_master(ZONE)
    primary, other, back = world.rows(ZONE)[0].owners
    world.same_processes = True
    world.stores = lambda node: node != primary
    world.serves = lambda node: False
    world.follow()
    world.connect(primary, other, back)
    world.pass_time(2_000)
    assert "in 1 of them it was no owner" in said_of_the_loss(world, primary, other)

    world = placed_master(ZONE)
    world.same_processes = True
    world.follow()
    world.connect(primary, other, back)
    world.pass_time(2_000)
    assert "it was an owner" in said_of_the_loss(world, primary, other)


def test_one_that_restarted_while_its_row_was_being_written_is_no_owner() -> None:
    """Until it has caught up and is ready again."""
    voters = tuple(Voter(node, f"store-{node}") for node in "abc")
    row = PartitionRow(0, 6, 4, Holder("a", "store-a", 1), ("a", "b", "c"), voters)
    agents = Agents("a", "b", "c")
    present = agents.holder("c")
    assert present is not None
    earlier = msgspec.structs.replace(present, incarnation=present.incarnation + 1)

    def owners(uncounted: Holder) -> tuple[str, ...]:
        part = PartitionState(row, 0, resolved=True, has_served=True, uncounted=(uncounted,))
        decided = decide(part, agents, ZONE.uid, 1, DEFAULTS, 10_000).row
        return row.owners if decided is None else decided.owners

    assert owners(earlier) == ("a", "b")
    assert owners(present) == ("a", "b", "c")
    assert owners(msgspec.structs.replace(present, incarnation=0)) == ("a", "b", "c")


def test_a_report_about_an_earlier_process_makes_no_owner() -> None:
    world = placed_master(ZONE)
    primary, _, back = returned(world)
    holder = world.master.zones[ZONE.uid].nodes.holder(back)
    assert holder is not None
    row = world.rows(ZONE)[0]
    ready = CopyReady(ZONE.uid, 0, row.term, back, holder.store, holder.incarnation - 1)

    world.master.receive(primary, ready, world.now)
    world.pass_time(500)
    assert back not in world.rows(ZONE)[0].owners

    ready = msgspec.structs.replace(ready, incarnation=holder.incarnation)
    world.master.receive(primary, ready, world.now)
    world.pass_time(500)
    assert back in world.rows(ZONE)[0].owners
