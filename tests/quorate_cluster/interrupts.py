"""An interrupt at the worst of moments: a process has been started, and nobody knows of it yet."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest


class Interrupted(BaseException):
    """What the handler raises, as those of our commands do."""


@contextmanager
def interrupted_behind(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Iterator[None]:
    """A signal arrives as `owner.name` ends, before its caller has the result; once."""
    original: Callable[..., object] = getattr(owner, name)
    left = [signal.SIGUSR1]

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def and_a_signal(*arguments: object, **options: object) -> object:
        result = original(*arguments, **options)
        if left:
            os.kill(os.getpid(), left.pop())
        return result

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, and_a_signal)
            yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def running_children() -> list[str]:
    """The command lines of this process's children, those that ended and were not waited for among
    them."""
    pids = [
        pid
        for children in Path("/proc/self/task").glob("*/children")
        for pid in children.read_text().split()
    ]
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids]
