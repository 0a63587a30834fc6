"""Descriptors of HTTP connections are closed once, by the event loop."""

import asyncio
import gc
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import aiohappyeyeballs
import aiohttp
import pytest
import uvloop
from aiohttp import web

from quorate_loopback.sides import reset
from quorate_operator.kube import sockets

DEADLINE_S = 60
Run = Callable[..., object]


@pytest.fixture
def resetting() -> Iterator[int]:
    """The port of a server that resets each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # it is shut down
            while True:
                accepted, _ = listener.accept()
                reset(accepted)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_a_number_that_uvloop_has_closed_is_not_closed_again(
    resetting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another connection's by then.  uvloop does not tell the object in each case."""
    numbers: list[int] = []

    class Recorded(sockets._HandedSocket):
        def __del__(self) -> None:
            number = self.fileno()
            super().__del__()
            if number != -1:
                numbers.append(self.fileno())  # which is closed with the object

    async def ask() -> None:
        context = ssl.create_default_context()
        deadline = time.monotonic() + DEADLINE_S
        async with aiohttp.ClientSession(connector=sockets.connector(ssl=context)) as session:
            while not numbers and time.monotonic() < deadline:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"https://127.0.0.1:{resetting}/"):
                        pass

    connect = aiohappyeyeballs.start_connection

    async def connect_and_be_reset(*given: Any, **options: Any) -> socket.socket:
        made = await connect(*given, **options)
        made.setblocking(True)
        with suppress(ConnectionResetError):
            made.recv(1)
        made.setblocking(False)
        return made

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", connect_and_be_reset)
    monkeypatch.setattr(sockets, "_HandedSocket", Recorded)
    uvloop.run(ask())
    gc.collect()

    assert numbers, "no connection was reset in the moment that this is about"
    assert {*numbers} == {-1}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_a_loop_has_taken_is_closed_by_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Kept(sockets._HandedSocket):
        def __init__(self, *options: int) -> None:
            super().__init__(*options)
            made.append(self)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here")

    async def ask() -> str:
        app = web.Application()
        app.add_routes([web.get("/", answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with (
            aiohttp.ClientSession(connector=sockets.connector()) as session,
            session.get(f"http://127.0.0.1:{port}/") as answered,
        ):
            text = await answered.text()
        await runner.cleanup()
        return text

    monkeypatch.setattr(sockets, "_HandedSocket", Kept)

    assert run(ask()) == "here"
    assert [each.fileno() for each in made] == [-1]
