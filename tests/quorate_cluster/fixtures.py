"""The pytest fixtures by which tests reach clusters of real processes, and say what they measured.

A pytest plugin.  Figures depend on the machine and what else it does: they stand at the end of the
run and nothing is asserted of them.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from quorate_cluster.cluster import Cluster, open_clusters

StartCluster = Callable[..., Cluster]
Measured = Callable[[str, str], None]

_figures = pytest.StashKey[list[str]]()


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """`start_cluster(agents=3)`: a running Cluster of the test's own; arguments as Cluster's."""
    with ExitStack() as stack:

        def start(agents: int = 3, **options: Any) -> Cluster:
            return stack.enter_context(Cluster(agents, **options))

        yield start


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three agents for the whole run, never disturbed: declare zones under names of your own."""
    with Cluster(agents=3, name="shared", options=("--debug-commands",)) as started:
        yield started


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """`measured("all keys writable after kill -9", "1.20 s")`: a line at the end of the run."""
    figures = request.config.stash.setdefault(_figures, [])
    return lambda what, figure: figures.append(f"{what}: {figure}")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    figures = config.stash.get(_figures, [])
    if figures:
        terminalreporter.section("measured", sep="-")
        for line in figures:
            terminalreporter.line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for each in open_clusters:
            report.sections.append((f"cluster {each.name}: last log lines", each.logs()))
    return report
