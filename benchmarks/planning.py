"""What planning costs: seconds of the processor per distribution, and what each one moves.

    PYTHONPATH=core python benchmarks/planning.py [partitions] [nodes]

The largest zone by default: 16,384 partitions, 3 copies, 100 nodes.
"""

import sys
import time
from collections.abc import Sequence

from quorate.planning.distribute_partitions import DataNode, Distribution, distribute_partitions
from quorate.planning.plan_migrations import plan_migrations

REPLICAS = 3


def cluster(first: int, last: int, domains: int) -> list[DataNode]:
    return [
        DataNode(f"node-{at:03}", failure_domain=f"domain-{at % domains}" if domains else "")
        for at in range(first, last)
    ]


def timed(
    what: str, rows: Sequence[Sequence[str | None]], nodes: list[DataNode], replicas: int = REPLICAS
) -> Distribution:
    started = time.process_time()
    result = distribute_partitions(rows, nodes, replicas)
    seconds = time.process_time() - started
    report = result.report
    print(
        f"    {what:<28} {seconds:6.2f} s   {report.moved_copies:6} copies moved   "
        f"copies {report.copies_min}..{report.copies_max}   "
        f"primaries {report.primaries_min}..{report.primaries_max}",
        flush=True,
    )
    return result


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 16384
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    for domains in (0, 3, 5):
        print(f"{partitions} partitions, {count} nodes, {domains or 'no'} failure domains")
        zone = timed("new zone", [()] * partitions, cluster(0, count, domains))
        timed("nothing changed", zone.assignments, cluster(0, count, domains))
        joined = timed("one node joins", zone.assignments, cluster(0, count + 1, domains))
        timed("one node is lost", zone.assignments, cluster(1, count, domains))
        timed("a tenth is lost", zone.assignments, cluster(count // 10, count, domains))
        timed("a third joins", zone.assignments, cluster(0, count + count // 3, domains))
        timed("two copies instead of three", zone.assignments, cluster(0, count, domains), 2)
        started = time.process_time()
        steps = sum(
            len(plan_migrations(before, before, after))
            for before, after in zip(zone.assignments, joined.assignments, strict=True)
        )
        seconds = time.process_time() - started
        print(f"    {'plans for the joined node':<28} {seconds:6.2f} s   {steps:6} migrations")


if __name__ == "__main__":
    main()
