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


async def until_quiet(
    count: Callable[[], object], for_s: float = 0.5, timeout_s: float = 10
) -> None:
    """Return when `count` has said the same for `for_s`; TimeoutError when it always goes on."""
    deadline = time.monotonic() + timeout_s
    said, since = count(), time.monotonic()
    while time.monotonic() - since < for_s:
        if time.monotonic() > deadline:
            raise TimeoutError(f"never quiet for {for_s:g} s in {timeout_s:g} s: {count()} by now")
        await asyncio.sleep(0.02)
        if count() != said:
            said, since = count(), time.monotonic()
