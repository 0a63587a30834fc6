"""Times as texts: read as the Kubernetes API writes them, and lengths for people."""

from datetime import UTC, datetime


def wall_ms_of(text: str) -> int | None:
    """Return a time of RFC 3339 in wall milliseconds; None if it is none."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp() * 1000)


def length(ms: int) -> str:
    """Return a length of time in its two largest units; a negative one as 0."""
    seconds = max(ms, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
