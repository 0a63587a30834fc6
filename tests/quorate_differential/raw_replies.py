"""Replies as the bytes they are, cut from a socket and not decoded: nothing is smoothed over."""

import socket
from collections.abc import Sequence
from typing import Self

_AGGREGATES = {b"*": 1, b"~": 1, b">": 1, b"%": 2}


def encode_command(args: Sequence[bytes]) -> bytes:
    """The words of a command as a client sends them."""
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args)


def reply_end(data: bytes, at: int = 0) -> int:
    """Where the reply that starts at `at` ends; -1 when it is not all there."""
    left = 1
    while left:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return -1
        kind, text = data[at : at + 1], data[at + 1 : line_end]
        at = line_end + 2
        left -= 1
        if kind in (b"$", b"=") and text != b"-1":
            at += int(text) + 2
        elif kind in _AGGREGATES and text != b"-1":
            left += int(text) * _AGGREGATES[kind]
    return at if at <= len(data) else -1


class RawConnection:
    """A blocking client connection that answers raw replies."""

    def __init__(self, host: str, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._data = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, stream: bytes) -> None:
        """Send bytes of any kind and leave it at that."""
        self._socket.sendall(stream)

    def ask(self, args: Sequence[bytes]) -> bytes:
        """The reply to one command."""
        return self.ask_all([args])[0]

    def ask_all(self, commands: Sequence[Sequence[bytes]]) -> list[bytes]:
        """The replies to commands sent in one go."""
        self._socket.sendall(b"".join(map(encode_command, commands)))
        return [self.read() for _ in commands]

    def exchange(self, stream: bytes, half_close: bool = True) -> bytes:
        """Send bytes of any kind, then the end of the stream: all that comes until it is closed.

        Without `half_close` it is the other side that has to find a reason to close.
        """
        self._socket.sendall(stream)
        if half_close:
            self._socket.shutdown(socket.SHUT_WR)
        received = [self._data]
        try:
            while data := self._socket.recv(1 << 16):
                received.append(data)
        except ConnectionResetError:
            pass  # it had stopped reading: what came before that counts
        return b"".join(received)

    def read(self) -> bytes:
        while (end := reply_end(self._data)) < 0:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError(f"closed with {self._data[:80]!r} pending")
            self._data += data
        reply, self._data = self._data[:end], self._data[end:]
        return reply
