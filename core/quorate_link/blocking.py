"""The handshake over a blocking socket, for tools that do nothing else meanwhile."""

import socket
import time

from quorate_link.handshake import Handshake

RECEIVE_BYTES = 64 * 1024


def shake_hands(connection: socket.socket, handshake: Handshake, deadline_s: float) -> bytes | None:
    """Do the handshake, until `time.monotonic()` is `deadline_s` at the latest.

    Return the bytes that came behind it; None if the other side hung up. Raises OSError, WireError,
    Unproven.
    """
    rest: bytes | None = None
    while rest is None:
        if outgoing := handshake.take_outgoing():
            connection.sendall(outgoing)
        data = receive(connection, deadline_s)
        if not data:
            return None
        rest = handshake.feed(data)
    return rest


def receive(connection: socket.socket, deadline_s: float, bytes_max: int = RECEIVE_BYTES) -> bytes:
    """Return the next bytes. TimeoutError after the deadline.

    The deadline holds however many single bytes come; a time limit per call would begin anew with
    each.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    connection.settimeout(left_s)
    return connection.recv(bytes_max)
