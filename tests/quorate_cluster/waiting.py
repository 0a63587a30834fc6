"""How tests wait: on a condition, with a deadline, saying at its end what was there instead."""

import time
from collections.abc import Callable
from typing import TypeVar

from quorate_cluster.standstill import standstill_s

POLL_S = 0.05
NOTED_LATE_S = 0.6
"""So much later at most a standstill is noted: when it is over, or while it goes on."""

T = TypeVar("T")


def wait_until(
    ask: Callable[[], T], what: str, timeout_s: float = 30, say: Callable[[], object] | None = None
) -> T:
    """The first true answer of `ask`; TimeoutError with `what` was waited for, and what `say` says.

    The deadline is generous on purpose: other tests may share the machine.  Where a watch looks at
    the machine, the time in which it stood still is nobody's and does not count.
    """
    began = time.monotonic()
    while True:
        answer = ask()
        if answer:
            return answer
        late_s = time.monotonic() - began - timeout_s - NOTED_LATE_S
        if late_s > 0 and late_s > standstill_s(began, time.monotonic()):
            seen = f": {say()}" if say is not None else ""
            raise TimeoutError(f"no {what} in {timeout_s:g} s{seen}")
        time.sleep(POLL_S)
