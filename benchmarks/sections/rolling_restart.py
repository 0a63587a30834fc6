"""Clients while six agents are restarted one by one: latencies, idle and meanwhile."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from figures.report import Section
from figures.size import PARTITIONS, Size
from loads.drivers import percentile

from quorate_cluster.cluster import Cluster
from quorate_cluster.waiting import wait_until

AGENTS = 6
CLIENTS = 8
PER_SECOND = 200


class OpenLoop:
    """`open_loop.py` at work beside what is done to the cluster."""

    def __init__(self, cluster: Cluster, kind: str, per_second: int = PER_SECOND) -> None:
        script = str(Path(__file__).parents[1] / "loads" / "open_loop.py")
        at = json.dumps(cluster.endpoints("z"))
        command = [sys.executable, script, at, str(CLIENTS), str(per_second), kind]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it runs

    def stop(self) -> tuple[list[tuple[float, float]], list[str]]:
        """(when it was due, milliseconds it took) of every command; what failed."""
        said, _ = self._process.communicate("stop\n", timeout=60)
        found = json.loads(said)
        return [(float(due), float(took)) for due, took in found["took"]], found["failed"]


def rolling_restart(size: Size) -> Section:
    """Six agents, one after the other, under a moderate load at fixed moments."""
    section = Section(
        "Six agents restarted one by one",
        f"{AGENTS} agents, {PARTITIONS} partitions of three copies on disk; {CLIENTS} clients send"
        f" {PER_SECOND} commands a second in all, SET and GET by turns, at fixed moments: what one"
        " takes counts from when it was due. Idle first, then during the restart, each agent when"
        " copies and primaries are even again. Hand-over: from SIGTERM to the end of the process;"
        " away: until the new one takes part; return: until primaries are even. The lean client"
        " reads the table once and follows MOVED; redis-py reads it again and again meanwhile, on"
        " the same processors.",
        ("client", "when", "commands", "p50", "p99", "longest", "failed", "full copies"),
    )
    for kind, name in (("lean", "lean"), ("stock", "redis-py")):
        with Cluster(agents=AGENTS) as cluster:
            cluster.apply_zone("z", partitions=PARTITIONS)
            cluster.wait_quiet("z")
            loop = OpenLoop(cluster, kind)
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > size.idle_s, "idle time", 60)  # noqa: B023
            moments = [_restart(cluster, agent) for agent in cluster.agents]
            ended = time.monotonic()
            took, failed = loop.stop()
            full = cluster.zone_status("z")["full_copies"]
        first = moments[0][0]
        spans = {
            "idle": [(began, first)],
            "restarts": [(first, ended)],
            "hand-over": [(at[0], at[1]) for at in moments],
            "away": [(at[1], at[2]) for at in moments],
            "return": [(at[2], at[3]) for at in moments],
        }
        for when, during in spans.items():
            ends = (str(len(failed)), str(full)) if when == "restarts" else ("", "")
            section.add(name, when, *_figures(took, during), *ends)
        idle, restarts = (
            percentile(_inside(took, spans[when]), 99) for when in ("idle", "restarts")
        )
        section.at_most(f"{name}: p99 during restarts, of p99 idle", restarts / idle, 2)
        section.at_most(f"{name}: failed commands", len(failed), 0)
        section.at_most(f"{name}: full copies", full, 0)
    return section


def _restart(cluster: Cluster, name: str) -> tuple[float, float, float, float]:
    """When it was asked to end, had ended, took part again, and primaries were even."""
    agent = cluster.agents[name]
    asked = time.monotonic()
    agent.terminate()
    gone = time.monotonic()
    agent.start()
    cluster.wait_online(name)
    back = time.monotonic()
    cluster.wait_quiet("z")
    wait_until(lambda: _spread(cluster) <= 1, "even primaries", 60, cluster.primaries)
    return asked, gone, back, time.monotonic()


def _spread(cluster: Cluster) -> int:
    primaries = cluster.primaries().values()
    return max(primaries) - min(primaries)


def _inside(
    took: Sequence[tuple[float, float]], during: Sequence[tuple[float, float]]
) -> list[float]:
    """Milliseconds of the commands that were due then."""
    return [ms for due, ms in took if any(first <= due < last for first, last in during)]


def _figures(
    took: Sequence[tuple[float, float]], during: Sequence[tuple[float, float]]
) -> list[str]:
    inside = _inside(took, during)
    if not inside:
        return ["0", "", "", ""]
    shown = [f"{percentile(inside, each):.1f} ms" for each in (50, 99)]
    return [f"{len(inside):,}", *shown, f"{max(inside):.0f} ms"]
