"""FLUSHALL takes its turn among transactions that follow each other without a pause."""

import pytest

from quorate.protocol.parts import Parts
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import Agent, key_in


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
    assert agent.writer().ask(b"GET", key_in(1)) == [None]


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


def test_without_holding_them_back_it_would_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transactions above are as many as they should be."""
    monkeypatch.setattr(
        Parts,
        "hold_back",
        lambda parts, _: not any(role.locks for role in parts._replicas.roles.values()),
    )
    agent = Agent()
    busy = [Busy(agent, (0, 2)), Busy(agent, (1, 3))]
    client = agent.writer()
    client.ask(b"FLUSHALL")
    assert _run(agent, busy, client, 200) == []
