"""Events about the runs of zones: they are told at once, or when the zone is led.

Runs end, and their times come, also while a zone is paused or another operator is about to lead it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quorate.protocol.messages.events import Event, Reason
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.process.clock import rfc3339

KEPT_MAX = 100
"""Events of one zone that wait for it; the oldest are dropped."""
ZONES_MAX = 1000
"""Zones of one namespace with such events; those of the zone told longest ago are dropped."""


class RunEvent(NamedTuple):
    """An event about a run, without its zone.

    `series`: of those that wait, only the newest of a series is kept; empty: it is of none.
    """

    reason: Reason
    kind: str
    message: str
    series: str = ""


class _Kept(NamedTuple):
    """An event that is not told yet.  `since`: RFC 3339."""

    since: str
    event: RunEvent


class ZoneEvents:
    """The events about the runs of one namespace.

    `find`: returns the led zone of that name, or a sentence on what is waited for.
    """

    def __init__(self, find: Callable[[str], LedZone | str]) -> None:
        self._find = find
        self._kept: dict[str, list[_Kept]] = {}
        """By name of the zone; the zone that got one last is the last."""

    def tell(self, zone: str, events: Sequence[RunEvent]) -> None:
        """Tell events about the zone of this name now, or when it is led."""
        self.tell_kept(zone)
        led = self._find(zone)
        if isinstance(led, LedZone):
            _tell(led, events)
            return
        now = rfc3339()
        mine = self._kept.pop(zone, [])
        for event in events:
            mine = [each for each in mine if not _outdates(event, each.event)]
            mine.append(_Kept(now, event))
        self._kept[zone] = mine[-KEPT_MAX:]
        if len(self._kept) > ZONES_MAX:
            del self._kept[next(iter(self._kept))]

    def tell_kept(self, zone: str) -> None:
        """Tell what waits for the zone of this name, if it is led.

        What is older than its Zone is about an earlier one, and is dropped.
        """
        led = self._find(zone) if zone in self._kept else ""
        if not isinstance(led, LedZone):
            return
        created = str(led.body["metadata"].get("creationTimestamp") or "")
        _tell(led, [each.event for each in self._kept.pop(zone) if each.since >= created])


def _outdates(event: RunEvent, earlier: RunEvent) -> bool:
    return bool(event.series) and event.series == earlier.series


def _tell(led: LedZone, events: Sequence[RunEvent]) -> None:
    if events:
        led.runner.tell(
            [Event(led.uid, None, each.reason, each.message, each.kind) for each in events]
        )
