"""Clients get their share of a turn, one after the other, and no more."""

from typing import Any

import pytest

from quorate_agent.clients import turn_share
from quorate_agent.clients.connection import ClientConnection
from quorate_agent.clients.turn_share import (
    COMMANDS_PER_TURN,
    CUT_BYTES_PER_TURN,
    FEW,
    OVERLOADED,
    QUANTUM,
    TURN_S,
    WAITING_MAX,
    TurnShare,
)
from quorate_agent.resp.reading import parser
from quorate_agent.resp.session import Connection
from quorate_agent.resp.transaction import Transaction
from quorate_differential.kept_client import KeptClient
from quorate_differential.kept_socket import KeptSocket
from quorate_lone_agent.agent import Agent


class _Socket(KeptSocket):
    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False


class _Clock:
    """Stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class _NoCommands:
    def connected(self, client: ClientConnection) -> None:
        client.state = Connection(1, "", "", 0)

    def disconnected(self, client: ClientConnection) -> None:
        pass

    def run(self, client: ClientConnection, commands: object) -> None:
        pass

    def cut(self, client: ClientConnection) -> None:
        pass


def _client() -> ClientConnection:
    client = ClientConnection(_NoCommands())
    client.connection_made(_Socket())
    return client


def _reads(client: ClientConnection) -> bool:
    transport = client.transport
    assert isinstance(transport, _Socket)
    return transport.reads


def _turn(share: TurnShare) -> list[ClientConnection]:
    touched: dict[ClientConnection, None] = {}
    share.begin(touched)
    return list(touched)


PING = [b"PING"]


def test_what_a_turn_does_not_take_waits_in_order_and_is_not_read_meanwhile() -> None:
    share = TurnShare(_Clock())
    assert share.takes(COMMANDS_PER_TURN)  # one batch is taken whole
    first, second = _client(), _client()
    for client in (first, second):
        assert not share.takes(QUANTUM)
        assert share.keep(client, [PING, PING], 5)
    assert share.is_over
    assert [_reads(first), _reads(second)] == [False, False]
    assert list(first.backlog) == [(5, PING), (5, PING)]

    assert _turn(share) == [first, second]
    assert share.takes(2)
    assert not share.is_over


def test_those_that_waited_come_before_those_that_were_answered() -> None:
    share = TurnShare(_Clock())
    late, answered = _client(), _client()
    share.keep(late, [PING], 0)
    touched = {answered: None, late: None}
    share.begin(touched)

    assert list(touched) == [late, answered]


def test_commands_are_refused_when_too_many_wait_but_never_inside_a_transaction() -> None:
    share = TurnShare(_Clock())
    share.keep(_client(), [PING] * (WAITING_MAX - 1), 0)
    refused, inside, few = _client(), _client(), _client()
    inside.state.transaction = Transaction()

    pipeline = [PING] * (QUANTUM + 1)
    assert not share.keep(refused, pipeline, 0)
    assert refused.out == [OVERLOADED] * len(pipeline)
    assert share.keep(inside, pipeline, 0)
    assert len(inside.backlog) == len(pipeline)
    assert share.keep(few, [PING] * QUANTUM, 0)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent that takes no long pipelines."""
    monkeypatch.setattr(turn_share, "WAITING_MAX", -1)
    return Agent()


LONG = [(b"PING",)] * QUANTUM
CHANGE = ((b"MULTI",), (b"SET", b"k", b"1"), (b"EXEC",))


def _ended(agent: Agent, client: KeptClient, *commands: tuple[bytes, ...]) -> Any:
    """The last reply to commands that are sent in one go."""
    said = client.send(*commands)
    agent.turn()
    return [*said, *client.told()][-1]


@pytest.mark.parametrize("begins", [b"MULTI", b"multi"])
def test_the_rest_of_a_transaction_whose_beginning_was_refused_is_not_executed(
    full: Agent, begins: bytes
) -> None:
    client = full.writer()
    refused = client.send((begins,), *[(b"SET", b"{k}%d" % n, b"1") for n in range(QUANTUM)])
    assert client.socket.is_closing()
    client.send((b"SET", b"k", b"1"), (b"EXEC",))
    full.turn()

    assert {str(each)[:4] for each in refused} == {"OOM "}
    assert len(refused) == QUANTUM + 1
    assert full.writer().ask(b"MGET", b"{k}1", b"k") == [[None, None]]


