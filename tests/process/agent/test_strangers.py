"""Whoever reaches a peer port without the cluster's secret changes nothing and learns nothing."""

import socket
import time
from collections import deque
from functools import partial

import pytest

from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import Members, ZoneGone
from quorate.protocol.messages.tools import AskRows
from quorate.wire.frames import FrameReader, encode_frame
from quorate_cluster.background import Background
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.outage import Pulses
from quorate_cluster.waiting import wait_until
from quorate_link.blocking import shake_hands
from quorate_link.handshake import Handshake
from quorate_link.secret import draw_secret

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]

TERM = 10**6
STRANGERS_HOST = "127.0.0.66"
LIMIT = 256
"""Descriptors of an agent: 12 places for strangers."""


def _said(port: int, data: bytes) -> bytes:
    """All that the agent answers until it closes."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.settimeout(10)
        connection.sendall(data)
        while piece := connection.recv(65536):
            heard += piece
    return heard


def test_a_stranger_on_the_peer_port_cannot_end_a_cluster(start_cluster: StartCluster) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=4)
    client = cluster.client("z")
    assert client.set("key", "value") is True
    uid = cluster.zone("z")["metadata"]["uid"]
    term = cluster.api.status()["master_term"]
    master = Hello(FORMAT_VERSION, "master", "main", master_term=TERM)
    tool = Hello(FORMAT_VERSION, "tool", "main")

    for agent in cluster.agents.values():
        for words in (
            (master, Members(TERM, (), 1 << 60), ZoneGone(TERM, uid)),
            (ZoneGone(TERM, uid),),
            (tool, AskRows("z", 0, None, 1 << 20)),
        ):
            heard = _said(agent.peer_port, b"".join(encode_frame(each) for each in words))
            answers = FrameReader().feed(heard)
            assert all(type(each) is Refused for each in answers)
            assert b"value" not in heard
        with socket.create_connection(("127.0.0.1", agent.peer_port), 10) as connection:
            handshake = Handshake(draw_secret().keys(), lambda: master, dialed=True)
            shake_hands(connection, handshake, time.monotonic() + 10)
            assert handshake.refused is not None
            assert handshake.refused.code == RefusalCode.CLUSTER

    for agent in cluster.agents.values():
        wait_until(
            lambda agent=agent: agent.metrics("quorate_peer_strangers_total") >= [4.0],
            "strangers counted",
            10,
        )
        assert "says Hello without a proof" in agent.log.read_text()
    assert client.get("key") == b"value"
    assert client.set("key", "newer") is True
    assert cluster.api.status()["master_term"] == term
    status = cluster.wait_quiet("z")["status"]
    assert status["partitions"]["available"] == 4
    cluster.operator.kill()
    cluster.operator.start()  # its next term is believed
    cluster.wait_online()
    assert client.get("key") == b"newer"


class Strangers(Background):
    """From another host, one connection after another to each port: nothing is sent or read, and
    the newest `held` of each stay open."""

    def __init__(self, ports: list[int], held: int) -> None:
        super().__init__()
        self.made = 0
        self._held = held
        for port in ports:
            self.add_road(partial(self._knock, port))

    def _knock(self, port: int) -> None:
        held: deque[socket.socket] = deque()
        while not self.stop.is_set():
            try:
                held.append(socket.create_connection(("127.0.0.1", port), 5, (STRANGERS_HOST, 0)))
            except OSError:  # the agent is being started again
                self.stop.wait(0.01)
                continue
            self.made += 1
            if len(held) > self._held:
                held.popleft().close()
        for connection in held:
            connection.close()


def test_members_come_in_while_strangers_take_every_place_that_they_can(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3, prefix=["sh", "-c", f'ulimit -n {LIMIT} && exec "$0" "$@"'])
    cluster.apply_zone("z", partitions=4)
    cluster.wait_quiet("z")
    ports = [agent.peer_port for agent in cluster.agents.values()]

    with Strangers(ports, held=100) as strangers, Pulses(cluster, "z") as pulses:
        wait_until(lambda: strangers.made > 1_000, "strangers", 60)
        cluster.operator.kill()
        cluster.operator.start()
        cluster.wait_online()
        cluster.agents["agent-2"].kill()
        cluster.wait_left("agent-2")
        cluster.agents["agent-2"].start()
        cluster.wait_online()
        cluster.wait_quiet("z")
        pulses.wait_all_written_since(time.monotonic())
    for name in ("agent-1", "agent-3"):
        closed = cluster.agents[name].metrics("quorate_peer_strangers_total")
        assert closed[0] > 200, name
    assert pulses.lost() == []
    assert pulses.undocumented() == []
