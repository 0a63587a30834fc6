"""The measurements: each starts what it needs, measures, ends everything and answers a table."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures.report import Section
from figures.size import PARTITIONS, Size
from loads.drivers import ClosedLoop, median, percentile, redis_benchmark
from peers.plain_copy import plain_copy_bytes_per_s
from peers.redis_side import one_redis_server

from quorate_cli.processes.agent_metrics import parked_by_duration
from quorate_cluster.cluster import Cluster
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import Agent
from quorate_cluster.waiting import wait_until
from sections.memory import MB

# --- throughput ----------------------------------------------------------------------------------


def one_agent_beside_redis(size: Size) -> Section:
    """One copy in memory on one agent, and one redis-server: the cost of a command."""
    section = Section(
        "One agent, one copy, in memory, beside redis-server",
        "redis-benchmark, 50 connections, values of 100 bytes, 100,000 random keys. Goal: at least"
        " 0.8 of redis-server without pipelining, 0.3 with it.",
        ("command", "pipeline", "redis-server /s", "Quorate /s", "ratio", "goal"),
    )
    with one_redis_server() as beside, Cluster(agents=1) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS, replicas=1, storage="InMemory")
        port = cluster.port("z", "agent-1")
        for pipeline, goal in ((1, 0.8), (16, 0.3)):
            for command in ("SET", "GET"):
                theirs: list[float] = []
                ours: list[float] = []
                requests = size.requests * (4 if pipeline > 1 else 1)
                for _ in range(size.repeats):
                    sides = ((theirs, beside.port), (ours, port))
                    for found, its in sides:
                        run = redis_benchmark(its, command, requests, pipeline=pipeline)
                        found.append(run.rate)
                ratio = median(ours) / median(theirs)
                section.add(
                    command,
                    str(pipeline),
                    f"{median(theirs):,.0f}",
                    f"{median(ours):,.0f}",
                    f"{ratio:.2f}",
                    section.at_least(f"{command}, pipeline {pipeline}", ratio, goal),
                )
    return section


# --- failover ------------------------------------------------------------------------------------


def failover(size: Size) -> Section:
    """How long keys cannot be written when the agent with most primaries dies or freezes."""
    section = Section(
        "An agent is lost",
        "Three agents, three copies on disk, 64 partitions; 32 clients write one key each every"
        " 20 ms. Until all keys can be written again; goals 2.5 s and 5.5 s (kill -9 elsewhere:"
        " Ignite 3.3 s, Infinispan 4.6, Hazelcast 6.8). A client of a frozen agent gives up after"
        " 0.5 s and asks the others.",
        ("how", "all keys, each run", "median key", "writes lost", "goal"),
    )
    for how, disturb, goal in (
        ("kill -9", Agent.kill, 2.5),
        ("SIGSTOP", Agent.pause, 5.5),
    ):
        longest, middle, lost = [], [], 0
        for _ in range(size.repeats):
            gaps, missing = _outage(disturb)
            longest.append(max(gaps))
            middle.append(median(gaps))
            lost += missing
        worst = max(longest)
        runs = ", ".join(f"{each:.2f} s" for each in sorted(longest))
        said = section.at_most(f"{how}: longest of all keys and runs", worst, goal, " s")
        section.add(how, runs, f"{median(middle):.2f} s", str(lost), said)
    return section


def _outage(disturb: Callable[[Agent], None]) -> tuple[list[float], int]:
    with Cluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS)
        cluster.wait_quiet("z")
        nodes = cluster.api.status()["nodes"]
        victim = cluster.agents[max(nodes, key=lambda node: node["primaries"])["name"]]
        with Pulses(cluster, "z", keys_max=32, every_s=0.02, socket_timeout_s=0.5) as pulses:
            moment = time.monotonic()
            disturb(victim)
            pulses.wait_all_written_since(moment)
        return pulses.longest_gaps_s(moment), len(pulses.lost())


# --- an agent joins ------------------------------------------------------------------------------


def joining_agent(size: Size) -> Section:
    """A fourth agent joins three that hold data, under a client that goes on."""
    section = Section(
        "A fourth agent joins",
        f"Three agents, three copies on disk; {size.joining_bytes / MB:.0f} MB of values of 10 kB."
        " One client writes and reads by turns, idle before, then during the migrations; a command"
        " that fails would end it. Plain copy: as many bytes from process to process, nothing else"
        " done. Parked: how many commands waited for a hand-over, and what half of them, 99 of 100"
        " and all did not exceed.",
        (
            "moved",
            "took",
            "rate",
            "plain copy",
            "ratio",
            "p50 idle",
            "p99 idle",
            "p50 during",
            "p99 during",
            "longest",
            "parked",
        ),
    )
    with Cluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS)
        cluster.wait_quiet("z")
        client: Any = cluster.client("z")  # its pipelines ship without types
        value = bytes(range(250)) * 40
        count = size.joining_bytes // len(value)
        for start in range(0, count, 200):
            pipeline = client.pipeline()
            for number in range(start, min(start + 200, count)):
                pipeline.set(f"value:{number}", value)
            pipeline.execute()
        loop = ClosedLoop(cluster.endpoints("z"))
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > size.idle_s, "idle time", size.idle_s + 5)
        parked_before = _parked(cluster)
        joined = time.monotonic()
        cluster.add_agent()
        names = set(cluster.agents)
        wait_until(lambda: names == set(cluster.zone("z")["status"]["dataNodes"]), "data node")
        cluster.wait_quiet("z", 600)
        ended = time.monotonic()
        took = loop.stop()
        if loop.failed:
            raise RuntimeError(f"the client's commands failed: {loop.failed[:3]}")
        moved = cluster.zone_status("z")["bytes_moved"]
        parked = _parked(cluster) - parked_before
    plain = plain_copy_bytes_per_s(moved)
    idle = [each for at, each in took if began < at < joined]
    during = [each for at, each in took if joined <= at < ended]
    section.add(
        f"{moved / MB:.0f} MB",
        f"{ended - joined:.1f} s",
        f"{moved / MB / (ended - joined):.0f} MB/s",
        f"{plain / MB:.0f} MB/s",
        f"{moved / (ended - joined) / plain:.2f}",
        *(f"{percentile(idle, each):.2f} ms" for each in (50, 99)),
        *(f"{percentile(during, each):.2f} ms" for each in (50, 99)),
        f"{max(during):.0f} ms",
        _words_of_parked(parked),
    )
    section.at_least("rate, of the plain copy's", moved / (ended - joined) / plain, 0.3)
    section.at_most("parked: p99", _parked_ms(parked, 0.99), 50, " ms")
    return section


def _parked(cluster: Cluster) -> Counter[float]:
    """Upper bound in seconds -> commands that waited for at most so long, of all agents."""
    total: Counter[float] = Counter()
    for agent in cluster.agents.values():
        total.update(parked_by_duration("127.0.0.1", agent.admin_port))
    return total


def _words_of_parked(parked: Counter[float]) -> str:
    count = max(parked.values(), default=0)
    if not count:
        return "none"
    return f"{count}: " + ", ".join(f"{_parked_ms(parked, part):.0f} ms" for part in (0.5, 0.99, 1))


def _parked_ms(parked: Counter[float], part: float) -> float:
    """The bound that this part of them did not exceed; 0 if there were none."""
    least = max(parked.values(), default=0) * part
    return 1000 * min((bound for bound in parked if 0 < parked[bound] >= least), default=0.0)


# --- the master ----------------------------------------------------------------------------------


def master(size: Size) -> Section:
    """Measure the costs of the master alone."""
    section = Section(
        "The master alone",
        f"Ten agents that answer at once; an eleventh joins at {size.master_partitions:,}"
        " partitions of three copies. Longest: its longest decision, in which it does nothing else."
        " Then one of three agents is lost: one write for each object of 64 rows that changes.",
        ("what", "partitions", "moved", "CPU", "longest", "writes", "memory"),
    )
    script = str(Path(__file__).parents[1] / "lone_master.py")
    command = [sys.executable, script, str(size.master_partitions), "1024"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    join, loss = found["join"], found["loss"]
    section.add(
        "an agent joins", f"{size.master_partitions:,}", f"{join['migrations']:,} copies",
        f"{join['cpu_s']:.1f} s", f"{join['longest_s'] * 1000:.0f} ms", "",
        f"{join['memory_mb']:.0f} MB",
    )  # fmt: skip
    section.add(
        "an agent is lost", "1,024", f"{loss['primaries']} primaries", f"{loss['cpu_s']:.2f} s", "",
        f"{loss['writes']} of {loss['shards']} objects", "",
    )  # fmt: skip
    return section
