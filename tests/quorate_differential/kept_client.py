"""A client's connection to an endpoint of this process: what it is sent, as hiredis reads it."""

from typing import Any

import hiredis

from quorate_agent.clients.connection import ClientConnection
from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_differential.kept_socket import KeptSocket
from quorate_differential.raw_replies import encode_command


class KeptClient:
    """One connection."""

    def __init__(self, endpoint: ZoneEndpoint, external: bool = False) -> None:
        self.socket = KeptSocket()
        self.connection = ClientConnection(endpoint, external)
        self.connection.connection_made(self.socket)
        self._reader = hiredis.Reader()

    def ask(self, *words: bytes) -> list[Any]:
        """Send a command; everything that has come by then."""
        return self.send(words)

    def send(self, *commands: tuple[bytes, ...]) -> list[Any]:
        """Send commands in one go; everything that has come by then."""
        self.connection.data_received(b"".join(map(encode_command, commands)))
        return self.told()

    def told(self) -> list[Any]:
        """Everything that has come since."""
        self._reader.feed(self.socket.take())
        found = []
        while (each := self._reader.gets()) is not False:
            found.append(each)
        return found

    def leave(self) -> None:
        """The connection ends."""
        self.connection.connection_lost(None)
