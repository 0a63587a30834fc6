"""Threads that go on while a test does something else."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

END_S_MAX = 60.0


class Background:
    """`with …:` runs every road in a thread of its own; its end sets `stop` and waits for them.

    What a road raised is raised at the end of the block, and noted in the block's own error if it
    failed by itself.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def add_road(self, road: Callable[[], None]) -> None:
        """`road` is to return soon after `stop` is set."""
        self._threads.append(threading.Thread(target=self._guarded, args=(road,)))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(END_S_MAX)
        if error is not None:
            for failure in self._failures:
                error.add_note(f"a road beside it ended with {failure!r}")
            return
        if self._failures:
            raise self._failures[0]
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"a road still runs {END_S_MAX:g} s after it was to stop")

    def _guarded(self, road: Callable[[], None]) -> None:
        try:
            road()
        except BaseException as error:
            self._failures.append(error)
