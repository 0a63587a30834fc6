"""What keeps tests apart that run at the same time, in several pytests: the lanes of a run.

A pytest plugin.  `tools/run-tests` names one file to all lanes of processes, and other ports to
each of them: `--lane-lock FILE --lane-ports 18000-23999`.  While a test marked `alone` runs in one
lane, none runs in the others: it judges how soon something happens, or takes all processors.

The lane at idle priority is told `--lane-computes`: beside busy lanes its tests may wait long for a
processor, so a time-out counts the time that they had one.
"""

import fcntl
import signal
from collections.abc import Generator
from pathlib import Path
from typing import IO, Protocol

import pytest

from quorate_control_plane import ports


class LaneLock:
    """A lock that tests of all lanes hold together, but one that is to be alone by itself.

    Whoever wants to be alone keeps the gate shut while it waits: a lane that ends one test does not
    slip in with another one.  Who dies lets go.
    """

    def __init__(self, path: Path) -> None:
        self._lock: IO[bytes] = path.open("ab")
        self._gate: IO[bytes] = path.with_name(f"{path.name}-gate").open("ab")
        self._is_alone = False

    def take(self, *, alone: bool) -> None:
        """Wait for it, unless it is held alone and wanted so again: another waits at the gate."""
        if alone and self._is_alone:
            return
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._is_alone = alone

    def release(self) -> None:
        """Let go of it; nothing where it is not held."""
        self._is_alone = False
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of it for ever."""
        self._lock.close()
        self._gate.close()


_WAITING_FACTOR = 10


class TimeOut(Protocol):
    """Of what pytest-timeout knows of a test, what is used here."""

    timeout: float
    """Seconds."""


_lock = pytest.StashKey[LaneLock]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane-lock",
        type=Path,
        metavar="FILE",
        help="shared by the lanes of a run: while a test marked `alone` runs, no other does",
    )
    parser.addoption(
        "--lane-ports",
        type=_ports,
        metavar="FIRST-LAST",
        help="where the processes of this lane listen",
    )
    parser.addoption(
        "--lane-computes",
        action="store_true",
        help="time-outs count processor time: this lane runs at idle priority beside busy ones",
    )


def _ports(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1)


def pytest_configure(config: pytest.Config) -> None:
    if (given := config.getoption("lane_ports")) is not None:
        ports.listen_within(given)
    if (path := config.getoption("lane_lock")) is not None:
        config.stash[_lock] = LaneLock(path)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (lock := config.stash.get(_lock, None)) is not None:
        lock.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _lock in config.stash:  # first, and so together: the others are waited for once
        items.sort(key=lambda item: not _is_alone(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before a time-out counts
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    lock = item.config.stash.get(_lock, None)
    if lock is None:
        return (yield)
    lock.take(alone=_is_alone(item))
    try:
        return (yield)
    finally:
        if not (nextitem is not None and _is_alone(item) and _is_alone(nextitem)):
            lock.release()


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: TimeOut) -> bool | None:
    """In the place of pytest-timeout's own, which counts time that passes."""
    if not item.config.getoption("lane_computes"):
        return None

    def fail(_number: int, _frame: object) -> None:
        pytest.fail(f"Timeout (>{settings.timeout}s of processor time)")

    # Whoever waits for another process has no processor: that ends too, if late.
    timers = {
        (signal.ITIMER_PROF, signal.SIGPROF): settings.timeout,
        (signal.ITIMER_REAL, signal.SIGALRM): settings.timeout * _WAITING_FACTOR,
    }
    for (timer, number), seconds in timers.items():
        signal.signal(number, fail)
        signal.setitimer(timer, seconds)

    def cancel() -> None:
        for timer, number in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]  # what pytest-timeout calls
    return True


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None
