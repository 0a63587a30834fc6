"""What an agent notes of storage without room: once when it begins, once when it is over."""

import logging

import pytest

from quorate.facts.time import Now
from quorate.facts.topology import Holder
from quorate.protocol.agent.replicas import Replicas
from quorate_agent.zones.storage_room import OVER_S, RoomWatch
from quorate_lone_agent.agent import ZONE, replicas_in_memory

NOW = Now(1_000_000, 1_000)


class Disk:
    """A storage as full as it is told to be."""

    full_reason = ""
    is_short = False


@pytest.fixture
def replicas() -> Replicas:
    return replicas_in_memory(ZONE, Holder("agent-1", "s", 1), NOW)


def test_a_full_disk_is_logged_once_and_once_when_it_is_over(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quorate.agent.room")
    disk = Disk()
    watch = RoomWatch(replicas, disk)
    watch.look(1.0)
    assert (replicas.why_full, caplog.messages) == ("", [])

    disk.full_reason = "/data/agent-1: 7 bytes left"
    watch.look(2.0)
    disk.full_reason = "/data/agent-1: 6 bytes left"
    watch.look(3.0)

    assert replicas.why_full == "/data/agent-1: 7 bytes left"
    full = "agent agent-1, zone books: no room, commands that need some are refused: "
    assert caplog.messages == [full + "/data/agent-1: 7 bytes left"]

    disk.full_reason = ""
    watch.look(3.0 + OVER_S / 2)
    disk.full_reason = "/data/agent-1: 5 bytes left"
    watch.look(4.0 + OVER_S / 2)
    disk.full_reason = ""
    watch.look(3.9 + OVER_S * 1.5)
    assert replicas.why_full, "a moment with room is not the end"

    watch.look(4.0 + OVER_S * 1.5)
    watch.look(9.0 + OVER_S * 1.5)
    assert replicas.why_full == ""
    assert caplog.messages[1:] == ["agent agent-1, zone books: there is room again"]
