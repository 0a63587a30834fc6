"""One pass of Spark over all rows of all copies: a tally for each partition.

One task for each partition reads all its copies at the same time, in key order, and compares them
as they come (`quorate_spark.comparing.compare_columns`).  So nothing is sorted or sent between
tasks, and a task has 2 MiB, or one row, of each copy in memory, however large its partition is.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from quorate_link.secret import SecretRefused
from quorate_spark.comparing.compare_rows import Baseline, Candidate, PartitionTally
from quorate_spark.copies import CopySeen
from quorate_spark.passes.follow_tasks import TasksWatch
from quorate_spark.passes.run_tasks import run_tasks
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Cluster, Unreadable, read_cluster
from quorate_spark.reading.read_copies import read_copies

if TYPE_CHECKING:
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
    """A RowScan on a Spark session.

    `watch`: of executors, if tasks run in other pods.  Nothing secret then goes with one: its
    worker reads the cluster's secret where this process has read it.
    """

    def __init__(
        self,
        session: "SparkSession",
        zone: str,
        agents: tuple[str, ...],
        cluster: Cluster,
        settings: "Settings",
        progress: Progress | None = None,
        watch: TasksWatch | None = None,
    ) -> None:
        self._watch = watch
        self._progress = progress or Progress()
        self._session = session
        self._zone = zone
        self._agents = agents
        self._cluster = cluster
        self._settings = settings

    def __call__(self, baselines: Mapping[int, Baseline]) -> dict[int, ScannedPartition]:
        """Run one Spark job over the baselines' partitions."""
        owned = read_copies(self._zone, self._agents, self._cluster, self._settings).owned
        tasks = [
            pickle.dumps(Task(baseline, owned.get(partition, ())))
            for partition, baseline in sorted(baselines.items())
        ]
        compare: Callable[[bytes], bytes]
        if self._watch is not None:
            file = str(Path(self._cluster.secret_file).absolute())
            compare = partial(
                compare_elsewhere,
                zone=self._zone,
                cluster=self._cluster.name,
                secret_file=file,
                settings=self._settings,
            )
        else:
            cluster = self._cluster.counting()
            compare = partial(
                compare_task, zone=self._zone, cluster=cluster, settings=self._settings
            )
        received = self._cluster.received
        try:
            done = run_tasks(self._session, tasks, compare, self._progress, self._watch)
        except Unreadable:
            received.is_whole = False
            raise
        parts = [_decoder.decode(each) for each in done]
        for part in parts:
            received.bytes_of.update(part.received)
        return collect_tallies(parts, baselines)


def compare_task(task: bytes, zone: str, cluster: Cluster, settings: "Settings") -> bytes:
    """Turn a pickled task into an encoded PartialTally; runs in a worker."""
    return _encoder.encode(compare_partition(pickle.loads(task), zone, cluster, settings))


def compare_elsewhere(
    task: bytes, zone: str, cluster: str, secret_file: str, settings: "Settings"
) -> bytes:
    """Do the same in a worker that has the secret in a file.  Raises Unreadable."""
    try:
        access = read_cluster(cluster, secret_file)
    except SecretRefused as error:
        raise Unreadable(str(error)) from error
    return compare_task(task, zone, access, settings)


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
    """Return the tasks' findings by partition.  Raises Unreadable unless each has one."""
    if sorted(part.partition for part in parts) != sorted(baselines):
        raise Unreadable(
            f"Spark's tasks told of {len(parts)} partitions, and not of the {len(baselines)} that"
            " were asked for: run it again"
        )
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
