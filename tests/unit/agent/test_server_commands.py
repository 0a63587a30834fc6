"""What is said of the whole agent must be true of the zone that is asked."""

import msgspec
import pytest

from quorate.facts.zone import StorageKind
from quorate_lone_agent.agent import Agent


@pytest.mark.parametrize(
    ("storage", "said", "aof"),
    [(StorageKind.IN_MEMORY, b"no", b"0"), (StorageKind.PERSISTENT, b"yes", b"1")],
)
def test_what_is_kept_on_disk_is_said_as_it_is(
    agent: Agent, storage: StorageKind, said: bytes, aof: bytes
) -> None:
    agent.replicas.record = msgspec.structs.replace(agent.replicas.record, storage=storage)
    client = agent.writer()

    for pattern in (b"appendonly", b"append*"):
        assert client.ask(b"CONFIG", b"GET", pattern) == [[b"appendonly", said]]
    [info] = client.ask(b"INFO", b"persistence")

    assert b"aof_enabled:" + aof in str(info).encode()
