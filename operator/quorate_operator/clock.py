"""What time it is for the core: wall and boot milliseconds, neither ever lower than before."""

import time

from quorate.facts.time import Now


def boot_ms() -> int:
    """Milliseconds since the machine was started, time spent suspended included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Clock:
    """Hands out Now."""

    def __init__(self) -> None:
        self._last = Now(0, 0)

    def now(self) -> Now:
        """Both clocks; a wall clock that was set back stands still until it is past again."""
        wall = time.time_ns() // 1_000_000
        self._last = Now(max(wall, self._last.wall_ms), max(boot_ms(), self._last.boot_ms))
        return self._last
