"""Decides how long a cluster waits to be led again after its master has ended."""

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger("quorate.controller")

OVERTAKEN_PAUSE_S = 0.5
"""Seconds until a cluster whose agents know a later mastership is led again; doubled each time."""
OVERTAKEN_PAUSE_MAX_S = 60.0
FAILED_PAUSE_S = 2.0
"""Seconds until a cluster whose master ended by a defect is led again; doubled each time."""
FAILED_PAUSE_MAX_S = 120.0
FORGOTTEN_S = 600.0
"""An end this many seconds after the previous one of its kind counts as the first."""

_Counts = dict[str, tuple[int, float]]
"""Cluster -> how often its master ended so, and when last (loop time, seconds)."""


class LeadAgain:
    """The clusters of one namespace.  `lead`: called with a cluster's name when its pause is over.

    Pauses double each time: two operators that lead a cluster would overtake each other for ever.
    """

    def __init__(self, lead: Callable[[str], None]) -> None:
        self._lead = lead
        self._overtaken: _Counts = {}
        self._failed: _Counts = {}
        self._due: dict[str, asyncio.TimerHandle] = {}
        """The pauses that are not over, by cluster."""

    def overtaken(self, name: str) -> None:
        """Lead the cluster again in a new mastership, counted above those its agents know."""
        times = _counted(self._overtaken, name)
        self._lead_after(
            name, min(OVERTAKEN_PAUSE_S * 2.0 ** min(times - 1, 20), OVERTAKEN_PAUSE_MAX_S)
        )

    def failed(self, name: str, why: str) -> None:
        """Lead the cluster again after a defect ended its master.

        The new mastership knows only what is stored.
        """
        times = _counted(self._failed, name)
        pause_s = min(FAILED_PAUSE_S * 2.0 ** min(times - 1, 20), FAILED_PAUSE_MAX_S)
        _log.error("%s; led again in %g s", why, pause_s)
        self._lead_after(name, pause_s)

    def forget(self, name: str) -> None:
        """Forget a cluster that is gone: the next one of its name begins with the first pause."""
        self._overtaken.pop(name, None)
        self._failed.pop(name, None)
        if (due := self._due.pop(name, None)) is not None:
            due.cancel()

    def close(self) -> None:
        """Lead no cluster again."""
        for due in self._due.values():
            due.cancel()
        self._due.clear()

    def _lead_after(self, name: str, pause_s: float) -> None:
        if (earlier := self._due.pop(name, None)) is not None:
            earlier.cancel()
        self._due[name] = asyncio.get_running_loop().call_later(pause_s, self._lead_now, name)

    def _lead_now(self, name: str) -> None:
        del self._due[name]
        self._lead(name)


def _counted(counts: _Counts, name: str) -> int:
    """Count one more end; return how many there were, each soon after the one before."""
    now_s = asyncio.get_running_loop().time()
    times, last_s = counts.get(name, (0, now_s))
    times = times + 1 if now_s - last_s < FORGOTTEN_S else 1
    counts[name] = times, now_s
    return times
