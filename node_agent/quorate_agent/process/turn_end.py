"""Decides when a turn ends: after what the event loop has read; a small turn waits a little longer.

What is written, sent and answered in one turn shares messages and system calls (batching).
"""

from collections.abc import Callable

SMALL_TURN = 16
"""Commands and messages: with fewer, waiting some microseconds for more costs less than another
turn."""


class TurnEnd:
    """Calls `end` once for all requests that came meanwhile.

    `call_soon` calls its argument after the loop's next look at the sockets."""

    __slots__ = ("_asked", "_asked_before", "_call_soon", "_end")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], end: Callable[[], None]
    ) -> None:
        self._call_soon = call_soon
        self._end = end
        self._asked = 0
        self._asked_before = 0

    def ask(self) -> None:
        """Ask for a turn: something is to be written, sent or answered."""
        self._asked += 1
        if self._asked == 1:
            self._call_soon(self._look)

    def _look(self) -> None:
        """End the turn, or let a small one grow while looks at the sockets bring more."""
        if self._asked_before < self._asked < SMALL_TURN:
            self._asked_before = self._asked
            self._call_soon(self._look)
        else:
            self._asked = self._asked_before = 0
            self._end()
