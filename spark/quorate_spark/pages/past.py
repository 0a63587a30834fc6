"""The zone's recent past as the operator has told it: its last 24 hours, and its backups."""

from quorate.facts.time import HOUR_MS, HOURS, duration_text, wall_ms_of
from quorate.wire.jobs.zone_history import DayTold, ExportTold, ZoneHistory
from quorate_spark.pages.markup import Markup, joined, tag
from quorate_spark.pages.parts import day_text, section, table, time_text
from quorate_spark.pages.plots import Bar, bars

DAY_MS = HOURS * HOUR_MS
_NOT_TOLD = "Unknown: no operator has told this run of it."
_FAILOVERS = (
    "Partitions that another primary, or another process of it, took over without a hand-over, a"
    " reset or a decision of a person: their clients waited."
)
_UNSERVED = "How long at least one partition was not served."
_NO_SCHEDULES_TOLD = joined(
    (
        "none is known: the operator is not told of what ",
        tag("code", "quorate export"),
        " makes",
    )
)


def last_day(history: ZoneHistory | None) -> Markup:
    """Return failovers and missing copies of the 24 hours before the run."""
    title = "The last 24 hours"
    if history is None or history.day is None:
        return section(title, tag("p", _NOT_TOLD))
    day, hours = history.day, history.day.hours
    most = max((each.partitions_missing_copies for each in hours), default=0)
    figures = [
        ("Failovers", f"{sum(each.failovers for each in hours):,}", _FAILOVERS),
        ("Partitions with missing copies", f"{most:,}", "The most at one time."),
        (
            "Outage",
            duration_text(1000 * sum(each.unavailable_seconds for each in hours)),
            _UNSERVED,
        ),
    ]
    parts = [table(("what", "count", "about"), figures, "why"), *_limits(history, day)]
    if hours:
        parts.append(tag("div", *_plots(history, day), class_="plots"))
    return section(title, *parts)


def backups(history: ZoneHistory | None, started_ms: int) -> Markup:
    """Return the age of the last backup, and of the last restore, when the run began."""
    title = "Backups"
    if history is None:
        return section(title, tag("p", _NOT_TOLD))
    none = {
        True: "none yet, though a schedule is to make them",
        False: "none is known, and no schedule makes any",
        None: _NO_SCHEDULES_TOLD,
    }[history.backups_scheduled]
    rows = [
        _export("Last backup", history.last_backup, started_ms, none),
        _export("Last verified restore", history.last_restore, started_ms, "none is known"),
    ]
    return section(title, table(("what", "age", "about"), rows))


def _limits(history: ZoneHistory, day: DayTold) -> list[Markup]:
    """Return what of the 24 hours is not known."""
    told_ms, since_ms = wall_ms_of(history.told_at), wall_ms_of(day.since)
    watched_ms = wall_ms_of(day.watched_since)
    if told_ms is None or since_ms is None or watched_ms is None:
        return [tag("p", "From when on this is known was not told.", class_="quiet")]
    first_ms = told_ms - DAY_MS
    said = f"As of {time_text(told_ms)}."
    if since_ms > first_ms:
        said += f" Nothing is known of the time before {time_text(since_ms)}."
    if watched_ms > max(since_ms, first_ms):
        said += (
            f" The present operator began at {time_text(watched_ms)}: of the time before, what"
            " happened while no operator ran, or shortly before one ended, may be missing."
        )
    return [tag("p", said, class_="quiet")]


def _plots(history: ZoneHistory, day: DayTold) -> list[Markup]:
    """Return one bar for each hour that is known."""
    told_ms, since_ms = wall_ms_of(history.told_at), wall_ms_of(day.since)
    if told_ms is None or since_ms is None:
        return []
    by_hour = {(wall_ms_of(each.start) or 0) // HOUR_MS: each for each in day.hours}
    last = told_ms // HOUR_MS
    numbers = range(max(since_ms // HOUR_MS, last - HOURS + 1), last + 1)
    made = []
    for title, field, unit, kind in (
        ("Failovers by the hour", "failovers", "", "unknown"),
        ("Partitions with missing copies", "partitions_missing_copies", "", "unknown"),
        ("Outage", "unavailable_seconds", " s", "differ"),
    ):
        values = [
            Bar(day_text(number * HOUR_MS), getattr(by_hour.get(number), field, 0), kind)
            for number in numbers
        ]
        made.append(bars(title, values, unit))
    return made


def _export(
    what: str, export: ExportTold | None, started_ms: int, none: str
) -> tuple[str, str, str]:
    if export is None:
        return what, none, ""
    time_ms = wall_ms_of(export.time)
    about = f"{export.run}, at {export.place}"
    if time_ms is None:
        return what, "unknown", about
    age = duration_text(started_ms - time_ms) if started_ms else "unknown"
    return what, age, f"{time_text(time_ms)}, {about}"
