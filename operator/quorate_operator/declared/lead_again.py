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
FAILED_FORGOTTEN_S = 600.0
"""A defect this many seconds after the previous one counts as the first."""


class LeadAgain:
    """The clusters of one namespace.  `lead`: called with a cluster's name when its pause is over.

    Pauses double each time: two operators that lead a cluster would overtake each other for ever.
    """

    def __init__(self, lead: Callable[[str], None]) -> None:
        self._lead = lead
        self._overtaken: dict[str, int] = {}
        """Cluster -> how often its agents knew a later mastership."""
        self._failed: dict[str, tuple[int, float]] = {}
        """Cluster -> how often a defect ended its master, and when last (loop time, seconds)."""

    def overtaken(self, name: str) -> None:
        """Lead the cluster again in a new mastership, counted above those its agents know."""
        times = self._overtaken[name] = self._overtaken.get(name, 0) + 1
        pause_s = min(OVERTAKEN_PAUSE_S * 2.0 ** min(times - 1, 20), OVERTAKEN_PAUSE_MAX_S)
        asyncio.get_running_loop().call_later(pause_s, self._lead, name)

    def failed(self, name: str, why: str) -> None:
        """Lead the cluster again after a defect ended its master.

        The new mastership knows only what is stored.
        """
        now_s = asyncio.get_running_loop().time()
        times, last_s = self._failed.get(name, (0, now_s))
        times = times + 1 if now_s - last_s < FAILED_FORGOTTEN_S else 1
        self._failed[name] = times, now_s
        pause_s = min(FAILED_PAUSE_S * 2.0 ** min(times - 1, 20), FAILED_PAUSE_MAX_S)
        _log.error("%s; led again in %g s", why, pause_s)
        asyncio.get_running_loop().call_later(pause_s, self._lead, name)
