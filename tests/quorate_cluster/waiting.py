"""How tests wait: on a condition, with a deadline, saying at its end what was there instead."""

import time
from collections.abc import Callable
from typing import TypeVar

POLL_S = 0.05

T = TypeVar("T")


def wait_until(
    ask: Callable[[], T], what: str, timeout_s: float = 30, say: Callable[[], object] | None = None
) -> T:
    """The first true answer of `ask`; TimeoutError with `what` was waited for, and what `say` says.

    The deadline is generous on purpose: other tests may share the machine.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            seen = f": {say()}" if say is not None else ""
            raise TimeoutError(f"no {what} in {timeout_s:g} s{seen}")
        time.sleep(POLL_S)
