"""One cluster of real nodes for all stories of a run, with Quorate as the manual installs it."""

from collections.abc import Generator, Iterator

import pytest

from quorate_helm.build import helm_path
from quorate_images.build import build_image
from quorate_nodes.cluster import NodeCluster
from quorate_nodes.programs import find_programs
from quorate_nodes.release.installed import FirstSet, Installed

_open: list[Installed | NodeCluster] = []


@pytest.fixture(scope="session")
def nodes() -> Iterator[NodeCluster]:
    """Three ready nodes; a test that disturbs one puts it right again."""
    programs = find_programs()
    assert programs is not None
    with NodeCluster(programs) as cluster:
        _open.append(cluster)
        yield cluster
        _open.remove(cluster)
    assert cluster.left_behind() == []


@pytest.fixture(scope="session")
def installed(nodes: NodeCluster) -> Iterator[Installed]:
    """The namespace of the manual with loaded images, before its first command."""
    images = {target: build_image(target) for target in ("operator", "agent")}
    made = Installed(nodes, helm_path("helm4"), images)
    _open.append(made)
    yield made
    _open.remove(made)
    made.close()


@pytest.fixture(scope="session")
def first_set(installed: Installed) -> FirstSet:
    """The manual was followed to the first SET, within the time that the manual promises."""
    return installed.follow_to_first_set()


@pytest.fixture
def first_day(installed: Installed, first_set: FirstSet) -> Iterator[Installed]:
    """Quorate as it is after the first day, whole; no process may meet a defect meanwhile."""
    installed.nodes.power_all_on()
    installed.wait_whole()
    yield installed
    assert installed.tracebacks() == []
    assert installed.refusals() == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for each in _open:
            if isinstance(each, Installed):
                report.sections.append(("what there is", each.facts()))
            else:
                report.sections.append(("last log lines of the nodes", each.log_tails()))
    return report
