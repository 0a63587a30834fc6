"""What the machine did to a run: how long it stood still, and which tests must not be judged by it.

A pytest plugin, for tests that start processes.  Who fails by `NotServed` alone, while the machine
stood still so long that agents may be taken for lost, has shown nothing: neither that clients are
served nor that they are not.  The run's last lines name these tests, say what clients were told,
and how long the machine stood still.  When there are more than a few, the run fails: it has shown
too little.  Whatever else a test says (lost, stale, twice, wrong) fails it on any machine.
"""

import time
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from quorate_cluster.served import NotServed
from quorate_cluster.standstill import BOUND_S, StandstillWatch, describe, worst_s

LEVELS = ("process", "integration", "e2e")

NOT_JUDGED_MAX = 3
"""Of one run.  A machine stands still now and then; a defect that has clients refused whenever it
does must not pass as that."""

_watch = pytest.StashKey[StandstillWatch]()
_opened = pytest.StashKey[ExitStack]()
_began = pytest.StashKey[float]()
_not_judged = pytest.StashKey[dict[str, str]]()
"""By test: what failed, and what was told meanwhile."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_opened] = ExitStack()
    config.stash[_not_judged] = {}


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_opened].close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    stash = item.config.stash
    if _watch not in stash and any(item.get_closest_marker(level) for level in LEVELS):
        stash[_watch] = stash[_opened].enter_context(StandstillWatch())
    item.stash[_began] = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    item.stash[_began] = time.monotonic()  # what a fixture has waited for is no excuse


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    watch = item.config.stash.get(_watch, None)
    if watch is None or not report.failed or call.excinfo is None:
        return report
    seen = watch.since(item.stash.get(_began, 0.0))
    report.sections.append(("the machine meanwhile", describe(seen)))
    error = call.excinfo.value
    # With notes, something beside the test had failed as well.
    alone = isinstance(error, NotServed) and not getattr(error, "__notes__", ())
    if alone and worst_s(seen) >= BOUND_S:
        report.outcome = "skipped"
        why = f"the machine stood still: {describe(seen)}"
        report.wasxfail = why  # not silently: the last lines of the run show it, with what was said
        told = "\n".join(f"--- {name} ---\n{text}" for name, text in report.sections)
        item.config.stash[_not_judged][item.nodeid] = f"{error}\n{told}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _too_few_judged(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _too_few_judged(config: pytest.Config) -> bool:
    return len(config.stash[_not_judged]) > NOT_JUDGED_MAX


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    watch = config.stash.get(_watch, None)
    if watch is None:
        return
    terminalreporter.section("the machine", sep="-")
    terminalreporter.line(
        f"others took {watch.stolen():.0%} of its processors; {describe(watch.since(0))}"
        + ("" if watch.looks else "; after that nobody looked any more")
    )
    not_judged = config.stash[_not_judged]
    for name, text in not_judged.items():
        terminalreporter.line(
            f"not judged whether clients were served: {name}: {text}", yellow=True
        )
    for name in not_judged:
        terminalreporter.line(f"not judged: {name}", yellow=True)
    if _too_few_judged(config):
        terminalreporter.line(
            f"{len(not_judged)} tests were not judged, more than {NOT_JUDGED_MAX}: the run has"
            " failed. Run them again where the machine does not stand still",
            red=True,
        )
