"""Stock client libraries with their default settings while an agent joins, all restart, one dies.

All libraries work at the same time on one cluster per story, each in a process of its own on keys
of its own.  None may ever read anything but what was last acknowledged.  What each was seen to do
is in `docs/clients.md`; redis-cli and redis-benchmark have `test_clients_during_change`.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from machine_parts import PARTS
from quorate_clients.libraries import LIBRARIES, Library
from quorate_clients.running import Report, RunningClient
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(420)]

ZONE = "z"
DROPPED_MAX = 6
UNWRITABLE_MS_MAX = 15_000
"""A library's waits between repetitions, some seconds without a primary, and a busy machine."""


def _join(cluster: Cluster) -> None:
    cluster.add_agent()
    wait_until(lambda: "agent-4" in cluster.zone(ZONE)["status"]["dataNodes"], "data node agent-4")
    cluster.wait_quiet(ZONE)


def _restart_one_by_one(cluster: Cluster) -> None:
    for agent in cluster.agents.values():
        agent.terminate()
        agent.start()
        cluster.wait_online(agent.name)
        cluster.wait_quiet(ZONE)
        wait_until(lambda: _spread(cluster) <= 1, "even primaries", 30, cluster.primaries)


def _spread(cluster: Cluster) -> int:
    primaries = cluster.primaries().values()
    return max(primaries) - min(primaries)


def _kill(cluster: Cluster) -> None:
    victim = cluster.agent_with_most_primaries()
    victim.kill()
    wait_until(lambda: cluster.primaries()[victim.name] == 0, "primaries elsewhere")
    cluster.wait_available(ZONE)


@dataclass(frozen=True, slots=True)
class Story:
    """`agents` at its begin; after `change` the cluster serves again."""

    name: str
    agents: int
    change: Callable[[Cluster], None]


JOIN = Story("join", 3, _join)
ROLLING = Story("rolling-restart", 6, _restart_one_by_one)
KILL = Story("kill", 4, _kill)


@dataclass(slots=True)
class Told:
    """A story that was run: per library its report, or why there is none."""

    story: Story
    took_s: float = 0.0
    full_copies: int = 0
    reports: dict[str, Report] = field(default_factory=dict)
    problems: dict[str, Exception] = field(default_factory=dict)

    def hear(self, clients: list[RunningClient]) -> None:
        """Let them end, all at the same time, and take down what they report."""
        for client in clients:
            client.ask_to_end()
        for client in clients:
            try:
                self.reports[client.library.name] = client.report()
            except RuntimeError as error:
                self.problems.setdefault(client.library.name, error)

    def report(self, library: Library) -> Report:
        if library.name in self.problems:
            raise self.problems[library.name]
        return self.reports[library.name]


def _fill(cluster: Cluster) -> None:
    """Enough data that a move of it takes a while."""
    pipeline = cluster.client(ZONE).pipeline()
    for number in range(1500):
        pipeline.set(f"data-{number}", bytes(50_000))
        if number % 50 == 49:
            pipeline.execute()


def _tell(story: Story) -> Told:
    told = Told(story)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(story.agents))
        cluster.apply_zone(ZONE, partitions=64)
        _fill(cluster)
        clients = []
        for library in LIBRARIES:
            if not PARTS[library.part].find():
                continue
            try:
                client = RunningClient(library, cluster.endpoints(ZONE))
            except Exception as error:
                told.problems[library.name] = error
                continue
            stack.callback(client.close)
            clients.append(client)
        for client in clients:
            try:
                client.wait_ready()
            except (RuntimeError, TimeoutError) as error:
                told.problems[client.library.name] = error
        began = time.monotonic()
        story.change(cluster)
        told.took_s = time.monotonic() - began
        told.full_copies = cluster.zone_status(ZONE)["full_copies"]
        ended = time.monotonic()
        for client in clients:
            if story is KILL and client.library.finds_no_other:
                continue
            try:
                client.wait_well_since(ended)
            except TimeoutError as error:
                told.problems.setdefault(client.library.name, error)
        told.hear(clients)
    return told


@pytest.fixture(
    scope="module",
    params=[
        JOIN,
        pytest.param(ROLLING, marks=pytest.mark.deep),
        pytest.param(KILL, marks=pytest.mark.deep),
    ],
    ids=lambda story: story.name,
)
def told(request: pytest.FixtureRequest) -> Told:
    return _tell(request.param)


def _marked(library: Library) -> object:
    return pytest.param(library, marks=pytest.mark.needs(library.part), id=library.name)


@pytest.mark.parametrize("library", [_marked(each) for each in LIBRARIES])
def test_a_library_goes_on(told: Told, library: Library, measured: Measured) -> None:
    report = told.report(library)

    measured(f"{library.name}, {told.story.name} of {told.took_s:.0f} s", str(report))
    assert report.wrong == 0, report.examples
    if told.story is KILL and library.finds_no_other:
        return
    if told.story is KILL:
        assert report.failed <= library.failed_by_a_kill_max, report.errors
    else:
        assert report.failed_beside(library.drops) == 0, report.errors
        assert report.failed <= DROPPED_MAX, report.errors
    assert report.unfinished == 0
    assert report.failed_at_end == 0, report.errors
    assert report.unwritable_ms < UNWRITABLE_MS_MAX


def test_restarted_agents_get_what_they_missed_and_nothing_more(told: Told) -> None:
    if told.story is ROLLING:
        assert told.full_copies == 0
