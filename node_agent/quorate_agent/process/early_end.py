"""How an agent ends that is told to before it has promised anything."""

import os
import signal


def end_at_once(*_: object) -> None:
    """End at once: no promise was made yet, and the stored data can be opened again."""
    os._exit(0)


def end_at_once_when_told() -> None:
    """Until something else is set SIGTERM and SIGINT end the process.

    The kernel gives the first process of a container no signal that it has no handler for."""
    signal.signal(signal.SIGTERM, end_at_once)
    signal.signal(signal.SIGINT, end_at_once)


def end_by_signal() -> None:
    """SIGTERM and SIGINT end the process as usual: what it does now was not done then."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
