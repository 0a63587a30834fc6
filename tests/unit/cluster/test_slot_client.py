"""What a client makes of answers, and of none: only what is certain is told as such."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest

from quorate.facts.keyspace import SLOT_COUNT
from quorate_cluster.slot_client import NothingDone, SlotClient, Unknown
from quorate_differential.raw_replies import reply_end

HANGS_UP = b""

Script = dict[bytes, bytes]
"""Replies by a command's first word; HANGS_UP closes the connection instead."""


class _Agent:
    """Answers what its script says to any number of connections."""

    def __init__(self) -> None:
        self.script: Script = {}
        self.asked: list[tuple[int, bytes]] = []
        """Number of the connection, first word."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def leads(self, *others: "_Agent") -> None:
        """Say in CLUSTER SLOTS that it has all slots, and so do `others`."""
        primary = b"*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % self.port
        for each in (self, *others):
            each.script[b"CLUSTER"] = b"*1\r\n*3\r\n:0\r\n:%d\r\n" % (SLOT_COUNT - 1) + primary

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(len(self._open), connection))
            self._threads.append(thread)
            thread.start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        data = b""
        with connection:
            while received := _received(connection):
                data += received
                while data and (end := reply_end(data)) >= 0:
                    word = data[:end].split(b"\r\n")[2]
                    data = data[end:]
                    self.asked.append((number, word))
                    reply = self.script.get(word, b"+OK\r\n")
                    if reply == HANGS_UP:
                        return
                    connection.sendall(reply)

    def close(self) -> None:
        with suppress(OSError):  # a second time
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            with suppress(OSError):  # the client, or the script, was faster
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


@pytest.fixture
def start() -> Iterator[Callable[[], _Agent]]:
    with ExitStack() as stack:

        def started() -> _Agent:
            agent = _Agent()
            stack.callback(agent.close)
            return agent

        yield started


@pytest.fixture
def client_of() -> Iterator[Callable[..., SlotClient]]:
    with ExitStack() as stack:

        def made(*agents: _Agent) -> SlotClient:
            client = SlotClient([agent.port for agent in agents], 5)
            stack.callback(client.close)
            return client

        yield made


TRANSACTION: Sequence[Sequence[str]] = [("MULTI",), ("SET", "k", "v"), ("EXEC",)]


def test_replies_of_a_transaction_are_those_of_its_commands(
    start: Callable[[], _Agent], client_of: Callable[..., SlotClient]
) -> None:
    agent = start()
    agent.leads()
    agent.script |= {b"SET": b"+QUEUED\r\n", b"EXEC": b"*1\r\n+OK\r\n"}

    assert client_of(agent).ask("k", TRANSACTION) == [b"OK", b"QUEUED", [b"OK"]]


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        (b"-EXECABORT because of previous errors\r\n", NothingDone),
        (b"-CLUSTERDOWN no primary\r\n", NothingDone),
        (b"-UNKNOWN the outcome\r\n", Unknown),
        (HANGS_UP, Unknown),
    ],
)
def test_a_transaction_that_was_not_answered_is_done_by_nobody_or_nobody_knows(
    start: Callable[[], _Agent],
    client_of: Callable[..., SlotClient],
    reply: bytes,
    raised: type[Exception],
) -> None:
    agent = start()
    agent.leads()
    agent.script[b"EXEC"] = reply
    with pytest.raises(raised):
        client_of(agent).ask("k", TRANSACTION)


def test_after_a_redirection_the_table_is_read_again(
    start: Callable[[], _Agent], client_of: Callable[..., SlotClient]
) -> None:
    old, new = start(), start()
    old.leads()
    old.script[b"GET"] = b"-MOVED 1 127.0.0.1:%d\r\n" % new.port
    new.script[b"GET"] = b"$1\r\nv\r\n"
    client = client_of(old)
    with pytest.raises(NothingDone, match="MOVED"):
        client.ask("k", [("GET", "k")])

    new.leads(old)
    assert client.ask("k", [("GET", "k")]) == [b"v"]


def test_an_agent_that_nobody_reaches_has_done_nothing(
    start: Callable[[], _Agent], client_of: Callable[..., SlotClient]
) -> None:
    there, gone = start(), start()
    gone.leads(there)
    gone.close()
    with pytest.raises(NothingDone, match="unreachable"):
        client_of(there).ask("k", [("SET", "k", "v")])


def test_what_a_watch_guards_goes_over_its_own_connection_or_not_at_all(
    start: Callable[[], _Agent], client_of: Callable[..., SlotClient]
) -> None:
    agent = start()
    agent.leads()
    client = client_of(agent)
    agent.script |= {b"EXEC": b"*-1\r\n", b"GET": b"-MOVED 1 127.0.0.1:1\r\n"}
    with client.watching(["k"]) as exchange:
        assert exchange(TRANSACTION)[-1] is None
    numbers = {number for number, word in agent.asked if word in (b"WATCH", b"EXEC", b"UNWATCH")}
    assert len(numbers) == 1

    with client.watching(["k"]) as exchange:
        with pytest.raises(NothingDone, match="MOVED"):
            client.ask("k", [("GET", "k")])  # it ends the connection, and the WATCH with it
        with pytest.raises(Unknown):
            exchange(TRANSACTION)


def test_a_watch_that_is_not_answered_has_done_nothing(
    start: Callable[[], _Agent], client_of: Callable[..., SlotClient]
) -> None:
    agent = start()
    agent.leads()
    agent.script[b"WATCH"] = HANGS_UP
    with pytest.raises(NothingDone), client_of(agent).watching(["k"]):
        raise AssertionError("nothing is watched")
