"""Detects an event loop that no longer runs: it leaves a mark twice a second, for any thread."""

import asyncio
import time

BEAT_S = 0.5


class LoopWatch:
    """Watches the loop in which `run` runs."""

    def __init__(self) -> None:
        self._beaten_s = time.monotonic()

    async def run(self) -> None:
        """Leave marks until cancelled."""
        while True:
            self._beaten_s = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def lag_s(self) -> float:
        """Return by how many seconds the next mark is overdue."""
        return max(time.monotonic() - self._beaten_s - BEAT_S, 0.0)
