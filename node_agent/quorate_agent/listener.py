"""Where a zone's clients connect, and how their connections end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from quorate_agent.client import ClientConnection, Endpoint
from quorate_agent.lasting import lasts

GOODBYE_S = 0.3
"""Clients may take so long to notice that their connection ends."""

_GOODBYE_POLL_S = 0.01


class Listener:
    """The listening socket of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._server: asyncio.Server | None = None
        self._closed = False

    async def listen(self, host: str, ports: Iterable[int]) -> int:
        """Listen on the first of `ports` that is free; OSError when none is."""
        self._server = await self._on_the_first(host, ports)
        port: int = self._server.sockets[0].getsockname()[1]
        if self._closed:  # the zone was deleted meanwhile
            self._server.close()
        return port

    async def close(self, clients: Sequence[ClientConnection], *, at_once: bool) -> None:
        """Stop listening and end these connections; `at_once`: nothing more is said to anybody."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        if not at_once:
            await _end_all(clients)
        for client in clients:
            client.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    async def _on_the_first(self, host: str, ports: Iterable[int]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        error: OSError | None = None
        for port in ports:
            try:
                return await loop.create_server(
                    lambda: ClientConnection(self._endpoint), host, port, backlog=1024
                )
            except OSError as problem:
                error = problem
        raise error or OSError("no port to try")


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
