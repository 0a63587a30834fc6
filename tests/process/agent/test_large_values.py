"""Large values, sent and read, of agents that are processes: memory is bounded and goes back to the
system, others are served meanwhile, nobody is taken for lost."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from quorate.facts.keyspace import key_partition
from quorate_agent.clients.memory import SETTING, WATCHED_BYTES
from quorate_agent.machine.memory_limit import memory_limit
from quorate_cluster.beside import NEVER, clients_beside
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.processes import HOST, Agent
from quorate_cluster.routing import keys_by_port
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import encode_command

pytestmark = [pytest.mark.process, pytest.mark.alone, pytest.mark.timeout(300)]

MIB = 1 << 20
WAITED_S_MAX = 2.0
"""By others, seconds: one is promised, 0.2 to 0.4 were measured."""


def _alone(start_cluster: StartCluster, budget_bytes: int) -> tuple[Agent, int]:
    """One agent with a zone in memory and this budget; its client port."""
    share = budget_bytes / memory_limit().bytes
    cluster = start_cluster(agents=1, options=[SETTING, f"{share:.9f}"])
    cluster.apply_zone("z", partitions=4, replicas=1, storage="InMemory")
    cluster.wait_quiet("z")
    return cluster.agents["agent-1"], cluster.port("z", "agent-1")


def _metric(agent: Agent, name: str) -> int:
    return int(agent.metrics(name)[0])


@contextmanager
def _connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((HOST, port), 30)) for _ in range(count)
        ]


def test_half_sent_values_stay_within_the_budget_and_go_back_to_the_system(
    start_cluster: StartCluster, measured: Measured
) -> None:
    budget = 200 * MIB
    agent, port = _alone(start_cluster, budget)
    before = agent.rss_bytes()
    whole = encode_command([b"SET", b"k", bytes(64 * MIB)])
    with _connections(port, 20) as sockets:
        for each in sockets:
            each.sendall(whole[: 60 * MIB])
        held = agent.rss_bytes() - before
        for each in sockets:
            each.sendall(whole[60 * MIB :])
        told = [each.recv(1000) for each in sockets]
        refused = [each for each in told if each != b"+OK\r\n"]
        assert _metric(agent, "quorate_client_memory_max_bytes") == pytest.approx(budget, rel=0.01)
        wait_until(
            lambda: _metric(agent, "quorate_client_memory_refused_total") == len(refused),
            "count the refusals",
        )

    assert held < budget + 100 * MIB
    assert len(refused) == 17
    assert {each.split(b" MiB (")[0].rsplit(b" ", 1)[0] for each in refused} == {
        b"-OOM clients hold 192 MiB of this agent's memory, a command of 64 MiB exceeds"
    }
    assert all(SETTING.encode() in each for each in refused)
    with Redis(HOST, port) as client:
        client.delete("k")
    wait_until(
        lambda: agent.rss_bytes() - before < 50 * MIB,
        "give the memory back",
        20,
        lambda: agent.rss_bytes() - before,
    )
    measured(
        "20 half-sent values of 64 MiB",
        f"{held // MIB} MiB held with a budget of {budget // MIB} MiB,"
        f" {(agent.rss_bytes() - before) // MIB} MiB kept afterwards",
    )


def test_replies_that_are_not_read_close_the_connection_that_holds_the_most(
    start_cluster: StartCluster,
) -> None:
    budget = 100 * MIB
    agent, port = _alone(start_cluster, budget)
    with Redis(HOST, port) as client:
        client.set("long", bytes(40 * MIB))
        client.set("longer", bytes(60 * MIB))

    keys = {b"long": 40 * MIB, b"longer": 60 * MIB}
    asked = (b"long", b"longer", b"long")
    with _connections(port, len(asked)) as sockets:
        for each, key in zip(sockets, asked, strict=True):
            each.sendall(encode_command([b"GET", key]))
        # The kernel takes what it takes; the rest, more than 100 MiB of 140, waits in the agent.
        wait_until(lambda: _metric(agent, "quorate_client_memory_closed_total") == 1, "close one")
        ended = [_ends_early(each, keys[key]) for each, key in zip(sockets, asked, strict=True)]

    assert ended == [False, True, False]


def _ends_early(connection: socket.socket, size: int) -> bool:
    """Read a reply of that size; whether the connection was closed before its end."""
    left = len(b"$%d\r\n" % size) + size + 2
    try:
        while left > 0 and (data := connection.recv(min(left, MIB))):
            left -= len(data)
    except ConnectionResetError:
        return True
    return left > 0


def test_who_sends_a_value_that_is_too_long_is_told_so_and_stays_connected(
    start_cluster: StartCluster,
) -> None:
    _, port = _alone(start_cluster, 400 * MIB)
    with Redis(HOST, port, single_connection_client=True) as client:
        number = client.client_id()
        with pytest.raises(ResponseError, match="string of 68157440 bytes: at most 67108864"):
            client.set("k", bytes(65 * MIB))
        with pytest.raises(ResponseError, match="command of more than 75497472 bytes"):
            client.mset({"{k}a": bytes(50 * MIB), "{k}b": bytes(50 * MIB)})

        assert client.client_id() == number
        assert client.set("k", bytes(64 * MIB))
        assert client.strlen("k") == 64 * MIB


def test_clients_that_read_no_long_replies_hold_up_nobody(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, storage="InMemory")
    cluster.wait_quiet("z")
    victim = cluster.agent_with_most_primaries()
    port = cluster.port("z", victim.name)
    key = keys_by_port(port, 2000)[port][0]
    with _connections(port, 1) as (writer,):
        writer.sendall(encode_command([b"SET", key, bytes(8 * MIB)]))
        assert writer.recv(100) == b"+OK\r\n"

    memory = victim.rss_bytes()
    with clients_beside(cluster, "z") as beside, _connections(port, 20) as sockets:
        for each in sockets:
            each.sendall(encode_command([b"GET", key]) * 30)
        # What others see is what is tested: until each client has replies that wait for it, and
        # every key was written behind that.
        wait_until(
            lambda: _metric(victim, "quorate_client_memory_bytes") >= len(sockets) * WATCHED_BYTES,
            "replies that wait for their clients",
        )
        beside.load_is_over()
        memory = victim.rss_bytes() - memory
        for each in sockets[:2]:  # whoever reads after all gets everything
            reply = b"$%d\r\n%b\r\n" % (8 * MIB, bytes(8 * MIB))
            for _ in range(30):
                assert _received(each, len(reply)) == reply

    measured(
        "20 clients that read no replies",
        f"others waited at most {beside.waited_s:.2f} s; memory +{memory // MIB} MiB",
    )
    assert memory < 600 * MIB
    beside.assert_served(waited_s_max=WAITED_S_MAX, never=(*NEVER, "NodeLeft"))


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := connection.recv(min(size - len(data), MIB))):
        data += piece
    return bytes(data)


# Three agents share two processors with the clients here, and each value costs each of them 0.4 s
# of CPU.  Others are clients of other partitions; a write of the same partition keeps its order, so
# it waits until the value is on disk there and at another agent.  Where the machine is so slow that
# the values take long themselves, the bounds are a part of that time.  Each agent's four values go
# in four rounds; a neighbour's write can miss one and wait for the next.  With values that do not
# wait for each other, everybody waits to the end, and agents are taken for lost.
@pytest.mark.parametrize(
    ("size", "waited_s_max", "neighbours_s_max"), [(16 * MIB, 2.0, 4.0), (64 * MIB, 3.0, 6.0)]
)
def test_long_values_written_at_the_same_time_follow_each_other(
    start_cluster: StartCluster,
    measured: Measured,
    size: int,
    waited_s_max: float,
    neighbours_s_max: float,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, storage="Persistent")
    cluster.wait_quiet("z")
    # The partitions of those who are beside it have no long value; the neighbours' have some.
    by_port = {
        port: [key for key in keys if key_partition(key, 16) % 4]
        for port, keys in keys_by_port(cluster.port("z", "agent-1"), 2000).items()
    }
    each_port = 4
    told: list[bytes] = []

    def write(port: int, key: bytes) -> None:
        with _connections(port, 1) as (connection,):
            connection.settimeout(90)
            connection.sendall(encode_command([b"SET", key, bytes(size)]))
            told.append(connection.recv(1000))

    began = time.monotonic()
    neighbours = Pulses(cluster, "z", keys_max=4, first=1, every_s=0.1)
    with clients_beside(cluster, "z") as beside, neighbours:
        writers = [
            threading.Thread(target=write, args=(port, key))
            for port, keys in by_port.items()
            for key in keys[:each_port]
        ]
        for each in writers:
            each.start()
        for each in writers:
            each.join()
        took_s = time.monotonic() - began
        neighbours.wait_all_written_since(time.monotonic())
        neighbours_waited_s = max(neighbours.longest_gaps_s(began))

    measured(
        f"{len(writers)} values of {size // MIB} MiB on disk",
        f"{took_s:.1f} s; others waited at most {beside.waited_s:.2f} s,"
        f" those of the same partitions {neighbours_waited_s:.2f} s",
    )
    problems = [str(each) for each in told if each != b"+OK\r\n"]
    waited_s_max = max(waited_s_max, took_s / 4)
    if neighbours_waited_s > max(neighbours_s_max, took_s * 0.6):
        problems.append(f"those of the same partitions waited {neighbours_waited_s:.1f} s")
    assert neighbours.lost() == []
    beside.assert_served(*problems, waited_s_max=waited_s_max)
