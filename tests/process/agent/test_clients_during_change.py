"""Stock clients that go on while an agent is killed, or joins: what each of them is told.

redis-py asks again by itself, redis-cli leaves that to who calls it, and redis-benchmark judges the
cluster by the list of primaries that it read when it began.  None may lose what was acknowledged,
and none may be told anything but the few replies that stand in `DOCUMENTED`.
"""

import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self, cast

import pytest
import redis

from quorate_cluster.background import Background
from quorate_cluster.changes import Change, grow, lose
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import Agent
from quorate_cluster.served import assert_served
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

DOCUMENTED = re.compile(
    r"CLUSTERDOWN|UNKNOWN the command may or may not have been applied"
    r"|Could not connect to Redis at .*: Connection refused"
    r"|Error: (Server closed the connection|Connection reset by peer|Broken pipe)"
)
"""All that redis-cli may say for want of an answer: two replies, and a connection that is gone."""
REDIRECTED = "-> Redirected to slot"
BENCHMARK_S_MAX = 60
BETWEEN_S = 0.02
"""Between two commands of redis-cli: the programs under test lack what their client uses."""
IDLE_S = 12
"""Longer than a command waits for a primary."""
COMMAND_S_MAX = 20


CHANGES = pytest.mark.parametrize("change", [lose, grow], ids=["loss", "growth"])


@pytest.fixture
def cluster_with_data(start_cluster: StartCluster) -> Cluster:
    """Three agents and enough data that a move of it takes a while."""
    return _with_data(start_cluster)


@pytest.fixture
def cluster_in_memory(start_cluster: StartCluster) -> Cluster:
    """The same, where the disk does not decide how long a benchmark of n commands lasts."""
    return _with_data(start_cluster, storage="InMemory")


def _with_data(start_cluster: StartCluster, **spec: str) -> Cluster:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=64, **spec)
    client = cluster.client("z")
    for number in range(600):
        client.set(f"data-{number}", bytes(50_000))
    return cluster


# -- redis-py -----------------------------------------------------------------------------------


@CHANGES
@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_goes_on_in_either_protocol(
    cluster_with_data: Cluster, measured: Measured, change: Change, protocol: int
) -> None:
    cluster = cluster_with_data
    with Pulses(cluster, "z", protocol=protocol) as pulses:
        began = time.monotonic()
        change(cluster)
        pulses.wait_all_written_since(time.monotonic())

    measured(
        f"redis-py, RESP{protocol}, {change.__name__}",
        f"failed commands {len(pulses.failed)}, keys not writable for at most"
        f" {max(pulses.longest_gaps_s(began)):.2f} s",
    )
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    if change is grow:
        assert_served(cluster, pulses.failed)


# -- redis-cli ----------------------------------------------------------------------------------


