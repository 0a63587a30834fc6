"""`spark.readStream.format("quorate")` over a zone of real agents, and over a log that is cut."""

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate_cluster.client_errors import CLIENT_ERRORS
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.waiting import wait_until
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening
from quorate_spark_fixtures.source_options import source_options
from quorate_spark_fixtures.stream_queries import import_once, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark takes its time on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 2


class Following:
    """A query whose rows are written to Parquet files; each run goes on from its checkpoint."""

    def __init__(self, spark: "SparkSession", options: dict[str, str], folder: Path) -> None:
        from quorate_spark.data_source import QuorateDataSource

        import_once()
        spark.dataSource.register(QuorateDataSource)
        self._spark = spark
        self._options = options
        self._folder = folder

    def run(self) -> None:
        """Read all updates that there are now."""
        stream = self._spark.readStream.format("quorate").options(**self._options).load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(self._folder / "rows"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        run_to_end(query)

    def rows(self) -> list[Any]:
        """Every row so far, in order of partition and counter."""
        read = self._spark.read.parquet(str(self._folder / "rows"))
        return read.orderBy("partition", "counter").collect()


def options(cluster: Cluster, zone: str) -> dict[str, str]:
    return {**source_options(cluster, zone), "startingOffsets": "earliest"}


def test_every_update_is_read_once_also_after_a_restart_and_without_the_primary(
    spark: "SparkSession", start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("followed", partitions=PARTITIONS)
    client = cluster.client("followed")
    following = Following(spark, options(cluster, "followed"), tmp_path)
    at = int(time.time() * 1000) + 3_600_000
    for number in range(50):
        client.set(f"key-{number}", f"value-{number}")
    client.set("expiring", "x", pxat=at)

    following.run()
    assert len(following.rows()) == 51
    cluster.agents["agent-1"].kill()
    client = cluster.client("followed", first=["agent-2", "agent-3"])
    for number in range(0, 50, 10):
        wait_until(partial(delete, client, f"key-{number}"), "the key is deleted")
    client.set("key-1", "newer")
    following.run()

    rows = following.rows()
    newest = {bytes(row.key): row for row in sorted(rows, key=lambda row: row.counter)}
    live = {key: bytes(row.value) for key, row in newest.items() if not row.tombstone}
    expected = {b"key-%d" % n: b"value-%d" % n for n in range(50) if n % 10}
    assert live == {**expected, b"key-1": b"newer", b"expiring": b"x"}
    assert newest[b"expiring"].expires_at == at
    places = [(row.partition, row.counter) for row in rows]
    assert len(places) == len(set(places)) == 51 + 5 + 1
    assert {row.node for row in rows[-1:]} <= {"agent-2", "agent-3"}


def delete(client: Any, key: str) -> bool:
    """Whether the key is deleted; a repeated attempt finds none, and makes no update."""
    with suppress(*CLIENT_ERRORS):  # another primary is found meanwhile
        client.delete(key)
        return client.get(key) is None
    return False


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=PARTITIONS)
    zone.put_all([(b"a", b"1", 0)], 1)
    with listening(zone):
        yield zone


def test_a_query_that_is_too_far_behind_fails_and_says_what_is_left(
    spark: "SparkSession", zone: LoggedZone, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    agents = ",".join(agent.address for agent in zone.agents)
    whole = {"zone": "z", "cluster": "c", "agents": agents, "secret_file": zone.secret_file}
    following = Following(spark, whole, tmp_path)
    following.run()
    for number in range(4):
        zone.put_all([(b"a", b"%d" % number, 0)], 1)
    zone.log_from = 3

    with pytest.raises(PySparkException) as failed:
        following.run()

    text = str(failed.value)
    assert "zone z, partition 1: update 2 is asked for" in text
    assert "the oldest that a log still has is 4" in text
