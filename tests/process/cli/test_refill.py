"""A copy is damaged, found and refilled by commands as a person types them, while clients write."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate.facts.keyspace import key_partition
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects.cluster_state import fetch_state
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_cluster.meanwhile import meanwhile

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 4
KEY = "the-key"
ZONE = f"""
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {{name: library}}
spec: {{clusterRef: {{name: main}}, partitions: {PARTITIONS}, replicas: 3}}
"""

Quorate = Callable[..., str]
Damageable = Callable[[str, int], AbstractContextManager[RedisCluster]]


@pytest.fixture
def quorate_environment(folder: Path) -> dict[str, str]:
    """A narrow terminal, which must not break the lines that are to be typed, and no Java."""
    return {"COLUMNS": "60", "JAVA_HOME": str(folder)}


@pytest.fixture
def client(damageable: Damageable) -> Iterator[RedisCluster]:
    """A client of zone `library`."""
    with damageable(ZONE, 500) as client:
        client.set(KEY, "right")
        yield client


def _owner(client: RedisCluster, folder: Path) -> str:
    """The agent that is primary of the key's partition."""
    port = client.get_node_from_key(KEY).port
    state = fetch_state(DevCluster(ClusterFolder(folder), print).api(), "main")
    (zone,) = state.zones
    return next(name for name, each in zone.ports.items() if each == port)


@pytest.mark.parametrize("is_primary", [False, True], ids=["backup", "primary"])
def test_validate_names_the_command_that_mends_what_was_damaged(
    quorate: Quorate, client: RedisCluster, folder: Path, is_primary: bool
) -> None:
    primary = _owner(client, folder)
    backup = next(name for name in ("agent-1", "agent-2", "agent-3") if name != primary)
    bad = primary if is_primary else backup
    partition = key_partition(KEY.encode(), PARTITIONS)
    written: list[int] = []

    def write(number: int) -> None:
        client.set(f"hot-{number % 50}", number)
        written.append(number)

    quorate("debug", "damage", "library", KEY, "--agent", bad)
    with meanwhile(write):
        found = quorate("validate", "library", "--level", "digest", code=1)
        named = re.findall(r"^  quorate (debug refill .*)$", found, re.MULTILINE)
        assert named == [f"debug refill library {partition} --agent {bad}"]
        wrong = quorate(*named[0].replace(bad, "agent-9").split(), code=1)
        assert "--agent agent-9: there is no such agent" in wrong
        good = next(name for name in ("agent-1", "agent-2", "agent-3") if name != bad)
        wrong = quorate(*named[0].replace(bad, good).split(), code=1)
        assert f"the copy of {good} is not out-voted" in " ".join(wrong.split())
        said = quorate(*named[0].split())
        assert f"partition {partition} is refilled" in " ".join(said.split())

    assert client.get(KEY) == "right"
    latest = {number % 50: number for number in written}
    assert {key: client.get(f"hot-{key}") for key in latest} == {
        key: str(number) for key, number in latest.items()
    }
    quorate("validate", "library", "--level", "digest")
    again = quorate(*named[0].split(), code=1)
    assert "there is nothing to refill" in " ".join(again.split())


def test_the_last_good_copy_is_not_refilled(quorate: Quorate, client: RedisCluster) -> None:
    partition = key_partition(KEY.encode(), PARTITIONS)
    quorate("debug", "damage", "library", KEY, "--agent", "agent-1", "--value", "one")
    quorate("debug", "damage", "library", KEY, "--agent", "agent-2", "--value", "two")

    found = quorate("validate", "library", "--level", "digest", code=1)
    refused = {
        name: " ".join(
            quorate("debug", "refill", "library", str(partition), "--agent", name, code=1).split()
        )
        for name in ("agent-1", "agent-2", "agent-3")
    }

    assert "debug refill" not in found
    assert f"partition {partition}: no majority of its copies agrees" in " ".join(found.split())
    for name, text in refused.items():
        assert "no majority of its copies agrees (agent-" in text
        assert f"{name} may have the last good one. Start the agents" in text
