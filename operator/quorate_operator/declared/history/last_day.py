"""Failovers and missing copies of one zone in the last 24 hours, by the hour.

    look --what the master knows now--> LastDay --written with the next change--> Zone's status
                                                       next operator's LastDay <--

It is memory.  The status has it as of the last write of something else, and at most LASTING_S old
while the zone is short of copies or not served; a later operator goes on from there.  Between two
looks the former one counts on.
"""

from typing import NamedTuple

from quorate.facts.time import HOUR_MS, HOURS, Now, wall_ms_of
from quorate.protocol.status import ZoneStatus
from quorate.wire.zone_day import ZoneDay, ZoneHour
from quorate_operator.process.clock import rfc3339

SETTLE_MS = 10_000
"""After its beginning an operator waits so long for the zone to be served, before it counts that it
is not.  An agent that reaches a new operator later than this counts as an outage until then."""
LASTING_S = 300.0
"""While a zone is short of copies or not served, the last day in its status is at most so old."""
CHANGED_S = 10.0
"""Copies that go missing or come back one after the other are stored at most this often, if each
costs a write of its own."""


class _Hour:
    """One hour; times in milliseconds."""

    def __init__(
        self, failovers: int = 0, partitions_missing_copies: int = 0, unavailable_ms: int = 0
    ):
        self.failovers = failovers
        self.partitions_missing_copies = partitions_missing_copies
        self.unavailable_ms = unavailable_ms

    @property
    def has_events(self) -> bool:
        """Whether anything happened."""
        return bool(self.failovers or self.partitions_missing_copies or self.unavailable_ms)


class Stored(NamedTuple):
    """A last day as it was stored; `at_s`: when, on a monotonic clock."""

    events: int = 0
    changes: int = 0
    at_s: float = float("-inf")


class LastDay:
    """The last 24 hours of one zone, from now on and as `before` has them.

    `changes`: how often the zone came into another state, or had a failover.  `events`: how often
    there was a failover, or an outage began or ended.
    """

    def __init__(self, now: Now, before: ZoneDay | None) -> None:
        self.changes = 0
        self.events = 0
        self._watched_ms = now.wall_ms
        self._since_ms = now.wall_ms
        self._begun_ms = now.boot_ms
        self._noted = now
        self._zone: ZoneStatus | None = None
        self._is_settled = False
        self._hours: dict[int, _Hour] = {}
        """By the number of the hour since 1970."""
        self._failovers = 0
        """Of this master."""
        self._short = 0
        self._is_down = False
        if before is not None:
            self._since_ms = min(wall_ms_of(before.since) or now.wall_ms, now.wall_ms)
            for each in before.hours:
                start_ms = wall_ms_of(each.start)
                if start_ms is not None and start_ms <= now.wall_ms:
                    self._hours[start_ms // HOUR_MS] = _Hour(
                        each.failovers,
                        each.partitions_missing_copies,
                        min(each.unavailable_seconds * 1000, HOUR_MS),
                    )
        self._forget(now)

    def note(self, zone: ZoneStatus, now: Now) -> None:
        """Take the zone as the master knows it now."""
        self._count_on(now)
        more = max(zone.failovers - self._failovers, 0)
        self._failovers = zone.failovers
        self._zone = zone
        before = self._short, self._is_down
        if self._settled(zone, now):
            self._short = sum(zone.missing_copies.values())
            self._is_down = zone.unavailable > 0
        self.changes += bool(more) or before != (self._short, self._is_down)
        self.events += bool(more) or before[1] != self._is_down
        if more or self._short or self._is_down:
            hour = self._hour(now.wall_ms // HOUR_MS)
            hour.failovers += more
            hour.partitions_missing_copies = max(hour.partitions_missing_copies, self._short)
            hour.unavailable_ms = max(hour.unavailable_ms, int(self._is_down))

    @property
    def lasts(self) -> bool:
        """Whether the zone is short of copies or not served now, so that this changes with time."""
        return bool(self._short) or self._is_down

    def stored(self, at_s: float) -> Stored:
        """Return what to note when it is stored now."""
        return Stored(self.events, self.changes, at_s)

    def is_due(self, stored: Stored, now_s: float) -> bool:
        """Return whether to store it again: events at once, all else after a while."""
        age_s = now_s - stored.at_s
        if self.events != stored.events or (self.lasts and age_s >= LASTING_S):
            return True
        return self.changes != stored.changes and age_s >= CHANGED_S

    def _settled(self, zone: ZoneStatus, now: Now) -> bool:
        """Return whether what is missing now is a loss.

        A new zone is not served yet, and agents have not told a new master yet what they serve.
        """
        if zone.phase in ("Pending", "Deleting"):
            return False
        is_late = now.boot_ms - self._begun_ms >= SETTLE_MS
        self._is_settled |= zone.unavailable == 0 or is_late
        return self._is_settled

    def told(self, now: Now) -> ZoneDay:
        """Return it as a status has it."""
        if self._zone is not None:
            self.note(self._zone, now)
        hours = [
            ZoneHour(
                start=rfc3339(number * HOUR_MS),
                failovers=hour.failovers,
                partitions_missing_copies=hour.partitions_missing_copies,
                # A short outage is not none.
                unavailable_seconds=max(
                    round(hour.unavailable_ms / 1000), int(hour.unavailable_ms > 0)
                ),
            )
            for number, hour in sorted(self._hours.items())
            if hour.has_events
        ]
        since, watched = rfc3339(self._since_ms), rfc3339(self._watched_ms)
        return ZoneDay(since=since, watched_since=watched, hours=hours)

    def _count_on(self, now: Now) -> None:
        """Let the state of the last look last until now."""
        elapsed_ms = min(max(now.boot_ms - self._noted.boot_ms, 0), HOURS * HOUR_MS)
        self._noted = now
        if self._short or self._is_down:
            at = now.wall_ms - elapsed_ms
            while at < now.wall_ms:
                number = at // HOUR_MS
                end = min((number + 1) * HOUR_MS, now.wall_ms)
                hour = self._hour(number)
                hour.partitions_missing_copies = max(hour.partitions_missing_copies, self._short)
                # More than an hour, if the wall clock was set back.
                more_ms = (end - at) * self._is_down
                hour.unavailable_ms = min(hour.unavailable_ms + more_ms, HOUR_MS)
                at = end
        self._forget(now)

    def _hour(self, number: int) -> _Hour:
        return self._hours.setdefault(number, _Hour())

    def _forget(self, now: Now) -> None:
        first = now.wall_ms // HOUR_MS - HOURS + 1
        if any(number < first for number in self._hours):
            self._hours = {n: hour for n, hour in self._hours.items() if n >= first}
