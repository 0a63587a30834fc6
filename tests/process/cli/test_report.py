"""The page of a validation, as a person has it made on a development cluster."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from redis import RedisCluster

from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects.cluster_state import fetch_state
from quorate_cluster.waiting import wait_until
from quorate_spark_fixtures.read_page import read_page

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

ZONE = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: library}
spec: {clusterRef: {name: main}, partitions: 8, replicas: 3}
"""

Quorate = Callable[..., str]
Damageable = Callable[[str, int], AbstractContextManager[RedisCluster]]


@pytest.fixture
def quorate_environment(folder: Path) -> dict[str, str]:
    """No Java."""
    return {"COLUMNS": "200", "JAVA_HOME": str(folder)}


def test_the_page_tells_the_failovers_of_the_day_also_after_the_operator_was_restarted(
    quorate: Quorate, cluster: DevCluster, damageable: Damageable, tmp_path: Path
) -> None:
    reports = tmp_path / "reports"

    def available() -> int:
        [zone] = fetch_state(cluster.api(), "main").zones
        return zone.available

    def report() -> tuple[str, str]:
        """Return what the newest page says of the day, and its JSON."""
        known = {*reports.glob("*.html")}
        quorate("validate", "library", "--level", "digest", "--report", f"{reports}/")
        [page] = {*reports.glob("*.html")} - known
        read = read_page(page.read_bytes())
        assert "none is known" in read.section("Backups")
        return read.section("The last 24 hours"), page.with_suffix(".json").read_text()

    with damageable(ZONE, 200):
        quiet, _ = report()
        [primaries] = [
            node.primaries
            for node in fetch_state(cluster.api(), "main").nodes
            if node.name == "agent-1"
        ]
        quorate("dev", "kill", "agent-1")
        wait_until(lambda: available() == 0, "its loss", 30)
        quorate("dev", "start", "agent-1")
        wait_until(lambda: available() == 8, "its return", 60)
        after, told = report()
        quorate("dev", "kill", "operator")
        quorate("dev", "up")
        wait_until(lambda: available() == 8, "the next operator", 60)
        again, _ = report()

    assert "Failovers 0 " in quiet
    assert "Nothing is known of the time before" in quiet
    assert f"Failovers {primaries} " in after
    [hour, *_] = json.loads(told)["history"]["day"]["hours"]
    assert hour["partitions_missing_copies"] == 8
    assert f"Failovers {primaries} " in again
    assert "The present operator began at" in again
