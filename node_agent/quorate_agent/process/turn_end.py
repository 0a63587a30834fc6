"""When a turn ends: behind what the event loop has read by then, a small one behind a little more.

What is written, sent and answered in one turn shares its messages and its system calls.
"""

from collections.abc import Callable

SMALL_TURN = 16
"""Commands and messages: with fewer, waiting a few microseconds for more costs less than a turn."""


class TurnEnd:
    """Calls `end` once for all that asked meanwhile.  `call_soon` calls when the loop has looked at
    the sockets once more."""

    __slots__ = ("_asked", "_asked_before", "_call_soon", "_end")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], end: Callable[[], None]
    ) -> None:
        self._call_soon = call_soon
        self._end = end
        self._asked = 0
        self._asked_before = 0

    def ask(self) -> None:
        """Something is to be written, sent or answered."""
        self._asked += 1
        if self._asked == 1:
            self._call_soon(self._look)

    def _look(self) -> None:
        """A small turn grows while looks at the sockets bring more."""
        if self._asked_before < self._asked < SMALL_TURN:
            self._asked_before = self._asked
            self._call_soon(self._look)
        else:
            self._asked = self._asked_before = 0
            self._end()
