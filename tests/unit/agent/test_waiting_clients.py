"""Clients that wait for what no longer comes are answered, and are not read for ever meanwhile."""

import time

import pytest

from quorate_agent.client import QUEUE_BYTES_MAX
from quorate_differential.kept_client import KeptClient
from quorate_differential.raw_replies import encode_command
from quorate_lone_agent.agent import OTHER, Agent


def test_a_read_of_a_half_closed_client_that_waited_for_a_lost_write_is_answered(
    agent: Agent,
) -> None:
    agent.endpoint.forwards.is_leaving = True  # MOVED is the answer elsewhere
    client = agent.writer()
    client.send((b"SET", b"k", b"1"), (b"GET", b"k"))
    client.connection.eof_received()  # `printf ... | nc`: it sends no more, and reads on
    agent.give(OTHER, range(4))
    for _ in range(3):
        agent.tick()
    told = client.told()
    assert len(told) == 2, told
    assert client.socket.closed


def test_one_that_says_quit_is_answered_before(agent: Agent) -> None:
    agent.endpoint.forwards.is_leaving = True
    client = agent.writer()
    client.send((b"SET", b"k", b"1"), (b"GET", b"k"), (b"QUIT",))
    agent.give(OTHER, range(4))
    agent.tick(10_000)
    told = client.told()
    assert len(told) == 3, told
    assert client.socket.closed


def _waiting(agent: Agent, bound_ms: bytes) -> KeptClient:
    """Who has written, and waits for a copy of it while the primary becomes another."""
    client = agent.writer()
    client.ask(b"SET", b"k", b"1")
    agent.turn()
    assert client.told() == [b"OK"]
    assert client.ask(b"WAIT", b"1", bound_ms) == []
    agent.give(OTHER, range(4))
    return client


def test_a_wait_for_ever_ends_when_the_primary_goes(agent: Agent) -> None:
    client = _waiting(agent, b"0")
    for _ in range(5):
        agent.tick(10_000)
    assert "UNBLOCKED" in str(client.told()[0])


def test_a_wait_with_a_bound_is_answered_with_a_number_also_then(agent: Agent) -> None:
    client = _waiting(agent, b"100")
    time.sleep(0.15)
    agent.tick()
    (count,) = client.told()
    assert isinstance(count, int)


@pytest.mark.parametrize("words", [(b"SET", b"k", b"1"), (b"GET", b"big")])
def test_a_connection_whose_replies_wait_is_not_read_for_ever(words: tuple[bytes, ...]) -> None:
    agent = Agent(1 << 30)
    agent.write(b"SET", b"big", b"x" * 100_000)
    client = agent.writer()
    client.ask(b"SET", b"k", b"0")
    part = encode_command(words) * 10
    for _ in range(300):
        if client.connection.paused:
            break
        client.connection.data_received(part)
        agent.written()  # nothing is durable: a disk stands still
    assert client.connection.paused


def test_replies_that_wait_for_a_write_are_bounded_in_bytes() -> None:
    agent = Agent(1 << 30)
    big = b"x" * 1_000_000
    agent.write(b"SET", b"big", big)
    client = agent.writer()
    client.ask(b"SET", b"k", b"0")
    for _ in range(100):
        client.connection.data_received(encode_command((b"GET", b"big")))
        agent.written()  # nothing is durable: a disk stands still
    held = _waiting_bytes(client)
    assert QUEUE_BYTES_MAX <= held <= QUEUE_BYTES_MAX + len(big) + 100

    told: list[object] = []
    for _ in range(20):
        agent.turn()
        told += client.told()

    assert told == [b"OK", *[big] * 100]


def _waiting_bytes(client: KeptClient) -> int:
    return sum(len(place) for place in client.connection.queue if isinstance(place, bytes))
