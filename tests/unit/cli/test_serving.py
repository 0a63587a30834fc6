"""Whether zones serve, and what a user types to reach them."""

import socket
from typing import Any

import pytest

from quorate.protocol.status import NodeStatus
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.objects.serving import how_to_connect, not_serving, reachable
from quorate_lone_master.zone_status import status_of_zone


def _node(name: str, online: bool = True) -> NodeStatus:
    host = f"10.0.0.{name[-1]}"
    return NodeStatus(name, "a" * 32, 1, online, "", "10.9.9.9:9000", "", 0, 0, None, host)


def _state(**changes: Any) -> ClusterState:
    fields: dict[str, Any] = {
        "sentence": "3 partitions have no serving primary",
        "available": 40,
        "degraded": 24,
        "ports": {"agent-2": 7101, "agent-1": 7100, "agent-3": 7102},
    }
    zone = status_of_zone(**{**fields, **changes})
    nodes = (_node("agent-1", online=False), _node("agent-3"), _node("agent-2"))
    return ClusterState("main", "here/1", "", 3, nodes, (zone,))


@pytest.mark.parametrize(
    ("changes", "serves"),
    [
        ({}, True),
        ({"available": 61, "degraded": 0, "unavailable": 3}, False),
        ({"available": 0, "degraded": 0}, False),
        ({"ports": {}}, False),
        ({"available": 61, "degraded": 0, "unavailable": 3, "lost": 3}, True),
        ({"available": 61, "degraded": 0, "unavailable": 3, "lost": 2}, False),
        ({"phase": "Deleting", "available": 0}, True),
    ],
)
def test_a_zone_serves_when_every_partition_that_is_not_lost_does(
    changes: dict[str, Any], serves: bool
) -> None:
    said = not_serving(_state(**changes))

    expected = "zone books does not serve yet: 3 partitions have no serving primary"
    assert said == ([] if serves else [expected])


def test_clients_are_sent_to_an_agent_that_is_online() -> None:
    assert how_to_connect(_state()) == {
        "books": "zone books: quorate cli books, or redis-cli -c -h 10.0.0.2 -p 7101"
    }


def test_a_zone_without_ports_has_no_line() -> None:
    assert how_to_connect(_state(ports={"agent-1": 7100})) == {}


def test_an_agent_that_takes_no_connection_is_passed_by() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as unused,
        socket.create_server(("127.0.0.1", 0)) as agent,
    ):
        gone, there = unused.getsockname(), agent.getsockname()
        unused.close()

        assert reachable([gone, there]) == there
        assert reachable([gone]) is None
