"""The fields that all kinds share whose objects create runs by a schedule."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field

from quorate.wire.schema.resource import Conditions, Integer, Part, Rule, Text

NAME_LENGTH_MAX = 39
"""The name of a run ends with a minute, and is 50 characters long at most."""
LIMIT_MAX = 1000
FIELDS = 5
"""Fields of a schedule.  There is none of seconds: the name of a run has the minute."""
STARTING_DEADLINE_S = 3600
STARTING_DEADLINE_MAX_S = 30 * 24 * 3600


class ConcurrencyPolicy(enum.StrEnum):
    """The policy for a run that is due while an earlier one of the schedule is not finished."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class ScheduleSpec(Part):
    """When runs are created, and how many are kept."""

    schedule: Annotated[Text, Field(min_length=1, max_length=100)]
    """Minute, hour, day of month, month, day of week, as in crontab(5): `0 3 * * *` is 03:00."""
    time_zone: Annotated[Text, Field(min_length=1, max_length=100)] = "UTC"
    """The time zone of the schedule, such as Europe/Berlin.  A time that clocks skip is taken at
    the next minute that exists; one that they show twice is taken once.  Where minutes or hours
    begin with a star, clocks are followed: the former is left out, the latter is taken twice."""
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.FORBID
    """While an earlier run is not finished: Forbid skips the new one, Allow runs both, Replace
    deletes the earlier one."""
    suspend: bool = False
    """No run is created meanwhile; those missed are not made up for."""
    starting_deadline_seconds: Annotated[Integer, Field(ge=10, le=STARTING_DEADLINE_MAX_S)] = (
        STARTING_DEADLINE_S
    )
    """How late a run may still be created, as after a time without an operator.  Of several missed
    ones only the last is."""
    successful_runs_history_limit: Annotated[Integer, Field(ge=0, le=LIMIT_MAX)] = 3
    """How many objects of runs that ended well are kept: with the verdict Agree, or the outcome
    Complete."""
    failed_runs_history_limit: Annotated[Integer, Field(ge=0, le=LIMIT_MAX)] = 3
    """How many objects of other finished runs are kept."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "schedule",
            rf"self.schedule.matches('^\\s*\\S+(\\s+\\S+){{{FIELDS - 1}}}\\s*$')",
            "write five fields: minute, hour, day of month, month and day of week, such as"
            " 0 3 * * * for 03:00",
            lambda new, _: has_all_fields(new.schedule),
        ),
    )


def has_all_fields(schedule: str) -> bool:
    """Return whether a schedule has the right number of fields, whatever is in them."""
    return len(schedule.split()) == FIELDS


class ScheduleStatus(Part):
    """The state of a schedule."""

    last_schedule_time: Text = ""
    """The time in the schedule that was dealt with last, RFC 3339."""
    next_schedule_time: Text = ""
    """The next time in the schedule, RFC 3339.  Absent while it is suspended."""
    last_run: Text = ""
    """The run that was created last."""
    active: list[Text] = Field(default_factory=list)
    """Runs that are not finished."""
    message: Text = ""
    """The outcome of the last due time."""
    conditions: Conditions = Field(default_factory=list)
    """Accepted: whether the schedule can be read."""
