"""Somebody is hurt at one exact moment of one migration, in real processes: nothing is lost.

Each case is a row of the table below.  It provokes a migration, strikes when a message that tells
the moment is on its way (the proxy holds it), mends what it did, and then asks for what must hold:
rows and copies agree, nobody lacks data or has data that is not his, what was acknowledged can be
read, versions and terms never went back.

Moments that a kind of migration does not have are not in the table: nothing is filled when nobody
comes, nobody freezes when the primary stays, nobody prepares where there is no destination, and no
source deletes when nobody leaves.
"""

import itertools
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from deep_tests import most_are_deep
from migration_words import Kind, Moment, Role, why_impossible
from quorate_cluster.agreement import RowsSeen, differences, unsettled
from quorate_cluster.history import find_violations
from quorate_cluster.migration_moments import Blow, Strike
from quorate_cluster.proxied_cluster import ProxiedCluster
from quorate_cluster.proxy import OPERATOR
from quorate_cluster.waiting import wait_until
from quorate_cluster.workload import Workload
from quorate_spark.reading.agent_link import Unreadable

PARTITIONS = 8
FROZEN_S = 8.0
CUT_S = 3.6
"""Longer than a lease, and than the silence after which a master takes an agent for left."""
SETTLED_S_MAX = 25.0
"""Shorter than the times after which a master gives a migration up: nobody may depend on those."""
ZONE = "z"
AGENTS = ("agent-1", "agent-2", "agent-3", "agent-4")

TABLE = """
start               | master      | cut both      | MOVE of backup
start               | source      | crash         | DROP
start               | source      | message lost  | SHIFT_UP
start               | destination | crash         | SHIFT_DOWN
start               | bystander   | message twice | SHIFT_UP
start               | bystander   | message lost  | SWAP
start               | primary     | message twice | DROP
filling             | master      | cut both      | SHIFT_DOWN
filling             | source      | crash         | MOVE of backup
filling             | source      | cut out       | COPY
filling             | destination | crash         | MOVE of primary
filling             | destination | freeze        | MOVE of backup
filling             | bystander   | message lost  | COPY
filling             | bystander   | cut in        | COPY
filling             | primary     | cut out       | MOVE of backup
caught up           | master      | cut out       | SWAP
caught up           | master      | message lost  | MOVE of primary
caught up           | source      | cut in        | SHIFT_DOWN
caught up           | source      | message twice | SHIFT_UP
caught up           | destination | freeze        | MOVE of backup
caught up           | destination | crash         | SWAP
caught up           | bystander   | message lost  | DROP
caught up           | bystander   | crash         | COPY
caught up           | primary     | message lost  | MOVE of backup
frozen              | master      | crash         | MOVE of primary
frozen              | source      | message lost  | SWAP
frozen              | destination | message lost  | SHIFT_DOWN
frozen              | destination | crash         | SWAP
frozen              | bystander   | message twice | SHIFT_DOWN
frozen              | bystander   | freeze        | MOVE of primary
prepared row sent   | master      | message twice | COPY
prepared row sent   | master      | freeze        | SHIFT_DOWN
prepared row sent   | source      | message twice | MOVE of primary
prepared row sent   | source      | cut both      | COPY
prepared row sent   | destination | message lost  | COPY
prepared row sent   | destination | crash         | SHIFT_DOWN
prepared row sent   | bystander   | message twice | SWAP
prepared row sent   | bystander   | freeze        | MOVE of backup
prepared row stored | master      | crash         | COPY
prepared row stored | master      | message lost  | MOVE of backup
prepared row stored | source      | freeze        | SWAP
prepared row stored | source      | cut in        | COPY
prepared row stored | destination | cut both      | SWAP
prepared row stored | destination | message twice | MOVE of backup
prepared row stored | bystander   | cut both      | MOVE of primary
prepared row stored | bystander   | freeze        | SHIFT_DOWN
migration commit    | master      | cut in        | DROP
migration commit    | master      | cut out       | SHIFT_UP
migration commit    | source      | freeze        | COPY
migration commit    | source      | message lost  | SHIFT_DOWN
migration commit    | destination | crash         | SWAP
migration commit    | bystander   | message twice | MOVE of backup
migration commit    | primary     | message lost  | DROP
published           | master      | cut both      | SHIFT_UP
published           | master      | message twice | MOVE of primary
published           | source      | message twice | DROP
published           | destination | cut in        | MOVE of backup
published           | destination | message lost  | SWAP
published           | bystander   | message twice | SHIFT_DOWN
published           | bystander   | cut out       | DROP
source deletes      | master      | message twice | MOVE of backup
source deletes      | source      | message lost  | MOVE of primary
source deletes      | source      | message twice | DROP
source deletes      | destination | crash         | MOVE of primary
source deletes      | destination | cut out       | MOVE of backup
source deletes      | bystander   | crash         | DROP
source deletes      | bystander   | cut in        | MOVE of primary
source deletes      | primary     | crash         | DROP
"""

