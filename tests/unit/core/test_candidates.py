"""Who becomes primary when none of a partition's owners is left."""

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages.master import CopyReport
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.decide_partition import decide
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate_lone_master.agents import Agents

VOTERS = tuple(Voter(node, f"store-{node}") for node in "abcd")
ROW = PartitionRow(0, 6, 4, Holder("a", "store-a", 1), ("a", None, None, None), VOTERS)


def _copy(last_term: int, lwm: int) -> CopyReport:
    return CopyReport(0, 6, None, "", last_term, lwm, lwm, True)


def _chosen(reports: dict[str, CopyReport]) -> str:
    part = PartitionState(ROW, 0, resolved=True, has_served=True)
    row = decide(part, Agents("b", "c", "d", reports=reports), "uid-1", 1, DEFAULTS, 10_000).row
    assert row is not None
    assert row.primary is not None
    return row.primary.node


def test_the_freshest_copy_goes_first() -> None:
    assert _chosen({"b": _copy(3, 9), "c": _copy(4, 2), "d": _copy(4, 5)}) == "d"


def test_a_voter_without_a_copy_goes_behind_one_that_has_any() -> None:
    assert _chosen({"d": _copy(1, 1)}) == "d"
