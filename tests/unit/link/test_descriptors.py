"""A link's file descriptor is closed once: the number may be another connection's already."""

import asyncio
import logging
import socket

import pytest

from quorate_loopback.sides import HOST, Side, reset
from quorate_loopback.waiting import until


def test_an_endpoint_that_is_closed_while_a_connection_is_taken_closes_it_once(run) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen()
        endpoint = client.open()
        connect, taken = endpoint.hosts.connect, asyncio.Event()
        found: list[socket.socket] = []
        closing: list[asyncio.Task[None]] = []

        async def connect_then_close(host: str, port: int, bound_s: float) -> socket.socket:
            """The endpoint is closed between `connect` and the transport's `connection_made`."""
            found.append(await connect(host, port, bound_s))
            closing.append(asyncio.create_task(endpoint.close()))
            taken.set()
            return found[0]

        endpoint.hosts.connect = connect_then_close
        endpoint.dial(HOST, port)
        await taken.wait()
        await closing[0]

        assert found[0].fileno() == -1, "the socket would close the number again with its object"
        assert client.heard == []

    run(scenario)


def test_connections_that_are_reset_before_they_are_taken_are_closed_once(run) -> None:
    """As those to a process that was killed while it had them in its backlog."""

    async def scenario() -> None:
        server = socket.create_server((HOST, 0))
        endpoint = Side("", role="master").open()
        connect = endpoint.hosts.connect
        found: list[socket.socket] = []

        async def connect_to_be_reset(host: str, port: int, bound_s: float) -> socket.socket:
            found.append(await connect(host, port, bound_s))
            accepted, _ = server.accept()
            reset(accepted)
            return found[-1]

        endpoint.hosts.connect = connect_to_be_reset
        endpoint.dial(HOST, server.getsockname()[1])
        await until(lambda: len(found) == 4, "further connections")
        await endpoint.close()
        server.close()

        assert [each.fileno() for each in found] == [-1] * len(found)

    run(scenario)


def test_a_dialer_goes_on_after_a_defect_and_says_so(run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("", role="master")
        port = await server.listen()
        endpoint = client.open()
        connect, defects = endpoint.hosts.connect, [ValueError("a defect")]

        async def connect_later(host: str, port: int, bound_s: float) -> socket.socket:
            if defects:
                raise defects.pop()
            return await connect(host, port, bound_s)

        endpoint.hosts.connect = connect_later
        endpoint.dial(HOST, port)
        await until(lambda: client.count("up", "agent-1"))

    with caplog.at_level(logging.ERROR):
        run(scenario)

    assert [each.getMessage().partition(":")[0] for each in caplog.records] == [f"dialing {HOST}"]
