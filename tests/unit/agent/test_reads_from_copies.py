"""READONLY connections read a copy that has adopted its term, and no other."""

import pytest

from quorate.protocol.messages.clients import Forward
from quorate_lone_agent.agent import OTHER, Agent, key_in


@pytest.mark.parametrize("adopted", [True, False])
def test_only_a_copy_that_has_adopted_its_term_is_read(agent: Agent, adopted: bool) -> None:
    """Another one may hold updates that are about to be undone, or be half filled."""
    agent.write(b"SET", key_in(0), b"v")
    client = agent.writer()
    assert client.ask(b"READONLY") == [b"OK"]
    role = agent.replicas.primaries[0]
    assert role is not None
    role.serving_until = 0
    if not adopted:
        agent.give(OTHER, [0])
        copy = agent.replicas.copies[0]
        copy.promise(copy.promise_term + 1, OTHER)
    said = client.ask(b"GET", key_in(0))
    assert said == ([b"v"] if adopted else [])
    assert any(isinstance(each, Forward) for each in agent.sent) == (not adopted)


def test_nothing_is_written_to_a_copy(agent: Agent) -> None:
    client = agent.writer()
    client.ask(b"READONLY")
    role = agent.replicas.primaries[0]
    assert role is not None
    role.serving_until = 0
    assert client.ask(b"SET", key_in(0), b"v") == []  # it waits for a primary
