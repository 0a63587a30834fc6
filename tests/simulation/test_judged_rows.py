"""What the simulator says of a written row (I-1), and of one that an agent has stored (I-4), and
what a simulated master writes that was followed: as much as the protocol promises, and no more."""

from typing import Any

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import DataNodes, StorageKind, ZoneRecord
from quorate.protocol.copies.copy import Copy
from quorate.protocol.members.membership import left
from quorate.protocol.messages.master import RowsStored
from quorate.protocol.metastore import Key, NodeKey, ZoneKey
from quorate_sim.changed import changed
from quorate_sim.checks import Checks
from quorate_sim.cluster import Cluster
from quorate_sim.disk import Image, SimStorage
from quorate_sim.master_process import MasterProcess
from quorate_sim.scenario import Scenario, quiet
from quorate_sim.silent_checks import check_silent
from quorate_sim.swarm import zone_record

pytestmark = pytest.mark.simulation

Known = dict[str, NodeRecord]
THREE = (Voter("a1", "s1"), Voter("a2", "s2"), Voter("a3", "s3"))


def node(number: int, store: int, incarnation: int = 1) -> NodeRecord:
    name = f"a{number}"
    return NodeRecord(name, f"s{store}", incarnation, name, 1, name)


def row(version: int, *voters: Voter) -> PartitionRow:
    primary = Holder("a1", "s1", 1)
    nodes = tuple(voter.node for voter in voters)
    return PartitionRow(0, version, 1, primary, nodes, voters)


@pytest.fixture
def checks() -> Checks:
    """Of a zone of three copies; four agents are registered."""
    found = Cluster(1, swarm=quiet(agents=4)).checks
    for number in range(1, 5):
        found.node_written(node(number, number))
    return found


@pytest.fixture
def known() -> Known:
    """What a master knows that has heard of the four."""
    return {f"a{number}": node(number, number) for number in range(1, 5)}


def test_a_copy_that_is_there_must_not_go(checks: Checks, known: Known) -> None:
    decided = checks.deciding(known)
    with pytest.raises(InvariantError, match="I-1"):
        checks.rows_written("zone", (row(2, *THREE),), (row(3, *THREE[:2]),), decided)


def test_a_master_that_takes_a_living_store_for_gone_is_found(checks: Checks, known: Known) -> None:
    known["a3"] = node(3, 9)
    decided = checks.deciding(known)
    with pytest.raises(InvariantError, match="I-1"):
        checks.rows_written("zone", (row(2, *THREE),), (row(3, *THREE[:2]),), decided)


def test_a_store_that_another_has_followed_may_go(checks: Checks, known: Known) -> None:
    checks.node_written(node(3, 9))
    checks.rows_written("zone", (row(2, *THREE),), (row(3, *THREE[:2]),), checks.deciding(known))


def test_it_stays_followed_when_a_former_master_writes_it_again(
    checks: Checks, known: Known
) -> None:
    checks.node_written(node(3, 9))
    checks.node_written(msgspec.structs.replace(node(3, 3), left_since_ms=1))
    checks.rows_written("zone", (row(2, *THREE),), (row(3, *THREE[:2]),), checks.deciding(known))


def test_a_destination_may_be_lost_while_the_write_is_on_its_way_and_not_before(
    checks: Checks, known: Known
) -> None:
    before, after = row(2, *THREE), row(3, *THREE[:2], Voter("a4", "s4"))
    decided = checks.deciding(known)
    checks.node_written(node(4, 9))
    checks.rows_written("zone", (before,), (after,), decided)

    known["a4"] = node(4, 9)
    with pytest.raises(InvariantError, match="I-1"):
        checks.rows_written("zone", (before,), (after,), checks.deciding(known))


def test_a_loss_that_the_master_has_not_heard_of_is_not_its_step(
    checks: Checks, known: Known
) -> None:
    checks.node_written(node(4, 9))  # registered by another master
    after = row(3, *THREE[:2], Voter("a4", "s4"))
    checks.rows_written("zone", (row(2, *THREE),), (after,), checks.deciding(known))


IN_MEMORY = zone_record("zone", 1, 3, StorageKind.IN_MEMORY)
A1_A2 = DataNodes(("a1", "a2"))


def judge_drop(known: Known, zone: ZoneRecord | None, record: ZoneRecord = IN_MEMORY) -> None:
    """A DROP begins that takes the third of three voters."""
    voters = tuple(Voter(f"a{n}", node(n, n).zone_store(record.persistent)) for n in (1, 2, 3))
    before = row(2, *voters)
    drop = Migration("zone/0/3", MigrationKind.DROP, "a3", None, ("a1", "a2"), voters[:2])
    after = msgspec.structs.replace(before, version=3, active=drop)
    check_silent(record, before, after, known, zone)


@pytest.fixture
def silent(known: Known) -> Known:
    """The third has left."""
    return known | {"a3": left(known["a3"], 1)}


def test_a_voter_in_memory_that_has_left_and_is_no_data_node_may_be_dropped(silent: Known) -> None:
    judge_drop(silent, msgspec.structs.replace(IN_MEMORY, data_nodes=A1_A2))


@pytest.mark.parametrize("nodes", [None, DataNodes(("a1", "a2", "a3"))])
def test_one_that_is_a_data_node_may_not(silent: Known, nodes: DataNodes | None) -> None:
    with pytest.raises(InvariantError, match="which is a data node"):
        judge_drop(silent, msgspec.structs.replace(IN_MEMORY, data_nodes=nodes))


