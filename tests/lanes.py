"""What keeps tests apart that run at the same time, in several pytests: the lanes of a run.

A pytest plugin.  `tools/run-tests` names one file to all lanes of processes, and other ports to
each of them: `--lane-lock FILE --lane-ports 18000-24999`.  While a test marked `alone` runs in one
lane, none runs in the others: it judges how soon something happens, or takes all processors.
"""

import fcntl
from collections.abc import Generator
from pathlib import Path
from typing import IO

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


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None
