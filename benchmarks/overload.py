"""`make overload MINUTES=30`: twice what three agents can do is sent; nobody is taken for lost.

What can be done is measured just before, by redis-benchmark with pipelines of 16.  Then half of the
load are writes and half are reads, sent over many connections whether or not they are answered.
Ends with an error when an agent was taken for lost, memory did not stay bounded, or a well-behaved
client was refused anything.  What the machine did meanwhile stands beside it: who does not run for
as long as the master waits for a sign of him is rightly taken for lost.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from figures import machine, report
from figures.report import Section
from figures.size import PARTITIONS
from loads.drivers import KEYS, VALUE_BYTES, ClosedLoop, percentile, redis_benchmark
from sections.memory import MB, allow_files

from quorate_cluster.cluster import Cluster
from quorate_cluster.flood import Flood, Pour, commands
from quorate_cluster.heartbeats import heartbeats_answered
from quorate_cluster.routing import keys_by_port
from quorate_cluster.standstill import SILENCE_S, Standstill, StandstillWatch, describe, worst_s
from quorate_cluster.steadiness import GROWTH_BYTES_MAX, Standing, changes, growth, standing
from quorate_cluster.waiting import wait_until

TIMES = 2
CONNECTIONS = 300
"""Per agent that write, and as many that read: enough to fill what an agent lets wait."""
LOOK_S = 1.0
TOLD_S = 60.0
IDLE_S = 10.0
SETTLED_MINUTES = 10
"""Logs are full by then, and what waits is as much as may wait: only growth beyond is growth."""
PEAK_BYTES_MAX = 500_000_000
"""More than an agent may take on top of what it had."""


@dataclass
class Looks:
    """The states of the cluster that were seen from time to time."""

    sizes: dict[str, list[int]] = field(default_factory=dict)
    slowest_s: float = 0.0
    """The longest that the master took to answer."""
    not_whole: list[str] = field(default_factory=list)
    """Answers of the master in which an agent was away or a partition was not served."""
    count: int = 0

    def look(self, cluster: Cluster) -> None:
        self.count += 1
        for name, agent in cluster.agents.items():
            self.sizes.setdefault(name, []).append(agent.rss_bytes())
        began = time.monotonic()
        try:
            status = cluster.api.status()
        except OSError as error:
            self.not_whole.append(f"no answer: {error}")
            return
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        away = [node["name"] for node in status["nodes"] if not node["online"]]
        unserved = sum(zone["unavailable"] for zone in status["zones"])
        if away or unserved:
            self.not_whole.append(f"away {away}, {unserved} partitions not served")

    def grown(self) -> dict[str, int]:
        """Agent -> bytes that it went on taking."""
        return {name: growth(sizes) for name, sizes in self.sizes.items()}

    def peak(self) -> int:
        """Bytes that an agent had at most above what it began with."""
        return max(max(sizes) - sizes[0] for sizes in self.sizes.values())


@dataclass
class Soak:
    """The findings of a run."""

    minutes: float
    capacity: tuple[float, float]
    flood: Flood
    looks: Looks
    before: Standing
    changed: list[str]
    parked: int
    heartbeats: Counter[float]
    """Seconds -> how many answers to heartbeats took no longer."""
    idle_ms: Sequence[float]
    during_ms: Sequence[float]
    failed: list[str]
    stolen: float
    """Which part of the processors' time others took."""
    standstills: list[Standstill]

    def section(self) -> Section:
        """The table, and what was wanted."""
        made = Section(
            "Overload",
            f"Three agents, three copies in memory, {self.minutes:g} minutes: 6 x {CONNECTIONS}"
            f" connections send {TIMES} times what redis-benchmark with pipelines of 16 was"
            " answered just before, half of it SET and half GET, without waiting for answers; what"
            " an agent does not take for a second is given up. Beside them one stock client writes"
            " and reads by turns. What changed: an agent, a primary, a term, a row's version or the"
            " master is another one afterwards, or any event was told.",
            ("what", "figure"),
        )
        seconds = self.minutes * 60
        sent = sum(pour.sent_bytes // len(pour.commands[0]) for pour in self.flood.pours)
        sets, gets = self.capacity
        made.add("capacity, all agents", f"{sets:,.0f} SET/s or {gets:,.0f} GET/s")
        made.add("offered", f"{sets * TIMES / 2:,.0f} SET/s and {gets * TIMES / 2:,.0f} GET/s")
        made.add("taken by agents", f"{sent / seconds:,.0f}/s")
        answered, refused = (
            self.flood.total(lambda pour: pour.answered),
            self.flood.total(lambda pour: pour.refused),
        )
        made.add("executed", f"{(answered - refused) / seconds:,.0f}/s")
        made.add("refused with -OOM", f"{refused:,} ({refused / max(answered, 1):.1%} of answers)")
        waited = self.flood.total(lambda pour: pour.errors)
        firsts = sorted({pour.first_error for pour in self.flood.pours if pour.first_error})
        made.add("given up after seconds", ", ".join([f"{waited:,}", *firsts]))
        for what, took in (("before", self.idle_ms), ("meanwhile", self.during_ms)):
            made.add(f"the client beside them, {what}", _latencies(took))
        for name, sizes in sorted(self.looks.sizes.items()):
            made.add(f"memory of {name}: begin, quarters, largest", _course(sizes))
        made.add("the master's slowest answer", f"{self.looks.slowest_s * 1000:.0f} ms")
        made.add("commands that waited for a primary", f"{self.parked:,}")
        made.add("heartbeats answered", _within(self.heartbeats))
        made.add("taken from the processors by others (steal)", f"{self.stolen:.0%}")
        made.add("the machine", describe(self.standstills))
        made.add(
            f"of its worst {SILENCE_S:g} s, the silence of a lost agent, it stood still",
            f"{worst_s(self.standstills):.2f} s",
        )
        made.at_most("agents, primaries, terms that changed; events", len(self.changed), 0)
        made.at_most("looks at which the master missed somebody", len(self.looks.not_whole), 0)
        if self.minutes >= SETTLED_MINUTES:
            more = max(self.looks.grown().values()) / MB
            made.at_most("growth in the second half beyond 50 MB", more, 0, " MB")
        made.at_most("largest above the begin", self.looks.peak() / MB, PEAK_BYTES_MAX / MB, " MB")
        made.at_most("failed commands of the client beside them", len(self.failed), 0)
        made.at_most("broken connections", self.flood.total(lambda pour: pour.broken), 0)
        return made

    def problems(self) -> list[str]:
        """Return the faults of the run, each as a sentence."""
        broken = self.flood.total(lambda pour: pour.broken)
        return [
            *self.changed,
            *(f"master: {each}" for each in self.looks.not_whole[:10]),
            *(
                f"{name} grew by {(more + GROWTH_BYTES_MAX) / MB:.0f} MB in the second half"
                for name, more in self.looks.grown().items()
                if more and self.minutes >= SETTLED_MINUTES
            ),
            *([f"memory +{self.looks.peak() / MB:.0f} MB"] * (self.looks.peak() > PEAK_BYTES_MAX)),
            *(f"the client beside them: {each}" for each in self.failed[:10]),
            *([f"{broken} connections ended"] * bool(broken)),
        ]


def soak(minutes: float) -> Soak:
    """Measure what can be done, then ask for more."""
    allow_files(6 * CONNECTIONS + 500)
    with Cluster(agents=3) as cluster:
        cluster.apply_zone("z", partitions=PARTITIONS, replicas=3, storage="InMemory")
        cluster.wait_quiet("z")
        port = cluster.port("z", "agent-1")
        rates = [
            redis_benchmark(port, command, 4 * KEYS, pipeline=16, cluster=True).rate
            for command in ("SET", "GET")
        ]
        capacity = rates[0], rates[1]
        print(f"capacity: {rates[0]:,.0f} SET/s or {rates[1]:,.0f} GET/s", file=sys.stderr)
        flood = Flood(_pours(port, capacity))
        looks = Looks()
        beside = ClosedLoop(cluster.endpoints("z"))
        idle_from = time.monotonic()
        wait_until(lambda: time.monotonic() - idle_from > IDLE_S, "idle time", IDLE_S + 5)
        before, parked = standing(cluster, "z"), _parked(cluster)
        heartbeats = heartbeats_answered(cluster)
        began = time.monotonic()
        with StandstillWatch() as machine_watch, flood:
            _watch(cluster, flood, looks, minutes * 60)
            ended = time.monotonic()
            stolen, standstills = machine_watch.stolen(), machine_watch.since(began)
        took = beside.stop()
        return Soak(
            minutes,
            capacity,
            flood,
            looks,
            before,
            changes(cluster, "z", before),
            _parked(cluster) - parked,
            heartbeats_answered(cluster) - heartbeats,
            [each for at, each in took if idle_from < at <= began],
            [each for at, each in took if began < at <= ended],
            beside.failed,
            stolen,
            standstills,
        )


def _pours(port: int, capacity: tuple[float, float]) -> list[Pour]:
    keys = keys_by_port(port, KEYS)
    value = b"x" * VALUE_BYTES
    return [
        Pour(its, commands(mine, value if rate is capacity[0] else None), CONNECTIONS, per_s)
        for rate in capacity
        for its, mine in keys.items()
        for per_s in [rate * TIMES / 2 / len(keys)]
    ]


def _watch(cluster: Cluster, flood: Flood, looks: Looks, seconds: float) -> None:
    """Look at the cluster until the time is over, and tell of it."""
    began = told = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        looks.look(cluster)
        if now - told >= TOLD_S:
            told = now
            answered, refused = (
                flood.total(lambda pour: pour.answered),
                flood.total(lambda pour: pour.refused),
            )
            sizes = ", ".join(f"{sizes[-1] / MB:.0f} MB" for sizes in looks.sizes.values())
            print(
                f"{(now - began) / 60:.0f} min: {answered:,} answered, {refused:,} of them refused;"
                f" {sizes}; master missed somebody {len(looks.not_whole)} times",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(LOOK_S)


def _parked(cluster: Cluster) -> int:
    found = [agent.metrics("quorate_commands_parked_total") for agent in cluster.agents.values()]
    return int(sum(sum(each) for each in found))


def _within(answers: Counter[float]) -> str:
    """How many answers there were, and in which time so many of them came."""
    count = answers[inf]
    if not count:
        return "not known: an agent is a new process"
    said = [
        f"{share:.0%} within {min(s for s, n in answers.items() if n >= share * count):g} s"
        for share in (0.5, 0.99, 1)
    ]
    return f"{count:,}: {', '.join(said)}"


def _latencies(took: Sequence[float]) -> str:
    return (
        f"p50 {percentile(took, 50):.1f} ms, p99 {percentile(took, 99):.1f} ms,"
        f" longest {max(took):.0f} ms, {len(took):,} commands"
    )


def _course(sizes: Sequence[int]) -> str:
    at = [sizes[(len(sizes) - 1) * quarter // 4] for quarter in range(5)]
    return ", ".join(f"{size / MB:.0f}" for size in [*at, max(sizes)]) + " MB"


def main() -> int:
    """Run, print, write the page when asked for; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--write", action="store_true", help="write the section to the page")
    given = parser.parse_args()
    where, moment = machine.describe(), machine.moment()
    found = soak(given.minutes)
    section = found.section()
    section.measured = moment
    print(f"\n{section.markdown()}")
    if given.write:
        report.write(report.PAGE, where, [section])
        print(f"written: {report.PAGE.name}")
    problems = found.problems()
    for problem in problems:
        print(f"problem: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
