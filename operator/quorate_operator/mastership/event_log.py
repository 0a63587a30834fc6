"""Recent events of a cluster: a bounded memory, and a way to wait for the next one.

Sequences are dense within a master's term; the next master's start anew, higher.  So a client whose
last sequence is not among the remembered ones has missed something.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from quorate.protocol.messages.events import (
    STATE,
    Event,
    ToldEvent,
    ZoneState,
    first_sequence,
    time_text,
)
from quorate.protocol.status import ZoneStatus

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
