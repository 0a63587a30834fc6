"""Limits the requests to the API server: a rate with bursts, and none while the server asks to
wait.

It is our own because those in Kubernetes client libraries are tied to their own requests.
"""

import asyncio
import time
from collections.abc import Callable

PER_S = 50.0
BURST = 300
"""A lost node changes up to 256 shards of a zone at once; those writes should leave together."""
OBJECTS = (20.0, 60)
"""Rate and burst for status and Events, on their own connections: ownership goes first."""
HELD_MAX_S = 60.0
"""The longest wait that an answer can impose."""


class TokenBucket:
    """Holds up to `burst` tokens and gains `per_s` each second; a request takes one."""

    def __init__(
        self,
        per_s: float = PER_S,
        burst: int = BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._counted_s = clock()
        self._held_until_s = 0.0

    async def take(self) -> None:
        """Wait for a token and take it."""
        while True:
            wait_s = self.wait_s()
            if wait_s <= 0:
                break
            await asyncio.sleep(wait_s)
        self._tokens -= 1

    def wait_s(self) -> float:
        """Return the seconds until the next token; 0 if there is one."""
        now_s = self._clock()
        gained = max(now_s - self._counted_s, 0) * self._per_s
        self._tokens = min(self._tokens + gained, self._burst)
        self._counted_s = now_s
        return max((1 - self._tokens) / self._per_s, self._held_until_s - now_s, 0)

    def hold(self, seconds: float) -> None:
        """Hold all requests back for this long, as the API server asked (Retry-After)."""
        until_s = self._clock() + min(seconds, HELD_MAX_S)
        self._held_until_s = max(self._held_until_s, until_s)
