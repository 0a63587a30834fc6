"""How far a validation is: the share of the work done, as a percentage that never falls."""

from collections.abc import Callable

UNFINISHED_MAX = 99
"""The highest percentage of a validation without a verdict: keys may have to be read again."""


def _untold(percent: int) -> None:
    """Tell nobody."""


class Progress:
    """The percentage of one validation.  `told` is called with each new one, from any thread."""

    def __init__(self, told: Callable[[int], None] = _untold) -> None:
        self._told = told
        self.percent = 0

    def reached(self, done: int, total: int) -> None:
        """Take in that `done` parts of `total` are done, in this pass; a later one may do some."""
        percent = min(done * 100 // total, UNFINISHED_MAX) if total > 0 else 0
        if percent > self.percent:
            self.percent = percent
            self._told(percent)
