"""Agents are killed, frozen and restarted at random while clients write: nobody is lied to."""

import itertools
import random
import time
from collections.abc import Callable, Iterator

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.history import find_violations
from quorate_cluster.processes import Listening
from quorate_cluster.workload import Workload

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

FROZEN_S = 8.0
BETWEEN_S = (2.0, 7.0)
"""Shorter than a freeze: rounds overlap, and at times no majority is there."""

Step = tuple[float, Callable[[], object], str]
"""When (monotonic), what, and how it is called in the log."""


def _round(chance: random.Random, victim: Listening, moment: float) -> Iterator[Step]:
    """What one round does to `victim`, and how it is undone."""
    how = chance.choice(("kill", "freeze", "restart"))
    back = moment + chance.choice((0.1, 1, 3, 9)) * chance.uniform(0.5, 1)
    if how == "kill":
        yield moment, victim.kill, "kill -9"
        yield back, lambda: victim.start(wait=False), "start"
    elif how == "freeze":
        yield moment, lambda: victim.is_alive() and victim.pause(), "SIGSTOP"
        yield moment + FROZEN_S, lambda: victim.is_alive() and victim.resume(), "SIGCONT"
    else:
        yield moment, victim.interrupt, "SIGTERM"
        yield back, lambda: _start_anew(victim), "start"


def _start_anew(victim: Listening) -> None:
    """Whoever has not stopped by now is not waited for."""
    victim.kill()
    victim.start(wait=False)


def _steps(chance: random.Random, cluster: Cluster, rounds: int) -> list[Step]:
    victims = [*cluster.agents.values()]
    moment = time.monotonic() + 1
    steps: list[tuple[float, Callable[[], object], str]] = []
    for _ in range(rounds):
        victim: Listening = chance.choice(victims)
        if chance.random() < 0.15:
            victim = cluster.operator
        for when, what, name in _round(chance, victim, moment):
            steps.append((when, what, f"{name} {victim.name}"))
        moment += chance.uniform(*BETWEEN_S)
    return sorted(steps, key=lambda step: step[0])


# Interval: what the system holds for a file survives the process that wrote it.  Not InMemory: who
# is killed has nothing left and takes no part as its old self, so that a second loss would be right
# to stop the zone.
@pytest.mark.parametrize(
    ("sync_writes", "rounds"),
    [("Interval", 10), pytest.param("Always", 20, marks=pytest.mark.deep)],
)
def test_no_acknowledged_write_is_lost_and_no_read_is_wrong_in_rounds_of_chaos(
    start_cluster: StartCluster,
    measured: Measured,
    fresh_seed: int,
    sync_writes: str,
    rounds: int,
) -> None:
    chance = random.Random(fresh_seed)
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, syncWrites=sync_writes)
    with Workload(cluster, "z", seed=fresh_seed) as load:
        load.wait_for_writes(300)
        began = time.monotonic()
        told = []
        for when, what, name in _steps(chance, cluster, rounds):
            time.sleep(max(0.0, when - time.monotonic()))  # the schedule is the test's own
            told.append(f"{time.monotonic() - began:6.1f} s {name}")
            what()
        for process in cluster.processes:
            process.resume_or_start()
        cluster.wait_quiet("z")
        load.wait_for_writes(300)

    violations = find_violations(load.writes, load.reads + load.read_back())
    measured(
        f"chaos, syncWrites {sync_writes}, seed {fresh_seed}",
        f"{load.acknowledged} writes acknowledged, {len(load.reads)} reads in"
        f" {time.monotonic() - began:.0f} s, longest without any"
        f" {_longest_silence_s(load):.1f} s; errors {sum(load.errors.values())}",
    )
    assert violations == [], "\n".join(
        [
            f"seed {fresh_seed}, {len(violations)} violations:",
            *violations[:10],
            *told,
            str(load.errors),
        ]
    )
    assert len(load.reads) > 1000


def _longest_silence_s(load: Workload) -> float:
    ends = sorted(write.end for write in load.writes if write.outcome.name == "ACKNOWLEDGED")
    return max(after - before for before, after in itertools.pairwise(ends))
