"""Validation of zones on real agents: while clients write, after damage, with an agent gone."""

import json
import os
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate.facts.read_limit import MIB
from quorate.protocol.messages.tools import Damage, Damaged
from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.meanwhile import meanwhile
from quorate_cluster.processes import environment
from quorate_spark.passes import follow_tasks
from quorate_spark.passes.scan_rows import SparkRowScan
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import AgentLink
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark.validate import Validation
from quorate_spark.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark takes its time on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 8
KEY_COUNT = 400


def copies_of(cluster: Cluster, zone: str) -> ZoneCopies:
    agents = tuple(agent.peer_address for agent in cluster.agents.values())
    return ZoneCopies(zone, agents, cluster.access, PARTITIONS, 3)


def fill(client: Any) -> None:
    for index in range(KEY_COUNT):
        client.set(f"key-{index}", f"value-{index}")
    for index in range(0, KEY_COUNT, 10):
        client.delete(f"key-{index}")
    for index in range(1, KEY_COUNT, 10):
        client.pexpire(f"key-{index}", 3_600_000)


def writing(client: Any) -> AbstractContextManager[None]:
    """Sets, deletes and expiries of a few keys go on meanwhile."""

    def write(number: int) -> None:
        # While an agent is gone, the outcome of a write may be unknown.
        with suppress(*CLIENT_ERRORS):
            client.set(f"hot-{number % 50}", f"{number}")
            client.set(f"short-{number % 50}", "x", px=5)
            client.delete(f"hot-{(number + 25) % 50}")

    return meanwhile(write)


def validate_rows(
    spark: "SparkSession",
    copies: ZoneCopies,
    settings: Settings,
    progress: Progress | None = None,
) -> Verdict:
    scan = SparkRowScan(spark, copies.zone, copies.agents, copies.cluster, settings, progress)
    return Validation(copies, settings).run(scan)


def damage(copies: ZoneCopies, agent: int, key: bytes) -> None:
    with AgentLink(copies.agents[agent], copies.cluster, 5, 5) as link:
        assert link.ask(Damage(copies.zone, key, b"damaged"), Damaged).problem == ""


def test_all_copies_agree_while_clients_write(
    spark: "SparkSession", cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_tasks, "POLL_S", 0.02)
    told: list[int] = []
    cluster.apply_zone("written", partitions=PARTITIONS)
    client = cluster.client("written")
    fill(client)
    client.set("long", bytes(MIB))

    with writing(client):
        copies = copies_of(cluster, "written")
        verdict = validate_rows(spark, copies, Settings(), Progress(told.append))

    assert verdict.outcome is Outcome.AGREE, verdict
    assert told, "24 copies were read, and nothing was told of it"
    assert (verdict.partitions, verdict.copies) == (PARTITIONS, 3 * PARTITIONS)
    assert verdict.settled_keys >= KEY_COUNT * 9 // 10
    assert verdict.zone_uid == cluster.zone_status("written")["uid"]
    assert verdict.answered is not None
    assert verdict.answered.bytes > 3 * MIB, "what Spark's workers read counts"
    assert verdict.answered.busiest_mib_per_s > 1 / verdict.answered.seconds


@pytest.mark.parametrize("agent", [0, 1, 2])
def test_a_damaged_copy_is_found_while_clients_write(
    spark: "SparkSession", cluster: Cluster, agent: int
) -> None:
    zone = f"damaged-{agent}"
    cluster.apply_zone(zone, partitions=PARTITIONS)
    client = cluster.client(zone)
    fill(client)
    damage(copies_of(cluster, zone), agent, b"key-77")

    with writing(client):
        verdict = validate_rows(spark, copies_of(cluster, zone), Settings())

    assert verdict.outcome is Outcome.DIFFER
    [difference] = verdict.key_differences
    assert (difference.key, difference.what) == ("key-77", ("value",))
    damaged = [copy.node for copy in difference.copies if copy.value_bytes == len(b"damaged")]
    assert damaged == [f"agent-{agent + 1}"]


def test_a_flush_meanwhile_is_no_damage(spark: "SparkSession", cluster: Cluster) -> None:
    cluster.apply_zone("flushed", partitions=PARTITIONS)
    client = cluster.client("flushed")
    fill(client)
    settings = Settings(chunk_bytes=200)
    flushed = threading.Timer(1.0, lambda: client.flushall(target_nodes="primaries"))

    flushed.start()
    verdict = validate_rows(spark, copies_of(cluster, "flushed"), settings)
    flushed.join()

    assert verdict.outcome is Outcome.AGREE, verdict


def test_the_command_leaves_a_report_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply_zone("reported", partitions=PARTITIONS)
    fill(cluster.client("reported"))
    copies = copies_of(cluster, "reported")
    for folder in ("work", "tmp"):
        (tmp_path / folder).mkdir()
    command = [sys.executable, "-P", "-m", "quorate_spark", "validate", "reported"]
    command += ["--agents", ",".join(copies.agents), "--cluster", cluster.name]
    command += ["--secret-file", str(cluster.secret_file)]
    command += ["--partitions", str(PARTITIONS), "--replicas", "3", "--level", "rows"]
    command += ["--report", str(tmp_path / "report.json"), "--work-dir", str(tmp_path / "work")]

    ended = subprocess.run(
        command,
        env={**environment(), "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["outcome"] == "agree"
    # Deleted keys are counted as long as a copy keeps their tombstones.
    assert KEY_COUNT * 9 // 10 <= report["settled_keys"] <= KEY_COUNT
    assert "agree" in ended.stdout
    assert ended.stderr == ""
    assert os.listdir(tmp_path / "work") == os.listdir(tmp_path / "tmp") == []


def test_with_an_agent_gone_it_cannot_be_told_and_once_it_is_back_copies_agree(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("lost", partitions=PARTITIONS)
    client = cluster.client("lost")
    fill(client)
    copies = copies_of(cluster, "lost")
    agent = cluster.agents["agent-3"]

    with writing(client):
        agent.kill()
        gone = Validation(copies, Settings(settle_timeout_s=1)).run(None)
        agent.start()
        cluster.wait_quiet("lost")
        back = Validation(copies, Settings()).run(None)

    assert gone.outcome is Outcome.UNKNOWN
    assert f"agent at {agent.peer_address} cannot be reached" in gone.reasons[0]
    assert back.outcome is Outcome.AGREE, back
