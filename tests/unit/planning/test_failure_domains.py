"""Failure domains of unequal size, and the loss of nodes and of whole domains."""

from collections import Counter

import pytest

from quorate.planning.steps.plan_migrations import check_plan, plan_migrations
from quorate.planning.steps.plan_staged import plan_staged, reachable_target
from quorate.planning.target.distribute_partitions import (
    DataNode,
    Distribution,
    distribute_partitions,
)


def cluster(*sizes: int) -> list[DataNode]:
    """Nodes `d0-n0`, `d0-n1`, …: so many in each failure domain."""
    return [
        DataNode(f"d{domain}-n{at}", failure_domain=f"d{domain}")
        for domain, size in enumerate(sizes)
        for at in range(size)
    ]


def without(nodes: list[DataNode], lost: str) -> list[DataNode]:
    """The nodes whose names do not begin so."""
    return [node for node in nodes if not node.name.startswith(lost)]


def new_zone(partitions: int, nodes: list[DataNode], replicas: int) -> Distribution:
    return distribute_partitions([()] * partitions, nodes, replicas)


def copies_on(zone: Distribution, lost: str) -> int:
    return sum(node.startswith(lost) for owners in zone.assignments for node in owners)


@pytest.mark.parametrize("partitions", [256, 271, 1024, 16384])
def test_unequal_domains_with_one_backup_give_every_node_its_share(partitions: int) -> None:
    """Nine nodes for two copies: no domain is due more than one copy of each partition, so that
    equal loads are reachable."""
    report = new_zone(partitions, cluster(4, 3, 2), replicas=2).report

    assert report.shared_domains == ()
    assert report.copies_max - report.copies_min <= 1
    assert report.copies_max <= 1.05 * report.copies_min
    assert report.primaries_max - report.primaries_min <= 1


@pytest.mark.parametrize("partitions", [256, 1024])
def test_unequal_domains_with_two_backups_are_as_even_as_distinct_domains_permit(
    partitions: int,
) -> None:
    """Each domain has one copy of each partition: four, three or two nodes share it."""
    zone = new_zone(partitions, cluster(4, 3, 2), replicas=3)
    loads = Counter(node for owners in zone.assignments for node in owners)

    assert zone.report.shared_domains == ()
    for domain, size in enumerate((4, 3, 2)):
        inside = [count for node, count in loads.items() if node.startswith(f"d{domain}")]
        assert len(inside) == size
        assert max(inside) - min(inside) <= 1
    assert zone.report.primaries_max - zone.report.primaries_min <= 1


@pytest.mark.parametrize("lost", [f"d{domain}-n{at}" for domain in range(3) for at in range(3)])
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("partitions", [256, 1024])
def test_one_node_lost_of_three_times_three_costs_what_it_had(
    lost: str, replicas: int, partitions: int
) -> None:
    nodes = cluster(3, 3, 3)
    before = new_zone(partitions, nodes, replicas)
    after = distribute_partitions(before.assignments, without(nodes, lost), replicas)

    assert after.report.moved_copies == copies_on(before, lost)
    assert after.report.shared_domains == ()


@pytest.mark.parametrize("lost", ["d0", "d1", "d2"])
def test_two_nodes_left_of_three_with_two_backups_copy_nothing(lost: str) -> None:
    nodes = cluster(1, 1, 1)
    before = new_zone(256, nodes, 3)
    after = distribute_partitions(before.assignments, without(nodes, lost), 3)

    assert after.report.moved_copies == 0
    for old, new in zip(before.assignments, after.assignments, strict=True):
        steps = plan_migrations(old, old, new, [node for node in old if node.startswith(lost)])
        assert [step for step in steps if step.newcomer is not None] == []


@pytest.mark.parametrize("lost", ["d0", "d1", "d2"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_whole_domain_lost_leaves_no_partition_below_what_the_outage_left(
    lost: str, replicas: int
) -> None:
    nodes = cluster(3, 3, 3)
    before = new_zone(512, nodes, replicas)
    after = distribute_partitions(before.assignments, without(nodes, lost), replicas)

    assert after.report.moved_copies == copies_on(before, lost)
    for old, new in zip(before.assignments, after.assignments, strict=True):
        gone = [node for node in old if node.startswith(lost)]
        left = [None if node in gone else node for node in old]
        if left[0] is None:  # the master activates a backup before anything is planned
            backup = next(node for node in left if node is not None)
            left[left.index(backup)], left[0] = None, backup
        owning = sum(node is not None for node in left)
        for planner in (plan_migrations, plan_staged):
            steps = planner(left, old, new, gone)
            goal = new if planner is plan_migrations else reachable_target(left, old, new, gone)
            check_plan(left, old, goal, steps, gone)
            for step in steps:
                assert sum(node is not None for node in step.replicas) >= owning


def test_a_domain_that_comes_back_gets_its_copies_and_nobody_else_does() -> None:
    nodes = cluster(3, 3, 3)
    before = new_zone(512, nodes, 3)
    outage = distribute_partitions(before.assignments, without(nodes, "d1"), 3)
    after = distribute_partitions(outage.assignments, nodes, 3)

    assert after.report.moved_copies == copies_on(after, "d1") == 512
    assert after.report.shared_domains == ()
