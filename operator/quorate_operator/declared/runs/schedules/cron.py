"""Times of a schedule in the form of crontab(5), in a time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from quorate.facts.errors import QuorateError
from quorate.wire.jobs.schedule import has_all_fields

CLOCKS_SET = timedelta(hours=3)
"""Clocks are set by less than this."""


class BadSchedule(QuorateError):
    """A schedule or its time zone cannot be read; the message says which, and what to write."""


def last_but_one(schedule: str, time_zone: str, now: datetime) -> datetime | None:
    """Return the time of the schedule before the last one up to `now`, in UTC; None: there is none.

    Raises BadSchedule.
    """
    last, _ = last_and_next(schedule, time_zone, now)
    if last is None:
        return None
    return last_and_next(schedule, time_zone, last - timedelta(seconds=1))[0]


def last_and_next(
    schedule: str, time_zone: str, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the last time of the schedule up to `now`, and the first one after it, in UTC.

    None: there is none within some decades, as of 30 February.  Raises BadSchedule.
    """
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadSchedule(
            f"timeZone {time_zone} is not known: write a name of the time zone database, such as"
            " Europe/Berlin, or UTC"
        ) from error
    local = now.astimezone(zone)
    if not has_all_fields(schedule):  # the library reads a sixth one, of seconds
        raise _unreadable(schedule, "Wrong number of fields")
    try:
        # Times before the next minute: that of `now` is among them.
        before = CronSim(schedule, local + timedelta(minutes=1), reverse=True)
        about = next((each for each in before if each.astimezone(UTC) <= now), local)
        # Where clocks are set, the library finds other times in reverse.  Both results are of one
        # sequence, from before clocks were set: else a time could be told as the next one, and
        # never be the last one.
        last = None
        for each in CronSim(schedule, (about.astimezone(UTC) - CLOCKS_SET).astimezone(zone)):
            found = each.astimezone(UTC)
            if found > now:
                return last, found
            last = found if last is None else max(last, found)
    except CronSimError as error:
        raise _unreadable(schedule, str(error)) from error
    return last, None


def _unreadable(schedule: str, why: str) -> BadSchedule:
    return BadSchedule(
        f"schedule {schedule} cannot be read ({why}): write minute, hour, day of month, month and"
        " day of week, such as 0 3 * * * for 03:00"
    )
