"""Writes that copies have when they are answered: beside a Redis Cluster asked by `WAIT 2`."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from beside_cluster import ZONES
from load import CLIENTS, cpu_s
from redis_side import redis_cluster
from report import Section
from rounds import Run, alternate, cells, ratios
from set_client import LATENCY_UNIT_S
from size import PARTITIONS, Size

from quorate_cluster.cluster import Cluster

CLIENT_PROCESSES = 2
COPIES = 2
ALWAYS_GOAL = 0.5
# Redis would write its log anew in the background while it is measured.
ALWAYS = (
    *("--appendonly", "yes", "--appendfsync", "always"),
    *("--auto-aof-rewrite-percentage", "0"),
)
PAIRS = (
    ("Redis Cluster, WAIT 2", (), "Quorate, in memory", None),
    ("Redis Cluster, appendfsync always, WAIT 2", ALWAYS, "Quorate, on disk, Always", ALWAYS_GOAL),
)


def acknowledged(size: Size) -> Section:
    """The same client writes to both; in Redis it asks for two copies after its writes."""
    section = Section(
        "Writes that copies have when they are answered",
        f"One client for both sides: {CLIENTS} connections in {CLIENT_PROCESSES} processes, 100,000"
        " keys of 100 bytes, each connection to the primaries of its keys. It sends SET, to the"
        " Redis Cluster followed by `WAIT 2 0`, and waits; with a pipeline of 16 it sends 16 SETs"
        " and one WAIT, and an answer's time is that of all of them. Quorate answers each SET when"
        " a majority has it, on disk with Always. Rounds, ratios and CPU s as above; client CPUs:"
        f" how many CPUs the client used of the {CLIENT_PROCESSES} that would hold it up.",
        ("pipeline", "side", "SET /s", "p50", "p99", "CPU s", "ratio", "client CPUs"),
    )
    for beside, options, ours, goal in PAIRS:
        with ExitStack() as stack:
            servers = stack.enter_context(redis_cluster(2, *options))
            cluster = stack.enter_context(Cluster(agents=3))
            cluster.apply_zone("z", partitions=PARTITIONS, replicas=3, **ZONES[ours])
            cluster.wait_quiet("z")
            redis_pids = [server.pid for server in servers]
            agent_pids = [agent.pid for agent in cluster.agents.values()]
            port = cluster.port("z", "agent-1")
            for pipeline in (1, 16):
                sides: dict[str, Callable[[], Run]] = {
                    beside: partial(
                        _run, servers[0].port, redis_pids, pipeline, COPIES, size.acknowledged_s
                    ),
                    ours: partial(_run, port, agent_pids, pipeline, 0, size.acknowledged_s),
                }
                found = alternate(f"SET pipeline {pipeline}", size.repeats, sides)
                for what, runs in found.items():
                    used = max(run.client_load for run in runs)
                    their = None if what == beside else found[beside]
                    section.add(str(pipeline), what, *cells(runs, their), f"{used:.2f}")
                if goal is not None:
                    each = ratios(found[ours], found[beside])
                    what = f"syncWrites Always, pipeline {pipeline}: of appendfsync always, WAIT 2"
                    section.at_least(what, each[len(each) // 2], goal)
    return section


def _run(port: int, pids: Sequence[int], pipeline: int, copies: int, seconds: float) -> Run:
    """All processes of the client begin together, when each of them is connected."""
    script = str(Path(__file__).with_name("set_client.py"))
    each = CLIENTS // CLIENT_PROCESSES
    clients = [
        subprocess.Popen(
            [sys.executable, script, *map(str, (port, each, pipeline, copies, seconds, n * each))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(CLIENT_PROCESSES)
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
            json.loads(client.communicate(timeout=seconds + 60)[0]) for client in clients
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


def _percentile_ms(took: Counter[int], part: float) -> float:
    left = took.total() * part
    for units in sorted(took):
        left -= took[units]
        if left <= 0:
            return (units + 1) * LATENCY_UNIT_S * 1000
    raise ValueError("nothing was measured")
