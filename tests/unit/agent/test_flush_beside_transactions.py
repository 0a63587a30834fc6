"""FLUSHALL takes its turn among transactions that follow each other without a pause."""

import pytest

from quorate.facts.keyspace import key_partition
from quorate.facts.topology import NodeRecord
from quorate.protocol.messages.transactions import FinishPart, PartPrepared, PreparePart
from quorate.protocol.transactions.lock_queue import LockQueue
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import OTHER, ZONE, Agent, key_in


class Busy:
    """Clients with one transaction after the other over two partitions: somebody has locks at any
    moment."""

    def __init__(self, agent: Agent, partitions: tuple[int, int]) -> None:
        self._keys = [key_in(partition, b"busy") for partition in partitions]
        self._clients = [agent.writer() for _ in range(4)]
        self.done = [0] * len(self._clients)
        for client in self._clients:
            self._begin(client)

    def _begin(self, client: KeptClient) -> None:
        client.send((b"MULTI",), *[(b"INCR", key) for key in self._keys], (b"EXEC",))

    def go_on(self) -> None:
        """Who was answered begins anew."""
        for at, client in enumerate(self._clients):
            for reply in client.told():
                if isinstance(reply, list):
                    self.done[at] += 1
                    self._begin(client)


def _run(agent: Agent, busy: list[Busy], client: KeptClient, rounds: int) -> list[object]:
    """What the client is told until it is told something, in so many rounds at most."""
    for _ in range(rounds):
        agent.written()
        for each in busy:
            each.go_on()
        agent.synced()
        for each in busy:
            each.go_on()
        if told := client.told():
            return told
    return []


def test_flushall_is_answered_beside_them() -> None:
    agent = Agent()
    busy = [Busy(agent, (0, 2)), Busy(agent, (1, 3))]
    client = agent.writer()
    _run(agent, busy, client, 20)
    agent.write(b"SET", key_in(1), b"v")

    client.ask(b"FLUSHALL")

    assert _run(agent, busy, client, 60) == [b"OK"]
    reader = agent.writer()
    told = reader.ask(b"GET", key_in(1))
    agent.turn()
    assert told + reader.told() == [None]


def test_they_go_on_behind_it() -> None:
    agent = Agent()
    busy = [Busy(agent, (0, 2)), Busy(agent, (1, 3))]
    client = agent.writer()
    client.ask(b"FLUSHALL")
    _run(agent, busy, client, 60)
    done = [list(each.done) for each in busy]

    _run(agent, busy, client, 60)

    for before, each in zip(done, busy, strict=True):
        assert all(now > then for now, then in zip(each.done, before, strict=True))


def test_they_go_on_when_its_client_goes_away() -> None:
    agent = Agent()
    busy = [Busy(agent, (0, 2)), Busy(agent, (1, 3))]
    client = agent.writer()
    client.ask(b"FLUSHALL")
    agent.written()
    client.leave()
    for _ in range(20):
        agent.tick(100)
        for each in busy:
            each.go_on()
    assert all(count for each in busy for count in each.done)


def test_a_request_of_a_dead_agent_that_was_held_back_keeps_nobody_from_its_keys(
    agent: Agent,
) -> None:
    _flush_waits(agent).leave()
    key = key_in(0)
    agent.receive("b", _prepare(b"t1", 0, key))  # asked once only: it dies
    agent.receive("b", FinishPart(ZONE.uid, b"t0", 3, 3, 0, 0, False))
    for _ in range(10):
        agent.tick(100)
    agent.replicas.set_members([NodeRecord("a", "s-a", 1, "h", 1, "h")])

    assert _transaction(agent, key, key_in(1)) == [b"OK", b"OK"]


def test_a_watch_elsewhere_is_not_held_back(agent: Agent) -> None:
    _flush_waits(agent)
    key = key_in(0)
    agent.said.clear()

    looks = PreparePart(ZONE.uid, b"t1", 0, 0, OTHER, (key,), (), (), False)
    agent.receive("b", looks)

    assert any(isinstance(message, PartPrepared) for _, message in agent.said)


def test_beside_a_part_in_doubt_others_are_not_held_back(agent: Agent) -> None:
    """Its home is elsewhere, and never answers."""
    agent.give(OTHER, [2])
    agent.receive("b", _prepare(b"t0", 2, key_in(3)))
    flush = agent.writer()
    flush.ask(b"FLUSHALL")
    for _ in range(20):
        agent.tick(100)

    assert flush.told() == []
    assert _transaction(agent, key_in(0), key_in(1)) == [b"OK", b"OK"]


def _prepare(transaction: bytes, home: int, key: bytes) -> PreparePart:
    """Of the other agent, which coordinates."""
    partition = key_partition(key, ZONE.partitions)
    command = (b"SET", key, b"v")
    return PreparePart(ZONE.uid, transaction, partition, home, OTHER, (key,), (command,), (), False)


def _flush_waits(agent: Agent) -> KeptClient:
    """Who waits with FLUSHALL, for locks of another agent's transaction in partition 3."""
    agent.receive("b", _prepare(b"t0", 3, key_in(3)))
    client = agent.writer()
    assert client.ask(b"FLUSHALL") == []
    agent.written()
    return client


def _transaction(agent: Agent, *keys: bytes) -> object:
    """What EXEC of a SET of each is answered, within less than the bound of waiting."""
    client = agent.writer()
    client.send((b"MULTI",), *[(b"SET", key, b"1") for key in keys], (b"EXEC",))
    told = client.told()
    for _ in range(40):
        if len(told) == len(keys) + 2:
            break
        agent.tick(100)
        told += client.told()
    return told[-1]


def test_without_holding_them_back_it_would_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transactions above are as many as they should be."""
    monkeypatch.setattr(
        LockQueue,
        "hold_back",
        lambda queue: not any(role.locks for role in queue._zone.roles.values()),
    )
    agent = Agent()
    busy = [Busy(agent, (0, 2)), Busy(agent, (1, 3))]
    client = agent.writer()
    client.ask(b"FLUSHALL")
    assert _run(agent, busy, client, 200) == []
