"""Asking one agent something as a tool, over its peer port."""

import socket
from typing import TypeVar

from quorate.facts.errors import WireError
from quorate.protocol.messages import FORMAT_VERSION, Hello, Message, Refused
from quorate.wire.frames import FrameReader, encode_frame
from quorate_cli.problem import Problem, words

TIMEOUT_S = 10.0
RECEIVE_BYTES = 64 * 1024

Answer = TypeVar("Answer")


class Unreached(Problem):
    """The agent did not answer: it may be restarting."""


def ask_agent(
    host: str, port: int, cluster: str, node: str, question: Message, kind: type[Answer]
) -> Answer:
    """The answer of agent `node` at its peer port, on a connection of its own."""
    where = f"{node} at {host}:{port}"
    reader = FrameReader()
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection:
            connection.sendall(encode_frame(Hello(FORMAT_VERSION, "tool", cluster)))
            hello = _next(connection, reader, where)
            if not isinstance(hello, Hello) or hello.node != node:
                raise Problem(f"{where} is another process now: look at `quorate status`")
            connection.sendall(encode_frame(question))
            answer = _next(connection, reader, where)
    except TimeoutError as error:
        raise Unreached(f"{where} did not answer within {TIMEOUT_S:g} s: is it frozen?") from error
    except OSError as error:
        raise Unreached(f"{where} cannot be reached: {words(error)}") from error
    except WireError as error:
        raise Problem(f"{where} answered what is no message: {error}") from error
    if not isinstance(answer, kind):
        asked, told = type(question).__name__, type(answer).__name__
        raise Problem(f"{where} answered {told}, which is no answer to {asked}")
    return answer


def _next(connection: socket.socket, reader: FrameReader, where: str) -> Message:
    while True:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise Unreached(f"{where} closed the connection: its log says why")
        for message in reader.feed(data):
            if isinstance(message, Refused):
                raise Problem(f"{where} refused: {message.reason}")
            return message
