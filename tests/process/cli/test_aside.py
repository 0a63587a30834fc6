"""Commands list and show rows that a reset left, as a person types them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import RedisCluster

from quorate.facts.keyspace import key_partition
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import fetch_state
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 4
KEY, OTHER = "the-key", "{the-key}-2"
PARTITION = key_partition(KEY.encode(), PARTITIONS)
ZONE = f"""
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {{name: library}}
spec: {{clusterRef: {{name: main}}, partitions: {PARTITIONS}, replicas: 3}}
"""

Quorate = Callable[..., str]


def _client(cluster: DevCluster) -> RedisCluster:
    (zone,) = resources.fetch_all(cluster.api(), resources.ZONE)
    (state,) = fetch_state(cluster.api(), "main").zones
    online = [node.name for node in fetch_state(cluster.api(), "main").nodes if node.online]
    assert resources.name_of(zone) == state.name
    return RedisCluster(host="127.0.0.1", port=state.ports[online[0]], decode_responses=True)


def _aside(quorate: Quorate) -> list[dict[str, Any]]:
    try:
        listed = json.loads(quorate("aside", "list", "library", "--json"))
    except AssertionError:
        return []  # those that have something may not answer yet
    return [each for each in listed["aside"] if each["partition"] == PARTITION]


def test_what_a_reset_left_is_listed_and_shown(
    quorate: Quorate, cluster: DevCluster, tmp_path: Path
) -> None:
    (tmp_path / "zone.yaml").write_text(ZONE)
    quorate("dev", "up")
    quorate("apply", "-f", str(tmp_path / "zone.yaml"), "--wait", "60")
    assert "nothing is set aside" in quorate("aside", "list")
    with _client(cluster) as client:
        client.set(KEY, "before")
    quorate("dev", "kill", "agent-3")

    def wait_left(*names: str) -> None:
        def left() -> bool:
            nodes = fetch_state(cluster.api(), "main").nodes
            return all(not node.online for node in nodes if node.name in names)

        wait_until(left, f"{names} have left", 60)

    wait_left("agent-3")
    with _client(cluster) as client:
        client.set(KEY, "lost")
        client.set(OTHER, "only there")
    for name in ("agent-1", "agent-2"):
        quorate("dev", "kill", name)
    quorate("dev", "start", "agent-3")
    wait_left("agent-1", "agent-2")

    def command() -> str | None:
        try:
            said = quorate("recover", "reset", "library", "--partitions", f"0-{PARTITIONS - 1}")
        except AssertionError:
            return None  # the operator does not know yet who is there
        found = re.search(r"^  quorate (recover reset .*)$", said, re.MULTILINE)
        return found[1] if found else None

    quorate(*wait_until(command, "the reset is possible", 60).split())
    wait_until(
        lambda: fetch_state(cluster.api(), "main").zones[0].unavailable == 0, "agent-3 serves", 60
    )
    with _client(cluster) as client:
        client.set(KEY, "after")
    for name in ("agent-1", "agent-2"):
        quorate("dev", "start", name)
    wait_until(
        lambda: {each["agent"] for each in _aside(quorate)} == {"agent-1", "agent-2"},
        "both have set it aside",
        60,
    )

    shown = quorate(
        "aside", "show", "library", str(PARTITION), "--agent", "agent-1", "--differs", "--json"
    )
    rows = {row["key"]: row for row in map(json.loads, shown.splitlines())}
    assert {key: row["items"] for key, row in rows.items()} == {
        KEY: ["lost"],
        OTHER: ["only there"],
    }
    assert rows[KEY]["present"]["items"] == ["after"]
    assert rows[OTHER]["present"] is None
    text = quorate("aside", "show", "library", str(PARTITION), "--key", OTHER)
    assert text.count(f"{OTHER}  string  only there") == 2
    wait_until(
        lambda: "copies are set aside after resets" in " ".join(quorate("status").split()),
        "the status counts it",
        30,
    )
    with _client(cluster) as client:
        assert client.get(KEY) == "after"
