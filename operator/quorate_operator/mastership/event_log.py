"""Events of a cluster: a bounded memory of recent ones, a way to wait for the next one, and how
they get to the log and into metrics.

Sequences are dense within a master's term; the next master's start anew, higher.  So a client whose
last sequence is not among the remembered ones has missed something.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import (
    ROUTINE,
    STATE,
    Event,
    Reason,
    ToldEvent,
    ZoneState,
    first_sequence,
    time_text,
)
from quorate.protocol.status import ZoneStatus
from quorate_operator.mastership.decisions import gather, summary
from quorate_operator.process.metrics import Metrics

_log = logging.getLogger("quorate.runner")

KEPT_MAX = 10_000
"""About 3 MB; the last minute of a large rebalance."""


class EventLog:
    """The events of one cluster.  Belongs to the event loop's thread."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.last = 0
        """The newest event's sequence."""
        self._kept: deque[ToldEvent] = deque(maxlen=kept_max)
        self._news = asyncio.Event()
        self._closed = False

    def begin(self, master_term: int) -> None:
        """Start the sequence of a new master."""
        self.last = first_sequence(master_term)
        self._kept.clear()

    def add(self, events: Iterable[Event], names: dict[str, str], wall_ms: int) -> list[ToldEvent]:
        """Add events just told; return them with sequence and time.  `names`: zones by uid."""
        time = time_text(wall_ms)
        told = [
            ToldEvent(
                sequence,
                time,
                event.kind,
                event.reason,
                event.message,
                names.get(event.zone, event.zone),
                event.partition,
            )
            for sequence, event in enumerate(events, self.last + 1)
        ]
        self._kept += told
        self.last += len(told)
        self._wake()
        return told

    def after(self, sequence: int) -> tuple[list[ToldEvent], bool]:
        """Return the remembered events above `sequence`, and False.

        If others may have come that are not remembered: all remembered ones, and True.
        """
        before_first = self.last - len(self._kept)
        missed = not before_first <= sequence <= self.last
        return [event for event in self._kept if event.sequence > sequence or missed], missed

    async def wait(self, sequence: int, seconds: float) -> None:
        """Wait until there are events after `sequence` or no more can come, at most `seconds`."""
        news = self._news
        if self.last != sequence or self._closed:
            return
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """End all waits: no more events come."""
        self._closed = True
        self._wake()

    @property
    def is_closed(self) -> bool:
        """Whether no more events come."""
        return self._closed

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class EventCounts:
    """Counts the events of one cluster and logs them, by the names of its zones."""

    def __init__(self, namespace: str, cluster: str, metrics: Metrics) -> None:
        self.names: dict[str, str] = {}
        """Names of the zones that are led, by uid; of a deleted one until that was counted."""
        self._namespace = namespace
        self._cluster = cluster
        self._metrics = metrics

    def lead(self, zones: Iterable[ZoneRecord]) -> None:
        """Note the zones that are led.  The losses of a new one are counted from 0 on."""
        for zone in zones:
            if self.names.get(zone.uid) != zone.name:
                self.names[zone.uid] = zone.name
                self._metrics.begin_losses(self._namespace, zone.name, zone.uid)

    def count(self, events: Iterable[Event], master_term: int | None) -> None:
        """Count and log events.  The end of a zone, with which its counts go, is one of the
        cluster."""
        ended: list[str] = []
        for alike in gather(events):
            first = alike[0]
            zone = counted = self.names.get(first.zone, first.zone)
            if first.reason is Reason.ZONE_DELETED:
                ended.append(first.zone)
                counted = ""
            self._metrics.count_events(self._namespace, counted, first.reason, len(alike))
            level = logging.WARNING if first.kind == "Warning" else logging.INFO
            level = logging.DEBUG if first.reason in ROUTINE else level
            about = {
                "namespace": self._namespace,
                "cluster": self._cluster,
                "zone": zone,
                "partition": first.partition,
                "term": master_term,
            }
            _log.log(level, "%s: %s", first.reason, summary(alike), extra=about)
        for uid in ended:
            self._metrics.forget_zone(self._namespace, self.names.pop(uid, uid), uid)

    def end(self) -> None:
        """Note that the zones are not led any more.  Their counts stay."""
        for uid, name in self.names.items():
            self._metrics.leave_zone(self._namespace, name, uid)


def states(zones: Sequence[ZoneStatus], sequence: int, wall_ms: int) -> list[ToldEvent]:
    """Return an event for each zone with its state, which includes everything up to `sequence`."""
    return [_state(zone, sequence, time_text(wall_ms)) for zone in zones]


def _state(zone: ZoneStatus, sequence: int, time: str) -> ToldEvent:
    state = ZoneState(
        zone.phase,
        zone.partitions,
        zone.available,
        zone.degraded,
        zone.unavailable,
        zone.lost,
        zone.migrations_running,
        zone.lost_partitions,
        zone.migrations_queued,
    )
    kind = "Warning" if zone.unavailable else "Normal"
    message = f"{zone.phase}: {zone.sentence}"
    return ToldEvent(sequence, time, kind, STATE, message, zone.name, state=state)
