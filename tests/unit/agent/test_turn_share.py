"""Clients get their share of a turn, one after the other, and no more."""

import asyncio

from quorate_agent.client import ClientConnection
from quorate_agent.resp.session import Connection
from quorate_agent.resp.transaction import Transaction
from quorate_agent.turn_share import COMMANDS_PER_TURN, OVERLOADED, QUANTUM, WAITING_MAX, TurnShare


class _Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False


class _NoCommands:
    def connected(self, client: ClientConnection) -> None:
        client.state = Connection(1, "", "", 0)

    def disconnected(self, client: ClientConnection) -> None:
        pass

    def run(self, client: ClientConnection, commands: object) -> None:
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
    share = TurnShare()
    assert share.takes(COMMANDS_PER_TURN)  # one batch is taken whole
    first, second = _client(), _client()
    for client in (first, second):
        assert not share.takes(1)
        assert share.keep(client, [PING, PING], 5)
    assert share.is_over
    assert [_reads(first), _reads(second)] == [False, False]
    assert list(first.backlog) == [(5, PING), (5, PING)]

    assert _turn(share) == [first, second]
    assert share.takes(2)
    assert not share.is_over


def test_those_that_waited_come_before_those_that_were_answered() -> None:
    share = TurnShare()
    late, answered = _client(), _client()
    share.keep(late, [PING], 0)
    touched = {answered: None, late: None}
    share.begin(touched)

    assert list(touched) == [late, answered]


def test_commands_are_refused_when_too_many_wait_but_never_inside_a_transaction() -> None:
    share = TurnShare()
    share.keep(_client(), [PING] * (WAITING_MAX - 1), 0)
    refused, inside, few = _client(), _client(), _client()
    inside.state.transaction = Transaction()

    pipeline = [PING] * (QUANTUM + 1)
    assert not share.keep(refused, pipeline, 0)
    assert refused.out == [OVERLOADED] * len(pipeline)
    assert _reads(refused)
    assert share.keep(inside, pipeline, 0)
    assert len(inside.backlog) == len(pipeline)
    assert share.keep(few, [PING] * QUANTUM, 0)


def test_who_went_away_waits_no_more() -> None:
    share = TurnShare()
    client = _client()
    share.keep(client, [PING], 0)
    share.client_gone(client)

    assert not share.is_over
    assert _turn(share) == []
