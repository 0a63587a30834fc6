"""What time it is: for the core in wall and boot milliseconds, for objects as the API writes it."""

import time
from datetime import UTC, datetime

from quorate.facts.time import Now


def boot_ms() -> int:
    """Milliseconds since the machine was started, time spent suspended included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def rfc3339() -> str:
    """Now, as the Kubernetes API writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Clock:
    """Hands out Now; neither of its times is ever lower than before."""

    def __init__(self) -> None:
        self._last = Now(0, 0)

    def now(self) -> Now:
        """Both clocks; a wall clock that was set back stands still until it is past again."""
        wall = time.time_ns() // 1_000_000
        self._last = Now(max(wall, self._last.wall_ms), max(boot_ms(), self._last.boot_ms))
        return self._last
