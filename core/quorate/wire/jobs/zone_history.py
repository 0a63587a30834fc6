"""The recent past of a zone, as the operator tells it to the program that writes a report of it.

A pod of a validation has no rights at the API server: it is handed this in a variable of its
environment, which images of other versions ignore.
"""

import msgspec

from quorate.facts.errors import WireError

HISTORY_VARIABLE = "QUORATE_HISTORY"
"""The environment variable that has it."""


class HourTold(msgspec.Struct, frozen=True):
    """One hour in which something happened.

    `start`: RFC 3339; `partitions_missing_copies`: the most partitions that missed copies at one
    time; `unavailable_seconds`: how long at least one partition was not served.
    """

    start: str
    failovers: int = 0
    partitions_missing_copies: int = 0
    unavailable_seconds: int = 0


class DayTold(msgspec.Struct, frozen=True):
    """Failovers and missing copies of the last 24 hours.

    `since`: from when they are known; `watched_since`: when the present operator began to watch.
    """

    since: str
    watched_since: str
    hours: tuple[HourTold, ...] = ()


class ExportTold(msgspec.Struct, frozen=True):
    """A backup whose export was read back, or a restore that was compared."""

    time: str
    run: str
    place: str


class ZoneHistory(msgspec.Struct, frozen=True):
    """The recent past of a zone.  `told_at`: when this was so, RFC 3339.

    `day`: None: it is not known.  `last_backup`, `last_restore`: None: none is known.
    `backups_scheduled`: whether a schedule makes backups; None: that is not known.
    """

    told_at: str
    day: DayTold | None = None
    last_backup: ExportTold | None = None
    last_restore: ExportTold | None = None
    backups_scheduled: bool | None = None


def encode_history(history: ZoneHistory) -> str:
    """Return the value of the variable."""
    return msgspec.json.encode(history).decode()


def decode_history(value: str) -> ZoneHistory:
    """Return the history in a value of the variable.  Raises WireError if it is none."""
    try:
        return msgspec.json.decode(value, type=ZoneHistory)
    except msgspec.DecodeError as error:
        raise WireError(f"it is no history of a zone: {error}") from error
