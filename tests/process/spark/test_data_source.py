"""The format `quorate` in a real Spark, over agents that follow a script."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskColumns
from quorate_spark.comparing.compare_counters import Settled
from quorate_spark.passes.scan_rows import SparkRowScan
from quorate_spark.reading.settle import settle
from quorate_spark.settings import Settings
from quorate_spark.validate import baseline_of
from quorate_spark_fixtures.scripted_zone import QUICK, PlainRowScan, ScriptedZone, listening

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

# Spark takes its time on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]

# The first query of a session starts its Python workers, which takes long on a busy machine.
PATIENT = Settings(2.0, 30.0, 0.3, 0.01, 64)


@pytest.fixture
def zone() -> Iterator[ScriptedZone]:
    zone = ScriptedZone(partitions=2)
    for index in range(20):
        zone.write(b"key-%02d" % index, b"value-%d" % index, partition=index % 2)
    zone.write(b"key-00", None)
    with listening(zone):
        yield zone


def reader(
    spark: "SparkSession", zone: ScriptedZone, options: Mapping[str, str] | None = None
) -> "DataFrameReader":
    from quorate_spark.data_source import QuorateDataSource

    spark.dataSource.register(QuorateDataSource)
    whole = {"zone": "z", "agents": ",".join(zone.copies.agents), **(options or {})}
    whole = {"cluster": "c", "secret_file": zone.secret_file, **whole}
    return spark.read.format("quorate").options(**whole)


def failure(
    spark: "SparkSession", zone: ScriptedZone, options: Mapping[str, str] | None = None
) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as failed:
        reader(spark, zone, options).load().collect()
    return str(failed.value)


def test_there_is_one_spark_partition_per_storage_partition_and_copy(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    rows = reader(spark, zone).load()

    assert rows.rdd.getNumPartitions() == 2 * 3
    assert rows.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("counter", "bigint"),
        ("term", "bigint"),
        ("expires_at", "bigint"),
        ("replica_index", "int"),
        ("node", "string"),
        ("partition", "int"),
        ("tombstone", "boolean"),
    ]


def test_every_row_of_every_copy_is_read_tombstones_included(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    zone.copy(2, partition=1).rows[b"key-07"] = (8, 3, 1234, b"other")

    found: list[Any] = reader(spark, zone, {"chunk_bytes": "100"}).load().collect()

    assert len(found) == 3 * 20
    by_place = {(bytes(row.key), row.node): row for row in found}
    deleted = by_place[b"key-00", "agent-1"]
    assert (deleted.value, deleted.tombstone, deleted.counter) == (None, True, 11)
    other = by_place[b"key-07", "agent-2"]
    assert (bytes(other.value), other.expires_at, other.replica_index) == (b"other", 1234, 2)
    assert (other.partition, other.term, other.tombstone) == (1, 3, False)


def test_only_the_partitions_asked_for_are_read(spark: "SparkSession", zone: ScriptedZone) -> None:
    rows = reader(spark, zone, {"partitions": "1"}).load()

    assert {row.partition for row in rows.select("partition").collect()} == {1}


def columns_asked(zone: ScriptedZone) -> list[tuple[str, int, bytes, bytes | None, bool]]:
    return [
        (agent.name, each.partition, each.first, each.before, each.values)
        for agent in zone.agents
        for each in agent.asked
        if isinstance(each, AskColumns)
    ]


def test_only_the_columns_asked_for_travel(spark: "SparkSession", zone: ScriptedZone) -> None:
    rows = reader(spark, zone, {"columns": "key,node"}).load()

    assert rows.dtypes == [("key", "binary"), ("node", "string")]
    assert rows.where("key = 'key-07'").groupBy("node").count().count() == 3
    assert not any(values for *_, values in columns_asked(zone))


def test_filters_of_a_query_narrow_what_agents_are_asked_for(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    rows = reader(spark, zone, {"pushdown": "on"}).load()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = rows.where("key in ('key-03', 'key-05', 'no') and node = 'agent-1'").collect()
        between = rows.where("key >= 'key-17' and replica_index = 2 and counter > 9").collect()
        nothing = rows.where("key > 'key-17' and key < 'key-17'").collect()
        no_node = rows.where("node = 'agent-9'").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert sorted(bytes(row.key) for row in found) == [b"key-03", b"key-05"]
    assert sorted(bytes(row.key) for row in between) == [b"key-18", b"key-19"]
    assert nothing == no_node == []
    asked = columns_asked(zone)
    assert {agent for agent, *_ in asked} == {"agent-1", "agent-2"}
    assert {each[2:4] for each in asked if each[0] == "agent-1"} == {
        (key, key + b"\0") for key in (b"key-03", b"key-05", b"no")
    }
    assert {each[2:4] for each in asked if each[0] == "agent-2"} == {(b"key-17", None)}


def test_filters_that_spark_does_not_hand_over_are_refused_with_the_way_out(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    assert "spark.sql.python.filterPushdown.enabled" in failure(spark, zone, {"pushdown": "on"})


def test_a_copy_that_cannot_be_read_fails_the_query_with_the_reason(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    zone.agents[1].on_ask = lambda message: None if isinstance(message, AskColumns) else ...

    text = failure(spark, zone)

    assert "Unreadable: agent agent-1 at 127.0.0.1:" in text
    assert "closed the connection during AskColumns" in text


def test_a_copy_that_changes_its_owner_while_it_is_read_fails_the_query(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    def change(message: Message) -> Any:
        if isinstance(message, AskColumns) and message.first:
            zone.copy(0).version += 1
        return ...

    zone.agents[0].on_ask = change

    assert "changed its owner or term while it was read" in failure(
        spark, zone, {"chunk_bytes": "64"}
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"agents": ""}, "option agents is missing"),
        ({"zone": "y"}, "has no zone y: the zones here are z"),
        ({"agents": "127.0.0.1"}, "write host:port"),
        ({"values": "some"}, "option values is 'some': write full or sha256"),
        ({"problems": "hide"}, "option problems is 'hide': write raise or rows"),
        ({"partitions": "a"}, "option partitions is 'a': write numbers with commas"),
        ({"chunk_bytes": "big"}, "option chunk_bytes is 'big': write a number"),
        ({"cluster": "d"}, "belongs to cluster c, not d"),
        ({"secret_file": ""}, "option secret_file is missing"),
        ({"secret_file": "/no/secret"}, "/no/secret cannot be read"),
    ],
)
def test_options_that_cannot_be_are_refused_with_the_way_out(
    spark: "SparkSession", zone: ScriptedZone, options: dict[str, str], reason: str
) -> None:
    assert reason in failure(spark, zone, options)


def test_an_agent_that_cannot_be_reached_fails_the_query(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    zone.agents[2].end()

    assert f"agent at {zone.agents[2].address} cannot be reached" in failure(spark, zone)


def test_spark_finds_in_the_rows_what_a_plain_scan_finds(
    spark: "SparkSession", zone: ScriptedZone
) -> None:
    zone.copy(1).rows[b"key-02"] = (2, 3, 0, b"damaged")
    del zone.copy(2, partition=1).rows[b"key-05"]
    zone.purge(0)
    zone.write(b"key-08", b"newer", on=(0,))
    zone.write(b"key-06", b"newest", on=(0, 1))
    zone.agents[1].on_ask = lambda message: None if is_rows_of(message, 3) else ...
    for agent in zone.agents:
        agent.copies[3] = agent.copies[1]
    zone.copy(0).lwm = zone.copy(1).lwm = zone.copy(2).lwm
    _, judgements = settle(zone.copies, QUICK)
    baselines = {p: baseline_of(p, s) for p, s in judgements.items() if isinstance(s, Settled)}
    assert baselines.keys() == judgements.keys()

    found = SparkRowScan(spark, "z", zone.copies.agents, zone.cluster, PATIENT)(baselines)
    expected = PlainRowScan(zone.copies, PATIENT)(baselines)

    assert found.keys() == expected.keys()
    assert [found[partition] for partition in (0, 1)] == [expected[0], expected[1]]
    assert [found[partition].tally.differing for partition in (0, 1)] == [1, 1]
    assert found[0].tally.unsettled == 2
    assert "closed the connection" in found[3].problem


def test_what_goes_to_every_task_does_not_grow_with_their_number(
    spark: "SparkSession", zone: ScriptedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task unpickles the function: with all tasks in it, the work would be their square."""
    from pyspark import cloudpickle
    from pyspark.sql.classic.dataframe import DataFrame

    plain = DataFrame.mapInArrow
    sizes: list[int] = []

    def measured(frame: DataFrame, function: Any, schema: str) -> DataFrame:
        sizes.append(len(cloudpickle.dumps(function)))
        return plain(frame, function, schema)

    monkeypatch.setattr(DataFrame, "mapInArrow", measured)
    scan = SparkRowScan(spark, "z", zone.copies.agents, zone.cluster, PATIENT)
    _, judgements = settle(zone.copies, QUICK)
    baselines = {p: baseline_of(p, s) for p, s in judgements.items() if isinstance(s, Settled)}
    assert len(scan({0: baselines[0]})) == 1
    assert len(scan(baselines)) == 2

    assert sizes[0] == sizes[1]


def is_rows_of(message: Message, partition: int) -> bool:
    return isinstance(message, AskColumns) and message.partition == partition


def test_spark_listens_on_loopback_only(spark: "SparkSession") -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    listening_at = {address for address, _ in listeners(gateway.proc.pid)}

    assert listening_at == {"127.0.0.1"}


def listeners(pid: int) -> list[tuple[str, int]]:
    """Address and port of every listening TCP socket of a process."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(file.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                found.append((readable(host), int(port, 16)))
    return found


def readable(host: str) -> str:
    """An address of /proc/net as text; an IPv4 address inside IPv6 as IPv4."""
    raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET6 if len(raw) == 16 else socket.AF_INET, raw)
