"""Clients that send more than an agent can do: leases go on, nobody is taken for lost."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import pytest

from quorate_cluster.beside import NEVER, clients_beside
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.flood import Flood, Pour, commands
from quorate_cluster.heartbeats import heartbeats_answered
from quorate_cluster.routing import keys_by_port
from quorate_cluster.served import assert_served
from quorate_cluster.standstill import stood_still_since
from quorate_cluster.steadiness import changes, standing
from quorate_link.garbage import PAUSE_S

pytestmark = [pytest.mark.process, pytest.mark.alone, pytest.mark.timeout(400)]

CONNECTIONS = 150
KEYS = 6000
FLOOD_S = 8.0
"""Much longer than a lease, and than the silence after which an agent is taken for lost."""
ALL_BUSY_S = 15.0
"""Long enough that the first moments, until all agents are busy, weigh little in a share."""
LONG_BYTES = 2000
FLOODS_MAX = 3
"""Where the machine stood still in a flood, nothing is known of heartbeats: there is another."""
DOCUMENTED = ("-CLUSTERDOWN", "-UNKNOWN", "-MOVED")


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_a_flood_of_pipelines_makes_no_agent_seem_lost(
    start_cluster: StartCluster, measured: Measured, kind: str
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, storage="InMemory")
    cluster.wait_quiet("z")
    victim = cluster.agent_with_most_primaries()
    port = cluster.port("z", victim.name)

    keys = keys_by_port(port, KEYS)[port]
    pour = Pour(port, commands(keys, b"x" * 50 if kind == "writes" else None), CONNECTIONS)
    memory = victim.rss_bytes()
    with clients_beside(cluster, "z") as beside, Flood([pour]):
        time.sleep(FLOOD_S)  # the flood is what is tested
        memory = victim.rss_bytes() - memory
        beside.load_is_over()

    measured(
        f"flood of {kind}",
        f"{pour.answered:,} commands answered in {FLOOD_S:g} s, {pour.refused:,} of them refused,"
        f" {pour.errors:,} given up;"
        f" others waited at most {beside.waited_s:.2f} s; memory +{memory // 1_000_000} MB",
    )
    assert pour.broken == 0
    assert memory < 500_000_000
    beside.assert_served()


def test_heartbeats_do_not_wait_behind_what_copies_have_not_read(
    start_cluster: StartCluster, measured: Measured
) -> None:
    # All agents are busy, so each reads late what the others send: some ten megabytes wait.
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=64, storage="InMemory")
    cluster.wait_quiet("z")
    by_port = keys_by_port(cluster.port("z", "agent-1"), KEYS)
    pours = [
        Pour(port, commands(keys, b"x" * LONG_BYTES), 2 * CONNECTIONS)
        for port, keys in by_port.items()
    ]
    before = standing(cluster, "z")
    for _ in range(FLOODS_MAX):
        answers, began = heartbeats_answered(cluster), time.monotonic()
        with Flood(pours):
            time.sleep(ALL_BUSY_S)  # the flood is what is tested
        answers = heartbeats_answered(cluster) - answers
        stood_still = stood_still_since(began)
        if not stood_still:
            break

    within_1_s = answers[1.0] / answers[inf]
    written = sum(pour.answered for pour in pours)
    measured(
        "heartbeats in a flood of long writes",
        f"{written:,} values written; {within_1_s:.0%} of {answers[inf]} answers came within 1 s",
    )
    assert written > 10_000
    errors = [pour.first_error for pour in pours if pour.errors]
    assert [each for each in errors if not each.startswith(DOCUMENTED)] == []
    changed = changes(cluster, "z", before)
    assert [each for each in changed if each.startswith(NEVER)] == []
    late = [f"{within_1_s:.0%} of the answers within 1 s"] if within_1_s < 0.9 else []
    if not stood_still:
        assert late == []
    assert_served(cluster, [*late, *errors, *changed])


BUSY = "import os\nmine = os.getppid()\nwhile os.getppid() == mine: sum(range(100_000))"
BUSY_S = 45.0


@contextmanager
def _others_want_the_processors() -> Iterator[None]:
    """Four programs for each, in sessions of their own: Linux gives a session its share."""
    others = [
        subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
        for _ in range(4 * len(os.sched_getaffinity(0)))
    ]
    try:
        yield
    finally:
        for each in others:
            with each:
                each.kill()


@pytest.mark.deep
def test_an_agent_that_gets_little_of_the_processors_is_not_taken_for_lost(
    start_cluster: StartCluster,
) -> None:
    # It may not seem to have little to do: then it would stop to look for garbage, which is so much
    # under a flood that its leases end.  It has not looked for a while when the others come.
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=64, storage="InMemory")
    cluster.wait_quiet("z")
    by_port = keys_by_port(cluster.port("z", "agent-1"), KEYS)
    pours = [
        Pour(port, commands(keys, value), CONNECTIONS // 2)
        for port, keys in by_port.items()
        for value in (b"x" * 50, None)
    ]
    before = standing(cluster, "z")
    with Flood(pours):
        time.sleep(PAUSE_S + 10)
        with _others_want_the_processors():
            time.sleep(BUSY_S)

    assert sum(pour.answered for pour in pours) > 100_000
    changed = changes(cluster, "z", before)
    assert [each for each in changed if each.startswith(NEVER)] == []
    assert_served(cluster, changed)
