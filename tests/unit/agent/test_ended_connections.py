"""How connections end when their agent does: as an end, never as a fault."""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from quorate_agent.clients import listener
from quorate_agent.clients.listener import GOODBYE_S
from quorate_lone_agent.agent import OTHER, Agent
from quorate_lone_agent.listening import listen
from quorate_loopback.waiting import until

PING = b"*1\r\n$4\r\nPING\r\n"
GET = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
LONG_S = 20.0
"""A wait that no busy machine takes for what should not wait."""
TIMER_S = 0.005
"""A timer may be this early: uvloop counts whole milliseconds from the last look at the clock."""


async def _ended(
    agent: Agent,
    said: bytes,
    *,
    is_read: bool = True,
    at_once: bool = False,
    may_close: Callable[[], bool] = lambda: True,
) -> tuple[bytes, float]:
    """What a client reads to the end that said this just before its agent closed, and how long the
    close took.  Who does not read stays.  `may_close`: when to; by default what the client said
    last is still unread, for the loop has no turn before."""
    loop = asyncio.get_running_loop()
    port = await listen(agent.endpoint)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(PING)
        assert await loop.run_in_executor(None, client.recv, 100) == b"+PONG\r\n"
        reading = loop.run_in_executor(None, _read_all, client) if is_read else None
        client.sendall(said)
        await until(may_close)
        began = time.monotonic()
        await agent.endpoint.close(at_once=at_once)
        took = time.monotonic() - began
        return await reading if reading else b"", took


def _read_all(client: socket.socket) -> bytes:
    read = b""
    while piece := client.recv(100):
        read += piece
    client.close()
    return read


def test_words_that_came_too_late_are_not_answered_and_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "GOODBYE_S", LONG_S)
    read, took = uvloop.run(_ended(Agent(), GET * 3))

    assert read == b""
    assert took < LONG_S


@pytest.mark.parametrize("said", [b"", GET, GET[:-3]], ids=["nothing", "a command", "a part"])
@pytest.mark.timeout(30)  # the deadline of the wait
def test_who_does_not_close_is_not_waited_for_long(said: bytes) -> None:
    _, took = uvloop.run(_ended(Agent(), said, is_read=False))

    assert took >= GOODBYE_S - TIMER_S


def test_one_that_waits_for_a_reply_hears_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "GOODBYE_S", LONG_S)
    agent = Agent()
    agent.up.discard(OTHER.node)
    agent.give(OTHER, range(4))

    read, took = uvloop.run(_ended(agent, GET * 3, may_close=lambda: bool(agent.endpoint.parking)))

    assert read == b""
    assert took < LONG_S
    assert not agent.endpoint.overview.clients


def test_one_that_was_not_read_any_more_hears_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "GOODBYE_S", LONG_S)
    agent = Agent()

    def paused() -> bool:
        for client in agent.endpoint._clients.values():
            client.pause()
        return True

    read, took = uvloop.run(_ended(agent, GET * 3, may_close=paused))

    assert read == b""
    assert took < LONG_S


def test_nothing_is_said_when_what_is_held_may_be_wrong() -> None:
    with pytest.raises(ConnectionResetError):
        uvloop.run(_ended(Agent(), GET, at_once=True))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_whose_machine_is_gone_is_asked_whether_it_is_there(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def options() -> list[int]:
        agent = Agent()
        port = await listen(agent.endpoint)
        with socket.create_connection(("127.0.0.1", port)):
            await until(lambda: agent.endpoint._clients)
            (client,) = agent.endpoint._clients.values()
            raw = client.transport.get_extra_info("socket")
            tcp = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            asked = raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            said = [asked, *(raw.getsockopt(socket.IPPROTO_TCP, option) for option in tcp)]
            await agent.endpoint.close(at_once=True)
            return said

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(options()) == [1, 60, 20, 3]