def test_one_that_does_not_fit_the_zone_may_not(silent: Known) -> None:
    zone = msgspec.structs.replace(IN_MEMORY, data_nodes=A1_A2, filter="number notin (1,3)")
    with pytest.raises(InvariantError, match="excludes"):
        judge_drop(silent, zone)


def test_one_that_is_there_or_on_disk_or_not_registered_may_not(
    known: Known, silent: Known
) -> None:
    zone = msgspec.structs.replace(IN_MEMORY, data_nodes=A1_A2)
    with pytest.raises(InvariantError, match="which is there"):
        judge_drop(known, zone)
    with pytest.raises(InvariantError, match="which is there"):
        judge_drop(silent, zone, zone_record("zone", 1, 3, StorageKind.PERSISTENT))
    del silent["a3"]
    with pytest.raises(InvariantError, match="which is not registered"):
        judge_drop(silent, zone)


@pytest.fixture
def moving() -> tuple[Scenario, str, PartitionRow]:
    """A row that names the fourth agent for the first time, as a migration's destination: it has
    heard of that row.  The story, the agent, the row before."""
    story = Scenario(agents=4)
    before = story.row
    spare = next(name for name in story.cluster.agents if name not in before.voter_nodes)
    story.drain(story.backups()[0])
    story.wait(lambda: story.zone(spare).table[0] == story.row != before, "is told", step_ms=1)
    assert story.zone(spare).names_me(story.row)
    return story, spare, before


def judge_without_it(story: Scenario, name: str, version: int) -> None:
    """The agent says that it has stored the row of this version; its disk has its promises only."""
    checks, agent = story.cluster.checks, story.agent(name)
    checks.sent(agent, RowsStored("zone", ((0, version),)))
    before = story.copy(name)
    story.zone(name).copies[0] = copy = Copy(0, SimStorage(Image()))
    if before.promise_holder is not None:
        assert copy.promise(before.promise_term, before.promise_holder)
    checks.agent_step(agent)


def test_a_row_that_was_said_to_be_stored_must_be_known(
    moving: tuple[Scenario, str, PartitionRow],
) -> None:
    story, spare, _ = moving
    with pytest.raises(InvariantError, match=r"I-4: .* had stored row 2 and knows 0"):
        judge_without_it(story, spare, story.row.version)


def test_word_of_a_row_is_not_word_of_the_next_one(
    moving: tuple[Scenario, str, PartitionRow],
) -> None:
    # A slow disk held it back until the agent heard of the row that is the first to name it.
    story, spare, before = moving
    judge_without_it(story, spare, before.version)


def test_a_tombstone_that_nothing_will_remove_is_no_rest() -> None:
    story = Scenario()
    primary = story.primary
    story.written(primary, b"x", b"1")
    story.cut(story.backups()[0], off=(primary,))
    story.deleted(primary, b"x")
    copy = story.copy(primary)
    assert copy.tombstones

    copy.tombstones.clear()
    story.heal()
    story.run(3_000)

    assert story.cluster.rest() == [f"{primary}.1 never removes b'x'"]


def test_who_was_followed_writes_no_rows_again_that_are_gone() -> None:
    """It looks when the rows are deleted and the zone's record does not say so yet."""
    story, former = followed_master()
    cluster, leader = story.cluster, story.cluster.masters[-1]
    story.crash(story.primary)
    story.wait(lambda: story.row.version > 1, "the next one decides")
    write = cluster.metastore.write

    def write_no_record(who: str, key: Key, *rest: Any) -> None:
        if not isinstance(key, ZoneKey):
            write(who, key, *rest)

    with changed(cluster.metastore, "write", write_no_record):
        record = msgspec.structs.replace(cluster.zones["zone"], deleting=True)
        leader.run(lambda: leader.declare(record))
        story.wait(lambda: cluster.committed_row("zone", 0) is None, "the rows are gone")
        former.run(former._look)
        story.run(100)

    assert not former.alive
    assert cluster.committed_row("zone", 0) is None


def test_who_was_followed_writes_no_registration_over_a_later_one() -> None:
    """It has not noticed that the agent is gone, so it takes the new store's for the older one."""
    story, former = followed_master()
    cluster, lost = story.cluster, story.backups()[0]
    assert former.master is not None
    story.cut(former.name, off=(lost,))
    cluster.network.lose(former.links[lost])
    story.crash(lost)
    cluster.wipe(lost)
    story.start(lost)
    store = cluster.disks[lost].store

    def registered() -> str:
        record = cluster.metastore.value(NodeKey(lost))
        assert isinstance(record, NodeRecord)
        return record.store

    story.wait(lambda: registered() == store, "its new store is registered")
    assert former.master.agents[lost].online
    former.run(former._look)
    story.run(100)

    assert not former.alive
    assert registered() == store


def followed_master() -> tuple[Scenario, MasterProcess]:
    """A master that another has followed, and that goes on."""
    story = Scenario()
    former, leader = story.cluster.masters[-1], story.cluster.add_master()
    story.wait(
        lambda: leader.master is not None and all(a.online for a in leader.master.agents.values()),
        "the next one has heard of all",
    )
    return story, former
