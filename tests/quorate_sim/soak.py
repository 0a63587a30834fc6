"""`python -m quorate_sim.soak`: seeds on all cores, what they reached, and how fast.

Without `--first` it begins at a number that nobody chose.  Ends with status 1 when a seed failed;
each is told with the command that replays it.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult, Pool
from random import SystemRandom
from typing import NamedTuple

from quorate_sim.coverage import Counts, table
from quorate_sim.faults import replay_command, run_seed

BLOCK = 10
FIRST_MAX = 10**9
TELL_S = 60.0
"""Seconds between two lines that say how far it is: a run that is cut short counts, too."""


class Block(NamedTuple):
    """A few seeds in a row: what they reached, and which of them failed how."""

    first: int
    seeds: int
    counts: Counts
    failed: list[tuple[int, str]]


def run_block(first: int) -> Block:
    """Run the seeds from `first` on."""
    counts = Counts()
    failed: list[tuple[int, str]] = []
    for seed in range(first, first + BLOCK):
        try:
            counts.add(run_seed(seed).coverage.counts)
        except Exception as error:
            failed.append((seed, f"{type(error).__name__}: {str(error)[:400]}"))
    return Block(first, BLOCK, counts, failed)


def _blocks(first: int, seeds: int, until: float | None) -> Iterator[int]:
    """First seeds of blocks: as many as asked for, or as time allows."""
    for number in count():
        if until is None and number * BLOCK >= seeds:
            return
        if until is not None and time.monotonic() >= until:
            return
        yield first + number * BLOCK


def soak(first: int, seeds: int, minutes: float, workers: int) -> bool:
    """Run seeds and tell of them; whether all held."""
    started = time.monotonic()
    until = started + minutes * 60 if minutes else None
    counts, done, failed = Counts(), 0, 0
    # What is there by now stays: the garbage of seeds is found without looking through it.
    with get_context("fork").Pool(workers, gc.freeze) as pool:
        # A block is handed out only when a worker is free: with a time limit nothing is left over.
        told_s = started
        for block in _run(pool, _blocks(first, seeds, until), workers * 2):
            done, failed = done + block.seeds, failed + len(block.failed)
            counts.add(block.counts)
            for seed, what in block.failed:
                print(f"seed {seed}: {what}\n  replay: {replay_command(seed)}", flush=True)
            if time.monotonic() - told_s >= TELL_S:
                told_s = time.monotonic()
                print(f"{done} seeds until now, {failed} failed", flush=True)
    seconds = time.monotonic() - started
    print(table(counts))
    print(
        f"seeds {first} to {first + done - 1}: {done} seeds, {failed} failed, "
        f"{done / seconds:.1f} seeds/s with {workers} workers, {seconds:.0f} s"
    )
    return failed == 0


def _run(pool: Pool, blocks: Iterable[int], waiting_max: int) -> Iterator[Block]:
    waiting: deque[AsyncResult[Block]] = deque()
    for at in blocks:
        waiting.append(pool.apply_async(run_block, (at,)))
        if len(waiting) >= waiting_max:
            yield waiting.popleft().get()
    for result in waiting:
        yield result.get()


def main() -> int:
    """Answer 1 when a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m quorate_sim.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, help="the first one; default: any")
    parser.add_argument("--minutes", type=float, default=0.0, help="as many as fit into this time")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    first = options.first
    if first is None:
        first = SystemRandom().randrange(FIRST_MAX)
        print(f"from seed {first} on, drawn by chance", flush=True)
    held = soak(first, options.seeds, options.minutes, options.workers)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
