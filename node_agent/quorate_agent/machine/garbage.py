"""When the process looks for what only a collector finds: while it has little else to do.

A collection visits every young container.  Of an agent with too much to do that is all that waits,
hundreds of thousands of commands: half a second of CPU, longer on a machine where others want some
too; leases run out in that time.  Counts of references take away whatever commands, turns and
connections leave behind, so nothing is lost by waiting for a quiet moment.
"""

import gc
import time
from collections.abc import Callable

QUIET_SHARE = 0.25
"""Of one CPU: with less to do since the last look, clients hardly notice a collection."""

LATE_SHARE = 0.1
"""Of the time since the last look, by which pauses went on too long: with more, something waits.  A
process that gets little of a CPU uses little of it, however much it has to do, where others take
the rest, on this machine or beside it on its host."""

PAUSE_S = 60.0
"""Between two collections."""

YOUNG_MIN = 50_000
"""New containers that are worth a look of 20 ms, which agents that began together take together;
were they garbage, it would be some 10 MB."""

YOUNG_MAX = 5_000_000
"""So many new ones are a leak, or will be: then they are looked at whatever else there is to do."""


class Garbage:
    """Instead of automatic collection, which ends with the first look."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._looked_s, self._cpu_s = clock(), cpu_clock()
        self._collected_s = self._looked_s

    def look(self, late_s: float) -> None:
        """Collect when there is little to do; called about every second.  `late_s`: for how long
        pauses went on, since the last look, after they were to end."""
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