class _Commands(Background):
    """SETs of ever new keys, each by a redis-cli of its own, one after the other."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.said: Counter[str] = Counter()
        self._words = ["redis-cli", "-c", "-h", "127.0.0.1", "-p", str(port)]
        self.add_road(self._go_on)

    def __enter__(self) -> Self:
        super().__enter__()
        wait_until(lambda: len(self.acknowledged) > 20, "answers to redis-cli")
        return self

    def run(self, *command: str) -> str:
        """What redis-cli says, to whichever of its outputs."""
        return subprocess.run(
            [*self._words, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
        ).stdout.strip()

    def _go_on(self) -> None:
        number = 0
        while not self.stop.wait(BETWEEN_S):
            number += 1
            key = f"command-{number}"
            said = self.run("SET", key, f"value of {key}")
            if said == "OK":
                self.acknowledged.append(key)
                continue
            if "CLUSTERDOWN" in said:
                self.refused.append(key)
            self.said[said] += 1


@pytest.mark.needs("redis-cli")
@CHANGES
def test_redis_cli_is_answered_or_told_in_documented_words(
    cluster_with_data: Cluster, measured: Measured, change: Change
) -> None:
    cluster = cluster_with_data
    victim = cluster.agent_with_most_primaries().name
    survivor = next(name for name in cluster.agents if name != victim)
    commands = _Commands(cluster.port("z", survivor))
    with commands:
        change(cluster)
        before = len(commands.acknowledged)
        wait_until(lambda: len(commands.acknowledged) > before + 30, "further answers")

    measured(
        f"redis-cli -c, {change.__name__}",
        f"{len(commands.acknowledged)} commands answered, {commands.said.total()} not",
    )
    assert [each for each in commands.said if not DOCUMENTED.search(each)] == []
    assert [
        key for key in commands.acknowledged if commands.run("GET", key) != f"value of {key}"
    ] == []
    assert [key for key in commands.refused if commands.run("GET", key)] == []
    if change is grow:
        assert_served(cluster, commands.said)


@pytest.mark.needs("redis-cli")
def test_a_session_of_redis_cli_follows_data_that_moves(cluster_with_data: Cluster) -> None:
    # Not for a loss: a session whose agent died calls that very agent again for ever.
    cluster = cluster_with_data
    words = ["redis-cli", "-c", "-h", "127.0.0.1", "-p", str(cluster.port("z", "agent-1"))]
    stop = threading.Event()
    sent = 0
    acknowledged, refused = [], []
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        growing = threading.Thread(target=lambda: (grow(cluster), stop.set()))
        growing.start()
        while not stop.wait(BETWEEN_S) or sent < 100:
            sent += 1
            session.stdin.write(f"SET session-{sent} {sent}\n")
            session.stdin.flush()
            while (line := session.stdout.readline()).startswith((REDIRECTED, "\n")):
                pass  # it says an empty line behind an error
            if line == "OK\n":
                acknowledged.append(sent)
            else:
                refused.append(line)
        growing.join()
        session.stdin.close()

    client = cluster.client("z")
    assert [n for n in acknowledged if client.get(f"session-{n}") != b"%d" % n] == []
    assert [each for each in refused if not DOCUMENTED.search(each)] == []
    assert_served(cluster, refused)


# -- redis-benchmark ----------------------------------------------------------------------------


@contextmanager
def _benchmark(cluster: Cluster, agent: Agent, commands: int) -> Iterator[subprocess.Popen[str]]:
    """It does not outlive the block: without agents it takes a processor for ever."""
    words = ["redis-benchmark", "--cluster", "-h", "127.0.0.1"]
    words += ["-p", str(cluster.port("z", agent.name)), "-t", "set,get", "-n", str(commands)]
    words += ["-c", "10", "-d", "100", "-r", "1000", "--csv"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as benchmark:
        try:
            yield benchmark
        finally:
            benchmark.kill()


def _wait_written(cluster: Cluster, agent: Agent) -> None:
    """Until the benchmark's writes arrive at this agent: before it has connected to all agents it
    waits for ever for one that has died."""
    with redis.Redis(port=cluster.port("z", agent.name)) as client:
        wait_until(lambda: cast(int, client.dbsize()) > 50, "its writes")


def _is_idle(cluster: Cluster, benchmark: subprocess.Popen[str]) -> bool:
    """Whether it has asked no agent anything for longer than a command may wait."""
    idle: list[int] = []
    for agent in cluster.agents.values():
        if agent.is_alive():
            with redis.Redis(port=cluster.port("z", agent.name)) as client:
                of_it = [each for each in client.client_list() if not each["lib-name"]]
            idle += [int(each["idle"]) for each in of_it]
    return bool(idle) and min(idle) > IDLE_S


def _said(benchmark: subprocess.Popen[str]) -> tuple[str, str]:
    """What it said until its end; it does not outlive the test."""
    try:
        return benchmark.communicate(timeout=BENCHMARK_S_MAX)
    except subprocess.TimeoutExpired:
        benchmark.kill()
        said, errors = benchmark.communicate()
        raise AssertionError(
            f"redis-benchmark did not end: {said[-500:]} {errors[-500:]}"
        ) from None


def _assert_ran_through(said: str, errors: str, code: int | None) -> None:
    assert code == 0, errors + said
    assert "Error" not in said + errors
    assert re.search(r'^"SET","[0-9]', said, re.M)
    assert re.search(r'^"GET","[0-9]', said, re.M)


@pytest.mark.needs("redis-benchmark")
def test_redis_benchmark_follows_data_that_moves_between_agents_it_knows(
    cluster_in_memory: Cluster,
) -> None:
    # It ends when it hears of an agent that was no primary when it began, also in Redis Cluster:
    # so what moves goes from the fourth agent to three that were there before.
    cluster = cluster_in_memory
    grow(cluster)
    survivor = cluster.agents["agent-1"]
    with _benchmark(cluster, survivor, 30_000) as benchmark:
        _wait_written(cluster, survivor)

        cluster.api.ask("POST", "/nodes/agent-4/drain?cluster=main")
        said, errors = _said(benchmark)

    _assert_ran_through(said, errors, benchmark.returncode)
    assert "Cluster has 4 master nodes" in said
    # It met partitions that had moved: else this test shows nothing.
    forwarded = sum(
        sum(agent.metrics("quorate_commands_forwarded_total")) for agent in cluster.agents.values()
    )
    assert forwarded or "Cluster slots configuration changed" in errors


@pytest.mark.needs("redis-benchmark")
def test_redis_benchmark_loses_its_connections_with_an_agent_and_no_more(
    cluster_in_memory: Cluster,
) -> None:
    # A closed connection ends it, also in Redis Cluster: it never connects again.  Only if it was
    # about to write to each that it lost does it say nothing, go on with those it has left, and at
    # the end, for some threads, wait for ever for what it had asked the dead one.  What it must not
    # hear from any agent is an error, nor may one keep it waiting; the next run has nothing to
    # complain about.
    cluster = cluster_in_memory
    victim = cluster.agent_with_most_primaries()
    survivor = next(each for each in cluster.agents.values() if each is not victim)
    with _benchmark(cluster, survivor, 60_000) as benchmark:
        _wait_written(cluster, survivor)

        victim.kill()
        wait_until(
            lambda: benchmark.poll() is not None or _is_idle(cluster, benchmark),
            "its end",
            2 * BENCHMARK_S_MAX,  # it goes on with all it was to ask, as fast as others let it
        )
        is_waiting = benchmark.poll() is None
        benchmark.kill()
        said, errors = benchmark.communicate()

    assert "Error from server" not in said + errors
    if is_waiting:
        alive = [agent for agent in cluster.agents.values() if agent is not victim]
        waited, answered = (
            sum(sum(agent.metrics(name)) for agent in alive)
            for name in ("quorate_commands_parked_total", "quorate_command_parked_seconds_count")
        )
        assert waited == answered
    elif benchmark.returncode:
        assert re.search(r"^Error: (Server closed|Connection reset)", errors, re.M), errors
    else:
        assert re.search(r'^"GET","[0-9]', said, re.M)

    cluster.wait_left(victim.name)
    cluster.wait_available("z")
    with _benchmark(cluster, survivor, 3_000) as again:
        said, errors = _said(again)
    _assert_ran_through(said, errors, again.returncode)
