"""Ten thousand bad streams against a live agent: it lives, stays small and serves the others."""

import random
import socket
import time
from contextlib import suppress

import pytest

from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.wire.frames import encode_frame
from quorate_cluster.bad_input import client_bytes, peer_bytes
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.served import assert_served
from quorate_cluster.standstill import standstill_s
from quorate_link import RoleKeys
from quorate_link.blocking import shake_hands
from quorate_link.handshake import Handshake
from quorate_link.secret import read_secret

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

STREAMS = 5000
"""To each of the two ports."""
SEED = 1
ANSWER_S_MAX = 0.5
"""How long an answer to a bad stream is waited for; it may honestly never come."""
GROWTH_BYTES_MAX = 150 * 1024 * 1024
GAP_S_MAX = 5.0


def _send(port: int, data: bytes) -> None:
    """Send, say that nothing follows, and read whatever comes until the agent closes."""
    # Reset: the agent closed before it had read everything, which is its right.
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(ANSWER_S_MAX)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def _send_proven(port: int, hello: Hello, keys: RoleKeys, data: bytes) -> None:
    """The same of a peer that knows the secret."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        handshake = Handshake(keys, lambda: hello, dialed=True)
        shake_hands(connection, handshake, time.monotonic() + 5)
        if handshake.hello is None:
            return
        connection.settimeout(ANSWER_S_MAX)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def _throw(cluster: Cluster, chance: random.Random) -> None:
    agent = cluster.agents["agent-1"]
    client_port = cluster.port("z", "agent-1")
    zones = [cluster.zone("z")["metadata"]["uid"], "no-such-zone", ""]
    greetings = [
        Hello(FORMAT_VERSION, "agent", "main", "ghost", "store", 1, 0, "127.0.0.1", 1),
        Hello(FORMAT_VERSION, "tool", "main"),
        Hello(FORMAT_VERSION, "master", "another cluster", master_term=1 << 60),
        Hello(FORMAT_VERSION + 1, "agent", "main", "ghost", "store", 1),
        Hello(FORMAT_VERSION, "no such role", "main"),
    ]
    keys = read_secret(cluster.secret_file).keys()
    for _ in range(STREAMS):
        _send(client_port, client_bytes(chance))
        hello = chance.choice(greetings)
        data = peer_bytes(chance, hello.role, zones)
        if hello.role in keys.by_role and chance.random() < 0.7:
            _send_proven(agent.peer_port, hello, keys, data)
        else:
            _send(agent.peer_port, chance.choice((b"", encode_frame(hello))) + data)


def test_bad_streams_neither_end_nor_swell_nor_stop_an_agent(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=4)
    agent = cluster.agents["agent-1"]
    before = agent.rss_bytes()
    pid = agent.pid
    began = time.monotonic()
    with Pulses(cluster, "z") as pulses:
        _throw(cluster, random.Random(SEED))
        pulses.wait_all_written_since(time.monotonic())
    ended = time.monotonic()
    growth = agent.rss_bytes() - before
    gap = max(pulses.longest_gaps_s(began))
    measured(
        f"{2 * STREAMS} bad streams",
        f"{time.monotonic() - began:.0f} s, memory {growth / 1e6:+.0f} MB, others waited at most"
        f" {gap:.2f} s",
    )

    assert agent.is_alive()
    assert agent.pid == pid
    assert all(each.is_alive() for each in cluster.processes)
    assert pulses.lost() == []
    assert pulses.undocumented() == []
    assert gap - standstill_s(began, ended) < GAP_S_MAX
    assert growth < GROWTH_BYTES_MAX
    assert '"level": "ERROR"' not in agent.log.read_text()
    assert "Traceback" not in agent.log.read_text()
    status = cluster.wait_quiet("z")["status"]
    assert status["partitions"]["available"] == 4
    assert_served(cluster, pulses.failed)


def test_many_half_sent_commands_do_not_keep_memory_or_others_waiting(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=1)
    cluster.apply_zone("z", partitions=4)
    agent = cluster.agents["agent-1"]
    before = agent.rss_bytes()
    connections = []
    for _ in range(300):
        connection = socket.create_connection(("127.0.0.1", cluster.port("z", "agent-1")), 5)
        connection.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\n" + b"x" * 1000)
        connections.append(connection)
    client = cluster.client("z")

    assert client.set("key", "value") is True
    assert agent.rss_bytes() - before < GROWTH_BYTES_MAX

    for connection in connections:
        connection.close()
    assert client.get("key") == b"value"
