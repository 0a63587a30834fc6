"""Who becomes primary when none of a partition's owners is left."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.protocol.messages.master import CopyReport, TroubleKind
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.decide_partition import TRIED_MAX, decide
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate_lone_master.agents import Agents

VOTERS = tuple(Voter(node, f"store-{node}") for node in "abcd")
ROW = PartitionRow(0, 6, 4, Holder("a", "store-a", 1), ("a", None, None, None), VOTERS)
BOUND_MS = DEFAULTS.activation_bound_ms
STUCK = PartitionState(ROW, 0, resolved=True, has_served=True, stuck=TroubleKind.NO_QUORUM)
INACTIVE = PartitionState(ROW, 0, resolved=True)


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


@pytest.mark.parametrize("part", [STUCK, INACTIVE])
def test_only_the_latest_primaries_that_did_not_serve_are_remembered(part: PartitionState) -> None:
    tried_before = msgspec.structs.replace(part, tried=("b",) * TRIED_MAX)

    decision = decide(tried_before, Agents(*"abcd"), "uid-1", 1, DEFAULTS, 10 * BOUND_MS)

    assert decision.row is not None
    assert decision.part is not None
    assert decision.part.tried == (*("b",) * (TRIED_MAX - 1), "a")


@pytest.mark.parametrize("part", [STUCK, INACTIVE])
def test_a_primary_is_not_noted_as_tried_while_there_is_no_quorum(part: PartitionState) -> None:
    decision = decide(part, Agents(*"ab"), "uid-1", 1, DEFAULTS, 10 * BOUND_MS)

    assert decision.part is None
