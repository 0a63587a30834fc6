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
    pids = [pid for thread in Path("/proc/self/task").iterdir() for pid in _children(thread)]
    return [_command_line(pid) for pid in pids]


def _command_line(pid: str) -> str:
    """Of a process; empty if it has been waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _children(thread: Path) -> list[str]:
    """The pids of what the thread started; a thread that ends leaves its own to another one."""
    try:
        return (thread / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
