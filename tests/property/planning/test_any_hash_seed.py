"""I-9: the same input gives the same plan, byte for byte, under any hash seed."""

import os
import subprocess
import sys
from pathlib import Path

CORE = Path(__file__).parents[3] / "core"
PROGRAM = """
import hashlib
from quorate.planning.queue.choose_migrations import QueuedMigration, StartLimits, choose_migrations
from quorate.planning.target.distribute_partitions import DataNode, distribute_partitions
from quorate.planning.steps.plan_migrations import plan_migrations
from quorate.planning.steps.plan_staged import plan_staged
from quorate.planning.queue.retries import MigrationRetries

def nodes(first, last, domains):
    return [
        DataNode(f"node-{at}", 1 + at % 3, f"rack-{at % domains}" if domains else "")
        for at in range(first, last)
    ]

told = hashlib.sha256()
waiting = []
for domains in (0, 2, 5):
    rows = [()] * 256
    for first, last, replicas in ((0, 9, 3), (0, 12, 3), (2, 12, 3), (1, 14, 5), (1, 14, 2)):
        result = distribute_partitions(rows, nodes(first, last, domains), replicas)
        told.update(repr(result).encode())
        for before, after in zip(rows, result.assignments):
            for planner in (plan_migrations, plan_staged):
                steps = planner(before, before, after, {"node-0", "node-1"})
                told.update(repr(steps).encode())
                waiting += [
                    QueuedMigration(f"z{at % 3}", at, len(before), step.source, step.destination,
                                    step.newcomer is not None, at % 7, at % 2 == 0)
                    for at, step in enumerate(steps, len(waiting))
                ]
        rows = result.assignments
limits = StartLimits(zone_migrations=20)
chosen = choose_migrations(waiting, waiting[:9], limits, MigrationRetries(), {"z1", "z2"}, 0)
assert len(chosen) > 9
told.update(repr(chosen).encode())
print(told.hexdigest())
"""


def digest(hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(CORE)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_distribution_and_plans_do_not_depend_on_the_hash_seed() -> None:
    digests = {digest(seed) for seed in ("0", "1", "2", "3141592")}

    assert len(digests) == 1