FAULTS = ("crash", "freeze", "cut out", "cut in", "cut both", "message lost", "message twice")
"""Cut out: what the process sends does not arrive; cut in: what is sent to it does not."""


class Case(NamedTuple):
    """One row of the table."""

    moment: Moment
    role: Role
    fault: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.moment.value}, {self.role.value}: {self.fault}, {self.kind}"


class State(NamedTuple):
    """What the cluster is asked for: copies of the zone, and who is to hold none."""

    replicas: int
    drained: tuple[str, ...]

    @property
    def copies(self) -> int:
        return min(self.replicas, len(AGENTS) - len(self.drained))


FOUR = State(3, ())
THREE = State(3, ("agent-3",))
PAIR = State(2, ("agent-3",))
TWO = State(3, ("agent-3", "agent-4"))

PROVOKED_BY = {
    Kind.MOVE_PRIMARY: (THREE, FOUR),
    Kind.MOVE_BACKUP: (FOUR, THREE),
    Kind.COPY: (PAIR, THREE),
    Kind.SHIFT_UP: (THREE, THREE),
    Kind.SHIFT_DOWN: (TWO, THREE),
    Kind.SWAP: (FOUR, THREE),
    Kind.DROP: (THREE, PAIR),
}
"""Which step provokes it.  SHIFT_UP: of two lost backups the second is back first."""


def _table() -> list[Case]:
    cases = []
    for line in TABLE.strip().splitlines():
        moment, role, fault, kind = (word.strip() for word in line.split("|"))
        assert fault in FAULTS
        cases.append(Case(Moment(moment), Role(role), fault, Kind(kind)))
    return cases


def _all() -> list[Case]:
    """Every case that makes sense."""
    whole = itertools.starmap(Case, itertools.product(Moment, Role, FAULTS, Kind))
    return [case for case in whole if not why_impossible(case.kind, case.moment, case.role)]


def _chosen() -> list[Case]:
    """The table; with QUORATE_CRASH_CASES=FIRST:END:STEP that slice of all cases, ":" for all."""
    wanted = os.environ.get("QUORATE_CRASH_CASES", "")
    if not wanted:
        return _table()
    return _all()[slice(*(int(each) if each else None for each in wanted.split(":")))]


class Arena:
    """A cluster that case after case is done to, as long as it is healthy."""

    def __init__(self) -> None:
        self._number = 0
        self._cluster: ProxiedCluster | None = None
        self._is_fit = False
        self._state = FOUR
        self.seen = RowsSeen()

    @property
    def cluster(self) -> ProxiedCluster:
        assert self._cluster is not None
        return self._cluster

    def prepare(self) -> None:
        """A healthy cluster: the last one, unless its case has failed."""
        if not self._is_fit:
            self.stop()
            self.seen = RowsSeen()
            self._state = FOUR
            self._cluster = ProxiedCluster(len(AGENTS))
            self._cluster.start()
            self.cluster.proxy.set_judges(self.seen.judge)
            self.cluster.apply_zone(ZONE, partitions=PARTITIONS, replicas=3)
            self._load()
        self._is_fit = False  # until the case is over

    def keep(self) -> None:
        """The case has ended well."""
        self._is_fit = True

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()

    def workload(self) -> Workload:
        """Few clients: what they use of the machine the agents lack."""
        self._number += 1
        return Workload(
            self.cluster,
            ZONE,
            writers=2,
            readers=1,
            keys_per_writer=8,
            pause_s=0.01,
            name=f"c{self._number}-",
        )

    def ask_for(self, state: State) -> None:
        """Say what is wanted; `go_to` also waits for it."""
        cluster = self.cluster
        spec = {"clusterRef": {"name": cluster.name}, "partitions": PARTITIONS}
        for name in AGENTS:
            if (name in state.drained) is not (name in self._state.drained):
                action = "drain" if name in state.drained else "undrain"
                cluster.api.ask("POST", f"/nodes/{name}/{action}")
        self._state = state
        cluster.apply("Zone", "zones", ZONE, {**spec, "replicas": state.replicas})

    def go_to(self, state: State) -> None:
        """Have the cluster in this state, settled."""
        if state == TWO != self._state:  # who is drained must not be needed for the zone's replicas
            self.go_to(PAIR)
            self.ask_for(State(2, TWO.drained))
            self.settle(State(2, TWO.drained))
        self.ask_for(state)
        self.settle(state)

    def settle(self, state: State) -> None:
        """Wait until everything is as it must be, and stays so."""
        wait_until(
            lambda: not self._unsettled(state),
            f"settled zone in {state}",
            SETTLED_S_MAX,
            lambda: self._unsettled(state),
        )

    def _unsettled(self, state: State) -> list[str]:
        try:
            return unsettled(self.cluster, ZONE, state.copies)
        except (OSError, Unreadable, KeyError) as error:  # somebody is on his way back
            return [f"{type(error).__name__}: {error}"]

    def _load(self) -> None:
        """So much in the logs that a new copy gets rows, and not all updates there ever were."""
        pipeline = self.cluster.client(ZONE).pipeline()
        for version in "ab":
            for number in range(300):
                pipeline.set(f"data-{number}", f"{version}{number}-".encode() * 1000)
            pipeline.execute()


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    made = Arena()
    yield made
    made.stop()


