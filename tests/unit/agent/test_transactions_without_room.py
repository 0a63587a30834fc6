"""Transactions across partitions where memory is short."""

from typing import Any

from quorate.facts.keyspace import key_partition
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import Agent


def _keys(partition: int, count: int) -> list[bytes]:
    numbered = (b"%d" % number for number in range(100_000))
    found = (key for key in numbered if key_partition(key, 4) == partition)
    return [next(found) for _ in range(count)]


def _ended(agent: Agent, client: KeptClient) -> tuple[Any, int]:
    """The reply to EXEC, and how many small writes of others were refused until it came."""
    (small,), other, refused = _keys(1, 1), agent.writer(), 0
    found = client.ask(b"EXEC")
    for _ in range(300):
        if found:
            break
        other.ask(b"SET", small, b"x")
        agent.tick(50)
        refused += other.told() != [b"OK"]
        found += client.told()
    return found[-1], refused


def test_one_for_which_there_is_no_room_is_refused_at_once_and_alone() -> None:
    agent = Agent()
    client = agent.writer()
    client.send(
        (b"MULTI",), (b"SET", _keys(0, 1)[0], b"v"), (b"SET", _keys(3, 1)[0], bytes(2 << 20))
    )
    for _ in range(20):
        agent.turn()
    client.told()
    reply, refused = _ended(agent, client)
    assert "OOM" in str(reply)
    assert refused <= 1


def test_one_that_was_answered_is_finished() -> None:
    """Its rows take more room than the row that keeps them until it is decided."""
    agent = Agent(memory_bytes=1 << 20)
    home, many = _keys(0, 1)[0], _keys(3, 1000)
    number = 0
    while agent.replicas.storage.room() > 200_000:
        agent.write(b"SET", b"fill%d" % number, bytes(5_000))
        number += 1
    client = agent.writer()
    client.send((b"MULTI",), (b"SET", home, b"v"))
    for at in range(0, 1000, 100):
        client.send(*[(b"SET", key, b"v") for key in many[at : at + 100]])
        agent.turn()
    client.told()
    assert not agent.replicas.storage.full_reason
    _ended(agent, client)
    for _ in range(200):  # 30 s
        agent.tick(150)
    assert not any(role.parts or role.locks for role in agent.replicas.roles.values())
