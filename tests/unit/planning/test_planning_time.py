"""Planning does not hold up a master: seconds of the processor, with room for a slow machine."""

import time

import pytest

from quorate.planning.distribute_partitions import DataNode, distribute_partitions
from quorate.planning.plan_migrations import plan_migrations


def cluster(first: int, last: int, domains: int) -> list[DataNode]:
    return [
        DataNode(f"node-{at:04}", failure_domain=f"domain-{at % domains}" if domains else "")
        for at in range(first, last)
    ]


@pytest.mark.parametrize(
    ("partitions", "count", "domains", "seconds"),
    [
        (20_000, 10, 0, 1.0),
        (20_000, 10, 3, 1.0),
        (16_384, 1_000, 0, 10.0),
        (16_384, 1_000, 5, 10.0),
    ],
)
@pytest.mark.parametrize("change", ["a node joins", "a node is lost"])
def test_a_change_of_the_largest_zones_is_planned_in_time(
    partitions: int, count: int, domains: int, seconds: float, change: str
) -> None:
    before = distribute_partitions([()] * partitions, cluster(0, count, domains), 3).assignments
    joins = change == "a node joins"
    nodes = cluster(0, count + 1, domains) if joins else cluster(1, count, domains)

    started = time.process_time()
    after = distribute_partitions(before, nodes, 3)
    for row, target in zip(before, after.assignments, strict=True):
        plan_migrations(row, row, target)
    assert time.process_time() - started < seconds
    had = sum("node-0000" in row for row in before)
    gets = sum(f"node-{count:04}" in row for row in after.assignments)
    assert after.report.moved_copies == (gets if joins else had)
