"""Damaging one copy on purpose, so that one can see a validation find it.

Only an agent started with --debug-commands does it; the value is changed behind the protocol's back
in that one copy, which nobody notices until the copies are compared.
"""

import socket

from quorate.facts.errors import WireError
from quorate.protocol.messages import FORMAT_VERSION, Hello, Message, Refused
from quorate.protocol.tool_messages import Damage, Damaged
from quorate.wire.frames import FrameReader, encode_frame
from quorate_cli.problem import Problem, words

TIMEOUT_S = 10.0
RECEIVE_BYTES = 64 * 1024


def damage_copy(
    host: str, port: int, cluster: str, node: str, zone: str, key: bytes, value: bytes
) -> None:
    """Overwrite `key` in the copy that agent `node` (peer port host:port) has, and nowhere else."""
    where = f"{node} at {host}:{port}"
    reader = FrameReader()
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection:
            connection.sendall(encode_frame(Hello(FORMAT_VERSION, "tool", cluster)))
            hello = _next(connection, reader, where)
            if not isinstance(hello, Hello) or hello.node != node:
                raise Problem(f"{where} is another process now: look at `quorate dev status`")
            connection.sendall(encode_frame(Damage(zone, key, value)))
            answer = _next(connection, reader, where)
    except TimeoutError as error:
        raise Problem(f"{where} did not answer within {TIMEOUT_S:g} s: is it frozen?") from error
    except OSError as error:
        raise Problem(f"{where} cannot be reached: {words(error)}") from error
    except WireError as error:
        raise Problem(f"{where} answered what is no message: {error}") from error
    if not isinstance(answer, Damaged):
        raise Problem(f"{where} answered {type(answer).__name__}, which is no answer to Damage")
    if answer.problem:
        raise Problem(f"{where}: {answer.problem}")


def _next(connection: socket.socket, reader: FrameReader, where: str) -> Message:
    while True:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise Problem(f"{where} closed the connection: its log says why")
        for message in reader.feed(data):
            if isinstance(message, Refused):
                raise Problem(f"{where} refused: {message.reason}")
            return message
