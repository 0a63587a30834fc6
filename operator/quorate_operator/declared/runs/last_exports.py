"""The last verified backup and restore of each Zone, also after their objects are gone.

The Zone's status keeps them.  Those from before the Zone was created are of another one of
its name.
"""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from quorate.wire.exports.export_result import RunOutcome
from quorate.wire.exports.export_run import ExportRunStatus
from quorate.wire.zone import ZoneExport, ZoneStatus
from quorate_operator.declared.declared_zone import DeclaredZone


class ExportTimes(NamedTuple):
    """Times that are known of one zone, RFC 3339; empty: there is none.

    `due`: the last but one time at which a schedule was to make a backup.  `backup_s`: seconds from
    when the backup's Job was made until an operator saw its end; `backup_rows`: what it has.  None:
    not known.
    """

    backup: str = ""
    restore: str = ""
    due: str = ""
    backup_s: float | None = None
    backup_rows: int | None = None


class Figures(NamedTuple):
    """Seconds from when the Job of a run was made until its end was seen, and its rows; None: not
    known.
    """

    seconds: float | None = None
    rows: int | None = None


class LastExports:
    """The last verified run of one kind by zone; `on_result`: called with a zone that has another.

    `begins`: a run counts from when it began, otherwise from when it ended.
    """

    def __init__(self, on_result: Callable[[str], None], begins: bool) -> None:
        self._on_result = on_result
        self._begins = begins
        self._last: dict[str, ZoneExport] = {}
        self._figures: dict[str, Figures] = {}
        """Of `_last`, by zone."""

    def note(self, name: str, zone: str, status: ExportRunStatus) -> None:
        """Take the status of a run of a zone."""
        time = status.start_time if self._begins else status.completion_time
        if status.outcome is not RunOutcome.COMPLETE or not is_time(time):
            return
        known = self._last.get(zone)
        if known is None or time_of(known.time) < time_of(time):
            self._last[zone] = ZoneExport(time=time, run=name, place=status.place)
            self._figures[zone] = _figures(status)
            self._on_result(zone)

    def figures(self, zone: str, told: ZoneExport | None) -> Figures:
        """Return the figures of the run that `of` has returned; its object may have been deleted
        before this operator began."""
        known = self._last.get(zone)
        return self._figures[zone] if known is not None and known == told else Figures()

    def of(self, zone: DeclaredZone, before: ZoneExport | None) -> ZoneExport | None:
        """Return that of a Zone; `before`: as its status has it."""
        found = self._last.get(zone.name)
        if found is None or is_before(found.time, zone):
            return before
        if before is None or not is_time(before.time):
            return found
        return before if time_of(before.time) > time_of(found.time) else found


def with_last_exports(
    zone: DeclaredZone, status: ZoneStatus, backups: LastExports, restores: LastExports
) -> ZoneStatus:
    """Return a Zone's status with its last verified backup and restore."""
    known = zone.known_status
    return status.model_copy(
        update={
            "last_backup": backups.of(zone, known.last_backup),
            "last_restore": restores.of(zone, known.last_restore),
        }
    )


def _figures(status: ExportRunStatus) -> Figures:
    began, ended = status.start_time, status.completion_time
    if not (is_time(began) and is_time(ended)):
        return Figures(rows=status.rows)
    # The API server's clock has told the first time, the operator's the second.
    return Figures(max((time_of(ended) - time_of(began)).total_seconds(), 0.0), status.rows)


def is_before(time: str, zone: DeclaredZone) -> bool:
    """Return whether the time is one of before the Zone was created."""
    return is_time(zone.since) and is_time(time) and time_of(time) < time_of(zone.since)


def is_time(text: str) -> bool:
    """Return whether this is a time of RFC 3339."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def time_of(text: str) -> datetime:
    """Return the time that a status has."""
    return datetime.fromisoformat(text)
