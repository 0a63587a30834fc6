"""Events about the runs of zones: they are told at once, or when the zone is led.

Runs end, and their times come, also while a zone is paused or another operator is about to lead it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quorate.protocol.messages.events import Event, Reason
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.process.clock import rfc3339

KEPT_MAX = 100
"""Events of one namespace that wait for their zones; the oldest are dropped."""


class RunEvent(NamedTuple):
    """An event about a run, without its zone."""

    reason: Reason
    kind: str
    message: str


class _Kept(NamedTuple):
    """An event that is not told yet.  `since`: RFC 3339."""

    zone: str
    since: str
    event: RunEvent


class ZoneEvents:
    """The events about the runs of one namespace.

    `find`: returns the led zone of that name, or a sentence on what is waited for.
    """

    def __init__(self, find: Callable[[str], LedZone | str]) -> None:
        self._find = find
        self._kept: list[_Kept] = []

    def tell(self, zone: str, events: Sequence[RunEvent]) -> None:
        """Tell events about the zone of this name now, or when it is led."""
        self.tell_kept(zone)
        led = self._find(zone)
        if isinstance(led, LedZone):
            _tell(led, events)
            return
        now = rfc3339()
        self._kept += [_Kept(zone, now, each) for each in events]
        del self._kept[:-KEPT_MAX]

    def tell_kept(self, zone: str) -> None:
        """Tell what waits for the zone of this name, if it is led.

        What is older than its Zone is about an earlier one, and is dropped.
        """
        mine = [each for each in self._kept if each.zone == zone]
        led = self._find(zone) if mine else ""
        if not isinstance(led, LedZone):
            return
        self._kept = [each for each in self._kept if each.zone != zone]
        created = str(led.body["metadata"].get("creationTimestamp") or "")
        _tell(led, [each.event for each in mine if each.since >= created])


def _tell(led: LedZone, events: Sequence[RunEvent]) -> None:
    if events:
        led.runner.tell(
            [Event(led.uid, None, each.reason, each.message, each.kind) for each in events]
        )
