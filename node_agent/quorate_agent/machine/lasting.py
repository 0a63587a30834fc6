"""Waits for a condition to end, for a bounded time."""

import asyncio
from collections.abc import Callable


async def lasts(condition: Callable[[], bool], bound_s: float, poll_s: float) -> bool:
    """Wait up to `bound_s` seconds until the condition is false; return whether it holds."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + bound_s  # by the clock: a busy loop sleeps longer than asked
    while condition():
        if clock() >= deadline:
            return True
        await asyncio.sleep(poll_s)
    return False
