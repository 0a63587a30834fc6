"""A link's file descriptor is closed once: the number may be another connection's already."""

import asyncio
import socket

from quorate_loopback.sides import HOST, Side


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
