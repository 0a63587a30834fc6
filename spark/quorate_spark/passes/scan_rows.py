"""One pass of Spark over all rows of all copies: a tally for each partition.

Rows are grouped by (partition, key).  For keys with the same settled row on every copy, Python gets
only a count.  All others go through `quorate_spark.comparing.compare_rows`, the only place that
knows the rule.  Values travel as digests.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from quorate_spark.comparing.compare_rows import Baseline, Candidate, PartitionTally, RowSeen
from quorate_spark.passes.follow_tasks import followed
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Cluster, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from quorate_spark.settings import Settings


@dataclass(frozen=True, slots=True)
class ScannedPartition:
    """The result for one partition.

    `problem`: empty if every copy was read whole; otherwise the tally says nothing.  `suspicion`:
    why the partition cannot agree unless a key that differs explains it; empty if it may agree.
    """

    tally: PartitionTally
    problem: str = ""
    suspicion: str = ""


class RowScan(Protocol):
    """Compares all rows of some partitions, by reading them or otherwise."""

    def __call__(self, baselines: Mapping[int, Baseline]) -> dict[int, ScannedPartition]:
        """Return one entry per baseline.  Raises Unreadable if nothing could be scanned."""


class PartialTally(msgspec.Struct, frozen=True, array_like=True):
    """The findings of one Spark task in one partition; `ended` are (node, problem)."""

    partition: int
    settled: int
    unsettled: int
    differing: int
    candidates: tuple[Candidate, ...]
    highest: Candidate | None
    ended: tuple[tuple[str, str], ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PartialTally)


class SparkRowScan:
    """A RowScan on a Spark session."""

    def __init__(
        self,
        session: "SparkSession",
        zone: str,
        agents: tuple[str, ...],
        cluster: Cluster,
        settings: "Settings",
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress or Progress()
        self._session = session
        self._zone = zone
        self._agents = agents
        self._cluster = cluster
        self._settings = settings

    def __call__(self, baselines: Mapping[int, Baseline]) -> dict[int, ScannedPartition]:
        """Run one Spark job over the baselines' partitions."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return collect_tallies(self._parts(baselines), baselines, self._settings.rechecks_max)
        except PySparkException as error:
            raise Unreadable(reason_of(str(error))) from error
        except (Py4JError, OSError) as error:
            raise Unreadable(
                f"Spark's Java process was lost while it read rows ({type(error).__name__}): has"
                " the machine enough memory?"
            ) from error

    def _parts(self, baselines: Mapping[int, Baseline]) -> list[PartialTally]:
        baselines = dict(baselines)
        candidates_max = self._settings.rechecks_max

        def compare(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return compare_batches(batches, baselines, candidates_max)

        grouped = self._grouped(baselines)
        copies = sum(len(baseline.nodes) for baseline in baselines.values())
        with followed(self._session, copies, self._progress):
            found = grouped.mapInArrow(compare, "part binary").collect()
        return [_decoder.decode(bytes(row[0])) for row in found]

    def _grouped(self, baselines: Mapping[int, Baseline]) -> "DataFrame":
        """Return (partition, key, alike, rows).

        `alike`: all copies show one settled row; key and rows are then null.
        """
        from pyspark.sql import functions as f

        from quorate_spark.data_source import FORMAT, QuorateDataSource

        self._session.dataSource.register(QuorateDataSource)
        rows = (
            self._session.read.format(FORMAT)
            .option("zone", self._zone)
            .option("agents", ",".join(self._agents))
            .option("cluster", self._cluster.name)
            .option("secret_file", self._cluster.secret_file)
            .option("partitions", ",".join(map(str, sorted(baselines))))
            .option("values", "sha256")
            .option("problems", "rows")
            .option("chunk_bytes", str(self._settings.chunk_bytes))
            .option("connect_timeout_s", str(self._settings.connect_timeout_s))
            .option("answer_timeout_s", str(self._settings.answer_timeout_s))
            .load()
        )
        expected = self._session.createDataFrame(
            [(b.partition, len(b.nodes), b.settled_upto) for b in baselines.values()],
            "partition int, copies int, settled_upto long",
        )
        row = f.struct("node", "counter", "term", "expires_at", "value", "problem")
        content = f.struct("counter", "term", "expires_at", "value")
        grouped = rows.groupBy("partition", "key").agg(
            f.collect_list(row).alias("rows"),
            f.count("*").alias("count"),
            f.countDistinct("node").alias("nodes"),
            f.min(content).alias("least"),
            f.max(content).alias("most"),
        )
        alike = (
            f.col("key").isNotNull()
            & (f.col("count") == f.col("copies"))
            & (f.col("nodes") == f.col("copies"))
            & (f.col("least") == f.col("most"))
            & (f.col("most.counter") <= f.col("settled_upto"))
        )
        return grouped.join(f.broadcast(expected), "partition").select(
            "partition",
            f.when(~alike, f.col("key")).alias("key"),
            alike.alias("alike"),
            f.when(~alike, f.col("rows")).alias("rows"),
        )


def compare_batches(
    batches: "Iterator[pa.RecordBatch]", baselines: Mapping[int, Baseline], candidates_max: int
) -> "Iterator[pa.RecordBatch]":
    """Turn (partition, key, alike, rows) into encoded PartialTally; runs in a worker."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tallies: dict[int, PartitionTally] = {}
    ended: dict[int, list[tuple[str, str]]] = {}

    def tally_of(partition: int) -> PartitionTally:
        if partition not in tallies:
            tallies[partition] = PartitionTally(baselines[partition])
        return tallies[partition]

    for batch in batches:
        alike = batch.column("alike")
        for counted in pc.value_counts(batch.column("partition").filter(alike)).to_pylist():
            tally_of(counted["values"]).settled += counted["counts"]
        for group in batch.filter(pc.invert(alike)).to_pylist():
            partition, key = group["partition"], group["key"]
            tally = tally_of(partition)
            if key is None:
                ended.setdefault(partition, []).extend(
                    (row["node"], row["problem"]) for row in group["rows"]
                )
            else:
                tally.count(key, [_row_seen(row) for row in group["rows"]], candidates_max)
    parts = [
        _encoder.encode(
            PartialTally(
                partition,
                tally.settled,
                tally.unsettled,
                tally.differing,
                tuple(tally.candidates),
                tally.highest,
                tuple(ended.get(partition, ())),
            )
        )
        for partition, tally in sorted(tallies.items())
    ]
    yield pa.RecordBatch.from_arrays([pa.array(parts, pa.binary())], names=["part"])


def collect_tallies(
    parts: list[PartialTally], baselines: Mapping[int, Baseline], candidates_max: int
) -> dict[int, ScannedPartition]:
    """Return the tasks' findings by partition, each checked to be of exactly these copies."""
    tallies = {partition: PartitionTally(baseline) for partition, baseline in baselines.items()}
    ended: dict[int, list[tuple[str, str]]] = {partition: [] for partition in baselines}
    for part in parts:
        ended[part.partition] += part.ended
        tallies[part.partition].add(
            PartitionTally(
                baselines[part.partition],
                part.settled,
                part.unsettled,
                part.differing,
                list(part.candidates),
                part.highest,
            ),
            candidates_max,
        )
    return {
        partition: ScannedPartition(tally, _problem(tally.baseline, ended[partition]))
        for partition, tally in sorted(tallies.items())
    }


def reason_of(text: str) -> str:
    """Return the sentence of an Unreadable inside Spark's message about a failed query."""
    marker = f"{Unreadable.__module__}.{Unreadable.__qualname__}: "
    _, found, rest = text.rpartition(marker)
    lines = (rest if found else text).strip().splitlines()
    sentence = lines[0].strip() if lines else "no reason given"
    return sentence if found else f"Spark could not read the copies: {sentence}"


def _problem(baseline: Baseline, ended: list[tuple[str, str]]) -> str:
    problems = sorted(problem for _, problem in ended if problem)
    if problems:
        return "; ".join(problems)
    nodes = sorted(node for node, _ in ended)
    if nodes != sorted(baseline.nodes):
        return (
            f"partition {baseline.partition}: copies on {', '.join(baseline.nodes)} were to be"
            f" read, and those on {', '.join(nodes) or 'no node'} were: ownership changed meanwhile"
        )
    return ""


def _row_seen(row: dict[str, Any]) -> RowSeen:
    return RowSeen(row["node"], row["counter"], row["term"], row["expires_at"], row["value"])
