"""Parts of transactions wait for locks; those that no coordinator asks for any more do not."""

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.messages.transactions import FinishPart, PartPrepared, PreparePart
from quorate.protocol.transactions import lock_queue
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in

A = NodeRecord("a", "s-a", 1, "h", 1, "h")
B = NodeRecord("b", "s-b", 1, "h", 1, "h")


def _prepare(transaction: bytes, key: bytes, value: bytes = b"v") -> PreparePart:
    """Of the other agent, which coordinates; the home is partition 0, where the key is."""
    return PreparePart(
        ZONE.uid, transaction, 0, 0, OTHER, (key,), ((b"SET", key, value),), (), False
    )


def _is_prepared(agent: Agent, transaction: bytes) -> bool:
    return any(
        isinstance(message, PartPrepared) and message.transaction == transaction
        for _, message in agent.said
    )


def _unlocked(agent: Agent, transaction: bytes) -> None:
    agent.receive("b", FinishPart(ZONE.uid, transaction, 0, 0, 0, 0, False))
    agent.tick()


def _transaction(agent: Agent, *keys: bytes) -> list[object]:
    """The answer to a transaction of a client here, within 2 s."""
    client = agent.writer()
    client.send((b"MULTI",), *[(b"SET", key, b"1") for key in keys], (b"EXEC",))
    told = client.told()
    for _ in range(20):
        agent.tick(100)
        told += client.told()
    return told[-1:]


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([A, NodeRecord("b", "s-b", 2, "h", 1, "h")], id="it was started again"),
        pytest.param([A, NodeRecord("b", "s-new", 1, "h", 1, "h")], id="it has another store"),
        pytest.param([A], id="it was removed"),
        pytest.param([A, NodeRecord("b", "s-b", 1, "h", 1, "h", left_since_ms=1)], id="it left"),
    ],
)
def test_a_part_of_a_coordinator_that_is_gone_keeps_nobody_from_its_keys(
    agent: Agent, members: list[NodeRecord]
) -> None:
    key = key_in(0)
    agent.receive("b", _prepare(b"t1", key))
    agent.receive("b", _prepare(b"t2", key))  # waits, and its coordinator is killed
    agent.replicas.set_members(members)
    _unlocked(agent, b"t1")

    assert _transaction(agent, key, key_in(1)) == [[b"OK", b"OK"]]


def test_those_behind_it_go_on_without_being_asked_for_again(agent: Agent) -> None:
    key = key_in(0)
    agent.receive("b", _prepare(b"t1", key))
    agent.receive("b", _prepare(b"t2", key))
    client = agent.writer()
    client.send((b"MULTI",), (b"SET", key, b"1"), (b"SET", key_in(1), b"1"), (b"EXEC",))
    agent.replicas.set_members([A])
    _unlocked(agent, b"t1")
    agent.tick()

    assert client.told()[-1] == [b"OK", b"OK"]


def test_a_part_of_a_coordinator_that_is_there_keeps_its_place(agent: Agent) -> None:
    key = key_in(0)
    agent.receive("b", _prepare(b"t1", key))
    agent.receive("b", _prepare(b"t2", key))
    for _ in range(5):
        agent.tick(100)
    agent.replicas.set_members([A, B])
    _unlocked(agent, b"t1")

    assert _is_prepared(agent, b"t2")


def test_parts_that_wait_take_little_memory_and_the_others_are_asked_for_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_queue, "WAITING_BYTES_MAX", 1000)
    key = key_in(0)
    agent.receive("b", _prepare(b"t1", key))
    for transaction, size in ((b"t2", 2000), (b"t3", 100), (b"t2", 2000)):
        agent.receive("b", _prepare(transaction, key, bytes(size)))  # t2 keeps its place
    _unlocked(agent, b"t1")
    assert _is_prepared(agent, b"t2")
    _unlocked(agent, b"t2")
    assert not _is_prepared(agent, b"t3")

    agent.receive("b", _prepare(b"t3", key, bytes(100)))
    agent.tick()

    assert _is_prepared(agent, b"t3")
