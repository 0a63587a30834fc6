"""How tests in one event loop wait: on a condition, with a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol


class Closable(Protocol):
    """What has connections of the loop."""

    async def close(self) -> None:
        """Close them."""


async def until(is_true: Callable[[], object], what: str = "change", timeout_s: float = 60) -> None:
    """Return when `is_true`; TimeoutError with `what` was waited for when it takes longer."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} in {timeout_s:g} s")
        await asyncio.sleep(0.005)


async def until_quiet(
    count: Callable[[], object], for_s: float = 0.5, timeout_s: float = 60
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


async def closed(each: Closable) -> None:
    """Close it, and return when the loop has no connection any more.  One with TLS says goodbye
    first; a loop that ended before would leave it to the collector, in some later test."""
    await each.close()
    loop: Any = asyncio.get_running_loop()
    own = 1  # by which other threads wake the loop
    await until(lambda: len(loop._selector.get_map()) <= own, "end of all connections")
