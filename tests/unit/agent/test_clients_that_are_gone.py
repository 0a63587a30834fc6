"""Clients that end, over real sockets: nothing is executed for them later, and no turn fails."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from quorate.facts.keyspace import key_partition
from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import Row
from quorate_agent.clients.connection import BACKLOG_MAX, QUEUE_MAX, ClientConnection, Slot
from quorate_agent.clients.turn_share import TurnShare
from quorate_agent.commands import endpoint
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import Agent
from quorate_loopback.waiting import until

GET, SET = encode_command([b"GET", b"k"]), encode_command([b"SET", b"k", b"late"])
Story = Callable[[socket.socket, ClientConnection], Awaitable[None]]


def _role(agent: Agent) -> Primary:
    role = agent.replicas.primaries[key_partition(b"k", 4)]
    assert role is not None
    return role


def _play(agent: Agent, story: Story, run: Any = uvloop.run) -> None:
    """Tell `story` of the two ends of a connection."""

    async def connected() -> None:
        here, there = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(
            lambda: ClientConnection(agent.endpoint), sock=there
        )
        here.setblocking(False)
        with here:
            async with asyncio.timeout(20):
                await story(here, client)
        transport.abort()
        await asyncio.sleep(0)

    run(connected())


async def _send(agent: Agent, here: socket.socket, words: bytes) -> None:
    """And let the agent read it, as far as it reads."""
    await asyncio.get_running_loop().sock_sendall(here, words)
    for _ in range(3):
        await asyncio.sleep(0.001)
        agent.endpoint.settle()


async def _read_all(here: socket.socket) -> bytes:
    """To the end of the connection."""
    read, loop = b"", asyncio.get_running_loop()
    while piece := await loop.sock_recv(here, 1 << 16):
        read += piece
    return read


async def _until(agent: Agent, condition: Callable[[], bool]) -> None:
    def is_settled() -> bool:
        agent.endpoint.settle()
        return condition()

    await until(is_settled)


@pytest.mark.parametrize("how", ["lease lapsed", "role ended"])
@pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_reads_of_one_that_was_reset_while_its_socket_was_not_read(
    agent: Agent, run: Any, how: str
) -> None:
    role = _role(agent)
    agent.writer().ask(b"SET", b"k", b"1")
    agent.written()

    async def story(here: socket.socket, client: ClientConnection) -> None:
        while len(client.queue) <= QUEUE_MAX or not client.paused:
            await _send(agent, here, GET * 100)
        client.transport.abort()  # as when a write finds that the client is gone
        await _until(agent, lambda: client.state.id not in agent.endpoint._clients)
        if how == "lease lapsed":
            agent.replicas.give_up(role.take_clients())
        else:
            agent.replicas.end_role(role)
        agent.endpoint.settle()
        assert not agent.endpoint.parking

    _play(agent, story, run)


def test_a_write_of_one_that_was_reset_is_not_tried_again(agent: Agent) -> None:
    """SETNX waits as a read does, for somebody's write, which is lost."""
    agent.writer().ask(b"SET", b"k", b"1")
    agent.written()
    client = agent.writer()
    assert client.ask(b"SETNX", b"k", b"late") == []
    client.leave()
    role = _role(agent)
    agent.replicas.end_role(role)
    agent.endpoint.settle()
    role.copy.put(b"k", Row(0, 0, 0, None))
    agent.give(agent.me, range(4))
    agent.turn()
    assert agent.writer().ask(b"GET", b"k") == [None]


@pytest.mark.parametrize("count", [100, BACKLOG_MAX + 200, 3 * BACKLOG_MAX])
def test_what_waited_for_long_is_not_executed_also_where_the_end_was_not_read(
    agent: Agent, count: int
) -> None:
    async def story(here: socket.socket, client: ClientConnection) -> None:
        await _send(agent, here, encode_command([b"WAIT", b"1", b"0"]))
        await _until(agent, lambda: client.blocked > 0)
        for _ in range(count // 100):
            await _send(agent, here, SET * 100)
        assert client.paused is (count > BACKLOG_MAX)
        agent.clock.ahead_ms = 1_500
        here.close()  # its time limit is over
        (waiting,) = client.queue
        assert isinstance(waiting, Slot)
        if not client.paused:
            await _until(agent, lambda: client.half_closed_ms > 0)
        agent.endpoint.answers.fulfil(client, waiting, b":0\r\n")
        await _until(agent, client.transport.is_closing)

    _play(agent, story)
    agent.turn()
    assert agent.writer().ask(b"GET", b"k") == [None]


def test_a_half_closed_client_whose_commands_take_long_is_answered(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closed its side behind the last of them, before its socket was read to the end."""
    count = 20 * endpoint.QUANTUM

    async def story(here: socket.socket, client: ClientConnection) -> None:
        here.sendall(GET * count)
        here.shutdown(socket.SHUT_WR)
        await until(lambda: client.paused, "client that is not read")
        with monkeypatch.context() as others_first:
            others_first.setattr(TurnShare, "takes", lambda *_: False)
            agent.endpoint.settle()
        assert client.backlog
        agent.clock.ahead_ms = 2_000
        await _until(agent, client.transport.is_closing)
        assert await _read_all(here) == b"$-1\r\n" * count

    _play(agent, story)


def test_every_command_of_a_half_closed_client_is_answered_also_what_was_not_read(
    agent: Agent,
) -> None:
    """`cat commands | nc -N`, of which the first has to wait for a primary."""
    role, count, read = _role(agent), 3_000, b""
    until, role.serving_until = role.serving_until, 0

    async def story(here: socket.socket, client: ClientConnection) -> None:
        nonlocal read
        for _ in range(count // 100):
            await _send(agent, here, SET * 100)
        assert client.paused
        here.shutdown(socket.SHUT_WR)
        role.serving_until = until
        while True:
            agent.turn()
            await asyncio.sleep(0.001)
            try:
                piece = here.recv(1 << 16)
            except BlockingIOError:
                continue
            if not piece:
                return
            read += piece

    _play(agent, story)
    assert read.split(b"\r\n")[:-1] == [b"-CLUSTERDOWN Hash slot not served"] * count
    assert agent.writer().ask(b"GET", b"k") == [None]
