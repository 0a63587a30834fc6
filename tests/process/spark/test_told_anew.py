"""A stream that tells all rows first, or anew, from real agents, and a table that follows it."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskColumns, AskUpdates, UpdatesTold
from quorate_cluster.background import Background
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.waiting import wait_until
from quorate_spark.reading.read_copies import open_link
from quorate_spark.settings import Settings
from quorate_spark.sources.update_stream import UpdateReader
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.mirror import Mirror
from quorate_spark_fixtures.scripted_zone import listening
from quorate_spark_fixtures.source_options import source_options
from quorate_spark_fixtures.stream_queries import import_once, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark takes its time on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]

MANUAL = Path(__file__).parents[3] / "docs" / "spark.md"
PARTITIONS = 32
"""So many that each copy has a log of 2 MiB; two of them are followed."""
LONG = b"x" * 256 * 1024
UPDATES_MIN = 2
"""So many micro-batches of updates while clients write."""


class Query:
    """The example of the manual as it is printed; each run goes on from its checkpoint."""

    def __init__(self, spark: "SparkSession", options: dict[str, str], folder: Path) -> None:
        from quorate_spark.data_source import QuorateDataSource

        import_once()
        spark.dataSource.register(QuorateDataSource)
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        self._spark = spark
        self._options = options
        self._folder = folder
        self._last = -1
        self.batches: list[list[dict[str, Any]]] = []
        """All micro-batches that were told, attempts that came to nothing among them."""
        self.after_batch: Callable[[int], None] = lambda number: None
        """Called when the table has a micro-batch, with its number."""

    def run(self) -> None:
        """Follow until there is nothing left to read."""
        names: dict[str, Any] = {
            "spark": self._spark,
            "options": dict(self._options),
            "folder": self._folder,
            "checkpoint": str(self._folder / "checkpoint"),
        }
        definitions, start, begun = example().partition("options |=")
        exec(definitions, names)
        fold, follow = names["fold"], names["follow"]

        def folded(table: "DataFrame", batch: "DataFrame") -> "DataFrame":
            """Keep what was told: `follow` has asked for it to be evaluated once."""
            self.batches.append([row.asDict() for row in batch.collect()])
            after: DataFrame = fold(table, batch)
            return after

        def followed(batch: "DataFrame", number: int) -> None:
            follow(batch, number)
            self._last = number
            self.after_batch(number)

        names |= {"fold": folded, "follow": followed}
        exec(start + begun, names)
        run_to_end(names["query"])

    def table(self) -> dict[bytes, tuple[bytes, int]]:
        """Value and counter of each key, in the newest version of the table."""
        rows = self._spark.read.parquet(str(self._folder / str(self._last))).collect()
        return {bytes(row.key): (bytes(row.value), row.counter) for row in rows}

    def mirrored(self) -> dict[bytes, tuple[bytes, int]]:
        """The same of a table that takes every attempt in, also those that came to nothing."""
        mirror = Mirror()
        for batch in self.batches:
            mirror.apply(batch)
        return {key: (row.value, row.written[1]) for key, row in mirror.rows.items()}

    def zone(self) -> dict[bytes, tuple[bytes, int]]:
        """The same of a batch read."""
        rows = self._spark.read.format("quorate").options(**self._options).load()
        found = rows.where("replica_index = 0 and not tombstone").collect()
        return {bytes(row.key): (bytes(row.value), row.counter) for row in found}

    def told_anew(self, batch: int) -> set[int]:
        """The partitions of which a micro-batch has a marker."""
        return {row["partition"] for row in self.batches[batch] if row["told"] == "anew"}


def example() -> str:
    """The text of the manual."""
    (found,) = re.finditer(
        r"```python\n(from pyspark.sql import Window.*?)```", MANUAL.read_text(), re.S
    )
    return found[1]


class Lost(Exception):
    """The query ends, as if its process were lost."""


def test_all_rows_and_updates_while_clients_write_make_the_zone_also_after_a_crash(
    spark: "SparkSession", start_cluster: StartCluster, tmp_path: Path
) -> None:
    """It is lost between the first micro-batch and its commit, and keys are deleted then."""
    from pyspark.errors import PySparkException

    cluster = start_cluster(agents=3)
    cluster.apply_zone("whole", partitions=2)
    client = cluster.client("whole")
    for number in range(200):
        client.set(f"key-{number}", "old")
    query = Query(spark, {**source_options(cluster, "whole"), "chunk_bytes": "1000"}, tmp_path)
    writers, written = Background(), threading.Event()

    def write() -> None:
        """Over keys, new ones, deleted ones, again and again, with processors left for Spark."""
        count = 0
        while not writers.stop.wait(0.05):
            client.set(f"key-{count % 200}", f"value-{count}")
            client.set(f"new-{count % 97}", f"value-{count}")
            client.delete(f"key-{(count * 7) % 200}", f"new-{(count * 5) % 97}")
            count += 1
            if count > 50:
                written.set()

    def lose(number: int) -> None:
        query.after_batch = end_of_writes
        client.delete("key-199")
        raise Lost

    def end_of_writes(number: int) -> None:
        if number == UPDATES_MIN:
            writers.stop.set()

    writers.add_road(write)
    query.after_batch = lose
    with writers:
        with pytest.raises(PySparkException, match="Lost"):
            query.run()
        checkpoint = tmp_path / "checkpoint"
        assert (checkpoint / "offsets" / "0").exists()
        assert not (checkpoint / "commits" / "0").exists()
        assert written.wait(60)
        query.run()
    query.run()

    zone = query.zone()
    assert len(zone) > 50
    assert query.table() == zone
    assert query.mirrored() == zone
    assert query.told_anew(0) == query.told_anew(1) == {0, 1}
    assert len(query.batches) > UPDATES_MIN + 1
    assert not any(query.told_anew(batch) for batch in range(2, len(query.batches)))
    newer = [row for row in query.batches[1] if row["told"] == "row"]
    assert len(query.batches[1]) == len(newer) + 2


def log_from(cluster: Cluster, zone: str, partition: int) -> int:
    """The counter above which a log of the partition still has everything, the longest one."""
    found = []
    for agent in cluster.agents.values():
        with open_link(agent.peer_address, cluster.access, Settings()) as link:
            told = link.ask(AskUpdates(zone, partition, 0, 0), UpdatesTold)
            found.append(told.reaches_from)
    return min(found)


def test_a_query_that_was_away_for_too_long_is_told_the_partition_anew(
    spark: "SparkSession", start_cluster: StartCluster, tmp_path: Path
) -> None:
    """A key is deleted while it is away."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("away", partitions=PARTITIONS)
    client = cluster.client("away")
    for number in range(100):
        client.set(f"key-{number}", "old")
    partition, other = key_partition(b"{long}", PARTITIONS), key_partition(b"key-0", PARTITIONS)
    assert partition != other
    only = {"partitions": f"{partition},{other}"}
    query = Query(spark, {**source_options(cluster, "away"), **only}, tmp_path)
    query.run()
    assert query.table() == query.zone()
    gone = next(key for key in query.table() if key_partition(key, PARTITIONS) == partition)

    client.delete(gone)
    for number in range(20):
        client.set(f"{{long}}-{number % 3}", LONG)
    wait_until(lambda: log_from(cluster, "away", partition) > 10, "the logs are cut")
    client.set("key-0", "new")
    query.run()

    assert query.told_anew(-1) == {partition}
    zone = query.zone()
    assert gone not in zone
    assert query.table() == query.mirrored() == zone


