"""How tests in one event loop wait: on a condition, with a deadline."""

import asyncio
import time
from collections.abc import Callable


async def until(is_true: Callable[[], object], what: str = "change", timeout_s: float = 10) -> None:
    """Return when `is_true`; TimeoutError with `what` was waited for when it takes longer."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} in {timeout_s:g} s")
        await asyncio.sleep(0.005)
