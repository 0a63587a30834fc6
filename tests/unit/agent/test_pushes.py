"""What a client is told unasked stands between whole replies, in the order that was wanted."""

from collections.abc import Iterable

import pytest

from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.notices import pushes
from quorate_agent.notices.pushes import push, push_in_order
from quorate_agent.resp.session import Connection
from quorate_agent.resp.tables.table import COMMANDS
from quorate_differential.kept_socket import KeptSocket


class _NoCommands:
    def connected(self, client: ClientConnection) -> None:
        client.state = Connection(1, "127.0.0.1:1", "127.0.0.1:2", 0)

    def disconnected(self, client: ClientConnection) -> None:
        pass

    def run(self, client: ClientConnection, commands: Iterable[list[bytes]]) -> None:
        raise AssertionError("no command was sent")


def _client() -> tuple[ClientConnection, KeptSocket]:
    client, socket = ClientConnection(_NoCommands()), KeptSocket()
    client.connection_made(socket)
    return client, socket


def _waiting(client: ClientConnection, reply: bytes) -> Slot:
    slot = Slot(client, COMMANDS[b"set"], [b"SET", b"k", b"v"], reply, (b"k",), 0)
    client.queue.append(slot)
    return slot


def test_a_push_leaves_at_once_ahead_of_replies_that_wait_and_behind_those_that_are_ready() -> None:
    client, socket = _client()
    client.answer(b"+READY\r\n")
    slot = _waiting(client, b"+OK\r\n")
    client.answer(b"$4\r\nlast\r\n")
    push(client, b">1\r\n+told\r\n")
    assert b"".join(socket.written) == b"+READY\r\n>1\r\n+told\r\n"
    slot.done = True
    client.drain()
    assert b"".join(socket.written) == b"+READY\r\n>1\r\n+told\r\n+OK\r\n$4\r\nlast\r\n"


def test_a_frame_in_order_follows_every_reply_that_was_asked_for_before() -> None:
    client, socket = _client()
    slot = _waiting(client, b"+OK\r\n")
    push_in_order(client, b">1\r\n+told\r\n")
    assert socket.written == []
    slot.done = True
    client.drain()
    assert b"".join(socket.written) == b"+OK\r\n>1\r\n+told\r\n"
    push_in_order(client, b">1\r\n+more\r\n")
    assert socket.written[-1] == b">1\r\n+more\r\n"


def test_nothing_is_written_to_a_connection_that_closes() -> None:
    client, socket = _client()
    client.state.closing = True
    for send in (push, push_in_order):
        send(client, b">1\r\n+told\r\n")
    client.state.closing = False
    socket.close()
    for send in (push, push_in_order):
        send(client, b">1\r\n+told\r\n")
    assert socket.written == []
    assert not client.queue


def test_a_connection_that_waits_for_ever_does_not_gather_for_ever() -> None:
    client, socket = _client()
    _waiting(client, b":0\r\n")
    for _ in range(pushes.WAITING_MAX):
        push_in_order(client, b"x")
    assert socket.closed
    assert len(client.queue) == pushes.WAITING_MAX


def test_what_gathers_behind_a_command_that_does_not_end_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pushes, "OUTPUT_BYTES_MAX", 1000)
    client, socket = _client()
    for _ in range(20):  # nothing gathers where nobody waits
        push_in_order(client, bytes(100))
    _waiting(client, b":0\r\n")
    for _ in range(10):
        push_in_order(client, bytes(100))
    assert not socket.closed
    push_in_order(client, b"x")
    assert socket.closed
