"""A frozen primary and its voters are lost for a while: whoever is back must be able to serve."""

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.decide_partition import decide
from quorate.protocol.zone_master.partition_state import PartitionState, adopt_row
from quorate_lone_master.agents import Agents

VOTERS = tuple(Voter(node, f"store-{node}") for node in "abc")
SWAP = Migration(
    "books/0/6", MigrationKind.SWAP, "a", Holder("b", "store-b", 1), ("b", "a", "c"), VOTERS
)
ROW = PartitionRow(0, 6, 1, Holder("a", "store-a", 1), ("a", "b", "c"), VOTERS, SWAP)


def _next_row(part: PartitionState, agents: Agents) -> PartitionRow | None:
    return decide(part, agents, "uid-1", 1, DEFAULTS, 10_000).row


def test_a_primary_that_froze_gets_a_new_term_when_no_quorum_is_left() -> None:
    frozen = PartitionState(
        ROW, 0, resolved=True, has_served=True, caught_up_ms=4_000, freeze_ms=5_000
    )

    lost = _next_row(frozen, Agents())

    assert lost is not None
    assert (lost.version, lost.term, lost.active) == (8, 8, None)
    assert lost.replicas == (None, None, None)
    back = _next_row(adopt_row(frozen, lost, 10_000), Agents("a", "b", "c"))
    assert back is not None
    assert (back.term, back.primary, back.replicas[0]) == (8, ROW.primary, "a")


def test_a_primary_that_was_not_asked_to_freeze_keeps_its_term() -> None:
    running = PartitionState(ROW, 0, resolved=True, has_served=True)

    lost = _next_row(running, Agents())

    assert lost is not None
    assert (lost.version, lost.term) == (8, 1)
