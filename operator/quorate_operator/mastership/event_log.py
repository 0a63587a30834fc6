"""What was told of a cluster lately: a bounded memory of events, and who waits for the next one.

Sequences are dense within a master's term and start anew, higher, with the next master's.  So who
names the last one it has is known to have missed something when it is none of the remembered.
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
"""About 3 MB; in a large rebalance the last minute."""


class EventLog:
    """One cluster's.  Belongs to the event loop's thread."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.last = 0
        """The newest event's sequence."""
        self._kept: deque[ToldEvent] = deque(maxlen=kept_max)
        self._news = asyncio.Event()
        self._closed = False

    def begin(self, master_term: int) -> None:
        """A master begins: what follows is its own."""
        self.last = first_sequence(master_term)
        self._kept.clear()

    def add(self, events: Iterable[Event], names: dict[str, str], wall_ms: int) -> list[ToldEvent]:
        """They were just told; `names`: of zones, by uid."""
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
        """The remembered events above `sequence`; whether others may have been there that are
        not remembered."""
        before_first = self.last - len(self._kept)
        missed = not before_first <= sequence <= self.last
        return [event for event in self._kept if event.sequence > sequence or missed], missed

    async def wait(self, sequence: int, seconds: float) -> None:
        """Until there is something after `sequence`, or nothing more can come, but not longer."""
        news = self._news
        if self.last != sequence or self._closed:
            return
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """Nobody is to wait any more."""
        self._closed = True
        self._wake()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more comes."""
        return self._closed

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def states(zones: Sequence[ZoneStatus], sequence: int, wall_ms: int) -> list[ToldEvent]:
    """How each zone is, everything up to `sequence` included."""
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
