"""When what happens: the event queue, the seeded randomness, the trace."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

MS = 1000
"""Simulated time is counted in whole microseconds, so that it adds up the same everywhere."""


class World:
    """Time, chance and memory of one run."""

    def __init__(self, seed: int, trace: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._bits = self.random.getrandbits
        self.time_us = 0
        self.tracing = trace
        self.lines: list[str] = []
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    @property
    def time_ms(self) -> int:
        """Simulated milliseconds since the start."""
        return self.time_us // MS

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Do `action` at a time; in the order of asking when times are equal."""
        self._order += 1
        if time_us < self.time_us:
            time_us = self.time_us
        heappush(self._queue, (time_us, self._order, action))

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do `action` after a delay."""
        self._order += 1
        heappush(self._queue, (self.time_us + max(delay_us, 0), self._order, action))

    def run_until(self, time_us: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Go on until a time, or until `is_done`, asked about every 50 simulated ms."""
        asked_us = self.time_us
        queue = self._queue
        while queue and queue[0][0] <= time_us:
            if is_done is not None and queue[0][0] >= asked_us:
                asked_us = queue[0][0] + 50 * MS
                if is_done():
                    return True
            self.time_us, _, action = heappop(queue)
            self.steps += 1
            action()
        self.time_us = max(self.time_us, time_us)
        return is_done() if is_done is not None else True

    def below(self, count: int) -> int:
        """A number from 0 on, below `count`: what `random.randrange` draws, in a third of its time.
        A run draws some thousands."""
        assert count > 0
        size = count.bit_length()
        drawn = self._bits(size)
        while drawn >= count:
            drawn = self._bits(size)
        return drawn

    def chance(self, probability: float) -> bool:
        """True this often; draws nothing when it cannot be."""
        return probability > 0 and self.random.random() < probability

    def trace(self, who: str, what: str) -> None:
        """Note one line of the story."""
        if self.tracing:
            self.lines.append(f"{self.time_us / MS:12.3f} {who:<10} {what}")
