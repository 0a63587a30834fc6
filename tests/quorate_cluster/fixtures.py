"""The pytest fixtures by which tests reach clusters of real processes.  A pytest plugin."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from quorate_cluster.cluster import Cluster, open_clusters

StartCluster = Callable[..., Cluster]


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for each in open_clusters:
            report.sections.append((f"cluster {each.name}: last log lines", each.logs()))
    return report
