"""Something that goes on in a thread while a test does something else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ACTS_BEFORE = 50


@contextmanager
def meanwhile(act: Callable[[int], None]) -> Iterator[None]:
    """`act(0)`, `act(1)`, …: the block begins behind the first fifty, and has ended before the
    last.  An act that raises fails the test."""
    ended = threading.Event()
    begun = threading.Event()

    def go_on() -> None:
        number = 0
        while not ended.is_set():
            act(number)
            number += 1
            if number == ACTS_BEFORE:
                begun.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert begun.wait(30)
        yield
        assert thread.is_alive()
    finally:
        ended.set()
        thread.join()
