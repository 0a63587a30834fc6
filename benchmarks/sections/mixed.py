"""Mixed loads, as applications send them, beside a Redis Cluster: in memory, and on disk."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from figures.report import Section
from figures.rounds import Run, alternate, cells, cpu_ratios, middle, ratios, spread
from figures.size import PARTITIONS, Size
from loads.drivers import CLIENTS, cpu_s
from loads.mixed_client import LATENCY_UNIT_S
from peers.redis_side import redis_cluster

from quorate_cluster.cluster import Cluster
from quorate_cluster.mixed_load import Share, fill

PROCESSES = 2
PIPELINES = (1, 16)

REDIS = "Redis Cluster"
REDIS_WAIT = "Redis Cluster, WAIT 1"
REDIS_ALWAYS = "Redis Cluster, appendfsync always, WAIT 1"
IN_MEMORY = "Quorate, in memory"
ALWAYS = "Quorate, on disk, Always"

LOADS_IN_MEMORY = ("GET", "80 % GET, 20 % SET", "SET", "80 % HGET, 20 % HSET", "mixed")
LOADS_ON_DISK = ("80 % GET, 20 % SET", "SET", "INCR", "80 % HGET, 20 % HSET", "mixed")
REDIS_GOALS = {("GET", 1): 0.8, ("GET", 16): 0.6, ("SET", 1): 0.35, ("SET", 16): 0.3}
"""(load, pipeline) -> of the rate of a Redis Cluster whose replicas may lag."""
SAME_PROMISE_GOAL = 0.5
"""Of the rate of a Redis Cluster that waits for as many copies as Quorate does."""
SET_CPU_S_GOAL = 5.0
# Redis would write its log anew in the background while it is measured.
APPEND_ALWAYS = (
    *("--appendonly", "yes", "--appendfsync", "always"),
    *("--auto-aof-rewrite-percentage", "0"),
)
_COLUMNS = (
    "load",
    "pipeline",
    "side",
    "commands/s",
    "p50",
    "p99",
    "CPU s",
    "rate ratio",
    "CPU ratio",
    "client CPUs",
)
_TEXT = (
    f"One client for all sides: {CLIENTS} connections in {PROCESSES} processes, each to one primary"
    " with one request outstanding; with a pipeline of 16 a request is 16 commands on keys of all"
    " slots of that primary, and its time is that of all of them. Keys have 8 to 48 bytes,"
    " uniformly distributed; values 50 to 1,000 bytes, log-normally distributed with a median of"
    " 200. 100,000 strings, all written before; of INCR 50,000 counters; of HGET and HSET 1,000"
    " hashes with 100 fields of 200 bytes. Mixed: 45 % GET, 20 % SET, 10 % HGET and 5 % HSET"
    " (hashes of 10 fields), 7 % INCR, 5 % MGET of 3 keys, 3 % DEL, 3 % EXPIRE, 2 % EXISTS. A"
    " pipeline hardly ever names a key twice. CPU s: seconds of all server processes for 100,000"
    " commands. Ratios are Quorate's rate and CPU seconds over those of the row's side in the same"
    " round: smallest, median, largest of {rounds}, each run {seconds:g} s. Client CPUs: what the"
    " client used of the machine that it shares with the servers."
)


def mixed_in_memory(size: Size) -> Section:
    """Nothing on disk: beside a Redis Cluster that waits for nobody, and one that waits for one."""
    section = Section(
        "Mixed loads in memory, beside a Redis Cluster",
        _TEXT.format(rounds=size.repeats, seconds=size.mixed_s)
        + " Three agents with three copies, beside three masters with two replicas each. Quorate"
        " answers a write when two of three copies have it; the Redis Cluster when the master has"
        " it, or with `WAIT 1 0` behind the writes of a request when a replica has it too.",
        _COLUMNS,
    )
    with ExitStack() as stack:
        theirs, ours = _filled(stack, size, LOADS_IN_MEMORY, (), {"storage": "InMemory"})
        for load in LOADS_IN_MEMORY:
            for pipeline in PIPELINES:
                of = partial(run, load=load, pipeline=pipeline, size=size)
                sides = {REDIS: partial(of, *theirs)}
                if load != "GET":
                    sides[REDIS_WAIT] = partial(of, *theirs, copies=1)
                sides[IN_MEMORY] = partial(of, *ours)
                found = alternate(f"{load}, pipeline {pipeline}", size.repeats, sides)
                _add(section, load, pipeline, found, IN_MEMORY)
                where = f"{load}, pipeline {pipeline}"
                if (goal := REDIS_GOALS.get((load, pipeline))) is not None:
                    section.at_least(f"{where}: of {REDIS}", _ratio(found, IN_MEMORY, REDIS), goal)
                if REDIS_WAIT in found:
                    ratio = _ratio(found, IN_MEMORY, REDIS_WAIT)
                    section.at_least(f"{where}: of {REDIS_WAIT}", ratio, SAME_PROMISE_GOAL)
                if load == "SET":
                    used = middle(found[IN_MEMORY]).cpu_s
                    section.at_most(f"{where}: CPU s for 100,000", used, SET_CPU_S_GOAL)
    return section


def mixed_on_disk(size: Size) -> Section:
    """Every write on the disks of two copies when it is answered."""
    section = Section(
        "Mixed loads on disk, Always, beside a Redis Cluster with appendfsync always",
        "Loads, client and columns as above. Both sides answer a write when two copies have it on"
        " disk: Quorate with `syncWrites: Always`, the Redis Cluster with `appendfsync always` and"
        f" `WAIT 1 0` behind the writes of a request. {size.repeats} rounds, each run"
        f" {size.mixed_s:g} s.",
        _COLUMNS,
    )
    with ExitStack() as stack:
        on_disk = {"storage": "Persistent", "syncWrites": "Always"}
        theirs, ours = _filled(stack, size, LOADS_ON_DISK, APPEND_ALWAYS, on_disk)
        for load in LOADS_ON_DISK:
            for pipeline in PIPELINES:
                of = partial(run, load=load, pipeline=pipeline, size=size)
                sides = {REDIS_ALWAYS: partial(of, *theirs, copies=1), ALWAYS: partial(of, *ours)}
                found = alternate(f"{load}, pipeline {pipeline}", size.repeats, sides)
                _add(section, load, pipeline, found, ALWAYS)
                ratio = _ratio(found, ALWAYS, REDIS_ALWAYS)
                where = f"{load}, pipeline {pipeline}: of {REDIS_ALWAYS}"
                section.at_least(where, ratio, SAME_PROMISE_GOAL)
    return section


_Servers = tuple[int, list[int]]
"""A port, and the pids of all that serve it."""


def _filled(
    stack: ExitStack,
    size: Size,
    loads: Sequence[str],
    redis_arguments: Sequence[str],
    zone: Mapping[str, Any],
) -> tuple[_Servers, _Servers]:
    """Start a Redis Cluster and Quorate with all keys of the loads; return both, in this order."""
    servers = stack.enter_context(redis_cluster(2, *redis_arguments))
    cluster = stack.enter_context(Cluster(agents=3))
    cluster.apply_zone("z", partitions=PARTITIONS, replicas=3, **zone)
    cluster.wait_quiet("z")
    theirs = servers[0].port, [server.pid for server in servers]
    ours = cluster.port("z", "agent-1"), [agent.pid for agent in cluster.agents.values()]
    for port, _ in (theirs, ours):
        fill(port, _shares(size), loads)
    return theirs, ours


def _shares(size: Size) -> list[Share]:
    return [Share(number, PROCESSES, size.mixed_scale) for number in range(PROCESSES)]


def run(
    port: int, pids: Sequence[int], load: str, pipeline: int, size: Size, copies: int = 0
) -> Run:
    """All processes of the client begin together, when each of them is connected."""
    script = str(Path(__file__).parents[1] / "loads" / "mixed_client.py")
    words = (port, load, CLIENTS // PROCESSES, pipeline, copies, size.mixed_s)
    clients = [
        subprocess.Popen(
            [sys.executable, script, *map(str, (*words, number, PROCESSES, size.mixed_scale))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for client in clients:
            assert client.stdin is not None
            assert client.stdout is not None
            if client.stdout.readline() != "ready\n":
                raise RuntimeError("a client could not begin; its own words are above")
        before = cpu_s(pids)
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        said: list[dict[str, Any]] = [
            json.loads(client.communicate(timeout=size.mixed_s + 60)[0]) for client in clients
        ]
        used = cpu_s(pids) - before
    finally:
        for client in clients:
            client.kill()
            client.wait()
    operations = sum(one["operations"] for one in said)
    took: Counter[int] = Counter()
    for one in said:
        took.update(dict(one["took"]))
    per = 100_000 / operations
    return Run(
        operations / max(one["s"] for one in said),
        _percentile_ms(took, 0.5),
        _percentile_ms(took, 0.99),
        used * per,
        sum(one["cpu_s"] for one in said) * per,
    )


def _add(
    section: Section, load: str, pipeline: int, found: Mapping[str, Sequence[Run]], ours: str
) -> None:
    for what, runs in found.items():
        *figures, _ = cells(runs, None)
        compared = ["", ""]
        if what != ours:
            of = found[ours]
            compared = [spread(ratios(of, runs)), spread(cpu_ratios(of, runs))]
        client = f"{middle(runs).client_load:.2f}"
        section.add(load, str(pipeline), what, *figures, *compared, client)


def _ratio(found: Mapping[str, Sequence[Run]], ours: str, theirs: str) -> float:
    each = ratios(found[ours], found[theirs])
    return each[len(each) // 2]


def _percentile_ms(took: Counter[int], part: float) -> float:
    left = took.total() * part
    for units in sorted(took):
        left -= took[units]
        if left <= 0:
            return (units + 1) * LATENCY_UNIT_S * 1000
    raise ValueError("nothing was measured")
