"""The memory of processes: empty, with rows, with small rows in a cluster, with idle clients."""

import resource
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from figures.report import Section
from figures.size import PARTITIONS, Size
from loads.drivers import load
from peers.redis_side import one_redis_server, redis_cluster

from quorate_cluster.cluster import Cluster
from quorate_cluster.processes import HOST
from quorate_cluster.routing import keys_by_port
from quorate_differential.raw_replies import RawConnection

MB = 1e6
THREE_AGENTS_GOAL_MB = 250
IDLE_GOAL_MB = 100
EMPTY_GOAL_MB = 60
LOADED_GOAL_MB = 400
_SPARE_FILES = 500


def one_process(size: Size) -> Section:
    """An agent's process: empty, and with many rows on disk."""
    section = Section(
        "Memory of an agent's process",
        "Resident, of one agent or server.",
        ("with", "resident", "per key"),
    )
    with Cluster(agents=1) as cluster:
        agent = cluster.agents["agent-1"]
        start = rss([agent.pid])
        section.at_most("no zone", start / MB, EMPTY_GOAL_MB, " MB")
        section.add("no zone", f"{start / MB:.0f} MB", "")
        cluster.apply_zone("z", partitions=PARTITIONS)
        empty = rss([agent.pid])
        load(cluster.port("z", "agent-1"), size.keys, 100)
        used = rss([agent.pid])
        what = f"{size.keys:,} keys of 100 bytes on disk"
        section.at_most(what, used / MB, LOADED_GOAL_MB, " MB")
        section.add(what, f"{used / MB:.0f} MB", _each(used - empty, size.keys))
    with one_redis_server() as beside:
        empty = rss([beside.pid])
        load(beside.port, size.keys, 100)
        used = rss([beside.pid])
        what = f"{size.keys:,} keys in redis-server"
        section.add(what, f"{used / MB:.0f} MB", _each(used - empty, size.keys))
    return section


def small_keys(size: Size) -> Section:
    """All processes of three agents, and of a Redis Cluster, with as many small keys."""
    section = Section(
        f"Memory of a cluster with {size.small_keys:,} small keys",
        "Keys of 16 bytes and values of 1 byte in memory, three copies of each; the sum over all"
        " processes that keep data. Proportional: pages that processes share are counted once.",
        ("side", "processes", "resident empty", "resident", "proportional", "per key"),
    )
    with Cluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS, replicas=3, storage="InMemory")
        cluster.wait_quiet("z")
        pids = [agent.pid for agent in cluster.agents.values()]
        used = _fill(section, "Quorate", cluster.port("z", "agent-1"), pids, size.small_keys)
        what = f"three agents with {size.small_keys:,} small keys"
        section.at_most(what, used / MB, THREE_AGENTS_GOAL_MB, " MB")
    with redis_cluster(2) as servers:
        pids = [server.pid for server in servers]
        _fill(section, "Redis Cluster", servers[0].port, pids, size.small_keys)
    return section


def _fill(section: Section, side: str, port: int, pids: Sequence[int], count: int) -> int:
    empty = rss(pids)
    for its, keys in keys_by_port(port, count).items():
        with RawConnection(HOST, its, 60) as connection:
            for start in range(0, len(keys), 1000):
                sets = [[b"SET", key, b"v"] for key in keys[start : start + 1000]]
                replies = connection.ask_all(sets)
                assert set(replies) == {b"+OK\r\n"}, replies
    used = rss(pids)
    section.add(
        side,
        str(len(pids)),
        f"{empty / MB:.0f} MB",
        f"{used / MB:.0f} MB",
        f"{pss(pids) / MB:.0f} MB",
        _each(used - empty, count),
    )
    return used


def idle_connections(size: Size) -> Section:
    """Connections to one agent that have said one word each and say no more."""
    count = size.idle_connections
    allow_files(count + _SPARE_FILES)
    section = Section(
        f"Memory of {count:,} idle connections",
        "To one agent of three, and to one master of a Redis Cluster; each connection has sent PING"
        " and has had its answer. Resident, of that process.",
        ("side", "before", "with them", "per connection"),
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(agents=3))
        cluster.apply_zone("z", partitions=PARTITIONS, replicas=3, storage="InMemory")
        cluster.wait_quiet("z")
        agent = cluster.agents["agent-1"]
        port = cluster.port("z", "agent-1")
        used = _idle(section, "Quorate", port, agent.pid, count)
        section.at_most(f"an agent with {count:,} idle connections", used / MB, IDLE_GOAL_MB, " MB")
    with redis_cluster(2, "--maxclients", str(count + _SPARE_FILES // 2)) as servers:
        _idle(section, "Redis Cluster", servers[0].port, servers[0].pid, count)
    return section


def _idle(section: Section, side: str, port: int, pid: int, count: int) -> int:
    before = rss([pid])
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((HOST, port), 30))
            connection.sendall(b"PING\r\n")
            answer = connection.recv(100)
            assert answer == b"+PONG\r\n", answer
        used = rss([pid])
    each = f"{(used - before) / count / 1000:.1f} kB"
    section.add(side, f"{before / MB:.0f} MB", f"{used / MB:.0f} MB", each)
    return used


def allow_files(count: int) -> None:
    """Let this process, and those it starts from now on, have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise RuntimeError(
                f"{count} open files are needed, ulimit -Hn says {hard}: raise it, or ask for less"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def rss(pids: Sequence[int]) -> int:
    """Resident bytes of all of them; pages that they share are counted for each."""
    return sum(_rollup(pid)["Rss"] for pid in pids)


def pss(pids: Sequence[int]) -> int:
    """Proportional bytes: of a page that n processes share, each has an nth."""
    return sum(_rollup(pid)["Pss"] for pid in pids)


def _rollup(pid: int) -> dict[str, int]:
    found: dict[str, Any] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size, _kb = line.split()
        found[name.rstrip(":")] = int(size) * 1024
    return found


def _each(used: int, count: int) -> str:
    return f"{used / count:.0f} B"
