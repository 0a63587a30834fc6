"""Tests that look further where others have looked already: last, and only while there is time.

A pytest plugin.  `@pytest.mark.deep` is for more seeds, more rounds, more kinds of clients: what it
could find is rare.  Such tests run behind all others.  With `--minutes N` those that would begin
later than that do not run, and the run's last lines name them: a machine that others make slow
still ends in time.
"""

import time

import pytest

from machine_parts import note_lacking

_began = pytest.StashKey[float]()


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


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_began] = time.monotonic()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_is_deep)


def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes: float = item.config.getoption("minutes")
    if not (minutes and _is_deep(item)):
        return
    if time.monotonic() - item.config.stash[_began] >= minutes * 60:
        note_lacking(item.config, f"time (make test, which has more than {minutes:g} minutes)")
        pytest.skip("the time is over")  # not silently: the last lines of the run name it
