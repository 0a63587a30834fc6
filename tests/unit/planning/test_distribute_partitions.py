"""Who owns what, in cases small enough to say why."""

import pytest

from quorate.planning.target.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
    placed_voters,
)

Rows = list[tuple[str | None, ...]]


def nodes(count: int, domains: int = 0) -> list[DataNode]:
    """n00, n01, …; with `domains`, spread over that many failure domains in turn."""
    return [
        DataNode(f"n{at:02}", failure_domain=f"d{at % domains}" if domains else "")
        for at in range(count)
    ]


def new_zone(partitions: int, cluster: list[DataNode], replicas: int = 3) -> Distribution:
    return distribute_partitions([()] * partitions, cluster, replicas)


def moved(before: Distribution, after: Distribution) -> list[tuple[int, str]]:
    """(partition, node) of each copy that has to be made."""
    return [
        (partition, node)
        for partition, (old, new) in enumerate(
            zip(before.assignments, after.assignments, strict=True)
        )
        for node in new
        if node not in old
    ]


def test_a_new_zone_gets_one_run_of_primaries_per_node() -> None:
    primaries = [owners[0] for owners in new_zone(16, nodes(3)).assignments]

    assert primaries == ["n00"] * 6 + ["n01"] * 5 + ["n02"] * 5


def test_copies_and_primaries_are_balanced_to_one() -> None:
    report = new_zone(64, nodes(7)).report

    assert (report.copies_min, report.copies_max) == (27, 28)
    assert (report.primaries_min, report.primaries_max) == (9, 10)
    assert report.shared_domains == ()


def test_nothing_moves_when_nothing_changed() -> None:
    cluster = nodes(5, domains=3)
    before = new_zone(64, cluster)
    after = distribute_partitions(before.assignments, cluster, 3)

    assert after.assignments == before.assignments
    assert after.report.moved_copies == after.report.changed_primaries == 0


def test_a_joining_node_is_the_only_one_that_gets_copies() -> None:
    before = new_zone(1024, nodes(20))
    after = distribute_partitions(before.assignments, nodes(21), 3)
    copies = moved(before, after)

    assert {node for _, node in copies} == {"n20"}
    assert len(copies) == after.report.moved_copies == 1024 * 3 // 21
    assert (after.report.copies_min, after.report.copies_max) == (146, 147)
    assert (after.report.primaries_min, after.report.primaries_max) == (48, 49)


def test_when_a_node_is_lost_exactly_its_copies_are_replaced() -> None:
    before = new_zone(1024, nodes(20))
    lost = [p for p, owners in enumerate(before.assignments) if "n07" in owners]
    rest = [node for node in nodes(20) if node.name != "n07"]
    after = distribute_partitions(before.assignments, rest, 3)

    assert [partition for partition, _ in moved(before, after)] == lost
    assert (after.report.copies_min, after.report.copies_max) == (161, 162)
    assert (after.report.primaries_min, after.report.primaries_max) == (53, 54)


def test_a_vacant_primary_goes_to_an_owner_with_the_data_as_far_as_balance_permits() -> None:
    before = new_zone(256, nodes(8))
    rest = [node for node in nodes(8) if node.name != "n03"]
    after = distribute_partitions(before.assignments, rest, 3)
    vacant = [
        (old, new)
        for old, new in zip(before.assignments, after.assignments, strict=True)
        if old[0] == "n03"
    ]

    assert len(vacant) == 32
    assert sum(new[0] in old for old, new in vacant) >= 28


def test_owners_that_stay_keep_their_replica_index() -> None:
    before: Rows = [("n00", "n01", "n02"), ("n01", "n02", "n03"), ("n02", "n03", "n00")]
    before += [("n03", "n00", "n01")]
    after = distribute_partitions(before, nodes(3), 3)

    assert after.assignments[0] == ("n00", "n01", "n02")
    assert after.assignments[1] == ("n01", "n02", "n00")
    assert after.assignments[2] == ("n02", "n01", "n00")


def test_weights_are_honoured_in_proportion() -> None:
    cluster = [DataNode("big", weight=2), DataNode("one"), DataNode("two"), DataNode("zwo")]
    loads = new_zone(50, cluster, replicas=2).report.loads

    assert [(load.name, load.copies, load.primaries) for load in loads] == [
        ("big", 40, 20),
        ("one", 20, 10),
        ("two", 20, 10),
        ("zwo", 20, 10),
    ]