@pytest.mark.parametrize("ends", [b"EXEC", b"DISCARD", b"RESET"])
def test_a_connection_goes_on_after_a_transaction_that_was_refused_to_its_end(
    full: Agent, ends: bytes
) -> None:
    client = full.writer()
    client.ask(b"WATCH", b"k")
    refused = client.send((b"MULTI",), *LONG, (ends,))
    full.write(b"SET", b"k", b"0")

    assert {str(each)[:4] for each in refused} == {"OOM "}
    assert _ended(full, client, *CHANGE) == [b"OK"]


def test_what_is_watched_stays_watched_over_refused_commands_of_no_transaction(full: Agent) -> None:
    client = full.writer()
    client.ask(b"WATCH", b"k")
    client.send(*LONG, (b"EXEC",), (b"DISCARD",))
    full.write(b"SET", b"k", b"0")

    assert _ended(full, client, *CHANGE) is None


def test_a_transaction_behind_a_watch_that_was_refused_is_not_executed(full: Agent) -> None:
    client = full.writer()
    client.send((b"SET", b"k", b"0"))  # its reply waits: the next commands are read before
    refused = client.send(*LONG, (b"WATCH", b"k"))

    assert "EXECABORT" in str(_ended(full, client, *CHANGE))
    assert refused == []
    assert _ended(full, client, *CHANGE) == [b"OK"]


def test_so_is_one_behind_a_watch_that_was_too_large_as_well(
    full: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "QUERY_BYTES_MAX", parser.FREE_BYTES)
    client = full.writer()
    client.send((b"SET", b"k", b"0"))
    client.send(*LONG, (b"WATCH", bytes(parser.FREE_BYTES)))

    assert "EXECABORT" in str(_ended(full, client, *CHANGE))


def test_a_key_stays_watched_though_a_later_watch_of_it_was_refused(full: Agent) -> None:
    client = full.writer()
    client.ask(b"WATCH", b"k")
    client.send(*LONG, (b"WATCH", b"k"))
    full.turn()
    full.write(b"SET", b"k", b"0")
    client.ask(b"PING")  # it has read the error

    assert _ended(full, client, *CHANGE) is None


def test_a_share_ends_when_its_time_is_over_and_the_next_turn_has_a_new_one() -> None:
    clock = _Clock()
    share = TurnShare(clock)
    assert share.takes(QUANTUM)
    clock.now += TURN_S
    assert not share.takes(QUANTUM)

    _turn(share)
    assert share.takes(QUANTUM)


def test_who_sends_a_few_commands_does_not_wait_for_those_that_send_many_but_has_an_end() -> None:
    clock = _Clock()
    share = TurnShare(clock)
    assert share.takes(COMMANDS_PER_TURN)
    assert not share.takes(FEW + 1)
    few = 0
    while share.takes(FEW):
        few += FEW
        assert few <= COMMANDS_PER_TURN + QUANTUM
    assert few >= COMMANDS_PER_TURN - QUANTUM

    _turn(share)
    assert share.takes(2 * QUANTUM)
    clock.now += TURN_S
    assert not share.takes(2 * QUANTUM)
    assert share.takes(FEW)
    clock.now += TURN_S
    assert not share.takes(2 * QUANTUM)


def test_what_was_read_waits_as_it_is_when_a_turn_has_cut_enough() -> None:
    share = TurnShare(_Clock())
    clients = [_client() for _ in range(3)]
    for client in clients:
        client.unread = b"x" * (CUT_BYTES_PER_TURN // 2)

    assert [share.cuts(client) for client in clients] == [True, True, False]
    assert [_reads(client) for client in clients] == [True, True, False]
    assert share.is_over
    assert _turn(share) == clients[2:]
    assert share.cuts(clients[2])


def test_who_went_away_waits_no_more() -> None:
    share = TurnShare(_Clock())
    client = _client()
    share.keep(client, [PING], 0)
    share.client_gone(client)

    assert not share.is_over
    assert _turn(share) == []
