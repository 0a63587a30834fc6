"""The measurements: each starts what it needs, measures, ends everything and answers a table."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load import ClosedLoop, cpu_s, load, median, percentile, redis_benchmark
from plain_copy import plain_copy_bytes_per_s
from redis_side import one_redis_server, redis_cluster
from report import Section

from quorate_cli.agent_metrics import parked_by_duration
from quorate_cluster.cluster import Cluster
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import Agent
from quorate_cluster.waiting import wait_until

MB = 1e6
PARTITIONS = 64


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    requests: int
    replicated_requests: int
    repeats: int
    joining_bytes: int
    keys: int
    small_keys: int
    idle_s: float
    master_partitions: int


FULL = Size(200_000, 100_000, 3, 1_000_000_000, 1_000_000, 100_000, 10, 16_384)
QUICK = Size(30_000, 20_000, 1, 20_000_000, 100_000, 20_000, 2, 1_024)


def _pids(cluster: Cluster) -> list[int]:
    return [agent.pid for agent in cluster.agents.values()]


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
                theirs, ours = [], []
                requests = size.requests * (4 if pipeline > 1 else 1)
                for _ in range(size.repeats):
                    theirs.append(
                        redis_benchmark(beside.port, command, requests, pipeline=pipeline)
                    )
                    ours.append(redis_benchmark(port, command, requests, pipeline=pipeline))
                ratio = median(ours) / median(theirs)
                section.add(
                    command,
                    str(pipeline),
                    f"{median(theirs):,.0f}",
                    f"{median(ours):,.0f}",
                    f"{ratio:.2f}",
                    f"{goal:.1f}" if ratio >= goal else f"{goal:.1f}, missed by {goal - ratio:.2f}",
                )
    return section


def three_copies(size: Size) -> Section:
    """Three copies on three agents, answered by a majority, beside a Redis Cluster."""
    section = Section(
        "Three agents, three copies, answered when a majority has it",
        "redis-benchmark --cluster, 50 connections, values of 100 bytes. CPU seconds are those of"
        " all server processes for 100,000 operations. The Redis Cluster of three masters with two"
        " replicas each answers when the master alone has the write. For orientation, measured on a"
        " machine like this one: Hazelcast 15.7k SET/s and 8 CPU s, Infinispan 14k and 11, Ignite"
        " 8.5k and 19, Redis Cluster with WAIT 2 41.6k and 3.0.",
        ("what", "SET /s", "CPU s", "GET /s", "CPU s"),
    )
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("in memory", {"storage": "InMemory"}),
        ("on disk, syncWrites Interval", {"storage": "Persistent", "syncWrites": "Interval"}),
        ("on disk, syncWrites Always", {"storage": "Persistent", "syncWrites": "Always"}),
    ]
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}

    def measure(what: str, port: int, pids: list[int]) -> None:
        figures = found.setdefault(what, {"SET": [], "GET": []})
        for command, runs in figures.items():
            before = cpu_s(pids)
            rate = redis_benchmark(port, command, size.replicated_requests, cluster=True)
            used = (cpu_s(pids) - before) * 100_000 / size.replicated_requests
            runs.append((rate, used))

    with ExitStack() as stack:
        servers = stack.enter_context(redis_cluster(replicas=2))
        cluster = stack.enter_context(Cluster(agents=3))
        ports: dict[str, int] = {}
        for at, (what, spec) in enumerate(kinds):
            cluster.apply_zone(f"z{at}", partitions=PARTITIONS, replicas=3, **spec)
            cluster.wait_quiet(f"z{at}")
            ports[what] = cluster.port(f"z{at}", "agent-1")
        for _ in range(size.repeats):
            for what, port in ports.items():
                measure(f"Quorate, {what}", port, _pids(cluster))
            measure("Redis Cluster", servers[0].port, [server.pid for server in servers])
    for what, figures in found.items():
        cells = []
        for command in ("SET", "GET"):
            cells.append(f"{median([rate for rate, _ in figures[command]]):,.0f}")
            cells.append(f"{median([used for _, used in figures[command]]):.1f}")
        section.add(what, *cells)
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
        said = f"{goal} s" if worst <= goal else f"{goal} s, missed by {worst - goal:.2f} s"
        section.add(how, runs, f"{median(middle):.2f} s", str(lost), said)
    return section


def _outage(disturb: Callable[[Agent], None]) -> tuple[list[float], int]:
    with Cluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS)
        cluster.wait_quiet("z")
        nodes = cluster.api.status()["nodes"]
        victim = cluster.agents[max(nodes, key=lambda node: node["primaries"])["name"]]
        with Pulses(cluster, "z", keys_max=32, socket_timeout_s=0.5) as pulses:
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
        " done; goal 0.3 of it. Parked: how many commands waited for a hand-over, and what half of"
        " them, 99 of 100 and all did not exceed; goal p99 below 50 ms.",
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
        client = cluster.client("z")
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
    bounds = [
        min(bound for bound in parked if parked[bound] >= count * part) for part in (0.5, 0.99, 1)
    ]
    return f"{count}: " + ", ".join(f"{bound * 1000:.0f} ms" for bound in bounds)


# --- the master ----------------------------------------------------------------------------------


def master(size: Size) -> Section:
    """What the master costs alone."""
    section = Section(
        "The master alone",
        f"Ten agents that answer at once; an eleventh joins at {size.master_partitions:,}"
        " partitions of three copies. Longest: its longest decision, in which it does nothing else."
        " Then one of three agents is lost: one write for each object of 64 rows that changes.",
        ("what", "partitions", "moved", "CPU", "longest", "writes", "memory"),
    )
    script = str(Path(__file__).with_name("lone_master.py"))
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


# --- memory --------------------------------------------------------------------------------------


def memory(size: Size) -> Section:
    """What an agent's process takes: empty, with rows on disk, with rows in memory."""
    section = Section(
        "Memory of an agent's process",
        "Resident, of one agent each. Goals: below 60 MB empty, below 400 MB with a million keys of"
        " 100 bytes on disk.",
        ("with", "agents", "resident", "per key and agent"),
    )
    with Cluster(agents=1) as cluster:
        agent = cluster.agents["agent-1"]
        section.add("no zone", "1", f"{agent.rss_bytes() / MB:.0f} MB", "")
        cluster.apply_zone("z", partitions=PARTITIONS)
        empty = agent.rss_bytes()
        load(cluster.port("z", "agent-1"), size.keys, 100)
        _add(section, f"{size.keys:,} keys of 100 bytes on disk", [agent], empty, size.keys)
    with one_redis_server() as beside:
        empty = _rss(beside.pid)
        load(beside.port, size.keys, 100)
        used = _rss(beside.pid)
        per_key = f"{(used - empty) / size.keys:.0f} B"
        section.add(f"{size.keys:,} keys in redis-server", "1", f"{used / MB:.0f} MB", per_key)
    with Cluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS, storage="InMemory")
        agents = [*cluster.agents.values()]
        empty = max(agent.rss_bytes() for agent in agents)
        client = cluster.client("z")
        for start in range(0, size.small_keys, 1000):
            pipeline = client.pipeline()
            for number in range(start, start + 1000):
                pipeline.set(f"k{number}", "v")
            pipeline.execute()
        cluster.wait_quiet("z")
        what = f"{size.small_keys:,} small keys in memory, three copies"
        _add(section, what, agents, empty, size.small_keys)
    return section


def _add(section: Section, what: str, agents: list[Agent], empty: int, keys: int) -> None:
    used = max(agent.rss_bytes() for agent in agents)
    per_key = f"{(used - empty) / keys:.0f} B"
    section.add(what, str(len(agents)), f"{used / MB:.0f} MB", per_key)


def _rss(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096
