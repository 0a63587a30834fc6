"""Replies are made as their client reads them, and no faster."""

import asyncio
import socket

import pytest
import uvloop

from quorate_agent.clients.connection import QUEUE_BYTES_MAX, UNREAD_BYTES_MAX, ClientConnection
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import Agent

SIZE = 300_000
TIMES = 60
KERNEL_BYTES = 64 * 1024


async def _until(agent: Agent, count: int, replies: list[bytes], reader: socket.socket) -> None:
    """Turns, and reads, until so many bytes have come."""
    loop = asyncio.get_running_loop()
    while sum(map(len, replies)) < count:
        replies.append(await loop.sock_recv(reader, 1 << 16))
        assert replies[-1], "the connection was closed"
        agent.turn()


async def _turns(agent: Agent) -> None:
    for _ in range(50):
        await asyncio.sleep(0.001)
        agent.turn()


async def _story(commands: list[list[bytes]], expected: bytes) -> tuple[int, ClientConnection]:
    """Send these and read nothing, then all; the most that waited for the client."""
    agent = Agent(64 << 20)
    value = bytes(SIZE)
    agent.write(b"SET", b"k", value)
    here, there = socket.socketpair()
    for each in (here, there):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        each.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, client = await loop.connect_accepted_socket(
        lambda: ClientConnection(agent.endpoint), sock=there
    )
    await loop.sock_sendall(here, b"".join(map(encode_command, commands)))
    waited = 0
    for _ in range(5):
        await _turns(agent)
        waited = max(waited, client.held_bytes())
    held = agent.endpoint.memory.held
    replies: list[bytes] = []
    async with asyncio.timeout(60):
        await _until(agent, len(expected), replies, here)
    assert b"".join(replies) == expected
    assert held >= UNREAD_BYTES_MAX
    agent.endpoint.memory.keep()
    assert agent.endpoint.memory.held == 0
    transport.abort()
    await asyncio.sleep(0)
    here.close()
    return waited, client


GET = [b"GET", b"k"]
ABSENT = [b"GET", b"none"]
BULK = b"$%d\r\n%b\r\n" % (SIZE, bytes(SIZE))


@pytest.mark.parametrize(
    ("round_", "replies"),
    [
        ([GET, GET], BULK * 2),
        ([GET, ABSENT], BULK + b"$-1\r\n"),
        ([GET, [b"STRLEN", b"k"]], BULK + b":%d\r\n" % SIZE),
        ([GET, [b"SET", b"other", b"x"]], BULK + b"+OK\r\n"),
    ],
    ids=["gets", "absent", "others", "writes"],
)
def test_a_pipeline_of_long_replies_goes_on_as_it_is_read(
    round_: list[list[bytes]], replies: bytes
) -> None:
    waited, client = uvloop.run(_story(round_ * TIMES, replies * TIMES))

    behind_writes = QUEUE_BYTES_MAX if b"+OK" in replies else 0
    assert waited <= UNREAD_BYTES_MAX + behind_writes + 4 * len(BULK)
    assert client.blocked == 0
