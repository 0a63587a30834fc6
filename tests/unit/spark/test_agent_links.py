"""Connections to agents that are given up: what was not delivered is not delivered later."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quorate.protocol.messages.handshake import FORMAT_VERSION
from quorate.protocol.messages.tools import RestoreRows, RowsRestored
from quorate_link.secret import make_secret
from quorate_spark.reading.agent_link import AgentLink, Cluster, Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.settings import Settings

VALUE = b"v" * 400_000
"""Longer than the agent's buffer, so that a part of it waits in the kernel of the tool."""


class Silent:
    """The port of an agent that reads nothing for now."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener

    def read(self) -> int:
        """Go on: read all that still comes; return the number of bytes."""
        connection, _ = self._listener.accept()
        received = 0
        with connection:
            connection.settimeout(5)
            while data := connection.recv(65_536):
                received += len(data)
        return received


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    def greet(link: AgentLink, cluster: Cluster) -> Any:
        link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(VALUE))
        said = SimpleNamespace(format=FORMAT_VERSION)
        monkeypatch.setattr(link, "_handshake", said, raising=False)
        return SimpleNamespace(node="agent-1")

    monkeypatch.setattr(AgentLink, "_greet", greet)
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield Silent(listener)


@pytest.fixture
def links(tmp_path: Path) -> AgentLinks:
    cluster = Cluster("c", make_secret(tmp_path / "secret").keys("tool"))
    return AgentLinks(cluster, Settings(answer_timeout_s=0.3))


def test_a_request_without_an_answer_in_time_does_not_arrive_later(
    silent: Silent, links: AgentLinks
) -> None:
    """It would put back rows that were replaced meanwhile."""
    ask = RestoreRows("z", 0, ((b"key", VALUE, 0),), True)
    with pytest.raises(Unreadable, match="did not answer RestoreRows within"):
        links.to(silent.address).ask(ask, RowsRestored)

    links.drop(silent.address)

    with pytest.raises(ConnectionResetError):
        silent.read()


def test_connections_without_a_request_end_as_usual(silent: Silent, links: AgentLinks) -> None:
    with links:
        links.to(silent.address)

    assert silent.read() == 0
