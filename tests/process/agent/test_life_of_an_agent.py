"""What an agent tells probes from its start to its end, and how it ends when it is told to."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest

from quorate_cluster import agent_in_container
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import Agent, asked, environment, python
from quorate_cluster.routing import ports_of_slots
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports
from quorate_documented.metrics import families
from write_metrics import agent_metrics

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

GRACE_S = 8.0
LINGER_S = 4.0
SLACK_S = 10.0
"""Of a machine that others use.  Without a bound an agent would wait until somebody leads."""


def _statuses(agent: Agent) -> dict[str, int]:
    return {path: agent.asked(path)[0] for path in ("/startupz", "/healthz", "/readyz")}


def _is_ready(agent: Agent) -> bool:
    return agent.asked("/readyz")[0] == 200


@pytest.fixture
def admin_ports() -> Iterator[int]:
    return free_ports()


def test_an_agent_is_ready_from_when_it_takes_part_until_it_is_told_to_end(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=0)
    agents = [cluster.define_agent() for _ in range(3)]
    for agent in agents:
        agent.start()
    first = agents[0]
    assert _statuses(first) == {"/startupz": 200, "/healthz": 200, "/readyz": 503}
    assert first.asked("/readyz")[1] == "no master has registered this agent yet\n"

    cluster.declare()
    wait_until(lambda: all(map(_is_ready, agents)), "readiness")
    cluster.apply_zone("z", partitions=16)
    in_zone = (200, "serves 1 zones\n")
    wait_until(lambda: all(each.asked("/readyz") == in_zone for each in agents), "readiness")
    assert first.metrics("quorate_master_connected") == [1.0]
    told = families(first.asked("/metrics")[1])
    assert told == {each.name for each in agent_metrics()}
    cluster.operator.kill()
    wait_until(lambda: first.metrics("quorate_master_connected") == [0.0], "the loss of a master")
    assert _is_ready(first), "zones go on while the operator is away"
    cluster.operator.start()
    cluster.wait_online()

    leaves = cluster.agent_with_most_primaries()
    with Pulses(cluster, "z") as pulses:
        cluster.operator.pause()  # so that it is there until it was asked
        leaves.interrupt()
        leaving = (503, "hands its primaries over and ends\n")
        wait_until(lambda: leaves.asked("/readyz") == leaving, "end of readiness")
        cluster.operator.resume()
        wait_until(lambda: not leaves.is_alive(), "end of the agent")
        pulses.wait_all_written_since(time.monotonic())

    assert leaves.exit_status == 0
    assert pulses.lost() == []
    assert pulses.undocumented() == []


def test_an_agent_has_ended_within_its_grace_also_while_nobody_takes_over(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3, options=["--grace-seconds", f"{GRACE_S:g}"])
    cluster.apply_zone("z", partitions=16)
    agent = cluster.agent_with_most_primaries()
    cluster.operator.pause()

    began = time.monotonic()
    agent.interrupt()
    wait_until(lambda: not agent.is_alive(), "end of the agent", GRACE_S + SLACK_S)
    took = time.monotonic() - began

    cluster.operator.resume()
    assert agent.exit_status == 0
    assert took > 1, "it did not wait for anybody"


def test_an_agent_takes_in_clients_for_a_while_after_it_is_told_to_end(
    start_cluster: StartCluster,
) -> None:
    """A Service still sends some there, who know no other way in."""
    cluster = start_cluster(agents=3, options=["--linger-seconds", f"{LINGER_S:g}"])
    cluster.apply_zone("z", partitions=16, replicas=3)
    cluster.wait_quiet("z")
    leaves = cluster.agent_with_most_primaries()
    ports = {name: cluster.port("z", name) for name in cluster.agents}
    mine = ports.pop(leaves.name)

    began = time.monotonic()
    leaves.interrupt()
    told: set[int] = set()
    while time.monotonic() < began + LINGER_S - 1:
        told = {*ports_of_slots(mine)}
        time.sleep(0.05)
    assert told == {*ports.values()}, "clients are sent on to the others"
    wait_until(lambda: not leaves.is_alive(), "end of the agent")
    assert leaves.exit_status == 0


def _with_many_zones(start_cluster: StartCluster, admin_port: int) -> tuple[Cluster, Agent]:
    """One agent that has much to open when it starts, down."""
    cluster = start_cluster(agents=1, options=["--admin", f"127.0.0.1:{admin_port}"])
    for number in range(30):
        cluster.apply_zone(f"zone-{number}", partitions=4)
    agent = cluster.agents["agent-1"]
    agent.terminate()
    return cluster, agent


def test_an_agent_that_reads_its_logs_lives_and_has_not_started(
    start_cluster: StartCluster, admin_ports: Iterator[int]
) -> None:
    port = next(admin_ports)
    _, agent = _with_many_zones(start_cluster, port)
    seen: list[tuple[str, int, str]] = []

    def has_started() -> bool:
        try:
            paths = ("/startupz", "/healthz", "/readyz")
            seen.extend([(path, *asked("127.0.0.1", port, path)) for path in paths])
        except URLError:
            return False  # nobody listens yet
        return seen[-3][1] == 200

    agent.start(wait=False)
    deadline = time.monotonic() + 60
    while not has_started():
        assert time.monotonic() < deadline, agent.log_tail()

    waits = [text for path, status, text in seen if path == "/startupz" and status == 503]
    assert any(text.startswith("opens zone ") for text in waits), seen
    assert {status for path, status, _ in seen if path == "/healthz"} == {200}
    assert {status for path, status, _ in seen[:-3] if path == "/readyz"} == {503}
    wait_until(lambda: _is_ready(agent), "readiness", 60)


@pytest.mark.needs("own-network")
def test_the_first_process_of_a_container_ends_when_it_is_told_to_before_its_loop_runs(
    tmp_path: Path,
) -> None:
    """The kernel gives such a process no signal for which it has no handler."""
    secret = tmp_path / "secret.json"
    os.mkfifo(secret)  # whoever reads it waits for a writer
    own_user = ["--map-root-user"] if os.getuid() else []
    alone = ["unshare", *own_user, "--pid", "--fork", "--kill-child"]
    command = python("quorate_agent", "--name", "a", "--data", str(tmp_path / "a"))
    command += ["--cluster", "main", "--secret-file", str(secret)]
    outside = subprocess.Popen([*alone, *command], env=environment())
    try:
        writer = wait_until(lambda: _opened_to_write(secret), "an agent that reads its secret")
        children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        # It may be told just before it waits for the writer, and handles that once the wait ends.
        os.close(writer)

        assert outside.wait(30) == 0
    finally:
        outside.kill()
        outside.wait()


def _opened_to_write(fifo: Path) -> int | None:
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads it
        return None


def test_an_agent_that_is_told_to_end_while_it_reads_its_logs_ends_at_once(
    start_cluster: StartCluster, admin_ports: Iterator[int]
) -> None:
    port = next(admin_ports)
    cluster, agent = _with_many_zones(start_cluster, port)

    def reads() -> bool:
        try:
            return asked("127.0.0.1", port, "/startupz")[0] == 503
        except URLError:
            return False

    agent.start(wait=False)
    deadline = time.monotonic() + 60
    while not reads():
        assert time.monotonic() < deadline, agent.log_tail()
    agent.terminate()
    assert agent.exit_status == 0

    agent.start()
    cluster.wait_available("zone-7")


def test_its_container_ends_with_the_word_of_its_last_process(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    there = (sys.executable, "-P", str(Path(agent_in_container.__file__)), str(log))
    agent = start_cluster(agents=1, prefix=there).agents["agent-1"]
    first = log.read_text()
    assert re.fullmatch(r"process [0-9a-f]{16}\n", first)

    agent.kill()
    assert log.read_text() == first
    agent.start()
    assert re.fullmatch(r"process [0-9a-f]{16}\n", log.read_text())
    assert log.read_text() != first