def test_the_example_reads_each_micro_batch_once(spark: "SparkSession", tmp_path: Path) -> None:
    """Of scripted agents, which count.  A flush, updates, and a log that is cut then."""
    zone = LoggedZone(partitions=2)
    for number in range(20):
        zone.put(b"key-%d" % number, b"old")
    with listening(zone):
        agents = ",".join(agent.address for agent in zone.agents)
        whole = {"zone": "z", "cluster": "c", "agents": agents, "secret_file": zone.secret_file}
        query = Query(spark, {**whole, "wait_s": "20"}, tmp_path)

        query.run()

        assert asked(zone, AskColumns) == 2
        assert set(query.table()) == set(zone.rows())
        zone.flush()
        zone.put(b"key-1", b"new")
        zone.put(b"key-2", None)

        query.run()

        assert asked(zone, AskColumns) == 2
        assert len(query.batches) == 2
        assert asked(zone, AskUpdates) == len({row["partition"] for row in query.batches[1]})
        assert query.table() == query.mirrored()
        assert set(query.table()) == set(zone.rows())
        for agent in range(3):
            zone.purge(agent)
        zone.put(b"key-1", b"newer")
        zone.log_from = 100
        zone._next = dict.fromkeys(zone._next, 101)
        zone.put(b"key-1", b"newest")

        query.run()

        assert query.told_anew(-1) == {key_partition(b"key-1", 2)}
        assert asked(zone, AskColumns) == 3
        assert query.table() == query.mirrored()
        assert set(query.table()) == set(zone.rows())


