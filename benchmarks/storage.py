"""The costs of storage: nanoseconds per row read and written, and bytes of memory, per engine.

    PYTHONPATH=core:node_agent python benchmarks/storage.py [rows]

Time is the calling thread's on a processor, not that of the engine's own threads.  Each engine runs
in a process of its own, so that the memory is its own.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from quorate.protocol.storage import Row, Storage
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage

VALUE_BYTES = 100
TURN = 50
PARTITIONS = 64
EVERYTHING = 1 << 40


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(what: str, operations: int, seconds: float) -> None:
    print(
        f"    {what:<42} {seconds / operations * 1e9:8.0f} ns   {memory_mb():6.0f} MB", flush=True
    )


def timed(what: str, operations: int, work: Callable[[], object]) -> None:
    started = time.thread_time()
    work()
    report(what, operations, time.thread_time() - started)


def run(storage: Storage, rows: int) -> None:
    """Every step prints nanoseconds per row and the process's memory after it."""
    value = os.urandom(VALUE_BYTES)
    keys = [b"key:%012d" % number for number in range(rows)]
    spaces = [storage.space(partition, 0) for partition in range(PARTITIONS)]
    print(f"    {'(start)':<42} {'':>8}      {memory_mb():6.0f} MB")

    def write(with_log: bool, counter: int) -> None:
        for start in range(0, rows, TURN):
            for number in range(start, min(start + TURN, rows)):
                counter += 1
                partition = number % PARTITIONS
                spaces[partition].put(keys[number], Row(counter, 1, 0, value))
                if with_log:
                    storage.log_put(partition, counter, 1, value)
            storage.commit()

    def read() -> None:
        for number in range(rows):
            spaces[number % PARTITIONS].get(keys[number])

    def read_missing() -> None:
        for number in range(rows):
            spaces[(number + 1) % PARTITIONS].get(keys[number])

    def scan() -> None:
        for space in spaces:
            after: bytes | None = None
            while chunk := space.scan(after, 1000, EVERYTHING):
                after = chunk[-1][0]

    def cut() -> None:
        for partition in range(PARTITIONS):
            storage.log_cut(partition, EVERYTHING)
        storage.commit()

    timed(f"put new, {TURN} rows a batch", rows, lambda: write(False, 0))
    timed("get", rows, read)
    timed("get of a key that is not there", rows, read_missing)
    timed(f"put again with its log entry, {TURN} a batch", rows, lambda: write(True, rows))
    timed("get after it", rows, read)
    timed("scan", rows, scan)
    timed("cut the log (whole)", rows, cut)
    timed("sync (one)", 1, storage.sync)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory() as folder:
            engine = sys.argv[2]
            run(MemoryStorage() if engine == "memory" else RocksStorage(folder), rows)
        return
    print(f"{rows} rows of {VALUE_BYTES} bytes in {PARTITIONS} partitions")
    for engine in ("memory", "rocks"):
        print(f"  {engine}", flush=True)
        subprocess.run([sys.executable, __file__, str(rows), engine], check=True)


if __name__ == "__main__":
    main()
