"""Whether an event loop still runs: it leaves a mark twice a second, which any thread may read."""

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
        """How much longer ago than it should be the last mark was left."""
        return max(time.monotonic() - self._beaten_s - BEAT_S, 0.0)
