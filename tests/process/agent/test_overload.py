"""Clients that send more than an agent can do: leases go on, nobody is taken for lost."""

import socket
import time
from collections.abc import Callable
from functools import partial

import pytest

from quorate_cluster.background import Background
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.outage import Pulses
from quorate_differential.raw_replies import encode_command

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

CONNECTIONS = 150
PIPELINE = 2000
FLOOD_S = 15.0


class _Flood(Background):
    """Connections to one agent that always have a long pipeline outstanding, all at once."""

    def __init__(self, port: int, command: Callable[[int], list[bytes]]) -> None:
        super().__init__()
        self._port = port
        self._stream = b"".join(encode_command(command(n)) for n in range(PIPELINE))
        self.bytes_received = 0
        for number in range(2):
            self.add_road(partial(self._pour, CONNECTIONS // 2, number))

    def _pour(self, connections: int, number: int) -> None:
        sockets = [
            socket.create_connection(("127.0.0.1", self._port), 10) for _ in range(connections)
        ]
        unsent = {each: memoryview(self._stream) for each in sockets}
        for each in sockets:
            each.setblocking(False)
        while not self.stop.is_set():
            moved = 0
            for each in sockets:
                moved += self._pour_once(each, unsent)
            if not moved:
                time.sleep(0.001)
        for each in sockets:
            each.close()

    def _pour_once(self, each: socket.socket, unsent: dict[socket.socket, memoryview]) -> int:
        moved = 0
        try:
            sent = each.send(unsent[each])
            moved += sent
            unsent[each] = unsent[each][sent:] or memoryview(self._stream)
        except BlockingIOError:
            pass
        try:
            received = len(each.recv(1 << 20))
            self.bytes_received += received
            moved += received
        except BlockingIOError:
            pass
        return moved


def _lost_nodes(cluster: Cluster) -> list[str]:
    return [line for line in cluster.logs(400).splitlines() if "NodeLeft" in line]


@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_a_flood_of_pipelines_makes_no_agent_seem_lost(
    start_cluster: StartCluster, measured: Measured, kind: str
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, storage="InMemory")
    victim = cluster.agent_with_most_primaries()
    port = cluster.port("z", victim.name)

    def command(number: int) -> list[bytes]:
        key = b"key-%d" % number
        return [b"GET", key] if kind == "reads" else [b"SET", key, b"x" * 50]

    memory = victim.rss_bytes()
    with Pulses(cluster, "z", keys_max=4) as pulses, _Flood(port, command) as flood:
        began = time.monotonic()
        while time.monotonic() - began < FLOOD_S:
            time.sleep(0.2)  # the flood is what is tested
        gaps = pulses.longest_gaps_s(began)
        memory = victim.rss_bytes() - memory
        pulses.wait_all_written_since(time.monotonic())

    measured(
        f"flood of {kind}",
        f"{flood.bytes_received // 1_000_000} MB answered in {FLOOD_S:g} s, others waited at most"
        f" {max(gaps):.2f} s; memory +{memory // 1_000_000} MB",
    )
    assert _lost_nodes(cluster) == []
    assert pulses.failed == []
    assert memory < 500_000_000
