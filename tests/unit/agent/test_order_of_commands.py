"""A connection's commands are executed in the order in which they came."""

from collections.abc import Iterable

import pytest

from quorate_agent.clients.connection import ClientConnection
from quorate_agent.machine.clock import MachineClock
from quorate_agent.resp.session import Connection
from quorate_differential.kept_socket import KeptSocket


class _Endpoint:
    """Takes down what it is to execute at once."""

    def __init__(self) -> None:
        self.executed: list[list[bytes]] = []
        self.clock = MachineClock()

    def connected(self, client: ClientConnection) -> None:
        client.state = Connection(1, "", "", 0)

    def disconnected(self, client: ClientConnection) -> None:
        pass

    def run(self, client: ClientConnection, commands: Iterable[list[bytes]]) -> None:
        self.executed.extend(commands)


@pytest.mark.parametrize("blocked", [True, False], ids=["waiting", "answered-this-turn"])
def test_what_comes_behind_waiting_commands_waits_behind_them(blocked: bool) -> None:
    # An answer from another agent ends a wait in the middle of a turn; what had queued up behind
    # it is executed at the turn's end, and more may arrive in between.
    endpoint = _Endpoint()
    client = ClientConnection(endpoint)
    client.connection_made(KeptSocket())
    client.backlog.append((0, [b"GET", b"first"]))
    client.blocked = int(blocked)

    client.data_received(b"*2\r\n$3\r\nGET\r\n$6\r\nsecond\r\n")

    assert endpoint.executed == []
    assert [words for _, words in client.backlog] == [[b"GET", b"first"], [b"GET", b"second"]]


def test_what_comes_to_a_connection_without_waiting_commands_is_executed_at_once() -> None:
    endpoint = _Endpoint()
    client = ClientConnection(endpoint)
    client.connection_made(KeptSocket())

    client.data_received(b"*1\r\n$4\r\nPING\r\n")

    assert endpoint.executed == [[b"PING"]]
