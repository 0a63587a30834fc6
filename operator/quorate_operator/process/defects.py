"""Ends the process if a background task that must not fail has a defect, so that another leads."""

import asyncio
import logging
from collections.abc import Callable


def report_defect(
    task: asyncio.Task[None], log: logging.Logger, on_failed: Callable[[str], None]
) -> None:
    """Log the exception that ended `task`, and call `on_failed` with a sentence about it.

    A task that was cancelled or has succeeded is ignored.
    """
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("a defect: %r", error, exc_info=error)
        on_failed(f"stopped by a defect: {in_words(error)}")


def in_words(error: BaseException) -> str:
    """Return the exception as messages name a defect."""
    return f"{type(error).__name__}: {error}"
