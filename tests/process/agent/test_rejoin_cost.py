"""What it costs an agent to be away for a moment: the updates it missed, not the data it has."""

import os

import pytest

from quorate_cluster.fixtures import StartCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

VALUES = 200
VALUE_BYTES = 1024 * 1024
MISSED = 1000
MISSED_BYTES = 200
"""Of each write while the agent is away, key and value together roughly."""


def test_a_restart_after_a_thousand_writes_ships_less_than_twice_their_bytes(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16, syncWrites="Interval")
    client = cluster.client("z")
    value = os.urandom(VALUE_BYTES)
    for number in range(VALUES):
        client.set(f"large-{number}", value)
    cluster.wait_quiet("z")
    away = cluster.agents["agent-2"]
    away.terminate()
    cluster.wait_left("agent-2")
    client = cluster.client("z", first=["agent-1", "agent-3"])
    before = cluster.zone_status("z")
    for number in range(MISSED):
        client.set(f"missed-{number}", os.urandom(MISSED_BYTES - 11))
    away.start()
    cluster.wait_quiet("z")
    after = cluster.zone_status("z")

    shipped = after["bytes_moved"] - before["bytes_moved"]
    assert after["full_copies"] == before["full_copies"]
    assert 0 < shipped < 2 * MISSED * MISSED_BYTES
    assert client.get("missed-999") is not None
