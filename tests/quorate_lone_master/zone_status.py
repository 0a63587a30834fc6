"""What a master says of a zone, for tests of those who read it."""

from typing import Any

from quorate.protocol.status import ZoneStatus


def status_of_zone(**changes: Any) -> ZoneStatus:
    """Zone books, of which 64 partitions serve and nothing is to be done; `changes` to that."""
    fields: dict[str, Any] = {
        "uid": "uid-1",
        "name": "books",
        "phase": "Available",
        "sentence": "nothing to do",
        "partitions": 64,
        "available": 64,
        "degraded": 0,
        "unavailable": 0,
        "migrations_running": 0,
        "migrations_queued": 0,
        "migrations_done": 0,
        "migrations_failed": 0,
        "bytes_moved": 0,
        "full_copies": 0,
        "ports": {"agent-1": 7000},
        "data_nodes": ("agent-1",),
        "spread_violations": (),
    }
    return ZoneStatus(**{**fields, **changes})
