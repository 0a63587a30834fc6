"""A zone's listening sockets for clients, and how their connections are closed with the zone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from typing import Protocol, cast

from quorate_agent.clients.connection import ClientConnection
from quorate_agent.clients.connection import ClientEndpoint as OfCommands
from quorate_agent.clients.ports import BACKLOG
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.machine.lasting import lasts
from quorate_agent.resp.replies import error

GOODBYE_S = 0.3
"""How long clients are given to notice that their connection ends."""

_GOODBYE_POLL_S = 0.01

_TOO_MANY = error(b"ERR max number of clients reached")
_NO_ADDRESS = error(
    b"CLUSTERDOWN The external address of this agent is not known yet; see the conditions of"
    b" its StorageCluster"
)


class ListeningEndpoint(OfCommands, Protocol):
    """The zone's endpoint, as a listener needs it."""

    def has_address(self, external: bool) -> bool:
        """Return whether the address at which this listener's clients reach this agent is known."""


class _CountedClient(ClientConnection):
    """A client that counts as one file descriptor."""

    __slots__ = ("_descriptors",)

    def __init__(
        self, endpoint: ListeningEndpoint, descriptors: Descriptors, external: bool
    ) -> None:
        super().__init__(endpoint, external)
        self._descriptors = descriptors

    def connection_lost(self, exc: Exception | None) -> None:
        """Free its descriptor."""
        self._descriptors.client_gone()
        super().connection_lost(exc)


class _RefusedClient(asyncio.Protocol):
    """A client that cannot be served, for example for lack of descriptors; it is told why, as by
    Redis."""

    def __init__(self, why: bytes = _TOO_MANY) -> None:
        self._why = why

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the reason and close."""
        refused = cast(asyncio.Transport, transport)
        refused.write(self._why)
        refused.close()


class Listener:
    """The listening sockets of one endpoint."""

    def __init__(self, endpoint: ListeningEndpoint) -> None:
        self._endpoint = endpoint
        self._servers: list[asyncio.Server] = []
        self._closed = False

    async def listen(
        self, sockets: Sequence[socket.socket], port: int, descriptors: Descriptors
    ) -> None:
        """Accept clients on these sockets, which listen already, as far as descriptors allow.

        Sockets on another port than `port` belong to the external listener: behind a Service, the
        agent cannot see which address a client has dialed."""
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
        """Stop listening and end these connections; with `at_once`, without an orderly end."""
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
    """Close connections in an orderly way, and wait a moment until the clients have closed too.

    Closing a socket with unread bytes resets the connection; some libraries then fail their last
    writes instead of repeating them at another agent."""
    for client in clients:
        client.say_goodbye()
    await lasts(
        lambda: not all(client.transport.is_closing() for client in clients),
        GOODBYE_S,
        _GOODBYE_POLL_S,
    )
