"""Connections of HTTP whose descriptors are closed once.

aiohttp makes a socket and hands it to the event loop.  uvloop closes the descriptor by itself, and
tells the socket's object only if the connection lasts until it has taken it.  One that is reset
before, as by a load balancer without an API server behind it, leaves an object that closes the
number again at its end: by then it may be that of an agent's link, or of a file.
"""

import socket
from typing import Any

import aiohttp


class _HandedSocket(socket.socket):
    """A socket whose descriptor the event loop closes; the end of the object does not."""

    def __del__(self) -> None:
        self.detach()


def connector(**options: Any) -> aiohttp.TCPConnector:
    """Return a connector with aiohttp's options that makes such sockets."""
    return aiohttp.TCPConnector(socket_factory=_made, **options)


def _made(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    return _HandedSocket(family, kind, protocol)
