"""What the simulator says of a written row (I-1): as much as the protocol promises, and no more."""

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate_sim.checks import Checks
from quorate_sim.cluster import Cluster
from quorate_sim.scenario import quiet

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
