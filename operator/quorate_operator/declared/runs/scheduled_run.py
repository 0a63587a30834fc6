"""A run that a schedule has created, as the schedule sees it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Body = Mapping[str, Any]


class ScheduledRun(NamedTuple):
    """One run; `is_good`: it has ended as its schedule wishes."""

    created: str
    """RFC 3339."""
    name: str
    schedule: str
    """Uid of the schedule."""
    outcome: str
    """Empty until it is finished; Refused if it was not run."""
    is_good: bool = False
    status: Any = None
    """Its status, where the schedule needs more of it."""


def schedule_of(body: Body, kind: str) -> str:
    """Return the uid of the schedule of this kind that created the object; empty: none has."""
    owners = body["metadata"].get("ownerReferences") or ()
    made = (each for each in owners if each.get("kind") == kind and each.get("controller"))
    return next((str(each["uid"]) for each in made), "")


def run_name(schedule: str, due: datetime) -> str:
    """Return the name of the run of this time."""
    return f"{schedule}-{int(due.timestamp()) // 60}"


def due_of(run: str) -> datetime | None:
    """Return the time of the run with this name; None: it is not named as one."""
    minute = run.rpartition("-")[2]
    if not minute.isascii() or not minute.isdigit() or len(minute) > 9:
        return None
    return datetime.fromtimestamp(int(minute) * 60, UTC)
