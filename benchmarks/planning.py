"""The costs of planning, beside plain rendezvous hashing: time, balance, and what each one moves.

    PYTHONPATH=core python benchmarks/planning.py            the table in docs/benchmarks.md
    PYTHONPATH=core python benchmarks/planning.py --quick    a sixteenth of the partitions

Seconds of the processor, of one core.  `needed`: the copies that the lost node had, or that the new
node gets; what is moved beyond that is moved in vain.
"""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from heapq import nlargest

from quorate.planning.queue.choose_migrations import QueuedMigration, StartLimits, choose_migrations
from quorate.planning.queue.retries import MigrationRetries
from quorate.planning.steps.plan_migrations import plan_migrations
from quorate.planning.steps.plan_staged import plan_staged
from quorate.planning.target.distribute_partitions import DataNode, distribute_partitions

Rows = Sequence[tuple[str, ...]]
Planner = Callable[[Rows, list[DataNode], int], Rows]
MASK = (1 << 64) - 1

ZONES = (  # partitions, nodes, copies, failure domains
    (20_000, 10, 3, 0),
    (20_000, 10, 2, 0),
    (20_000, 10, 3, 3),
    (16_384, 100, 3, 3),
    (16_384, 1_000, 3, 0),
)
MEASURED_ELSEWHERE = """
Measured elsewhere, on other machines: 20,000 x 10 in Hazelcast 89 ms warm and 249 ms cold, where a
leave costs 6,130 copies of 6,000 needed; 16,384 x 1,000 in Ignite (rendezvous) 564 ms, with 26 to
72 copies per node.
""".strip()


def cluster(first: int, last: int, domains: int) -> list[DataNode]:
    return [
        DataNode(f"node-{at:03}", failure_domain=f"domain-{at % domains}" if domains else "")
        for at in range(first, last)
    ]


def ours(rows: Rows, nodes: list[DataNode], replicas: int) -> Rows:
    return distribute_partitions(rows, nodes, replicas).assignments


def rendezvous(rows: Rows, nodes: list[DataNode], replicas: int) -> Rows:
    """Each partition on the nodes with the highest hash of both; failure domains are ignored."""
    seeds = [_mixed(int(node.name.removeprefix("node-")) + 1) for node in nodes]
    chosen: list[tuple[str, ...]] = []
    for partition in range(len(rows)):
        salt = _mixed(partition + (1 << 32))
        weights = [(((seed ^ salt) * 0xBF58476D1CE4E5B9) & MASK) >> 20 for seed in seeds]
        best = nlargest(replicas, range(len(nodes)), key=weights.__getitem__)
        chosen.append(tuple(nodes[at].name for at in best))
    return chosen


def _mixed(number: int) -> int:
    number = (number * 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def span(counts: dict[str, int]) -> str:
    return f"{min(counts.values()):,} to {max(counts.values()):,}"


def line(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def measure(
    change: str, planner: Planner, before: Rows, nodes: list[DataNode], copies: int
) -> Rows:
    started = time.process_time()
    after = planner(before, nodes, copies)
    seconds = time.process_time() - started
    steps_seconds = ""
    if before[0] and planner is ours:
        started = time.process_time()
        for row, target in zip(before, after, strict=True):
            plan_migrations(row, row, target)
        steps_seconds = f"{time.process_time() - started:.2f} s"
    held = dict.fromkeys((node.name for node in nodes), 0)
    led = dict(held)
    moved = 0
    for old, new in zip(before, after, strict=True):
        led[new[0]] += 1
        for node in new:
            held[node] += 1
            moved += node not in old
    owned_before = dict.fromkeys(node for row in before for node in row)
    lost = sum(node not in held for row in before for node in row)
    joined = sum(count for node, count in held.items() if node not in owned_before)
    line(
        change,
        "ours" if planner is ours else "rendezvous",
        f"{seconds:.2f} s",
        steps_seconds,
        f"{moved:,}" if before[0] else "",
        f"{lost or joined:,}" if before[0] else "",
        span(held),
        span(led),
    )
    return after


def zone(partitions: int, count: int, copies: int, domains: int) -> None:
    where = f"{domains} failure domains" if domains else "no failure domains"
    print(f"\n{partitions:,} partitions, {count:,} nodes, {copies} copies, {where}:\n")
    line("change", "by", "assignment", "plans", "copies moved", "needed", "copies", "primaries")
    line(*["---"] * 8)
    for planner in (ours, rendezvous):
        nodes = cluster(0, count, domains)
        present = measure("new zone", planner, [()] * partitions, nodes, copies)
        measure("a node joins", planner, present, cluster(0, count + 1, domains), copies)
        measure("a node is lost", planner, present, cluster(1, count, domains), copies)


def staged(partitions: int) -> None:
    """The two planners of one row's steps over the same change."""
    before = ours([()] * partitions, cluster(0, 10, 0), 3)
    after = ours(before, cluster(1, 11, 0), 3)
    print(f"\nPlans for {partitions:,} partitions when one of ten nodes is replaced by another:\n")
    line("planner", "time", "migrations", "of them with a copy")
    line(*["---"] * 4)
    for name, planner in (("Minimal", plan_migrations), ("Staged", plan_staged)):
        started = time.process_time()
        steps = [
            step
            for row, target in zip(before, after, strict=True)
            for step in planner(row, row, target)
        ]
        seconds = time.process_time() - started
        copied = sum(step.newcomer is not None for step in steps)
        line(name, f"{seconds:.2f} s", f"{len(steps):,}", f"{copied:,}")


def queue(waiting_count: int) -> None:
    waiting = [
        QueuedMigration("z", at, 2, f"s{at % 100}", f"d{at % 97}", True, at * 7919 % 10007)
        for at in range(waiting_count)
    ]
    retries = MigrationRetries()
    for at in range(97):
        for _ in range(8):
            retries.succeeded("z", 0, f"d{at}")
    started = time.process_time()
    first = choose_migrations(waiting, (), StartLimits(), retries, (), 0)
    middle = time.process_time()
    choose_migrations(waiting, first, StartLimits(), retries, (), 0)
    print(
        f"\nOf {waiting_count:,} waiting migrations, {len(first)} are started in "
        f"{(middle - started) * 1000:.0f} ms; that no other can start is seen in "
        f"{(time.process_time() - middle) * 1000:.0f} ms."
    )


def main() -> None:
    part = 16 if "--quick" in sys.argv[1:] else 1
    for partitions, count, copies, domains in ZONES:
        zone(partitions // part, count, copies, domains)
    staged(20_000 // part)
    queue(16_384 // part)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"\nLargest resident size of the process: {peak} MB.\n\n{MEASURED_ELSEWHERE}")


if __name__ == "__main__":
    main()
