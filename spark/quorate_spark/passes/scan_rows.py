"""One pass of Spark over all rows of all copies: a tally for each partition.

One task for each partition reads all its copies at the same time, in key order, and compares them
as they come (`quorate_spark.comparing.compare_columns`).  So nothing is sorted or sent between
tasks, and a task has 2 MiB, or one row, of each copy in memory, however large its partition is.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from quorate_spark.comparing.compare_rows import Baseline, Candidate, PartitionTally
from quorate_spark.copies import CopySeen
from quorate_spark.passes.follow_tasks import followed
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.read_copies import read_copies

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
    """The findings of one Spark task, which is about one partition; `problem` as above.

    `received`: bytes that agents have answered to the task, by the agent's name.
    """

    partition: int
    settled: int
    unsettled: int
    differing: int
    candidates: tuple[Candidate, ...]
    highest: Candidate | None
    problem: str = ""
    received: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Task:
    """The copies of one partition, to be read and compared."""

    baseline: Baseline
    copies: tuple[CopySeen, ...]


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

        received = self._cluster.received
        try:
            parts = self._parts(baselines)
        except PySparkException as error:
            received.is_whole = False
            raise Unreadable(reason_of(str(error))) from error
        except (Py4JError, OSError) as error:
            received.is_whole = False
            raise Unreadable(
                f"Spark's Java process was lost while it read rows ({type(error).__name__}): has"
                " the machine enough memory?"
            ) from error
        for part in parts:
            received.bytes_of.update(part.received)
        return collect_tallies(parts, baselines)

    def _parts(self, baselines: Mapping[int, Baseline]) -> list[PartialTally]:
        owned = read_copies(self._zone, self._agents, self._cluster, self._settings).owned
        zone, cluster, settings = self._zone, self._cluster.counting(), self._settings
        tasks = [
            Task(baseline, owned.get(partition, ()))
            for partition, baseline in sorted(baselines.items())
        ]

        def compare(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return compare_batches(batches, zone, cluster, settings)

        # Each task gets its own row only: `compare` goes to all of them.
        rows = self._session.sparkContext.parallelize(
            [(pickle.dumps(task),) for task in tasks], len(tasks)
        )
        with followed(self._session, len(tasks), self._progress):
            encoded = self._session.createDataFrame(rows, "task binary")
            found = encoded.mapInArrow(compare, "part binary").collect()
        return [_decoder.decode(bytes(row[0])) for row in found]


def compare_batches(
    batches: "Iterator[pa.RecordBatch]", zone: str, cluster: Cluster, settings: "Settings"
) -> "Iterator[pa.RecordBatch]":
    """Turn pickled tasks into encoded PartialTally; runs in a worker."""
    import pyarrow as pa

    for batch in batches:
        parts = [
            _encoder.encode(compare_partition(pickle.loads(task), zone, cluster, settings))
            for task in batch.column("task").to_pylist()
        ]
        yield pa.RecordBatch.from_arrays([pa.array(parts, pa.binary())], names=["part"])


def compare_partition(
    task: Task, zone: str, cluster: Cluster, settings: "Settings"
) -> PartialTally:
    """Read and compare the copies of one partition."""
    from quorate_spark.comparing.compare_columns import compare_copies
    from quorate_spark.reading.read_columns import read_columns

    cluster = cluster.counting()
    baseline, tally, problem = task.baseline, PartitionTally(task.baseline), ""
    nodes = [copy.node for copy in task.copies]
    if sorted(nodes) != sorted(baseline.nodes):
        problem = (
            f"partition {baseline.partition}: copies on {', '.join(baseline.nodes)} were to be"
            f" read, and those on {', '.join(nodes) or 'no node'} were: ownership changed meanwhile"
        )
    else:
        with ExitStack() as stack:
            streams = {
                copy.node: stack.enter_context(closing(read_columns(copy, zone, cluster, settings)))
                for copy in task.copies
            }
            try:
                tally = compare_copies(streams, baseline, settings.rechecks_max)
            except Unreadable as error:
                problem = str(error)
    return PartialTally(
        baseline.partition,
        tally.settled,
        tally.unsettled,
        tally.differing,
        tuple(tally.candidates),
        tally.highest,
        problem,
        dict(cluster.received.bytes_of),
    )


def collect_tallies(
    parts: Sequence[PartialTally], baselines: Mapping[int, Baseline]
) -> dict[int, ScannedPartition]:
    """Return the tasks' findings by partition."""
    return {
        part.partition: ScannedPartition(
            PartitionTally(
                baselines[part.partition],
                part.settled,
                part.unsettled,
                part.differing,
                list(part.candidates),
                part.highest,
            ),
            part.problem,
        )
        for part in parts
    }


def reason_of(text: str) -> str:
    """Return the sentence of an Unreadable inside Spark's message about a failed query."""
    marker = f"{Unreadable.__module__}.{Unreadable.__qualname__}: "
    _, found, rest = text.rpartition(marker)
    lines = (rest if found else text).strip().splitlines()
    sentence = lines[0].strip() if lines else "no reason given"
    return sentence if found else f"Spark could not read the copies: {sentence}"
