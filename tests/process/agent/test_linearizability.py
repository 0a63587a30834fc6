"""Histories of real clients, while agents fail and copies move, judged by a foreign checker."""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from quorate_cluster import agent_without_lease
from quorate_cluster.fixtures import Measured
from quorate_cluster.mixed_commands import MixedCommands
from quorate_cluster.operator_api import ApiError
from quorate_cluster.processes import Listening
from quorate_cluster.proxied_cluster import ProxiedCluster, cuts_around
from quorate_cluster.waiting import wait_until
from quorate_porcupine.judge import judge
from quorate_porcupine.operations import Operation

pytestmark = [pytest.mark.process, pytest.mark.needs("go"), pytest.mark.timeout(400)]

ROUNDS = 6
"""Each fault once."""
ROUND_S = 8.5
FROZEN_S = 7.0
"""Longer than any lease: somebody else is primary when the frozen agent thaws."""
BALLAST = 4000
"""Rows of 4 kB beside the keys in use, so that copies take a while to move."""

StartProxied = Callable[..., ProxiedCluster]
Step = tuple[float, Callable[[], object], str]
"""When (seconds after the beginning), what, and how it is called in the story."""


@pytest.fixture
def start_proxied() -> Iterator[StartProxied]:
    """`start_proxied(agents=3)`: a running ProxiedCluster of the test's own."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(ProxiedCluster(**options))


class Story:
    """Rounds that each change who holds what, and hurt somebody while copies move."""

    def __init__(self, cluster: ProxiedCluster, chance: random.Random) -> None:
        self.told: list[str] = []
        self.migrations = 0
        self._seen = 0
        self._cluster = cluster
        self._chance = chance

    def run(self) -> None:
        began = time.monotonic()
        for when, what, name in sorted(self._steps(), key=lambda step: step[0]):
            time.sleep(max(0.0, began + when - time.monotonic()))  # the schedule is the test's own
            self.told.append(f"{time.monotonic() - began:6.1f} s {name}")
            what()
        self._cluster.proxy.cut(())
        for process in self._cluster.processes:
            process.resume_or_start()
        self._let_everybody_hold_copies()

    def _steps(self) -> Iterator[Step]:
        agents = [*self._cluster.agents.values()]
        added = self._cluster.define_agent()
        everybody: list[Listening] = [*agents, added]
        order = ["kill", "freeze", "restart", "operator", "cut", "cut off"]
        self._chance.shuffle(order)
        drained = ""
        for number in range(ROUNDS):
            moment = number * ROUND_S
            if number == 0:
                yield moment, lambda: added.start(wait=False), f"start {added.name}"
                yield moment + 0.7, self._cluster.declare, f"declare {added.name}"
            elif drained:
                name, drained = drained, ""
                yield moment, self._draining(name, "undrain"), f"undrain {name}"
            else:
                drained = self._chance.choice(everybody).name
                yield moment, self._draining(drained, "drain"), f"drain {drained}"
            yield moment + ROUND_S - 0.2, self._count_migrations, "look at the migrations"
            victim = self._chance.choice(everybody)
            fault = order[number % len(order)]
            moment += self._chance.choice((0.1, 0.5, 1, 2)) + (1 if number == 0 else 0)
            yield from self._fault(fault, victim, moment)

    def _fault(self, fault: str, victim: Listening, moment: float) -> Iterator[Step]:
        if fault == "operator":
            victim, fault = self._cluster.operator, "kill"
        back = moment + self._chance.choice((0.2, 1, 3))
        if fault == "kill":
            yield moment, victim.kill, f"kill -9 {victim.name}"
            yield back, lambda: victim.start(wait=False), f"start {victim.name}"
        elif fault == "freeze":
            yield moment, lambda: victim.is_alive() and victim.pause(), f"SIGSTOP {victim.name}"
            thaw = moment + FROZEN_S
            yield thaw, lambda: victim.is_alive() and victim.resume(), f"SIGCONT {victim.name}"
        elif fault in ("cut", "cut off"):
            cut = cuts_around(self._cluster, victim.name)
            if fault == "cut":
                cut = [self._chance.choice(cut)]
            yield moment, partial(self._cluster.proxy.cut, cut), f"cut {cut}"
            yield moment + FROZEN_S, partial(self._cluster.proxy.cut, ()), "nothing is cut"
        else:
            yield moment, victim.interrupt, f"SIGTERM {victim.name}"
            yield back, victim.kill, f"end of {victim.name}"
            yield back + 0.1, lambda: victim.start(wait=False), f"start {victim.name}"

    def _draining(self, name: str, action: str) -> Callable[[], None]:
        def ask() -> None:
            with suppress(OSError, ApiError):  # the operator may be gone, the agent not known yet
                self._cluster.api.ask("POST", f"/nodes/{name}/{action}?cluster=main")

        return ask

    def _count_migrations(self) -> None:
        """Each master counts from zero."""
        with suppress(OSError):
            for zone in self._cluster.api.status()["zones"]:
                done = zone["migrations_done"]
                self.migrations += done - self._seen if done >= self._seen else done
                self._seen = done

    def _let_everybody_hold_copies(self) -> None:
        self._cluster.wait_online()
        for name in self._cluster.agents:
            self._draining(name, "undrain")()


def _load_ballast(cluster: ProxiedCluster) -> None:
    pipeline = cluster.client("z").pipeline()
    for number in range(BALLAST):
        pipeline.set(f"ballast-{number}", random.Random(number).randbytes(4096))
        if number % 500 == 499:
            pipeline.execute()


def _kept(history: list[Operation], folder: Path) -> Path:
    """A file that `python -m quorate_porcupine FILE` judges again."""
    file = folder / "history.jsonl"
    file.write_text("".join(operation.line() + "\n" for operation in history))
    return file


def test_what_clients_see_is_linearizable_while_agents_fail_and_copies_move(
    start_proxied: StartProxied, measured: Measured, fresh_seed: int, tmp_path: Path
) -> None:
    cluster = start_proxied(agents=4)
    cluster.apply_zone("z", partitions=8)
    _load_ballast(cluster)
    story = Story(cluster, random.Random(fresh_seed))
    with MixedCommands(cluster, "z", seed=fresh_seed) as load:
        wait_until(lambda: len(load.history) > 300, "commands")
        began = time.monotonic()
        story.run()
        cluster.wait_quiet("z")
        before = len(load.history)
        wait_until(lambda: len(load.history) > before + 300, "further commands")
    took = time.monotonic() - began

    began = time.monotonic()
    verdict = judge(load.history)
    judging = time.monotonic() - began
    measured(
        f"linearizability, seed {fresh_seed}",
        f"{len(load.history)} operations, {load.unknown} of unknown outcome, and"
        f" {story.migrations} migrations in {took:.0f} s; judged in {judging:.1f} s",
    )
    assert verdict.is_linearizable, "\n".join(
        [
            f"seed {fresh_seed}, {_kept(load.history, tmp_path)}: {verdict.text}",
            *story.told,
            str(load.errors),
        ]
    )
    assert load.unknown > 5
    assert story.migrations > 10


@pytest.mark.parametrize("has_lease", [True, False], ids=["sound", "without-lease"])
def test_a_primary_that_is_cut_off_and_answers_without_its_lease_is_found(
    start_proxied: StartProxied, has_lease: bool
) -> None:
    planted = (sys.executable, "-P", str(Path(agent_without_lease.__file__)))
    cluster = start_proxied(agents=3, prefix=() if has_lease else planted)
    cluster.apply_zone("z", partitions=8)
    with MixedCommands(cluster, "z", seed=1) as before:
        wait_until(lambda: len(before.history) > 1000, "commands")

    alone = cluster.agent_with_most_primaries().name
    cluster.proxy.cut(cuts_around(cluster, alone))
    wait_until(lambda: cluster.primaries()[alone] == 0, "other primaries")
    # Nobody writes to the lonely one: behind a write that cannot be acknowledged a read waits.
    with MixedCommands(cluster, "z", seed=2, avoid=alone) as load:
        wait_until(lambda: len(load.history) > 2000, "commands at other primaries")
        cluster.proxy.cut(())
        wait_until(lambda: len(load.history) > 3000, "commands with everybody")

    verdict = judge(before.history + load.history)

    assert verdict.word == ("ok" if has_lease else "illegal"), verdict.text
