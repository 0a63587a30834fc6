"""Waiting for something to be over, for a bounded time."""

import asyncio
import time
from collections.abc import Callable


async def lasts(condition: Callable[[], bool], bound_s: float, poll_s: float) -> bool:
    """Wait until it holds no more, for so long at most; whether it still does then."""
    deadline = time.monotonic() + bound_s  # a busy loop sleeps longer than it is told to
    while condition():
        if time.monotonic() >= deadline:
            return True
        await asyncio.sleep(poll_s)
    return False
