"""Asks one agent something, as a tool, at its peer port."""

import socket
import time
from pathlib import Path
from typing import NamedTuple, TypeVar

from quorate.facts.addresses import join_address
from quorate.facts.errors import WireError
from quorate.protocol.messages.formats import unknown_in
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.messages.message import Message
from quorate.wire.frames import FrameReader, decoder_of, encode_frame
from quorate_cli.processes.cluster_folder import AgentAddress, ClusterFolder
from quorate_cli.terminal.problem import Problem, words
from quorate_link.blocking import receive, shake_hands
from quorate_link.handshake import Handshake, Unproven
from quorate_link.secret import SecretRefused, read_secret

TIMEOUT_S = 10.0
PROOF_S = 2.0
"""Seconds until the process at a port must have proven that it is an agent of the cluster."""

Answer = TypeVar("Answer")


class Unreached(Problem):
    """The agent did not answer: it may be restarting."""


class Asked(NamedTuple):
    """The agent to ask, and the file of its cluster's secret."""

    host: str
    port: int
    cluster: str
    node: str
    secret_file: Path

    @property
    def where(self) -> str:
        """The agent and its address in sentences."""
        return f"{self.node} at {join_address(self.host, self.port)}"


def asked_agent(folder: ClusterFolder, cluster: str, address: AgentAddress) -> Asked:
    """Return how to ask an agent of a development cluster."""
    secret_file = folder.secret_file(cluster)
    return Asked(address.host, address.peer_port, cluster, address.name, secret_file)


def ask_agent(agent: Asked, question: Message, kind: type[Answer]) -> Answer:
    """Send a question to an agent's peer port, on its own connection; return the answer.

    Raises Unreached if the agent did not answer, Problem if it refused or its answer cannot be
    used.
    """
    where = agent.where
    try:
        handshake = _handshake(agent)
        with socket.create_connection((agent.host, agent.port), TIMEOUT_S) as connection:
            deadline = time.monotonic() + TIMEOUT_S
            rest = shake_hands(connection, handshake, deadline)
            if handshake.refused is not None:
                raise Problem(f"{where} refused: {handshake.refused.reason}")
            if rest is None:
                raise Unreached(f"{where} closed the connection: its log says why")
            if handshake.hello is None or handshake.hello.node != agent.node:
                raise Problem(f"{where} is now another process: see `quorate status`")
            if type(question) in unknown_in(handshake.format):
                raise Problem(
                    f"{where} speaks format version {handshake.format}, which has no"
                    f" {type(question).__name__}: upgrade the agent, then try again"
                )
            connection.sendall(encode_frame(question))
            answer = _next(connection, rest, where, deadline)
    except (SecretRefused, Unproven) as error:
        raise Problem(f"{where}: {error}") from error
    except TimeoutError as error:
        raise Unreached(f"{where} did not answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise Unreached(f"{where} cannot be reached: {words(error)}") from error
    except WireError as error:
        raise Problem(f"{where} sent an invalid message: {error}") from error
    if not isinstance(answer, kind):
        asked, told = type(question).__name__, type(answer).__name__
        raise Problem(f"{where} answered {asked} with {told}")
    return answer


def is_of_our_cluster(agent: Asked) -> bool:
    """Return whether a process that knows the cluster's secret listens at the agent's port."""
    try:
        handshake = _handshake(agent)
        with socket.create_connection((agent.host, agent.port), PROOF_S) as connection:
            shake_hands(connection, handshake, time.monotonic() + PROOF_S)
    except (SecretRefused, Unproven, OSError, WireError):
        return False
    return handshake.is_proven


def _handshake(agent: Asked) -> Handshake:
    """Return the handshake of a tool with the agent; raise SecretRefused without a secret."""
    hello = Hello(FORMAT_VERSION, "tool", agent.cluster)
    keys = read_secret(agent.secret_file).keys("tool")
    return Handshake(keys, lambda: hello, dialed=True)


def _next(connection: socket.socket, data: bytes, where: str, deadline_s: float) -> Message:
    reader = FrameReader(decode=decoder_of("agent", "tool"))
    while True:
        for message in reader.feed(data):
            if isinstance(message, Refused):
                raise Problem(f"{where} refused: {message.reason}")
            return message
        data = receive(connection, deadline_s)
        if not data:
            raise Unreached(f"{where} closed the connection: its log says why")
