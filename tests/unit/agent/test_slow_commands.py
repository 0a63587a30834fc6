"""Commands that take long, a few of them or with long words, leave the others their turns."""

import itertools
from collections import deque

import pytest

from quorate_agent.clients.turn_share import TURN_S
from quorate_agent.resp.commands.agent.introspection import NAMES_MAX
from quorate_agent.resp.commands.session.pubsub import SUBSCRIPTIONS_MAX
from quorate_agent.resp.commands.session.tracking import PREFIXES_MAX
from quorate_agent.resp.reading.glob import PATTERN_BYTES_MAX
from quorate_lone_agent.agent import Agent

COMMANDS = 100
LONG = b"x" * (PATTERN_BYTES_MAX + 1)
PREFIXES = [word for n in range(PREFIXES_MAX + 1) for word in (b"PREFIX", b"p%06d" % n)]
PATTERNS = [b"__quorate__:event[s%05d]" % n for n in range(SUBSCRIPTIONS_MAX + 1)]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent on which two commands take a turn: each look at the clock finds half of one gone."""
    agent = Agent()
    looks = itertools.count()
    monkeypatch.setattr(agent.endpoint._share, "_clock", lambda: next(looks) * TURN_S / 2)
    agent.turn()
    return agent


def test_an_agent_alone_ends_its_turns_when_it_is_told_to_on_a_busy_machine_too(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate_agent.clients.turn_share.TURN_S", 1e-9)
    assert agent.writer().send(*[(b"PING",)] * COMMANDS) == [b"PONG"] * COMMANDS


@pytest.mark.parametrize("words", [(b"STRLEN", b"k"), (b"PING",), (b"APPEND", b"k", b"v")], ids=str)
def test_a_pipeline_of_slow_commands_does_not_hold_the_turn(
    slow: Agent, words: tuple[bytes, ...]
) -> None:
    client = slow.writer()
    replies = client.send(*[words] * COMMANDS)
    slow.turn()
    replies += client.told()
    assert len(replies) < COMMANDS / 2
    for _ in range(COMMANDS):
        slow.turn()
    assert len(replies + client.told()) == COMMANDS


def test_slow_commands_of_many_do_not_hold_the_turn(slow: Agent) -> None:
    clients = [slow.writer() for _ in range(COMMANDS)]
    replies = [reply for client in clients for reply in client.send((b"STRLEN", b"k"))]
    assert len(replies) < COMMANDS / 2
    for _ in range(COMMANDS):
        slow.turn()
    assert len(replies) + sum(len(client.told()) for client in clients) == COMMANDS


def test_slow_commands_that_came_while_their_client_was_parked_do_not_hold_the_turn(
    slow: Agent,
) -> None:
    client = slow.writer()
    for role in slow.replicas.roles.values():
        role.serving_until = 0
    client.ask(b"SET", b"k", b"v")
    for _ in range(COMMANDS):
        client.ask(b"PING")
    client.connection.backlog = deque(
        (at, command) for at, (_, command) in enumerate(client.connection.backlog)
    )  # each came in a millisecond of its own
    for role in slow.replicas.roles.values():
        slow.replicas.renew_lease(role)
    slow.endpoint.settle()
    assert len(client.connection.backlog) > COMMANDS / 2
    for _ in range(COMMANDS):
        slow.turn()
    assert len(client.told()) == COMMANDS + 1


@pytest.mark.parametrize(
    "words",
    [
        (b"CLIENT", b"TRACKING", b"ON", b"BCAST", *PREFIXES),
        (b"PSUBSCRIBE", *PATTERNS),
        (b"PSUBSCRIBE", b"__quorate__:*" + b"*" * PATTERN_BYTES_MAX),
        (b"PUBSUB", b"CHANNELS", LONG),
        (b"SCAN", b"0", b"MATCH", LONG),
        (b"HSCAN", b"h", b"0", b"MATCH", LONG),
        (b"CONFIG", b"GET", *[b"*%d" % n for n in range(2000)]),
        (b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", LONG),
        (b"COMMAND", b"INFO", *[b"get"] * NAMES_MAX),
        (b"COMMAND", b"DOCS", *[b"get"] * NAMES_MAX),
    ],
    ids=lambda words: b" ".join(words)[:20].decode(),
)
def test_what_would_take_long_in_one_command_is_refused(
    agent: Agent, words: tuple[bytes, ...]
) -> None:
    agent.write(b"HSET", b"h", b"field", b"value")
    (reply,) = agent.writer().ask(*words)
    assert isinstance(reply, Exception)
    assert "ERR" in str(reply)
    assert "more than" in str(reply)


def test_prefixes_of_several_commands_count_together(agent: Agent) -> None:
    client = agent.client(b"BCAST", *PREFIXES[2:])
    (reply,) = client.ask(b"CLIENT", b"TRACKING", b"ON", b"BCAST", *PREFIXES[:2])
    assert "more than" in str(reply)
