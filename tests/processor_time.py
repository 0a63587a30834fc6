"""Which files of tests take the most processor time: what a shorter run has to begin with.

A pytest plugin.  A lane's wall time says little, as four of them share the processors.  Time of
processes that a test has started counts where they end: of a cluster that several files share, in
the last of them.  Containers of `tests/e2e` are nobody's children, and not in it.
"""

import os
from collections import defaultdict
from collections.abc import Generator

import pytest

SHOWN = 15
LEAST_S = 5.0

_seconds = pytest.StashKey[defaultdict[str, float]]()
"""By file, relative to the root."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_seconds] = defaultdict(float)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = _used_s()
    result = yield
    file, _, _ = item.nodeid.partition("::")
    item.config.stash[_seconds][file] += _used_s() - before
    return result


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    seconds = config.stash[_seconds]
    if sum(seconds.values()) < LEAST_S:
        return
    terminalreporter.section("processor time", sep="-")
    most = sorted(seconds, key=seconds.__getitem__, reverse=True)[:SHOWN]
    for file in most:
        if seconds[file] >= LEAST_S:
            terminalreporter.line(f"{seconds[file]:.0f} s of the processors: {file}")
    terminalreporter.line(f"{sum(seconds.values()):.0f} s of the processors: all")


def _used_s() -> float:
    """Return what this process has used, with its children that have ended."""
    times = os.times()
    return sum(times[:4])