def asked(zone: LoggedZone, question: type[Message]) -> int:
    """So many of these were asked of all agents."""
    return sum(isinstance(message, question) for agent in zone.agents for message in agent.asked)


TOLD = [
    ("a", "row", 105, 5, "newer than the flush"),
    ("b", "row", 102, 5, "older than the flush"),
    ("c", "row", 102, 5, "undone"),
    ("d", "row", 105, 3, "undone"),
    ("e", "row", 102, 5, "expires"),
]


@pytest.mark.parametrize(
    ("updates", "left"),
    [
        ([], {"a": 105, "b": 102, "c": 102, "d": 105, "e": 102}),
        ([(None, 103, 5, None)], {"a": 105}),
        ([(None, 107, 5, None)], {}),
        ([(None, 107, 3, None)], {"a": 105, "b": 102, "c": 102, "e": 102}),
        (
            [("d", 103, 5, "put back"), ("e", 103, 5, None)],
            {"a": 105, "b": 102, "c": 102, "d": 103},
        ),
        (
            [("b", 101, 5, "earlier"), ("a", 106, 3, None)],
            {"a": 105, "b": 102, "c": 102, "d": 105, "e": 102},
        ),
        ([(None, 103, 5, None), ("b", 104, 5, "again")], {"a": 105, "b": 104}),
    ],
)
def test_of_a_key_the_highest_term_and_counter_count(
    spark: "SparkSession",
    updates: list[tuple[str | None, int, int, str | None]],
    left: dict[str, int],
) -> None:
    """Rows may be newer than the end of their micro-batch; updates from that end on follow.

    A key that has expired is told as one that is deleted.
    """
    told = [row_told("anew", None, 100, 5, None)]
    told += [row_told(kind, key, counter, term, value) for key, kind, counter, term, value in TOLD]
    following = [row_told("update", *update) for update in updates]
    other = {**row_told("row", "other", 1, 1, "other"), "partition": 1}
    names: dict[str, Any] = {}
    exec(example().partition("def follow")[0], names)
    schema = (
        "key binary, value binary, counter long, term long, expires_at long, partition int,"
        " tombstone boolean, told string"
    )
    mirror = Mirror()
    table = spark.createDataFrame([], schema).drop("told")

    for batch in ([*told, other], following):
        rows = [tuple(row.values()) for row in batch]
        table = names["fold"](table, spark.createDataFrame(rows, schema))
        mirror.apply(batch)

    found = {bytes(row.key).decode(): row.counter for row in table.collect()}
    assert found == {key.decode(): row.written[1] for key, row in mirror.rows.items()}
    assert found == {**left, "other": 1}


def row_told(
    told: str, key: str | None, counter: int, term: int, value: str | None
) -> dict[str, Any]:
    """One row of the stream, of partition 0."""
    return {
        "key": None if key is None else key.encode(),
        "value": None if value is None else value.encode(),
        "counter": counter,
        "term": term,
        "expires_at": 0,
        "partition": 0,
        "tombstone": value is None,
        "told": told,
    }


def test_the_agent_that_is_read_is_lost_and_another_copy_goes_on(
    start_cluster: StartCluster,
) -> None:
    """Keys are deleted and written meanwhile, before and behind the place that is read."""
    cluster = start_cluster(agents=3)
    cluster.apply_zone("read", partitions=1)
    client = cluster.client("read")
    expected = {b"key-%03d" % number: b"old" for number in range(300)}
    for key in expected:
        client.set(key, "old")
    options = {**source_options(cluster, "read"), "startingoffsets": "snapshot"}
    reader, mirror = UpdateReader({**options, "chunk_bytes": "500"}), Mirror()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (span,) = reader.partitions(start, end)
    batches = reader.read(span)
    told = [next(batches).to_pylist() for _ in range(4)]

    node = told[-1][0]["node"]
    for key in (b"key-000", b"key-299"):
        client.delete(key)
        del expected[key]
    cluster.agents[node].kill()
    told += [batch.to_pylist() for batch in batches]
    rows = [row for batch in told for row in batch]
    mirror.apply(rows)

    assert [row["told"] for row in rows[:2]] == ["anew", "row"]
    assert {row["told"] for row in rows[1:]} == {"row"}
    keys = [row["key"] for row in rows[1:]]
    assert keys == sorted(set(keys))
    nodes = list(dict.fromkeys(row["node"] for row in rows))
    assert nodes[0] == node
    assert len(nodes) == 2
    after = reader.latestOffset(end, ReadAllAvailable())
    for span in reader.partitions(end, after):
        mirror.apply(row for batch in reader.read(span) for row in batch.to_pylist())
    assert {key: row[0] for key, row in mirror.values().items()} == expected