def test_a_node_too_heavy_for_distinct_copies_owns_every_partition() -> None:
    cluster = [DataNode("big", weight=100), DataNode("one"), DataNode("two")]
    loads = new_zone(16, cluster, replicas=2).report.loads

    assert [load.copies for load in loads] == [16, 8, 8]


def test_copies_are_in_different_failure_domains_where_there_are_enough() -> None:
    cluster = nodes(6, domains=3)
    domain = {node.name: node.failure_domain for node in cluster}
    zone = new_zone(64, cluster)

    assert zone.report.shared_domains == ()
    for owners in zone.assignments:
        assert sorted(domain[node] for node in owners) == ["d0", "d1", "d2"]


def test_failure_domains_come_before_balance() -> None:
    """One domain has a single node: it owns a copy of everything, and the report shows it."""
    cluster = [DataNode("a", failure_domain="x")]
    cluster += [DataNode(name, failure_domain="y") for name in "bc"]
    report = new_zone(12, cluster, replicas=2).report

    assert report.shared_domains == ()
    assert [(load.name, load.copies) for load in report.loads] == [("a", 12), ("b", 6), ("c", 6)]
    assert [load.primaries for load in report.loads] == [4, 4, 4]


def test_too_few_failure_domains_are_shared_evenly_and_reported() -> None:
    report = new_zone(10, nodes(4, domains=2)).report

    assert report.shared_domains == (("d0", 5), ("d1", 5))
    assert (report.copies_min, report.copies_max) == (7, 8)


def test_copies_that_share_a_domain_without_need_are_separated() -> None:
    together: Rows = [("n00", "n02"), ("n01", "n03"), ("n02", "n00"), ("n03", "n01")]
    after = distribute_partitions(together, nodes(4, domains=2), 2)

    assert after.report.shared_domains == ()
    assert after.report.moved_copies == 4
    assert after.report.changed_primaries == 0


def test_fewer_nodes_than_replicas_hold_one_copy_each() -> None:
    zone = new_zone(8, nodes(2))

    assert all(sorted(owners) == ["n00", "n01"] for owners in zone.assignments)
    assert zone.report.copies_per_partition == 2
    assert zone.report.missing_copies == 1


def test_an_offline_node_stays_an_owner_until_there_is_a_spare() -> None:
    before = new_zone(4, nodes(3))
    cluster = [*nodes(2), DataNode("n02", online=False)]
    waiting = distribute_partitions(before.assignments, cluster, 3)
    replaced = distribute_partitions(before.assignments, [*cluster, DataNode("n03")], 3)

    for old, new in zip(before.assignments, waiting.assignments, strict=True):
        assert sorted(new) == sorted(old)
        assert new[0] != "n02"
    assert waiting.report.moved_copies == 0
    for new in replaced.assignments:
        assert sorted(new) == ["n00", "n01", "n03"]


def test_a_smaller_number_of_replicas_moves_nothing() -> None:
    before = new_zone(128, nodes(10))
    after = distribute_partitions(before.assignments, nodes(10), 2)

    assert after.report.moved_copies == 0
    assert (after.report.copies_min, after.report.copies_max) == (25, 26)


def test_voters_that_are_not_in_the_row_are_put_where_it_has_gaps() -> None:
    assert placed_voters(("A", None, "C"), ("A", "B", "C")) == ("A", "B", "C")
    assert placed_voters(("A", None, None), ("A", "B")) == ("A", "B", None)
    assert placed_voters(("A",), ("B", "A")) == ("A", "B")


@pytest.mark.parametrize(
    ("cluster", "replicas", "complaint"),
    [
        ([], 3, "no node is online"),
        ([DataNode("a", online=False)], 3, "no node is online"),
        ([DataNode("a"), DataNode("a")], 3, "node 'a' is listed twice"),
        ([DataNode("a", weight=0)], 3, "node 'a' has weight 0"),
        ([DataNode("a")], 0, "replicas is 0"),
        ([DataNode("a")], 8, "replicas is 8"),
    ],
)
def test_what_cannot_be_distributed_is_refused_by_name(
    cluster: list[DataNode], replicas: int, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        new_zone(4, cluster, replicas)
