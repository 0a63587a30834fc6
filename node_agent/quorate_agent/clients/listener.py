"""Where a zone's clients connect, and how their connections end with it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from typing import Protocol, cast

from quorate_agent.clients.connection import ClientConnection
from quorate_agent.clients.connection import Endpoint as OfCommands
from quorate_agent.clients.ports import BACKLOG
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.machine.lasting import lasts
from quorate_agent.resp.replies import error

GOODBYE_S = 0.3
"""Clients may take so long to notice that their connection ends."""

_GOODBYE_POLL_S = 0.01

_TOO_MANY = error(b"ERR max number of clients reached")
_NO_ADDRESS = error(
    b"CLUSTERDOWN The external address of this agent is not known yet; look at the conditions of"
    b" its StorageCluster"
)


class Endpoint(OfCommands, Protocol):
    """Where the commands of clients go."""

    def has_address(self, external: bool) -> bool:
        """Whether clients of this listener can be told where they are."""


class _CountedClient(ClientConnection):
    """A client for which a descriptor is counted."""

    __slots__ = ("_descriptors",)

    def __init__(self, endpoint: Endpoint, descriptors: Descriptors, external: bool) -> None:
        super().__init__(endpoint, external)
        self._descriptors = descriptors

    def connection_lost(self, exc: Exception | None) -> None:
        """Its descriptor is free."""
        self._descriptors.client_gone()
        super().connection_lost(exc)


class _RefusedClient(asyncio.Protocol):
    """A client that cannot be served, for which no descriptor is left, say: it is told so, as Redis
    tells it."""

    def __init__(self, why: bytes = _TOO_MANY) -> None:
        self._why = why

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so and hang up."""
        refused = cast(asyncio.Transport, transport)
        refused.write(self._why)
        refused.close()


class Listener:
    """The listening sockets of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._servers: list[asyncio.Server] = []
        self._closed = False

    async def listen(
        self, sockets: Sequence[socket.socket], port: int, descriptors: Descriptors
    ) -> None:
        """Take in clients on these sockets, which listen already, as many as there is room for.

        Sockets on another port than `port` are the external listener: behind a Service the address
        that a client has dialed cannot be seen here."""
        loop = asyncio.get_running_loop()

        def make(external: bool) -> asyncio.Protocol:
            if not self._endpoint.has_address(external):
                return _RefusedClient(_NO_ADDRESS)
            if descriptors.take_client():
                return _CountedClient(self._endpoint, descriptors, external)
            return _RefusedClient()

        for each in sockets:
            is_external = each.getsockname()[1] != port
            server = await loop.create_server(
                partial(make, is_external), sock=each, backlog=BACKLOG
            )
            self._servers.append(server)
            if self._closed:  # the zone was deleted meanwhile
                server.close()

    async def close(self, clients: Sequence[ClientConnection], *, at_once: bool) -> None:
        """Stop listening and end these connections; `at_once`: nothing more is said to anybody."""
        self._closed = True
        for server in self._servers:
            server.close()
        if not at_once:
            await _end_all(clients)
        for client in clients:
            client.transport.abort()
        for server in self._servers:
            await server.wait_closed()


async def _end_all(clients: Sequence[ClientConnection]) -> None:
    """End connections so that clients take it for an end, and wait a moment until they have: with
    words of theirs unread, the kernel would reset the connection, and some libraries fail what they
    wrote last on it instead of repeating it elsewhere."""
    for client in clients:
        client.say_goodbye()
    await lasts(
        lambda: not all(client.transport.is_closing() for client in clients),
        GOODBYE_S,
        _GOODBYE_POLL_S,
    )
