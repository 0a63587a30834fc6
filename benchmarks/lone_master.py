"""What the master alone costs: a join at so many partitions, and the loss of an agent with so many
primaries; its agents answer at once.  Prints one JSON object."""

import json
import resource
import sys
import time

from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import ShardKey
from quorate_lone_master.world import LoneMaster

NODES = tuple(f"agent-{n:02}" for n in range(10))


def main() -> None:
    joined, lost = int(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({"join": _join(joined), "loss": _loss(lost)}))


def _join(partitions: int) -> dict[str, float]:
    zone = ZoneRecord("uid", "z", partitions, 3)
    world = LoneMaster(zone, nodes=NODES)
    longest, spent = [0.0], [0.0]
    master = world.master
    decide = master.decide

    def timed(now: object) -> None:
        began = time.process_time()
        decide(now)  # type: ignore[arg-type]  # a Now
        took = time.process_time() - began
        longest[0] = max(longest[0], took)
        spent[0] += took

    master.decide = timed  # type: ignore[method-assign]
    before = world.status(zone).migrations_done
    world.connect("joined")
    began_ms = world.ms
    world.wait(
        lambda: (
            world.status(zone).migrations_done - before > 0
            and not world.status(zone).migrations_running
            and not world.status(zone).migrations_queued
        ),
        3_600_000,
    )
    return {
        "migrations": world.status(zone).migrations_done - before,
        "cpu_s": spent[0],
        "longest_s": longest[0],
        "rounds": (world.ms - began_ms) / 100,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _loss(partitions: int) -> dict[str, float]:
    zone = ZoneRecord("uid", "z", partitions, 3)
    world = LoneMaster(zone, nodes=("a", "b", "c"))
    lost = sum(
        row.primary is not None and row.primary.node == "a" for row in world.rows(zone).values()
    )
    writes = [0]
    written = world.master.written

    def counted(key: object, value: object, now: object) -> None:
        writes[0] += isinstance(key, ShardKey)
        written(key, value, now)  # type: ignore[arg-type]  # as the master has them

    world.master.written = counted  # type: ignore[method-assign, assignment]
    began = time.process_time()
    world.kill("a")
    return {
        "primaries": lost,
        "shards": partitions // 64,
        "writes": writes[0],
        "cpu_s": time.process_time() - began,
    }


if __name__ == "__main__":
    main()
