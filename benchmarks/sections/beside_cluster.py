"""Three agents with three copies beside a Redis Cluster of three masters and six replicas."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from figures.report import Section
from figures.rounds import Run, alternate, cells, middle, ratios
from figures.size import PARTITIONS, Size
from loads.drivers import KEYS, KEYS_OF_SLOT, redis_benchmark
from peers.redis_side import redis_cluster

from quorate.facts.keyspace import SLOT_COUNT
from quorate_cluster.cluster import Cluster

ZONES: dict[str, dict[str, Any]] = {
    "Quorate, in memory": {"storage": "InMemory"},
    "Quorate, on disk, Interval": {"storage": "Persistent", "syncWrites": "Interval"},
    "Quorate, on disk, Always": {"storage": "Persistent", "syncWrites": "Always"},
}
IN_MEMORY, *_ = ZONES
BESIDE = "Redis Cluster"
RATIO_GOALS = {("GET", 1): 0.8, ("GET", 16): 0.6, ("SET", 1): 0.35, ("SET", 16): 0.3}
SET_CPU_S_GOAL = 5.0
MANY_OF_SLOT = 100
"""With so many the 16 of a pipeline are nearly all different, with the usual six they are not, and
Quorate writes the last of each alone."""


def beside_redis_cluster(size: Size) -> Section:
    """redis-benchmark against both, run by run."""
    section = Section(
        "Three agents with three copies, beside a Redis Cluster",
        "redis-benchmark --cluster, 50 connections, values of 100 bytes, 98,304 random keys, all of"
        " them written before. Quorate answers a write when two of the three copies have it (in the"
        " zone of Always: on disk); the Redis Cluster, three masters with two replicas each and"
        " nothing on disk, when the master alone has it. In each round every side runs once, one"
        f" right after the other, for about {size.beside_s:g} s; ratios are of the runs of one"
        f" round: smallest, median, largest of {size.repeats}. CPU s: seconds of all server"
        " processes for 100,000 operations. Goals are those of the zone in memory. The keys of a"
        " pipeline are of one slot, which has six of the 98,304, so most of them are written more"
        f" than once; `SET, many keys` has {MANY_OF_SLOT} of each slot, nearly all of them written"
        " before. This shape favours Quorate: a pipeline of one slot is one update, and of a key"
        " that is written twice only the last value is written; pipelines of applications go to"
        ' many partitions, as in "Mixed loads".',
        ("command", "pipeline", "side", "/s", "p50", "p99", "CPU s", "ratio"),
    )
    with ExitStack() as stack:
        servers = stack.enter_context(redis_cluster(2))
        cluster = stack.enter_context(Cluster(agents=3))
        pids = {BESIDE: [server.pid for server in servers]}
        ports = {BESIDE: servers[0].port}
        for at, (what, spec) in enumerate(ZONES.items()):
            cluster.apply_zone(f"z{at}", partitions=PARTITIONS, replicas=3, **spec)
            cluster.wait_quiet(f"z{at}")
            ports[what] = cluster.port(f"z{at}", "agent-1")
            pids[what] = [agent.pid for agent in cluster.agents.values()]
        for port in ports.values():
            _benchmark(port, "SET", 16)(4 * KEYS)  # nearly every key
        for pipeline in (1, 16):
            for command in ("SET", "GET"):
                sides = {
                    what: _for_some_time(size, _benchmark(port, command, pipeline), pids[what])
                    for what, port in ports.items()
                }
                found = alternate(f"{command} pipeline {pipeline}", size.repeats, sides)
                _add(section, command, command, pipeline, found)
        sides = {}
        for what in (BESIDE, IN_MEMORY):
            write = _benchmark(ports[what], "SET", 16, MANY_OF_SLOT)
            write(2 * MANY_OF_SLOT * SLOT_COUNT)
            sides[what] = _for_some_time(size, write, pids[what])
        name = "SET, many keys"
        found = alternate(f"{name}, pipeline 16", size.repeats, sides)
        _add(section, name, "SET", 16, found)
    return section


def _benchmark(
    port: int, command: str, pipeline: int, keys_of_slot: int = KEYS_OF_SLOT
) -> Callable[..., Run]:
    return partial(
        redis_benchmark,
        port,
        command,
        pipeline=pipeline,
        cluster=True,
        keys_of_slot=keys_of_slot,
    )


def _for_some_time(
    size: Size, benchmark: Callable[..., Run], pids: Sequence[int]
) -> Callable[[], Run]:
    """The run, of as many requests as take about `beside_s`: with --cluster redis-benchmark notices
    its end at the next quarter of a second, which short runs are rounded to."""
    requests = size.requests // 4
    while True:
        rate = benchmark(requests).rate
        is_long = requests / rate > size.beside_s / 2
        requests = int(rate * size.beside_s)
        if is_long:
            return partial(benchmark, requests, pids=pids)


def _add(
    section: Section, name: str, command: str, pipeline: int, found: dict[str, list[Run]]
) -> None:
    for what, runs in found.items():
        beside = None if what == BESIDE else found[BESIDE]
        section.add(name, str(pipeline), what, *cells(runs, beside))
    ours = found[IN_MEMORY]
    each = ratios(ours, found[BESIDE])
    where = f"{name}, pipeline {pipeline}"
    wanted = RATIO_GOALS[command, pipeline]
    section.at_least(f"{where}: of the Redis Cluster's rate", each[len(each) // 2], wanted)
    if command == "SET":
        section.at_most(f"{where}: CPU s for 100,000", middle(ours).cpu_s, SET_CPU_S_GOAL)
