"""What the simulator says of a written row (I-1), and of one that an agent has stored (I-4): as
much as the protocol promises, and no more."""

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.protocol.copies.copy import Copy
from quorate.protocol.messages.master import RowsStored
from quorate_sim.checks import Checks
from quorate_sim.cluster import Cluster
from quorate_sim.disk import Image, SimStorage
from quorate_sim.scenario import Scenario, quiet

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
    """The agent says that it has stored the row of this version; its disk has nothing of it."""
    checks, agent = story.cluster.checks, story.agent(name)
    checks.sent(agent, RowsStored("zone", ((0, version),)))
    story.zone(name).copies[0] = Copy(0, SimStorage(Image()))
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
