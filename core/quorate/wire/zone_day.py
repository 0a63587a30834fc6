"""The last 24 hours of a zone, by the hour, as its status keeps them."""

from pydantic import Field

from quorate.facts.time import HOURS
from quorate.wire.schema.resource import Integer, Part, Text


class ZoneHour(Part):
    """One hour in which something happened."""

    start: Text
    """When the hour began, RFC 3339."""
    failovers: Integer = 0
    """Partitions that another primary, or another process of it, took over without a hand-over, a
    reset or a decision of a person."""
    partitions_missing_copies: Integer = 0
    """The most partitions that missed copies at one time."""
    unavailable_seconds: Integer = 0
    """Seconds in which at least one partition was not served."""


class ZoneDay(Part):
    """Failovers and missing copies of the last 24 hours."""

    since: Text
    """From when they are known, RFC 3339."""
    watched_since: Text
    """When the present operator began to lead the zone, RFC 3339.  Of the time before, only that is
    known which earlier ones had written here."""
    hours: list[ZoneHour] = Field(default_factory=list, max_length=HOURS)
    """The hours in which something happened, the earliest first; in all others since `since`
    nothing did."""
