"""An agent whose leases are over tells nothing of its keys: another may be primary by now."""

from typing import Any

import pytest

from quorate.facts.keyspace import key_slot
from quorate.protocol.settings import DEFAULTS
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import Agent, key_in

KEYS = {key_in(partition) for partition in range(4)}
COUNT = (b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % key_slot(key_in(2)))
ASKED = [(b"DBSIZE",), (b"RANDOMKEY",), (b"SCAN", b"0", b"COUNT", b"100")]


class CutAgent(Agent):
    """An agent with a key in each partition; the leases of some of them are over."""

    def __init__(self) -> None:
        super().__init__()
        for key in KEYS:
            self.write(b"SET", key, b"v")
        self._until: dict[int, int] = {}

    def cut(self, *partitions: int) -> None:
        for partition in partitions:
            role = self.replicas.primaries[partition]
            assert role is not None
            self._until[partition], role.serving_until = role.serving_until, 0

    def heal(self) -> None:
        for partition, until in self._until.items():
            role = self.replicas.primaries[partition]
            assert role is not None
            role.serving_until = until

    def told(self, client: KeptClient) -> list[Any]:
        self.endpoint.settle()
        return client.told()


@pytest.fixture
def agent() -> CutAgent:
    return CutAgent()


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0].decode())
def test_what_is_about_keys_waits_for_the_lease(agent: CutAgent, words: tuple[bytes, ...]) -> None:
    (expected,) = agent.writer().ask(*words)
    agent.cut(0, 1, 2, 3)
    client = agent.writer()
    assert client.ask(*words) == []
    assert agent.told(client) == []

    agent.heal()
    (said,) = agent.told(client)
    if words[0] == b"RANDOMKEY":
        assert said in KEYS
    elif words[0] == b"SCAN":
        assert {*said[1]} <= KEYS
    else:
        assert said == expected


@pytest.mark.parametrize("words", ASKED, ids=lambda words: words[0].decode())
def test_it_is_refused_when_there_is_none(agent: CutAgent, words: tuple[bytes, ...]) -> None:
    agent.cut(0, 1, 2, 3)
    client = agent.writer()
    client.ask(*words)
    agent.clock.ahead_ms += DEFAULTS.park_bound_ms

    (said,) = agent.told(client)
    assert str(said).startswith("CLUSTERDOWN")


def test_a_page_of_a_scan_ends_before_a_partition_without_lease(agent: CutAgent) -> None:
    agent.cut(2, 3)
    ((cursor, keys),) = agent.writer().ask(b"SCAN", b"0", b"COUNT", b"100")
    assert {*keys} == {key_in(0), key_in(1)}
    assert cursor != b"0"


@pytest.mark.parametrize("words", [*ASKED[:2], COUNT], ids=lambda words: words[0].decode())
def test_in_a_transaction_it_does_not_wait(agent: CutAgent, words: tuple[bytes, ...]) -> None:
    agent.cut(2)
    (said,) = agent.execute(agent.writer(), words)
    assert str(said).startswith("CLUSTERDOWN")


def test_the_count_of_a_slot_depends_on_its_own_partition_alone(agent: CutAgent) -> None:
    agent.cut(1)
    assert agent.writer().ask(*COUNT) == [1]
    agent.cut(2)
    (said,) = agent.writer().ask(*COUNT)
    assert str(said).startswith("CLUSTERDOWN")


def test_info_counts_the_keys_that_are_served(agent: CutAgent) -> None:
    agent.cut(2, 3)
    assert "keys=2," in str(agent.writer().ask(b"INFO", b"keyspace"))
