"""The time: in wall and boot milliseconds for the core, as the API writes it for objects."""

import time
from datetime import UTC, datetime

from quorate.facts.time import Now


def boot_ms() -> int:
    """Return the milliseconds since the machine was started, including time suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def rfc3339(wall_ms: int | None = None) -> str:
    """Return a wall-clock time as the Kubernetes API writes it; None: the present."""
    time_then = datetime.now(UTC) if wall_ms is None else datetime.fromtimestamp(wall_ms / 1e3, UTC)
    return time_then.strftime("%Y-%m-%dT%H:%M:%SZ")


class Clock:
    """Hands out Now; neither of its times is ever lower than before."""

    def __init__(self) -> None:
        self._last = Now(0, 0)

    def now(self) -> Now:
        """Return both times; a wall clock that was set back stands still until it has caught up."""
        wall = time.time_ns() // 1_000_000
        self._last = Now(max(wall, self._last.wall_ms), max(boot_ms(), self._last.boot_ms))
        return self._last
