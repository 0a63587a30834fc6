"""A forwarded request that is asked again after FLUSHALL is not executed again."""

from quorate.protocol.messages.clients import Forward, Forwarded
from quorate_lone_agent.agent import Agent


def _said(agent: Agent) -> list[bytes]:
    return [message.reply for message in agent.sent if isinstance(message, Forwarded)]


def test_a_request_that_is_asked_again_behind_a_flush_is_not_executed_again() -> None:
    agent = Agent()
    heard_ms, incr = agent.beat("b").sent_ms, ((b"INCR", b"n"),)
    ask = Forward("uid-1", "of-b", 1, False, incr, heard_ms=heard_ms, left_ms=5_000)
    agent.endpoint.forwards.perform("b", ask)
    agent.turn()
    assert _said(agent) == [b":1\r\n"]  # and is lost with the link
    client = agent.writer()
    assert client.ask(b"GET", b"n") == [b"1"]
    agent.write(b"FLUSHALL")
    agent.endpoint.forwards.perform("b", ask)
    agent.turn()
    assert _said(agent) == [b":1\r\n"] * 2
    assert client.ask(b"GET", b"n") == [None]
