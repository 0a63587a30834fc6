"""The recent past of a zone, from its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.wire.jobs.zone_history import DayTold, ExportTold, HourTold, ZoneHistory

if TYPE_CHECKING:  # a caller with a status has imported them
    from quorate.wire.zone import ZoneExport, ZoneStatus
    from quorate.wire.zone_day import ZoneDay


def history_of(
    status: ZoneStatus, told_at: str, backups_scheduled: bool | None = None
) -> ZoneHistory:
    """Return what a Zone's status says.  `told_at`: now, RFC 3339."""
    return ZoneHistory(
        told_at,
        _day(status.last_day),
        _export(status.last_backup),
        _export(status.last_restore),
        backups_scheduled,
    )


def _day(day: ZoneDay | None) -> DayTold | None:
    if day is None:
        return None
    hours = (
        HourTold(
            each.start, each.failovers, each.partitions_missing_copies, each.unavailable_seconds
        )
        for each in day.hours
    )
    return DayTold(day.since, day.watched_since, tuple(hours))


def _export(export: ZoneExport | None) -> ExportTold | None:
    return ExportTold(export.time, export.run, export.place) if export is not None else None
