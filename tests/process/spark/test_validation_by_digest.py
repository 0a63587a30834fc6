"""Level digest on real agents, while clients write: do copies agree, and what is read of them?"""

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.copies.totals import key_bucket
from quorate.protocol.messages.tools import AskCopies, Copies, Damage, Damaged
from quorate_cluster.cluster import Cluster
from quorate_cluster.meanwhile import meanwhile
from quorate_cluster.processes import environment
from quorate_spark.reading.agent_link import AgentLink

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

PARTITIONS = 4
KEYS = [b"key-%d" % index for index in range(2000)]


def writing(client: Any) -> AbstractContextManager[None]:
    """A few keys are set and deleted and a new one is set, over and over, meanwhile."""

    def write(number: int) -> None:
        client.set(f"hot-{number % 20}", f"{number}")
        client.set(f"new-{number}", "x", px=60_000)
        client.delete(f"hot-{(number + 10) % 20}")

    return meanwhile(write)


def validate(cluster: Cluster, zone: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and output of the command, where there is no Java."""
    agents = ",".join(agent.peer_address for agent in cluster.agents.values())
    command = [sys.executable, "-P", "-m", "quorate_spark", "validate", zone, "--level", "digest"]
    command += ["--agents", agents, "--cluster", cluster.name]
    command += ["--secret-file", str(cluster.secret_file)]
    command += ["--partitions", str(PARTITIONS), "--replicas", "3"]
    command += ["--report", str(folder / "report.json"), "--work-dir", str(folder / "work")]
    ended = subprocess.run(
        command,
        env={**environment(), "PATH": str(folder), "JAVA_HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    assert os.listdir(folder / "work") == []
    return ended.returncode, json.loads((folder / "report.json").read_bytes()), ended.stdout


def test_copies_agree_while_clients_write_until_one_row_is_damaged(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.apply_zone("by-digest", partitions=PARTITIONS)
    client = cluster.client("by-digest")
    for key in KEYS:
        client.set(key, b"value of " + key)
    damaged = KEYS[77]
    partition, bucket = key_partition(damaged, PARTITIONS), key_bucket(damaged)
    together = [
        key
        for key in KEYS
        if (key_partition(key, PARTITIONS), key_bucket(key)) == (partition, bucket)
    ]

    with writing(client):
        agreed, before, _ = validate(cluster, "by-digest", tmp_path)
        agent = cluster.agents["agent-2"]
        with AgentLink(agent.peer_address, cluster.access, 5, 5) as link:
            assert link.ask(Damage("by-digest", damaged, b"damaged"), Damaged).problem == ""
        differed, after, output = validate(cluster, "by-digest", tmp_path)

    with AgentLink(agent.peer_address, cluster.access, 5, 5) as link:
        _, writes = link.ask(AskCopies("by-digest"), Copies).times
    assert sum(count for _, count in writes) > len(KEYS) / 9, "of one of three agents"
    assert agreed == 0, before
    assert before["digests"]["partitions_compared"] == PARTITIONS
    assert before["digests"]["rows_read"] == 0
    assert before["digests"]["rows_unread"] >= len(KEYS)
    assert differed == 1, after
    assert [(d["key"], d["what"]) for d in after["key_differences"]] == [
        (damaged.decode(), ["value"])
    ]
    [difference] = after["digests"]["differing"]
    assert (difference["partition"], difference["buckets"]) == (partition, [bucket])
    assert difference["keys"] == [damaged.decode()]
    # New keys, and deleted ones with their tombstones, share its bucket too.
    assert 3 * len(together) <= difference["rows_read"] < 3 * len(KEYS) / PARTITIONS / 4
    assert "Digests differ in 1 partitions" in output


def test_copies_in_memory_agree_when_nobody_writes(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply_zone("quiet", partitions=PARTITIONS, storage="InMemory")
    client = cluster.client("quiet")
    for key in KEYS[:200]:
        client.set(key, b"value", px=3_600_000)
    for key in KEYS[:20]:
        client.delete(key)

    code, report, output = validate(cluster, "quiet", tmp_path)

    assert (code, report["outcome"], report["settled_keys"]) == (0, "agree", 180)
    assert report["digests"]["rows_unread"] == 180
    assert "rows not read" in output
