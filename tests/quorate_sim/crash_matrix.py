"""Every participant of every kind of migration, hurt in every way at every moment: one run each.

A run provokes one migration as a user would, without any other fault, strikes once when it comes to
the moment (`crash_strike`), mends that after a while, and must come to rest.  `crash_cases` tells
which combinations there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from migration_words import Kind
from quorate.facts.errors import InvariantError
from quorate_operator.mastership.second_look import PAUSES_S
from quorate_sim.cluster import Cluster
from quorate_sim.crash_cases import FOLLOWED, Case
from quorate_sim.crash_strike import DOWN_MS, FROZEN_MS, Strike, start
from quorate_sim.scenario import SETTINGS
from quorate_sim.swarm import Swarm, zone_record
from quorate_sim.world import MS

SEED = 1
WARM_MS = 400
MOMENT_MS = 6000
"""Within this the migration must come to its moment, and the fault must have struck."""
REST_MS = 15_000
"""Within this after the fault everything must be at rest."""
LOOK_MS = int(PAUSES_S[-1] * 1000)
"""As much later where another may have written last: until the master looks again."""

# --- how each kind is provoked --------------------------------------------------------------------


class Setting(NamedTuple):
    """A cluster before the migration: `drained` have given their copies away."""

    partitions: int
    replicas: int
    drained: tuple[str, ...]
    provoke: Callable[[Cluster], None]


def _drain(name: str, draining: bool, cluster: Cluster) -> None:
    process = cluster.masters[-1]

    def ask() -> None:
        assert process.master is not None
        refused = process.master.drain(name, draining, process.now())
        assert not refused, refused

    process.run(ask)


def _owner(cluster: Cluster, index: int) -> str:
    row = cluster.committed_row("zone", 0)
    name = row.replicas[index] if row is not None else None
    assert name is not None
    return name


def _declare(replicas: int, cluster: Cluster) -> None:
    record = msgspec.structs.replace(cluster.zones["zone"], replicas=replicas)
    cluster.zones["zone"] = record
    master = cluster.masters[-1]
    master.run(lambda: master.declare(record))


def _join_what_lacks_copies(cluster: Cluster) -> None:
    """The zone is to have a replica more than there are agents; then one comes."""
    _declare(3, cluster)
    cluster.world.after(200 * MS, partial(_drain, "a4", False, cluster))


def _return_of_the_colder(cluster: Cluster) -> None:
    """Both backups die; the second is back first, and moves up into the free place."""
    hotter, colder = _owner(cluster, 1), _owner(cluster, 2)
    for name in (hotter, colder):
        cluster.stop_agent(name, machine_too=False, refused=True)
    cluster.world.after(200 * MS, partial(start, cluster, colder))
    cluster.world.after((200 + DOWN_MS) * MS, partial(start, cluster, hotter))


SETTINGS_OF = {
    Kind.MOVE_PRIMARY: Setting(4, 3, ("a3",), partial(_drain, "a3", False)),
    Kind.MOVE_BACKUP: Setting(1, 3, (), lambda c: _drain(_owner(c, 1), True, c)),
    Kind.COPY: Setting(1, 2, (), partial(_declare, 3)),
    Kind.SHIFT_UP: Setting(1, 3, (), _return_of_the_colder),
    Kind.SHIFT_DOWN: Setting(4, 2, ("a3", "a4"), _join_what_lacks_copies),
    Kind.SWAP: Setting(1, 3, (), lambda c: _drain(_owner(c, 0), True, c)),
    Kind.DROP: Setting(1, 3, (), partial(_declare, 2)),
}
"""An agent joins (again) and becomes primary of its share; a backup is drained; the zone is given a
replica more; of two lost backups the colder is back first; an agent joins a zone that lacks copies;
the primary is drained; the zone is given a replica less."""


# --- one run --------------------------------------------------------------------------------------


def _swarm(setting: Setting) -> Swarm:
    return Swarm(
        agents=4,
        zones=(zone_record("zone", setting.partitions, setting.replicas),),
        settings=SETTINGS,
        clients=3,
        keys=12,
        value_bytes=700,
        delay_us=(100, 2000),
        tick_ms=40,
    )


def run_case(case: Case, seed: int = SEED, trace: bool = False) -> Cluster:
    """Run one combination to its end; an InvariantError tells what did not hold."""
    cluster = Cluster(seed, trace, _swarm(SETTINGS_OF[case.kind]))
    try:
        _run(cluster, case)
    except Exception as error:
        error.add_note(f"{case} at {cluster.world.time_ms} ms")
        error.__dict__["cluster"] = cluster
        raise
    return cluster


def _run(cluster: Cluster, case: Case) -> None:
    world, setting = cluster.world, SETTINGS_OF[case.kind]
    cluster.lost_answers = 0.0
    _wait(cluster, lambda: not cluster.rest(), REST_MS, "the first rest")
    for name in setting.drained:
        _drain(name, True, cluster)
        _wait(cluster, lambda: not _not_over(cluster), REST_MS, f"{name} drained")
    for number in range(cluster.swarm.keys):
        cluster.clients.send(-1, "zone", "set", b"s%d" % number)
    cluster.clients.start()
    world.run_until(world.time_us + WARM_MS * MS)
    strike = Strike(cluster, case)
    setting.provoke(cluster)
    _wait(cluster, lambda: strike.struck_at_us >= 0, MOMENT_MS, f"no strike: {case}")
    cluster.coverage.on_moment = None
    _wait(cluster, lambda: strike.mended, FROZEN_MS + MOMENT_MS, f"not mended: {case}")
    world.run_until(world.time_us + WARM_MS * MS)
    cluster.clients.stopped = True
    rest_ms = REST_MS + (LOOK_MS if case.fault in FOLLOWED else 0)
    _wait(
        cluster, lambda: not _not_over(cluster), rest_ms, "not at rest", partial(_not_over, cluster)
    )
    cluster.finish()


def _wait(
    cluster: Cluster,
    is_so: Callable[[], bool],
    ms: int,
    what: str,
    why: Callable[[], object] = lambda: "",
) -> None:
    if not cluster.world.run_until(cluster.world.time_us + ms * MS, is_so):
        raise InvariantError(f"{what}: {why()}")


def _named(cluster: Cluster, name: str) -> bool:
    """Whether any row names the agent."""
    for partition in range(cluster.zones["zone"].partitions):
        row = cluster.committed_row("zone", partition)
        if row is None or row.active is not None or name in row.voter_nodes:
            return True
    return False


def _not_over(cluster: Cluster) -> list[str]:
    """What is not at rest, and what was asked for and has not come."""
    problems = cluster.rest()
    master = cluster.masters[-1].master
    if master is None:
        return [*problems, "no master"]
    drained = [name for name, agent in sorted(master.agents.items()) if agent.draining]
    return problems + [f"{name} is drained and named" for name in drained if _named(cluster, name)]
