"""A command whose handler fails is answered, changes nothing, and ends only its own connection."""

import dataclasses
import logging
from typing import Any

import hiredis
import pytest

from quorate.facts.errors import InvariantError
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

    monkeypatch.setitem(DISPATCH, name, dataclasses.replace(DISPATCH[name], handler=fails))


def _texts(answers: list[Any]) -> list[Any]:
    return [str(each) if isinstance(each, hiredis.ReplyError) else each for each in answers]


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([(b"APPEND", b"k", b"x")], id="alone"),
        pytest.param([(b"SET", b"k", b"old"), (b"APPEND", b"k", b"x")], id="behind a write"),
        pytest.param([(b"INCR", b"{k}1"), (b"APPEND", b"k", b"x")], id="joined"),
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
    _break(monkeypatch, b"APPEND", ZeroDivisionError())
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
    assert reader.ask(b"GET", b"k") == [b"old"]
    assert reader.ask(b"MGET", key_in(0), b"{%b}2" % key_in(0)) == [[None, None]]
    assert not any(role.locks for role in agent.replicas.roles.values())


def test_only_its_connection_ends_and_what_is_behind_it_is_not_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent()
    _break(monkeypatch, b"APPEND", ZeroDivisionError())
    client, other = agent.writer(), agent.writer()
    client.send((b"APPEND", b"k", b"x"), (b"SET", b"k", b"new"))
    agent.turn()

    assert client.socket.is_closing()
    assert not other.socket.is_closing()
    assert other.ask(b"GET", b"k") == [None]


def test_a_command_without_keys_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    _break(monkeypatch, b"TIME", ZeroDivisionError())

    assert _texts(agent.writer().ask(b"TIME")) == [FAILED]


def test_a_state_that_must_not_exist_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent()
    _break(monkeypatch, b"APPEND", InvariantError("planted"))

    with pytest.raises(InvariantError):
        agent.writer().ask(b"APPEND", b"k", b"x")
