"""With FULL_SYNC an owner has every acknowledged write once the primary counts it as an owner."""

import msgspec
import pytest

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ConsistencyMode, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.master import Activated, CopyReady, RowsStored
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Acks, FenceAck, HeartbeatAck
from quorate.protocol.metastore import ShardKey
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.decide_partition import decide
from quorate.protocol.zone_master.partition_state import BEHIND, UNHEARD, PartitionState, adopt_row
from quorate_lone_master.agents import Agents
from quorate_lone_master.world import LoneMaster, placed_master
from quorate_sim.disk import Image, SimStorage

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


def followed(behind: str = "") -> LoneMaster:
    """Another master begins, and the primary says which owner is behind: the last, or none."""
    world = placed_master(ZONE)
    row = world.rows(ZONE)[0]
    nodes = (behind,) if behind else ()
    world.same_processes = True
    world.stores = lambda node: node != row.owners[0]
    world.follow()
    world.connect(*row.owners)
    world.pass_time(1_000)
    stored = RowsStored(ZONE.uid, ((0, row.version),), ((0, nodes),))
    world.master.receive(row.owners[0], stored, world.now)
    return world


def test_a_primary_that_serves_may_not_have_the_row_that_a_new_master_found() -> None:
    """An owner may have restarted before, as only the master knew that wrote the row."""
    world = placed_master(ZONE)
    row = world.rows(ZONE)[0]
    world.same_processes = True
    world.stores = lambda node: node != row.owners[0]
    world.follow()
    world.connect(*row.owners)
    world.pass_time(1_000)
    assert world.master.zones[ZONE.uid].parts[0].has_served

    assert "in 1 of them it was no owner" in said_of_the_loss(world, *row.owners[:2])
    assert "it was an owner" in said_of_the_loss(followed(), *row.owners[:2])


def test_an_owner_that_is_behind_has_everything_once_the_primary_says_so() -> None:
    primary, other, behind = placed_master(ZONE).rows(ZONE)[0].owners
    world = followed(behind)
    assert "in 1 of them it was no owner" in said_of_the_loss(world, primary, other)

    world = followed(behind)
    term = world.rows(ZONE)[0].term
    ready = CopyReady(ZONE.uid, 0, term, behind, f"store-{behind}", 1)
    world.master.receive(primary, ready, world.now)
    assert "it was an owner" in said_of_the_loss(world, primary, other)


def test_a_primary_that_does_not_serve_yet_has_acknowledged_nothing_with_the_owners() -> None:
    """It has the row, and says which of them are behind when it serves."""
    row = placed_master(ZONE).rows(ZONE)[0]
    for behind in ((), (row.owners[2],)):
        world = placed_master(ZONE)
        world.same_processes = True
        world.serves = lambda node: False
        world.follow()
        world.connect(*row.owners)
        world.pass_time(1_000)
        part = world.master.zones[ZONE.uid].parts[0]
        assert {each.incarnation for each in part.uncounted} == {BEHIND}

        activated = Activated(ZONE.uid, 0, row.term, 0, behind)
        world.master.receive(row.owners[0], activated, world.now)

        part = world.master.zones[ZONE.uid].parts[0]
        assert tuple(each.node for each in part.uncounted) == behind
        after = msgspec.structs.replace(row, version=9, term=9)
        uncounted = adopt_row(part, after, 0).uncounted
        assert [each.incarnation for each in uncounted] == [UNHEARD] * len(behind)


@pytest.mark.parametrize("serves", [False, True])
def test_owners_of_a_rebuilt_row_have_everything_once_its_primary_serves(serves: bool) -> None:
    """The row that agents told may name an owner that restarted before it was counted."""
    world = placed_master(ZONE, rebuilds=True)
    owners = world.rows(ZONE)[0].owners
    world.same_processes = True
    world.serves = lambda node: serves
    del world.stored[ShardKey(ZONE.uid, 0)]
    world.follow()
    world.connect(*owners)
    world.wait(lambda: ShardKey(ZONE.uid, 0) in world.stored)
    world.pass_time(3_000)
    first, second, _ = world.rows(ZONE)[0].owners

    said = said_of_the_loss(world, first, second)

    assert said.startswith("it was an owner" if serves else "in 1 of them it was no owner")


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


# --- what a primary says of owners ---------------------------------------------------------------

NOW = Now(100_000, 100_000)
A = Holder("a", "store-a", 1)
ROW = PartitionRow(0, 3, 3, A, ("a", "b"), (Voter("a", "store-a"), Voter("b", "store-b")))


def turn_of(replicas: Replicas) -> list[Message]:
    """Return the tested part of the agent's messages to the master once this turn is durable."""
    sent = replicas.synced(replicas.flush(NOW), NOW)
    kinds = RowsStored | Activated | CopyReady
    return [message for node, message in sent if node == MASTER and isinstance(message, kinds)]


def promises(replicas: Replicas) -> None:
    replicas.receive("b", FenceAck("uid-1", 0, 3, "store-b", Lineage(), 0, (), 0, False), NOW)


def adopts(replicas: Replicas) -> None:
    replicas.receive("b", Acks("uid-1", ((0, 3, 0),)), NOW)


def serving(record: ZoneRecord) -> Replicas:
    """Agent "a", primary of a partition of which "b" is an owner, too."""
    leases = Leases(DEFAULTS, 1, 0)
    replicas = Replicas(record, A, SimStorage(Image()), leases, DEFAULTS, NOW)
    replicas.set_members([NodeRecord(n, f"store-{n}", 1, n, 1, n) for n in "ab"])
    replicas.set_rows([ROW], NOW)
    assert turn_of(replicas) == [RowsStored("uid-1", ((0, 3),))]  # it does not serve yet
    promises(replicas)
    assert turn_of(replicas) == []
    adopts(replicas)
    assert turn_of(replicas) == [Activated("uid-1", 0, 3, 0)]
    leases.granted("b", HeartbeatAck(leases.heartbeat("b", NOW).sent_ms, 2000, 1, ()))
    replicas.renew_own_leases()
    return replicas


def test_a_primary_names_owners_that_are_behind_until_they_have_caught_up() -> None:
    replicas = serving(msgspec.structs.replace(ZONE, replicas=2))
    later = msgspec.structs.replace(ROW, version=4)
    replicas.set_rows([later], NOW)
    assert turn_of(replicas) == [RowsStored("uid-1", ((0, 4),))]

    replicas.peer_started("b", NOW)
    replicas.set_rows([later], NOW)  # as another master tells it
    assert turn_of(replicas) == [RowsStored("uid-1", ((0, 4),), ((0, ("b",)),))]
    replicas.repeat_reports()
    promises(replicas)
    assert turn_of(replicas) == [Activated("uid-1", 0, 3, 0, ("b",))]

    adopts(replicas)
    assert turn_of(replicas) == [CopyReady("uid-1", 0, 3, "b", "store-b", 1)]
    adopts(replicas)
    assert turn_of(replicas) == []


def test_where_a_quorum_is_enough_nobody_is_behind() -> None:
    replicas = serving(ZoneRecord("uid-1", "books", 1, 2))
    replicas.peer_started("b", NOW)
    replicas.set_rows([ROW], NOW)
    assert turn_of(replicas) == [RowsStored("uid-1", ((0, 3),))]
