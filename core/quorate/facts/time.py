"""The time as the core is given it with every event, on two clocks in milliseconds; and as text."""

from datetime import UTC, datetime
from typing import NamedTuple

HOUR_MS = 3_600_000
HOURS = 24
"""Hours of a day: so far back reaches what is kept of a zone's past."""


class Now(NamedTuple):
    """One moment on both clocks.

    `wall_ms`: wall-clock time, for deadlines that users set and for expiry. `boot_ms`: time since
    boot, for leases, failure detection and election; it counts through suspension and never goes
    back.
    """

    wall_ms: int
    boot_ms: int


def wall_ms_of(text: str) -> int | None:
    """Return a time of RFC 3339 in wall milliseconds; None if it is none."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_text(ms: int) -> str:
    """Return a length of time in its two largest units; a negative one as 0."""
    seconds = max(ms, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % HOURS, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
