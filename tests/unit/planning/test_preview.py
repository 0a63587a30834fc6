"""What would be moved if nodes came or went: each step, totals, the fewest copies on the way."""

import pytest

from quorate.planning.steps.preview import PresentRow, Preview, preview
from quorate.planning.target.distribute_partitions import DataNode, distribute_partitions

NODES = [DataNode(name) for name in "abc"]


def rows(count: int = 12, replicas: int = 2, size: int = 10) -> list[PresentRow]:
    placed = distribute_partitions([()] * count, NODES, replicas).assignments
    return [PresentRow(p, owners, owners, size) for p, owners in enumerate(placed)]


def copies_of(plan: Preview, name: str) -> tuple[int, int]:
    return next((n.copies_before, n.copies_after) for n in plan.nodes if n.name == name)


def test_nothing_changes_when_nothing_would() -> None:
    plan = preview(rows(), NODES, (), 2)

    assert (plan.steps, plan.copies, plan.bytes, plan.worst_copies) == ((), 0, 0, 2)


def test_a_node_more_gets_its_share_and_no_copy_is_missing_on_the_way() -> None:
    plan = preview(rows(), [*NODES, DataNode("new-1")], (), 2)

    assert copies_of(plan, "new-1") == (0, 6)
    assert (plan.copies, plan.bytes, plan.worst_copies) == (6, 60, 2)
    assert {step.destination for step in plan.steps if step.copies} == {"new-1"}


def test_a_lost_node_costs_what_it_had() -> None:
    before = rows()
    plan = preview(before, NODES, ("c",), 2)

    assert copies_of(plan, "c") == (8, 0)
    assert (plan.copies, plan.bytes, plan.worst_copies) == (8, 80, 1)
    assert (copies_of(plan, "a"), copies_of(plan, "b")) == ((8, 12), (8, 12))
    assert before == rows()


def test_a_copy_that_leaves_a_node_goes_to_one_that_is_there() -> None:
    before = [PresentRow(0, ("a", "x"), ("a", "x"))]
    nodes = [*NODES, DataNode("d")]
    balanced = preview(before, nodes, (), 2)
    (absent,) = {step.destination for step in balanced.steps if step.copies}
    assert absent is not None
    given = preview(before, nodes, (), 2, absent=[absent], giving_away=["x"])

    assert balanced.stand_ins == ()
    (stand_in,) = given.stand_ins
    assert (stand_in.partition, stand_in.instead_of) == (0, absent)
    assert {step.destination for step in given.steps if step.copies} == {stand_in.node}
    assert preview(before, nodes, (), 2, absent=[absent]).stand_ins == ()


def test_without_any_node_there_is_nothing_to_plan() -> None:
    with pytest.raises(ValueError, match="no node is online"):
        preview(rows(), NODES, ("a", "b", "c"), 2)
