"""A command whose handler fails is answered and changes nothing; its connection goes on."""

import dataclasses
import logging
from typing import Any

import hiredis
import pytest

from quorate.facts.errors import InvariantError
from quorate.protocol.storage import StorageFull
from quorate_agent.resp.tables.table import DISPATCH
from quorate_agent.resp.view import KeyView
from quorate_lone_agent.agent import Agent, key_in

FAILED = "ERR internal error, nothing was changed: see the agent's log"


def _break(monkeypatch: pytest.MonkeyPatch, name: bytes, error: Exception) -> None:
    """Have a command fail after it has written."""

    def fails(view: KeyView | Any, args: list[bytes]) -> bytes:
        if len(args) > 1:
            view.put(args[1], b"half", 0)
        raise error

    def fails_each(values: Any, resp3: bool) -> bytes:
        raise error

    each = fails_each if DISPATCH[name].each else None
    broken = dataclasses.replace(DISPATCH[name], handler=fails, each=each)
    monkeypatch.setitem(DISPATCH, name, broken)


def _texts(answers: list[Any]) -> list[Any]:
    return [str(each) if isinstance(each, hiredis.ReplyError) else each for each in answers]


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([(b"APPEND", b"k", b"x")], id="alone"),
        pytest.param([(b"SET", b"k", b"old"), (b"APPEND", b"k", b"x")], id="behind a write"),
        pytest.param([(b"INCR", b"{k}1"), (b"APPEND", b"k", b"x")], id="joined"),
        pytest.param([(b"GET", b"k")], id="a read"),
        pytest.param([(b"GET", b"k"), (b"GET", b"k")], id="joined reads"),
        pytest.param([(b"MULTI",), (b"APPEND", b"k", b"x"), (b"EXEC",)], id="transaction"),
        pytest.param(
            [(b"MULTI",), (b"APPEND", key_in(0), b"x"), (b"SET", key_in(3), b"x"), (b"EXEC",)],
            id="part of a transaction",
        ),
    ],
)
def test_it_is_answered_and_has_changed_nothing(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    commands: list[tuple[bytes, ...]],
) -> None:
    agent = Agent()
    agent.write(b"SET", b"k", b"old")
    _break(monkeypatch, b"GET" if commands[0][0] == b"GET" else b"APPEND", ZeroDivisionError())
    client = agent.writer()
    with caplog.at_level(logging.ERROR):
        said = client.send(*commands)
        for _ in range(3):
            agent.turn()
        said += client.told()

    assert _texts(said)[-1] == FAILED
    assert "the command " in caplog.text
    assert "ZeroDivisionError" in caplog.text
    reader = agent.writer()
    assert reader.ask(b"GETRANGE", b"k", b"0", b"-1") == [b"old"]
    assert reader.ask(b"MGET", key_in(0), b"{%b}2" % key_in(0)) == [[None, None]]
    assert not any(role.locks for role in agent.replicas.roles.values())


def test_the_connection_goes_on_with_what_is_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost its connection would repeat the commands before it."""
    agent = Agent()
    _break(monkeypatch, b"APPEND", ZeroDivisionError())
    client = agent.writer()
    said = client.send((b"INCR", b"n"), (b"APPEND", b"k", b"x"), (b"SET", b"k", b"new"))
    agent.turn()

    assert _texts(said + client.told()) == [1, FAILED, b"OK"]
    assert not client.socket.is_closing()
    assert client.ask(b"GET", b"k") == [b"new"]


def test_a_list_of_keys_that_fails_is_answered_and_the_next_one_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent()
    agent.write(b"SET", b"k", b"v")
    client, other = agent.writer(), agent.writer()
    lists = agent.endpoint._key_lists
    scan = lists._scan

    def fails(*_: Any) -> Any:
        monkeypatch.setattr(lists, "_scan", scan)
        raise ZeroDivisionError

    monkeypatch.setattr(lists, "_scan", fails)
    client.ask(b"KEYS", b"*")
    other.ask(b"KEYS", b"*")
    agent.turn()

    assert _texts(client.told()) == [FAILED]
    assert other.told() == [[b"k"]]


def test_a_command_without_keys_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    _break(monkeypatch, b"TIME", ZeroDivisionError())

    assert _texts(agent.writer().ask(b"TIME")) == [FAILED]


@pytest.mark.parametrize("error", [InvariantError("planted"), MemoryError(), StorageFull("full")])
@pytest.mark.parametrize(
    "commands",
    [
        [(b"APPEND", b"k", b"x")],
        [(b"INCR", b"{k}1"), (b"APPEND", b"k", b"x")],
        [(b"GET", b"k")],
        [(b"GET", b"k"), (b"GET", b"k")],
    ],
    ids=["alone", "joined", "a read", "joined reads"],
)
def test_an_error_of_the_whole_agent_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, commands: list[tuple[bytes, ...]], error: Exception
) -> None:
    agent = Agent()
    _break(monkeypatch, commands[-1][0], error)
    with pytest.raises(type(error)):
        agent.writer().send(*commands)
