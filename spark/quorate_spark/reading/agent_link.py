"""One connection to an agent's peer port: a question and its answer, within a time limit.

Plain blocking sockets: a Spark worker that reads a copy does nothing else.
"""

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from quorate.facts.addresses import NotAnAddress, read_address
from quorate.facts.errors import QuorateError, WireError
from quorate.protocol.messages.formats import unknown_in
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AnswerLater, AskPaced, Paced, PacedQuestion
from quorate.wire.frames import FrameReader, decoder_of, encode_frame
from quorate_link import RoleKeys
from quorate_link.blocking import receive, shake_hands
from quorate_link.handshake import Handshake, Unproven
from quorate_link.secret import read_secret

RECEIVE_BYTES = 256 * 1024
_NO_LINGER = struct.pack("ii", 1, 0)

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Received:
    """Bytes that agents have answered, by the agent's name; exact as long as one thread reads.

    `is_whole`: whether these are all that they have answered.
    """

    bytes_of: Counter[str] = field(default_factory=Counter)
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster whose copies are read: its name, a tool's keys, and the file they are from.

    `received`: what its agents have answered.
    """

    name: str
    keys: RoleKeys
    secret_file: str = ""
    received: Received = field(default_factory=Received, compare=False)

    def counting(self) -> "Cluster":
        """Return the same cluster, of which nothing was received yet."""
        return replace(self, received=Received())


def read_cluster(name: str, secret_file: str) -> Cluster:
    """Return the cluster of this name whose secret is in the file.  Raises SecretRefused."""
    return Cluster(name, read_secret(Path(secret_file)).keys("tool"), secret_file)


class Unreadable(QuorateError):
    """A copy, or an agent with its copies, could not be read; the message is one sentence."""


class TooOld(Unreadable):
    """An agent speaks a format that does not have the question: asking again does not help."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "host:port"; an IPv6 host is in brackets.  Raises Unreadable."""
    try:
        return read_address(text.strip())
    except NotAnAddress as error:
        raise Unreadable(f"agents: {error}") from error


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of "host:port,host:port".

    Raises Unreadable unless each is well-formed and named once.
    """
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    if not addresses:
        raise Unreadable("agents is empty: name the peer port of every agent, host:port,host:port")
    for address in addresses:
        parse_address(address)
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            raise Unreadable(f"agents: {address} is named twice: name every agent once")
    return addresses


class AgentLink:
    """A connection as a tool.  After an Unreadable it must be closed.

    `bytes_per_s`: the agent is asked to pace what is read over it (see AskPaced), before the first
    question that this concerns: others need no agent that can.
    """

    def __init__(
        self,
        address: str,
        cluster: Cluster,
        connect_timeout_s: float,
        answer_timeout_s: float,
        bytes_per_s: int | None = None,
    ) -> None:
        self._address = address
        self._answer_timeout_s = answer_timeout_s
        self._received_of = cluster.received.bytes_of
        self._bytes_per_s = bytes_per_s
        """As long as the agent was not asked for it."""
        self._frames = FrameReader(decode=decoder_of("agent", "tool"))
        self._received: list[Message] = []
        try:
            self._socket = socket.create_connection(parse_address(address), connect_timeout_s)
        except OSError as error:
            raise Unreadable(
                f"agent at {address} cannot be reached ({_words(error)}): is it running, and is"
                " this its peer port?"
            ) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.agent = self._greet(cluster)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._socket.close()

    def abort(self) -> None:
        """Close the connection, so that the kernel delivers nothing that is still unsent."""
        # The socket may be closed already.
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._socket.close()

    @property
    def name(self) -> str:
        """The agent's name in sentences."""
        return f"agent {self.agent.node} at {self._address}"

    def knows(self, question: type[Message]) -> bool:
        """Return whether the agent speaks a format that has this question."""
        return question not in unknown_in(self._handshake.format)

    def ask(self, question: Message, answer: type[Answer]) -> Answer:
        """Send `question` and return the next message, which must be of type `answer`."""
        if self._bytes_per_s is not None and isinstance(question, PacedQuestion):
            self._pace(self._bytes_per_s)
            self._bytes_per_s = None
        return self._exchange(question, answer, self.name)

    def _pace(self, bytes_per_s: int) -> None:
        if not self.knows(AskPaced):
            raise TooOld(
                f"{self.name} speaks format version {self._handshake.format}, in which no reading"
                " is paced: upgrade the agent, or read without a limit"
            )
        if problem := self._exchange(AskPaced(bytes_per_s), Paced, self.name).problem:
            raise Unreadable(f"{self.name} does not pace what is read: {problem}")

    def _greet(self, cluster: Cluster) -> Hello:
        name = f"agent at {self._address}"
        mine = Hello(FORMAT_VERSION, "tool", cluster.name)
        self._handshake = handshake = Handshake(cluster.keys, lambda: mine, dialed=True)
        deadline = time.monotonic() + self._answer_timeout_s
        with self._named(name, "Hello"):
            rest = shake_hands(self._socket, handshake, deadline)
            self._received.extend(self._frames.feed(rest or b""))
        hello = handshake.hello
        if handshake.refused is not None:
            raise Unreadable(f"{name} refused Hello: {handshake.refused.reason}")
        if hello is None:
            raise Unreadable(f"{name} closed the connection during Hello")
        if hello.role != "agent":
            raise Unreadable(f"{name} says it is a {hello.role}: name the peer ports of agents")
        if hello.cluster != cluster.name:
            raise Unreadable(
                f"{name} belongs to cluster {hello.cluster}, not {cluster.name}: name agents of one"
                " cluster"
            )
        return hello

    def _exchange(self, question: Message, answer: type[Answer], name: str) -> Answer:
        asked = type(question).__name__
        if not self.knows(type(question)):
            raise TooOld(
                f"{name} speaks format version {self._handshake.format}, which has no {asked}:"
                " upgrade the agent, then ask again"
            )
        deadline = time.monotonic() + self._answer_timeout_s
        with self._named(name, asked):
            self._socket.settimeout(self._answer_timeout_s)
            self._socket.sendall(encode_frame(question))
            message = self._receive(deadline)
            while isinstance(message, AnswerLater):
                message = self._receive(time.monotonic() + self._answer_timeout_s)
        if message is None:
            raise Unreadable(f"{name} closed the connection during {asked}")
        if isinstance(message, Refused):
            raise Unreadable(f"{name} refused {asked}: {message.reason}")
        if not isinstance(message, answer):
            raise Unreadable(
                f"{name} answered {asked} with {type(message).__name__} instead of"
                f" {answer.__name__}: use the tool of the agents' version"
            )
        return message

    @contextmanager
    def _named(self, name: str, asked: str) -> Iterator[None]:
        """Turn the connection's errors into Unreadable, each with a sentence."""
        try:
            yield
        except TimeoutError as error:
            raise Unreadable(
                f"{name} did not answer {asked} within {self._answer_timeout_s:g} s"
            ) from error
        except OSError as error:
            raise Unreadable(f"{name} was lost during {asked} ({_words(error)})") from error
        except WireError as error:
            raise Unreadable(f"{name} sent what is no message after {asked}: {error}") from error
        except Unproven as error:
            raise Unreadable(f"{name} is not believed: {error}") from error

    def _receive(self, deadline: float) -> Message | None:
        """Return the next message; None if the other side closed the connection."""
        while not self._received:
            data = receive(self._socket, deadline, RECEIVE_BYTES)
            if not data:
                return None
            self._received_of[self.agent.node] += len(data)
            self._received.extend(self._frames.feed(data))
        return self._received.pop(0)


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
