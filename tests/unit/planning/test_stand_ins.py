"""Copies that leave a drained agent do not wait for nodes that are away: others stand in."""

from collections.abc import Sequence

import msgspec

from quorate.planning.target.distribute_partitions import DataNode, distribute_partitions
from quorate.planning.target.stand_ins import with_stand_ins


def stood_in(
    wanted: str, current: str, absent: str, nodes: Sequence[DataNode] | None = None
) -> str:
    """The target of one partition, of which a copy is to leave an agent."""
    nodes = nodes or [DataNode(name) for name in "abcdef"]
    target = distribute_partitions([()], nodes, 1)
    target = msgspec.structs.replace(target, assignments=(tuple(wanted),))
    return "".join(with_stand_ins(target, [tuple(current)], [0], nodes, absent).assignments[0])


def test_a_node_that_is_there_gets_the_copy_in_the_place_of_the_absent_one() -> None:
    assert stood_in("dac", "xcd", absent="a") == "dbc"
    assert stood_in("adc", "xcd", absent="a") == "bdc"
    assert stood_in("abc", "xyz", absent="ab") == "dec"


def test_what_an_absent_node_has_it_keeps() -> None:
    assert stood_in("dac", "xac", absent="a") == "dac"


def test_the_absent_one_stays_where_no_node_is_left() -> None:
    nodes = [DataNode("a"), DataNode("c"), DataNode("d"), DataNode("e", online=False)]

    assert stood_in("dac", "xcd", absent="a", nodes=nodes) == "dac"


def test_who_has_a_copy_or_gets_one_is_taken_first_then_who_is_of_another_domain() -> None:
    assert stood_in("dac", "xcdf", absent="a") == "dfc"
    domains = {"a": "1", "b": "2", "c": "2", "d": "3", "e": "1", "f": "3"}
    nodes = [DataNode(name, 1, domain) for name, domain in domains.items()]

    assert stood_in("dac", "xcd", absent="a", nodes=nodes) == "dec"
