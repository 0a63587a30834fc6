"""Any target, any absent nodes: who stands in for them, and who does not."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.planning.target.distribute_partitions import DataNode, distribute_partitions
from quorate.planning.target.stand_ins import with_stand_ins

NAMES = "abcdef"


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[DataNode], list[tuple[str, ...]], list[str], list[int]]:
    """Nodes, present rows with a node that leaves ("x"), who is absent, the rows that it leaves."""
    names = NAMES[: draw(st.integers(2, 6))]
    nodes = [
        DataNode(name, draw(st.integers(1, 3)), draw(st.sampled_from(["", "left", "right"])))
        for name in names
    ]
    count = draw(st.integers(1, 6))
    rows = [tuple(draw(st.permutations([*names, "x"])))[:3] for _ in range(count)]
    absent = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
    return nodes, rows, absent, [at for at, row in enumerate(rows) if "x" in row]


@settings(derandomize=True, max_examples=300, deadline=None)
@given(cases())
def test_only_absent_newcomers_are_replaced_and_the_next_look_says_the_same(
    case: tuple[list[DataNode], list[tuple[str, ...]], list[str], list[int]],
) -> None:
    nodes, rows, absent, left = case
    target = distribute_partitions(rows, nodes, 3)
    found = with_stand_ins(target, rows, left, nodes, absent)

    there = {node.name for node in nodes} - {*absent}
    for at, (before, after) in enumerate(zip(target.assignments, found.assignments, strict=True)):
        assert len(set(after)) == len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            is_absent_newcomer = old in absent and old not in rows[at]
            if at not in left or not is_absent_newcomer:
                assert new == old
            elif new == old:
                assert there <= {*after}
            else:
                assert new in there
    assert with_stand_ins(found, rows, left, nodes, absent) == found


@settings(derandomize=True, max_examples=300, deadline=None)
@given(cases())
def test_a_copy_on_its_way_to_a_node_that_stands_in_is_not_given_up(
    case: tuple[list[DataNode], list[tuple[str, ...]], list[str], list[int]],
) -> None:
    nodes, rows, absent, left = case
    target = distribute_partitions(rows, nodes, 3)
    found = with_stand_ins(target, rows, left, nodes, absent)
    begun, under_way = list(rows), dict[int, str]()
    for at in left:
        stand_ins = [n for n in found.assignments[at] if n not in target.assignments[at]]
        if stand_ins:
            under_way[at] = stand_ins[0]
            begun[at] = tuple(stand_ins[0] if name == "x" else name for name in rows[at])

    others = [msgspec.structs.replace(node, weight=4 - node.weight) for node in nodes]
    again = with_stand_ins(target, begun, left, others, absent)

    for at, node in under_way.items():
        assert node in again.assignments[at]
