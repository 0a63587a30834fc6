"""Runs cyclic garbage collection only while the process has little else to do.

A collection visits every container that it does not know yet.  In a busy agent these are hundreds
of thousands of waiting commands: half a second of CPU, longer on a busy machine, in which leases
run out.  Commands, turns and connections leave no reference cycles, so waiting for a quiet moment
loses nothing.

What has survived a collection is not visited again ("frozen"): with 1,000 zones that took 0.7 s of
CPU each time, in all agents at once, and found nothing.  Survivors that became garbage later are
found once an hour, and after `visit_all`.
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
"""This many new containers mean a leak; they are collected whatever the load."""

LOOK_S = 1.0


class Garbage:
    """Replaces automatic collection, which the first look disables."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._pause_s = pause_s
        self._looked_s, self._cpu_s = clock(), cpu_clock()
        self._collected_s = self._visited_s = self._looked_s
        self._visits_all = False

    def visit_all(self) -> None:
        """Have the next collection visit survivors: something large was dropped."""
        self._visits_all = True

    def look(self, late_s: float) -> None:
        """Collect if there is little to do; called about every second.

        `late_s`: by how much pauses overran since the last look, in total."""
        gc.disable()
        now_s, cpu_s = self._clock(), self._cpu_clock()
        passed_s = now_s - self._looked_s
        is_quiet = cpu_s - self._cpu_s < QUIET_SHARE * passed_s and late_s < LATE_SHARE * passed_s
        self._looked_s, self._cpu_s = now_s, cpu_s
        young = gc.get_count()[0]
        all_due = self._visits_all or now_s - self._visited_s >= ALL_S
        rested = now_s - self._collected_s >= self._pause_s
        if (is_quiet and rested and (young >= YOUNG_MIN or all_due)) or young >= YOUNG_MAX:
            if is_quiet and all_due:
                self._visits_all, self._visited_s = False, now_s
                gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._collected_s = self._clock()


def own_pause_s() -> float:
    """Return a pause for this process: those started together do not collect at once."""
    return PAUSE_S * random.uniform(0.8, 1.2)


async def keep_collecting() -> None:
    """Look every second until cancelled."""
    garbage = Garbage(pause_s=own_pause_s())
    while True:
        due_s = time.monotonic() + LOOK_S
        await asyncio.sleep(LOOK_S)
        garbage.look(max(time.monotonic() - due_s, 0.0))
