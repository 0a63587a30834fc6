"""Tests that look further where others have looked already: last, and only while there is time.

A pytest plugin.  `@pytest.mark.deep` is for more seeds, rounds, cases of a matrix or stories of
clients, of which others ran some: what they could find is rare.  They run behind all others.  With
`--minutes N` those that would begin later than that do not run, and the run's last lines say of
which files and how many: so a machine that others make slow ends in time.  Each commit begins with
another one, and with `--left-over FILE` those come first for which the run before had no time.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fresh_seeds import SEEDS_EACH, drawn
from machine_parts import note_lacking

_began = pytest.StashKey[float]()
_waiting = pytest.StashKey[dict[str, None]]()
"""Ids of the deep tests that have not begun, in their order."""
_others_took = pytest.StashKey[tuple[float, float]]()
"""Seconds until the first deep test's turn came; of CPU, also of processes that have ended."""


def most_are_deep(cases: Iterable[object], of: int) -> Iterator[object]:
    """Parameters for a test: one in so many cases is run always, the others are deep."""
    for number, case in enumerate(cases):
        yield pytest.param(case, marks=[pytest.mark.deep] if number % of else [])


def _is_deep(item: pytest.Item) -> bool:
    return item.get_closest_marker("deep") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes",
        type=float,
        default=0,
        metavar="N",
        help="no deep test begins later than N minutes after the start; 0: all of them run",
    )
    parser.addoption(
        "--left-over",
        type=Path,
        metavar="FILE",
        help="deep tests named there run first; those without time are written there at the end",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_began] = time.monotonic()
    config.stash[_waiting] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deep = [item for item in items if _is_deep(item)]
    if not deep:
        return
    first = drawn(config).first // SEEDS_EACH % len(deep)
    deep = deep[first:] + deep[:first]
    left_over = _left_over(config)
    deep.sort(key=lambda item: item.nodeid not in left_over)
    items[:] = [item for item in items if not _is_deep(item)] + deep
    config.stash[_waiting].update(dict.fromkeys(item.nodeid for item in deep))


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes: float = item.config.getoption("minutes")
    if not _is_deep(item):
        return
    took = time.monotonic() - item.config.stash[_began]
    item.config.stash.setdefault(_others_took, (took, sum(os.times()[:4])))
    if minutes and took >= minutes * 60:
        note_lacking(
            item.config, f"time (make test has no limit; this run's was {minutes:g} minutes)"
        )
        pytest.skip("the time is over")  # not silently: the last lines of the run name it
    item.config.stash[_waiting].pop(item.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    file: Path | None = session.config.getoption("left_over")
    if file is not None and not session.config.option.collectonly:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{each}\n" for each in session.config.stash[_waiting]))


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    took, cpu = config.stash.get(_others_took, (0, 0))
    if took:
        terminalreporter.section("deep tests", sep="-")
        terminalreporter.line(
            f"the others took {took / 60:.1f} minutes, and {cpu / 60:.1f} minutes of CPU"
        )


def _left_over(config: pytest.Config) -> set[str]:
    """Ids of the deep tests for which the run before had no time."""
    file: Path | None = config.getoption("left_over")
    return set(file.read_text().splitlines()) if file is not None and file.exists() else set()
