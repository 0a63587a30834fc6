"""Runs cyclic garbage collection only while the process has little else to do.

A collection visits every young container.  In a busy agent these are hundreds of thousands of
waiting commands: half a second of CPU, longer on a busy machine, in which leases run out.
Commands, turns and connections leave no reference cycles, so waiting for a quiet moment loses
nothing.
"""

import gc
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

YOUNG_MIN = 50_000
"""New containers that justify a collection of 20 ms, which agents that were started together do
together; as garbage they would be some 10 MB."""

YOUNG_MAX = 5_000_000
"""This many new containers mean a leak; they are collected whatever the load."""


class Garbage:
    """Replaces automatic collection, which the first look disables."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._looked_s, self._cpu_s = clock(), cpu_clock()
        self._collected_s = self._looked_s

    def look(self, late_s: float) -> None:
        """Collect if there is little to do; called about every second.

        `late_s`: by how much pauses overran since the last look, in total."""
        gc.disable()
        now_s, cpu_s = self._clock(), self._cpu_clock()
        passed_s = now_s - self._looked_s
        is_quiet = cpu_s - self._cpu_s < QUIET_SHARE * passed_s and late_s < LATE_SHARE * passed_s
        self._looked_s, self._cpu_s = now_s, cpu_s
        young = gc.get_count()[0]
        rested = now_s - self._collected_s >= PAUSE_S
        if (is_quiet and rested and young >= YOUNG_MIN) or young >= YOUNG_MAX:
            gc.collect()
            self._collected_s = self._clock()
