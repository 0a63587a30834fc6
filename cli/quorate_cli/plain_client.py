"""A Redis Cluster client for people, used by `quorate cli` on machines without redis-cli.

It follows MOVED like `redis-cli -c`, except in a transaction: its commands belong to the agent that
received MULTI.
"""

import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from quorate.facts.addresses import join_address, split_address
from quorate_cli.terminal.problem import Problem, words

REDIRECTS_MAX = 16
CONNECT_S = 5.0
_WORD = re.compile(rb"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\'|[^'])*)'|([^\s"']+))(?=\s|$)""")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_MOVED = re.compile(rb"MOVED \d+ (.+):(\d+)")


class ErrorReply(NamedTuple):
    """An error reply, as the agent worded it."""

    text: bytes


class PlainClient:
    """Gives commands to one zone, one after the other, and prints the replies.

    `reply_s`: seconds to wait for a reply.  None: no limit, for a person, who can end the wait by
    Ctrl-C; some commands wait on purpose.
    """

    def __init__(
        self,
        host: str,
        port: int,
        output: BinaryIO,
        is_terminal: bool,
        reply_s: float | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._reply_s = reply_s
        self._output = output
        self._is_terminal = is_terminal
        self._connection: socket.socket | None = None
        self._replies: BinaryIO | None = None
        self._in_transaction = False

    def run(self, command: list[bytes]) -> bool:
        """Execute one command and print its reply; return False if the reply is an error.

        Raises Problem if no reply came: the command may have been executed.
        """
        reply = self.ask(command)
        if command[0].upper() in (b"EXEC", b"DISCARD"):
            self._in_transaction = False
        if isinstance(reply, ErrorReply):
            _complain(reply.text.decode(errors="backslashreplace"))
            return False
        self._in_transaction |= command[0].upper() == b"MULTI"
        for line in self._lines(reply):
            self._output.write(line + b"\n")
        self._output.flush()
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._replies is not None:
            self._replies.close()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._replies = None

    @property
    def address(self) -> str:
        """Host and port of the agent that is asked next."""
        return join_address(self.host, self.port)

    def ask(self, command: list[bytes]) -> object:
        """Execute one command and return its reply, which may be an ErrorReply.

        Raises Problem if no reply came: the command may have been executed.
        """
        for _ in range(REDIRECTS_MAX):
            reply = self._reply_of_one_agent(command)
            moved = _MOVED.fullmatch(reply.text) if isinstance(reply, ErrorReply) else None
            if moved is None:
                return reply
            if self._in_transaction:
                return ErrorReply(
                    moved[0] + b": a transaction cannot follow a redirection; DISCARD it, read the"
                    b" key, and begin again from there"
                )
            self.close()
            self.host, self.port = moved[1].decode(), int(moved[2])
        raise Problem(f"redirected {REDIRECTS_MAX} times, at last to {self.address}")

    def _reply_of_one_agent(self, command: list[bytes]) -> object:
        if self._connection is None or self._replies is None:
            try:
                self._connection = socket.create_connection((self.host, self.port), CONNECT_S)
            except OSError as error:
                raise Problem(f"{self.address} cannot be reached: {words(error)}") from (error)
            self._connection.settimeout(self._reply_s)
            self._replies = self._connection.makefile("rb")
        try:
            self._connection.sendall(_request(command))
            return _read_reply(self._replies)
        except OSError as error:
            self.close()
            raise Problem(
                f"{self.address}: {words(error)}: whether {os.fsdecode(command[0])} was"
                " executed is unknown"
            ) from error

    def _lines(self, reply: object) -> Iterator[bytes]:
        match reply:
            case None:
                yield b"(nil)" if self._is_terminal else b""
            case bytes():
                yield reply
            case ErrorReply():  # of one command in a transaction
                yield b"(error) " + reply.text
            case list():
                for each in reply:
                    yield from self._lines(each)
            case _:
                yield str(reply).encode()


def _request(command: list[bytes]) -> bytes:
    parts = [b"*%d\r\n" % len(command)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in command]
    return b"".join(parts)


def _read_reply(file: BinaryIO) -> object:
    """Return the next reply in RESP2; raise OSError if it breaks off."""
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise OSError("the connection ended before the reply")
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest
        case b"-":
            return ErrorReply(rest)
        case b":":
            return int(rest)
        case b"$":
            return _read_bytes(file, int(rest))
        case b"*":
            return [_read_reply(file) for _ in range(int(rest))] if int(rest) >= 0 else None
        case _:
            raise OSError(f"the reply is not RESP2: {line[:40]!r}")


def _read_bytes(file: BinaryIO, count: int) -> bytes | None:
    if count < 0:
        return None
    data = file.read(count + 2)
    if len(data) != count + 2:
        raise OSError("the connection ended before the reply")
    return data[:-2]


def run(client: PlainClient, command: list[bytes]) -> bool:
    """Execute the command, or each line of standard input; return whether no reply was an error."""
    try:
        if command:
            return client.run(command)
        return run_lines(client, typed_lines(client) if sys.stdin.isatty() else sys.stdin.buffer)
    finally:
        client.close()


def main(arguments: list[str]) -> int:
    """Run `HOST:PORT [COMMAND …]`, as `kubectl quorate cli` does in a pod; return the exit code."""
    host, port = split_address(arguments[0])
    client = PlainClient(host, port, sys.stdout.buffer, sys.stdout.isatty())
    try:
        return 0 if run(client, [os.fsencode(word) for word in arguments[1:]]) else 1
    except (Problem, KeyboardInterrupt) as problem:
        _complain(f"quorate: {str(problem) or 'interrupted'}")
        return 1


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


def run_lines(client: PlainClient, lines: Iterable[bytes]) -> bool:
    """Execute one command per line; return False if any reply is an error."""
    is_well = True
    for line in lines:
        words = split_line(line)
        if words is None:
            _complain(f"quotes do not match: {line.rstrip().decode(errors='backslashreplace')}")
            is_well = False
        elif words and words[0].lower() in (b"quit", b"exit"):
            break
        elif words:
            is_well &= client.run(words)
    return is_well


def typed_lines(client: PlainClient) -> Iterator[bytes]:
    """Yield the lines that a person types at a prompt; ends with Ctrl-D."""
    while True:
        try:
            yield os.fsencode(input(f"{client.address}> "))
        except EOFError:
            return


def split_line(line: bytes) -> list[bytes] | None:
    """Return the words of a line, quoted as for redis-cli; None if quotes do not match."""
    words, at, end = [], 0, len(line.rstrip())
    while at < end:
        found = _WORD.match(line, at)
        if found is None:
            return None
        double, single, plain = found.groups()
        if double is not None:
            words.append(_ESCAPE.sub(_unescape, double))
        elif single is not None:
            words.append(single.replace(b"\\'", b"'"))
        else:
            words.append(plain)
        at = found.end()
    return words


def _unescape(found: re.Match[bytes]) -> bytes:
    what = found[1]
    return bytes.fromhex(what[1:].decode()) if len(what) == 3 else _ESCAPED.get(what, what)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
