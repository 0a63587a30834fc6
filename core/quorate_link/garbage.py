"""Runs cyclic garbage collection only while the process has little else to do.

A collection visits every container that it does not know yet.  In a busy agent these are hundreds
of thousands of waiting commands: half a second of CPU, longer on a busy machine, in which leases
run out.  Commands, turns and connections leave no reference cycles, so waiting for a quiet moment
loses nothing.  An operator is never quiet with many zones, and its libraries leave cycles: it
collects after a number of new containers, whatever the load.

What has survived a collection is not visited again ("frozen"): with 1,000 zones that took 0.7 s of
CPU each time, in all agents at once, and found nothing.  A collection that visits survivors is due
once an hour, and soon after `visit_all`; each process has moments of its own (`jitter`).
"""

import asyncio
import gc
import random
import time
from collections.abc import Callable

QUIET_SHARE = 0.25
"""Share of one CPU: if less was used since the last look, clients hardly notice a collection."""

LATE_SHARE = 0.1
"""Share of the time since the last look by which pauses overran; with more, work is waiting.

A process starved of CPU looks idle, whether others on this machine or on its host take the CPU, so
late timers count as load."""

PAUSE_S = 60.0
"""Seconds between two collections."""

ALL_S = 3600.0
"""Seconds between two collections that also visit survivors."""

YOUNG_MIN = 50_000
"""New containers that justify a collection of 20 ms; as garbage they would be some 10 MB."""

YOUNG_MAX = 5_000_000
"""This many new containers mean a leak in an agent; they are collected whatever the load."""

YOUNG_MAX_OPERATOR = 500_000
"""As garbage they would be some 100 MB."""

LOOK_S = 1.0


class Garbage:
    """Replaces automatic collection, which the first look disables.

    `jitter`: 0 to 1, by which the moments of processes that were started together differ.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
        *,
        young_max: int = YOUNG_MAX,
        jitter: float = 0.0,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._young_max = young_max
        self._jitter_s = PAUSE_S * jitter
        self._looked_s, self._cpu_s = clock(), cpu_clock()
        self._collected_s = self._looked_s - self._jitter_s
        self._visit_all_s = self._looked_s + ALL_S * (1 - jitter / 2)

    def visit_all(self) -> None:
        """Have a collection visit survivors soon: something large was dropped."""
        self._visit_all_s = min(self._visit_all_s, self._clock() + self._jitter_s)

    def look(self, late_s: float) -> None:
        """Collect if there is little to do; called about every second.

        `late_s`: by how much pauses overran since the last look, in total."""
        gc.disable()
        now_s, cpu_s = self._clock(), self._cpu_clock()
        passed_s = now_s - self._looked_s
        is_quiet = cpu_s - self._cpu_s < QUIET_SHARE * passed_s and late_s < LATE_SHARE * passed_s
        self._looked_s, self._cpu_s = now_s, cpu_s
        young = gc.get_count()[0]
        visits_all = now_s >= self._visit_all_s
        rested = now_s - self._collected_s >= PAUSE_S
        is_due = is_quiet and rested and (young >= YOUNG_MIN or visits_all)
        if is_due or young >= self._young_max:
            if visits_all:
                self._visit_all_s = now_s + ALL_S
                gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._collected_s = self._clock()


async def keep_collecting() -> None:
    """Look every second until cancelled; for an operator."""
    garbage = Garbage(young_max=YOUNG_MAX_OPERATOR, jitter=random.random())
    try:
        while True:
            due_s = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            garbage.look(max(time.monotonic() - due_s, 0.0))
    finally:
        gc.enable()
