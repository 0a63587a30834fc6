"""Ends an agent that gets SIGTERM or SIGINT before it has promised anything."""

import os
import signal


def end_at_once(*_: object) -> None:
    """End at once: no promise was made yet, and the stored data can be opened again."""
    os._exit(0)


def end_at_once_when_told() -> None:
    """Let SIGTERM and SIGINT end the process, until another handler is set.

    The kernel does not deliver a signal without a handler to the first process of a container."""
    signal.signal(signal.SIGTERM, end_at_once)
    signal.signal(signal.SIGINT, end_at_once)


def end_by_signal() -> None:
    """Restore the default handlers of SIGTERM and SIGINT: an interrupted task must not exit with
    0."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
