"""Mode idle on real agents: what agrees while nothing is written, and what cannot be told."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.tools import Damage, Damaged
from quorate_cluster.cluster import Cluster
from quorate_cluster.meanwhile import meanwhile
from quorate_cluster.processes import environment
from quorate_spark.pages.page import page_of
from quorate_spark.passes.scan_rows import SparkRowScan
from quorate_spark.reading.agent_link import AgentLink
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.report import print_report, report_json
from quorate_spark.settings import Settings
from quorate_spark.validate import Validation
from quorate_spark.verdict import Mode, Outcome

# Spark takes its time on a busy machine.
pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 4
KEYS = [b"key-%d" % index for index in range(400)]
HOT = b"hot"
WRITTEN = key_partition(HOT, PARTITIONS)
LEVELS = ["counters", "digest", pytest.param("rows", marks=pytest.mark.spark)]

Report = Mapping[str, Any]
Validate = Callable[[str, str], Report]


def copies_of(cluster: Cluster, zone: str) -> ZoneCopies:
    agents = tuple(agent.peer_address for agent in cluster.agents.values())
    return ZoneCopies(zone, agents, cluster.access, PARTITIONS, 3)


@pytest.fixture
def validate(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Validate:
    """Validate a zone at a level, in mode idle; return the report, with the output and the page.

    Level rows runs in the tests' own session of Spark; the others are the command.
    """

    def in_session(zone: str) -> Report:
        copies, settings = copies_of(cluster, zone), Settings()
        spark = request.getfixturevalue("spark")
        scan = SparkRowScan(spark, zone, copies.agents, copies.cluster, settings)
        verdict = Validation(copies, settings, mode=Mode.IDLE).run(scan)
        console = Console(record=True, width=200)
        print_report(verdict, console)
        told = {"output": console.export_text(), "page": page_of(verdict).decode()}
        return {**json.loads(report_json(verdict)), **told}

    def run(zone: str, level: str) -> Report:
        if level == "rows":
            return in_session(zone)
        agents = ",".join(agent.peer_address for agent in cluster.agents.values())
        command = [sys.executable, "-P", "-m", "quorate_spark", "validate", zone]
        command += ["--level", level, "--mode", "idle", "--agents", agents]
        command += ["--cluster", cluster.name, "--secret-file", str(cluster.secret_file)]
        command += ["--partitions", str(PARTITIONS), "--replicas", "3"]
        command += ["--report", str(tmp_path / "reports/"), "--work-dir", str(tmp_path / "work")]
        (tmp_path / "reports").mkdir(exist_ok=True)
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True)
        assert ended.stderr == ""
        assert os.listdir(tmp_path / "work") == []
        newest = max((tmp_path / "reports").glob("*.json"), key=os.path.getmtime)
        report = json.loads(newest.read_bytes())
        assert report["exit_code"] == ended.returncode
        assert report["mode"] == "idle"
        page = newest.with_suffix(".html").read_text()
        return {**report, "output": ended.stdout, "page": page}

    return run


def zone_with_keys(cluster: Cluster, zone: str, **spec: Any) -> Any:
    cluster.apply_zone(zone, partitions=PARTITIONS, **spec)
    client = cluster.client(zone)
    for key in KEYS:
        client.set(key, b"value of " + key, px=3_600_000)
    for key in KEYS[:20]:
        client.delete(key)
    return client


def writing(client: Any) -> AbstractContextManager[None]:
    """One key is set, over and over, meanwhile."""
    return meanwhile(lambda number: client.set(HOT, f"{number}"))


@pytest.mark.parametrize(
    ("level", "storage"),
    [
        ("counters", "Persistent"),
        ("digest", "Persistent"),
        ("digest", "InMemory"),
        pytest.param("rows", "Persistent", marks=pytest.mark.spark),
    ],
)
def test_a_quiet_zone_agrees_until_a_copy_is_damaged(
    cluster: Cluster, validate: Validate, level: str, storage: str
) -> None:
    zone = f"quiet-{level}-{storage.lower()}"
    zone_with_keys(cluster, zone, storage=storage)

    quiet = validate(zone, level)

    assert (quiet["outcome"], quiet["reasons"]) == ("agree", [])
    assert (quiet["partitions"], quiet["copies"]) == (PARTITIONS, 3 * PARTITIONS)
    assert quiet["unsettled_keys"] == 0
    assert "nothing was written meanwhile" in quiet["page"]
    if level == "counters":
        return
    assert quiet["settled_keys"] >= len(KEYS) - 20
    damaged = cluster.agents["agent-2"]
    with AgentLink(damaged.peer_address, cluster.access, 5, 5) as link:
        assert link.ask(Damage(zone, KEYS[77], b"damaged"), Damaged).problem == ""

    after = validate(zone, level)

    assert (after["outcome"], after["reasons"]) == ("differ", [])
    [difference] = after["key_differences"]
    assert (difference["key"], difference["what"]) == (KEYS[77].decode(), ["value"])
    assert [each["node"] for each in after["outvoted"]] == ["agent-2"]


@pytest.mark.parametrize("level", LEVELS)
def test_with_a_writer_it_cannot_be_told_and_its_partition_is_named(
    cluster: Cluster, validate: Validate, level: str
) -> None:
    zone = f"written-{level}"
    client = zone_with_keys(cluster, zone)

    with writing(client):
        report = validate(zone, level)

    assert report["outcome"] == "could not tell"
    [reason] = report["reasons"]
    assert reason.startswith(f"partition {WRITTEN} of zone {zone}: updates came while it ran (")
    assert {each["partition"] for each in report["changes"]} == {WRITTEN}
    for each in report["changes"]:
        assert each["node"] in cluster.agents
        before, after = each["before"], each["after"]
        assert (before["lwm"], before["hwm"]) < (after["lwm"], after["hwm"])
    assert (report["classes"], report["changed_partitions"]) == ({"skipped": 1}, 1)
    assert "1 partition changed meanwhile" in report["page"]
    assert "1 partition changed meanwhile" in report["output"]


def test_a_key_that_expires_meanwhile_is_an_update(cluster: Cluster, validate: Validate) -> None:
    client = zone_with_keys(cluster, "shortlived")
    client.set(HOT, "x", px=10_000)  # the first reading has so long

    copies, settings = copies_of(cluster, "shortlived"), Settings(idle_s=12.0)
    verdict = Validation(copies, settings, mode=Mode.IDLE).run(None)

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons[0].startswith(f"partition {WRITTEN} of zone shortlived: updates came")
    assert "keys that have expired" in verdict.notes[-1]
    assert validate("shortlived", "digest")["outcome"] == "agree"
