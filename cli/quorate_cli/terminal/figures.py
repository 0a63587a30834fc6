"""Numbers as people read them."""

from datetime import UTC, datetime


def size(count: int) -> str:
    """Return a number of bytes for people."""
    value, units = float(count), ["B", "KB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return (
        f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 100 else f"{value:.1f} {units[0]}"
    )


def moment(wall_ms: int) -> str:
    """Return a wall time for people."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """Return a short time for people."""
    value, unit = next(
        (
            (seconds * factor, unit)
            for unit, factor in (("s", 1.0), ("ms", 1e3))
            if seconds * factor >= 1
        ),
        (seconds * 1e6, "µs"),
    )
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