def _provoke(arena: Arena, case: Case) -> None:
    if case.kind is Kind.SHIFT_UP:
        for name in ("agent-2", "agent-4"):
            arena.cluster.agents[name].kill()
        arena.cluster.agents["agent-4"].start(wait=False)
    else:
        arena.ask_for(PROVOKED_BY[case.kind][1])


def _strike(arena: Arena, case: Case) -> Strike:
    """Have the fault happen at the case's moment; who was struck goes on suffering."""
    blow = {"message lost": Blow.LOSE, "message twice": Blow.TWICE}.get(case.fault, Blow.HOLD)
    start, goal = PROVOKED_BY[case.kind]
    for _ in range(3):
        strike = Strike(case.kind, case.moment, case.role, blow)
        arena.cluster.proxy.set_judges(arena.seen.judge, strike.judge)
        _provoke(arena, case)
        if (strike.reached if blow is Blow.HOLD else strike.struck).wait(10):
            return strike
        strike.end()  # there was no such migration this time
        arena.cluster.proxy.release()
        arena.cluster.agents["agent-2"].start()
        arena.settle(goal)
        arena.go_to(start)
    raise TimeoutError(f"no {case.kind} came to {case.moment}")


def _hurt_and_mend(arena: Arena, case: Case, strike: Strike) -> None:
    cluster, proxy = arena.cluster, arena.cluster.proxy
    victim = strike.victim
    process = cluster.operator if victim == OPERATOR else cluster.agents[victim]
    strike.end()
    if case.fault == "crash":
        process.kill()
        proxy.release(dead=victim)
        process.start(wait=False)
    elif case.fault == "freeze":
        process.pause()
        proxy.release()
        time.sleep(FROZEN_S)
        process.resume()
    elif case.fault.startswith("cut"):
        others = [name for name in (OPERATOR, *AGENTS) if name != victim]
        out, into = [(victim, each) for each in others], [(each, victim) for each in others]
        cut = {"cut out": out, "cut in": into, "cut both": out + into}[case.fault]
        proxy.cut(cut)
        proxy.release()
        time.sleep(CUT_S)
        proxy.cut(())


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", [*most_are_deep(_chosen(), of=8)], ids=str)
def test_nothing_is_lost_when_somebody_is_hurt_in_a_migration(arena: Arena, case: Case) -> None:
    start, goal = PROVOKED_BY[case.kind]
    arena.prepare()
    cluster = arena.cluster
    arena.go_to(start)
    with arena.workload() as load:
        load.wait_for_writes(20)
        strike = _strike(arena, case)
        _hurt_and_mend(arena, case, strike)
        cluster.agents["agent-2"].start(wait=False)
        arena.settle(goal)
        load.wait_for_writes(20)

    assert cluster.proxy.failures == []
    assert find_violations(load.writes, load.reads + load.read_back()) == []
    wait_until(
        lambda: not differences(cluster, ZONE),
        "equal copies",
        10,
        lambda: differences(cluster, ZONE),
    )
    arena.settle(goal)
    assert arena.seen.problems(cluster.folder, cluster.zone(ZONE)["metadata"]["uid"]) == []
    arena.keep()


def test_the_table_has_every_value_often_and_every_role_at_every_moment() -> None:
    cases = _table()
    assert len(cases) >= 60
    assert len(set(cases)) == len(cases)
    assert not [case for case in cases if why_impossible(case.kind, case.moment, case.role)]
    four = [role for role in Role if role is not Role.PRIMARY]
    assert {(case.role, case.moment) for case in cases} >= {*itertools.product(four, Moment)}
    for values in (
        [c.moment for c in cases],
        [c.role for c in cases],
        [c.fault for c in cases],
        [c.kind for c in cases],
    ):
        assert all(values.count(value) >= 5 for value in set(values))
