"""An endpoint's listening socket, on a free port of the loopback interface."""

import socket

from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_agent.machine.descriptors import Descriptors


def listening_socket() -> socket.socket:
    """A socket that listens on a free port."""
    made = socket.create_server(("127.0.0.1", 0))
    made.setblocking(False)
    return made


async def listen(endpoint: ZoneEndpoint, descriptors: Descriptors | None = None) -> int:
    """Let the endpoint take in clients; its port.  Without `descriptors` there is always room."""
    room = descriptors or Descriptors(1 << 16)
    return await endpoint.listen("127.0.0.1", [listening_socket()], room)
