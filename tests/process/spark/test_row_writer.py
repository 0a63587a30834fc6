"""`df.write.format("quorate")` into zones of real agents, read back by stock clients."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.meanwhile import meanwhile
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark_fixtures.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

# Spark takes its time on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = 8
IN_AN_HOUR_MS = 3_600_000


def writer(rows: "DataFrame", cluster: Cluster, zone: str) -> "DataFrameWriter":
    from quorate_spark.data_source import QuorateDataSource

    rows.sparkSession.dataSource.register(QuorateDataSource)
    return rows.write.format("quorate").options(**source_options(cluster, zone)).mode("append")


def frame(spark: "SparkSession", count: int, value: str = "value") -> "DataFrame":
    return spark.range(count, numPartitions=4).selectExpr(
        "concat('key-', id) as key", f"concat('{value}-', id) as value"
    )


def failure(write: "DataFrameWriter") -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as failed:
        write.save()
    return str(failed.value)


def counters(cluster: Cluster, zone: str) -> list[int]:
    """How many updates each partition has had."""
    agents = tuple(agent.peer_address for agent in cluster.agents.values())
    owned = ZoneCopies(zone, agents, cluster.access).read(Settings()).owned
    return [copies[0].state.hwm for copies in owned.values()]


def values(client: Any, keys: Sequence[str]) -> list[bytes | None]:
    return [client.get(key) for key in keys]


def test_rows_replace_those_of_their_keys_and_others_stay(
    spark: "SparkSession", cluster: Cluster
) -> None:
    cluster.apply_zone("rows", partitions=PARTITIONS)
    client = cluster.client("rows")
    client.set("key-7", "older", ex=1000)
    client.set("other", "stays")

    writer(frame(spark, 3000), cluster, "rows").save()

    assert client.dbsize(target_nodes="primaries") == 3001
    assert values(client, ["key-0", "key-7", "key-2999", "other"]) == [
        b"value-0",
        b"value-7",
        b"value-2999",
        b"stays",
    ]
    assert client.ttl("key-7") == -1


def test_rows_written_again_change_nothing(spark: "SparkSession", cluster: Cluster) -> None:
    cluster.apply_zone("again", partitions=PARTITIONS)
    writer(frame(spark, 2000), cluster, "again").save()
    before = counters(cluster, "again")
    assert sum(before) <= 4 * PARTITIONS + PARTITIONS, "rows are written in batches"

    writer(frame(spark, 2000), cluster, "again").save()

    assert counters(cluster, "again") == before


def test_a_job_that_failed_in_part_is_repeated(spark: "SparkSession", cluster: Cluster) -> None:
    cluster.apply_zone("parts", partitions=PARTITIONS)
    client = cluster.client("parts")
    rows = spark.range(2000, numPartitions=2).selectExpr(
        "concat('key-', id) as key", "if(id = 1999, null, 'v') as value"
    )

    told = failure(writer(rows, cluster, "parts"))
    assert "column value is null, for key key-1999: a write deletes no keys" in told
    writer(rows.na.fill("v"), cluster, "parts").save()

    assert client.dbsize(target_nodes="primaries") == 2000
    assert client.get("key-1999") == b"v"


def test_rows_expire_when_their_column_says_so(spark: "SparkSession", cluster: Cluster) -> None:
    cluster.apply_zone("expiring", partitions=PARTITIONS)
    client = cluster.client("expiring")
    at = int(time.time() * 1000) + IN_AN_HOUR_MS
    schema = "key string, value binary, expires_at long"
    rows = [("later", b"\x00\xfe", at), ("never", b"", 0), ("null", b"x", None), ("over", b"x", 1)]

    writer(spark.createDataFrame(rows, schema), cluster, "expiring").save()

    assert client.pexpiretime("later") == at
    assert [client.ttl("never"), client.ttl("null")] == [-1, -1]
    assert values(client, ["later", "never", "over"]) == [b"\x00\xfe", b"", None]


def test_what_was_read_can_be_written_whatever_its_type(
    spark: "SparkSession", cluster: Cluster
) -> None:
    cluster.apply_zone("source", partitions=PARTITIONS)
    cluster.apply_zone("target", partitions=2)
    client = cluster.client("source")
    client.hset("hash", mapping={"field": "1", "other": "2"})
    client.rpush("list", "a", "b")
    client.set("bytes", b"\xff\x00")
    client.set("gone", "x")
    client.delete("gone")
    from quorate_spark.data_source import QuorateDataSource

    spark.dataSource.register(QuorateDataSource)
    rows = spark.read.format("quorate").options(**source_options(cluster, "source")).load()
    live = rows.where("replica_index = 0 and not tombstone")

    writer(live.select("key", "value", "expires_at"), cluster, "target").save()

    copied = cluster.client("target")
    assert copied.hgetall("hash") == {b"field": b"1", b"other": b"2"}
    assert copied.lrange("list", 0, -1) == [b"a", b"b"]
    assert copied.get("bytes") == b"\xff\x00"
    assert copied.dbsize(target_nodes="primaries") == 3


def test_overwrite_never_deletes_the_rest_of_the_zone(
    spark: "SparkSession", cluster: Cluster
) -> None:
    cluster.apply_zone("kept", partitions=PARTITIONS)
    client = cluster.client("kept")
    client.set("other", "stays")
    overwrite = writer(frame(spark, 10), cluster, "kept").mode("overwrite")

    told = failure(overwrite)
    assert "mode is 'overwrite' and option overwrite is missing" in told
    assert 'write .mode("append"), or add .option("overwrite", "keys")' in told
    told = failure(overwrite.option("overwrite", "zone"))
    assert "option overwrite is 'zone', and a write deletes no keys of zone kept" in told
    assert "FLUSHALL" in told
    assert client.dbsize(target_nodes="primaries") == 1
    overwrite.option("overwrite", "keys").save()

    assert values(client, ["key-9", "other"]) == [b"value-9", b"stays"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (["'k' as key"], "column value is missing"),
        (["'k' as key", "'v' as value", "1 as counter"], "column counter cannot be written"),
        (["1.5 as key", "'v' as value"], "cast it to binary or string"),
        (["'k' as key", "'v' as value", "'1' as expires_at"], "cast it to bigint or int"),
        (["'k' as key", "'v' as value", "-1L as expires_at"], "column expires_at is -1"),
        (["string(null) as key", "'v' as value"], "column key is null"),
        (["'k' as key", "X'ff41' as value"], "none that clients can read"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_with_the_way_out(
    spark: "SparkSession", cluster: Cluster, columns: list[str], reason: str
) -> None:
    cluster.apply_zone("refused", partitions=PARTITIONS)

    assert reason in failure(writer(spark.range(1).selectExpr(*columns), cluster, "refused"))

    assert cluster.client("refused").dbsize(target_nodes="primaries") == 0


def test_a_zone_that_is_not_there_in_whole_is_refused(
    spark: "SparkSession", cluster: Cluster
) -> None:
    cluster.apply_zone("whole", partitions=PARTITIONS)

    assert "has no zone none" in failure(writer(frame(spark, 1), cluster, "none"))


def test_rows_of_a_stream_are_written(
    spark: "SparkSession", cluster: Cluster, tmp_path: Path
) -> None:
    from quorate_spark.data_source import QuorateDataSource

    cluster.apply_zone("streamed", partitions=PARTITIONS)
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = [json.dumps({"key": f"{number}-{n}", "value": f"{n}"}) for n in range(100)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
    spark.dataSource.register(QuorateDataSource)
    stream = spark.readStream.schema("key string, value string").json(str(tmp_path / "in"))

    query = (
        stream.writeStream.format("quorate")
        .options(**source_options(cluster, "streamed"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)

    client = cluster.client("streamed")
    assert client.dbsize(target_nodes="primaries") == 300
    assert client.get("2-99") == b"99"


def test_rows_are_written_while_a_primary_is_killed(
    spark: "SparkSession", start_cluster: StartCluster
) -> None:
    count = 60_000
    cluster = start_cluster(agents=3)
    cluster.apply_zone("hurt", partitions=PARTITIONS)
    killed: list[int] = []

    def kill(number: int) -> None:
        """Kill an agent once the first rows are there."""
        if not killed and max(counters(cluster, "hurt")) > 2:
            killed.append(number)
            cluster.agents["agent-1"].kill()

    with meanwhile(kill):
        writer(frame(spark, count), cluster, "hurt").save()
    assert killed

    client = cluster.client("hurt", first=["agent-2", "agent-3"])
    step = range(0, count, 997)
    assert client.dbsize(target_nodes="primaries") == count
    assert values(client, [f"key-{n}" for n in step]) == [b"value-%d" % n for n in step]
