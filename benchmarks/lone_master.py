"""The costs of the master alone: a join at so many partitions, and the loss of an agent with many
primaries; its agents answer at once.  Prints one JSON object."""

import json
import resource
import sys
import time

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.metastore import Key, ShardKey, Value
from quorate_lone_master.world import LoneMaster

NODES = tuple(f"agent-{n:02}" for n in range(10))


def main() -> None:
    joined, lost = int(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({"join": _join(joined), "loss": _loss(lost)}))


class _TimedMaster(Master):
    """Notes what its decisions take."""

    longest_s = spent_s = 0.0

    def decide(self, now: Now) -> None:
        began = time.process_time()
        super().decide(now)
        took = time.process_time() - began
        self.longest_s = max(self.longest_s, took)
        self.spent_s += took


class _CountedMaster(Master):
    """Counts the objects of rows that were written for it."""

    shards_written = 0

    def written(self, key: Key, value: Value | None, now: Now) -> None:
        self.shards_written += isinstance(key, ShardKey)
        super().written(key, value, now)


def _join(partitions: int) -> dict[str, float]:
    zone = ZoneRecord("uid", "z", partitions, 3)
    world = LoneMaster(zone, nodes=NODES, kind=_TimedMaster)
    master = world.master
    assert isinstance(master, _TimedMaster)
    before = world.status(zone).migrations_done
    master.longest_s = master.spent_s = 0.0
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
        "cpu_s": master.spent_s,
        "longest_s": master.longest_s,
        "rounds": (world.ms - began_ms) / 100,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _loss(partitions: int) -> dict[str, float]:
    zone = ZoneRecord("uid", "z", partitions, 3)
    world = LoneMaster(zone, nodes=("a", "b", "c"), kind=_CountedMaster)
    master = world.master
    assert isinstance(master, _CountedMaster)
    lost = sum(
        row.primary is not None and row.primary.node == "a" for row in world.rows(zone).values()
    )
    master.shards_written = 0
    began = time.process_time()
    world.kill("a")
    return {
        "primaries": lost,
        "shards": partitions // 64,
        "writes": master.shards_written,
        "cpu_s": time.process_time() - began,
    }


if __name__ == "__main__":
    main()
