"""Exports a zone by Spark's tasks: one for each group of partitions.

A task reads its partitions of the agents, and writes their files into the target itself; only what
the manifest has of them comes back.  The driver writes the manifest when all tasks have succeeded.

Spark runs a task again whose executor was lost.  The first process of it may go on all the same, or
have written half a file: each attempt has file names of its own, and those that the manifest does
not name are deleted once it is there.  Only an executor that Spark has given up, and that does not
know it yet, may write after that; its file is of no export.

Nothing secret goes with a task.  A worker reads the cluster's secret and the key of an encrypted
export where the driver has read them: the same files, or the same variable, have to be there.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quorate.facts.errors import QuorateError
from quorate_spark.exports.base_export import Base, BaseShare, Whole
from quorate_spark.exports.encryption import Cipher
from quorate_spark.exports.export_group import (
    WRITERS_MAX,
    Group,
    GroupExport,
    Shared,
    Tell,
    writer_id,
)
from quorate_spark.exports.export_key import ExportKey, KeyRefused, read_key
from quorate_spark.exports.manifest import PartTold
from quorate_spark.exports.target import Target, TargetRefused, TargetUnreadable
from quorate_spark.passes.end_tasks import end_tasks
from quorate_spark.passes.executors import Led
from quorate_spark.passes.executors_watch import ExecutorsWatch
from quorate_spark.passes.follow_tasks import TasksWatch
from quorate_spark.passes.run_tasks import run_tasks
from quorate_spark.passes.spark_session import SparkMissing, own_spark
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Unreadable, read_cluster
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark.work_folder import WorkFolderFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS = {each.__name__: each for each in (TargetUnreadable, TargetRefused, WorkFolderFailed)}
"""Errors of a task that the driver raises as they are; any other is Unreadable there."""


@dataclass(frozen=True, slots=True)
class SealedBy:
    """Encryption in a task: the id of the key, and the salt of the export."""

    key_id: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class Work:
    """An export, as all its tasks have it.  `encryption`: None if files are in the clear."""

    target: str
    zone: str
    agents: tuple[str, ...]
    cluster: str
    secret_file: str
    partitions: int
    replicas: int
    uid: str
    settings: Settings
    export_id: str
    key_file: Path | None
    encryption: SealedBy | None


@dataclass(frozen=True, slots=True)
class Task:
    """Partitions to be exported, and what the base has of them."""

    partitions: tuple[int, ...]
    base: BaseShare | None


class Done(msgspec.Struct, frozen=True, array_like=True):
    """The end of a task: its files, or the kind and text of its error.

    `refused`, `details`: see Base.  No pickle: the driver need not run what a task answers.
    """

    parts: dict[int, PartTold]
    refused: dict[int, Whole]
    details: dict[Whole, str]
    kind: str = ""
    problem: str = ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Done)


class ExportByTasks:
    """A GroupsExport on a Spark session.

    `key_file`: the file of the key, if it is in one.  `at_once`: tasks that run at the same time,
    as far as it is known already; None: as many as the session has processors now.  It ends when
    all tasks have ended, also by an error or an interrupt.
    """

    writers = WRITERS_MAX

    def __init__(
        self,
        session: "SparkSession",
        key_file: Path | None = None,
        at_once: int | None = None,
        watch: TasksWatch | None = None,
    ) -> None:
        self._watch = watch
        self.at_once = at_once or session.sparkContext.defaultParallelism
        self._session = session
        self._key_file = key_file

    def __call__(
        self, shared: Shared, groups: Sequence[Group], tell: Tell
    ) -> Mapping[int, PartTold]:
        """Return the files by partition.  Raises Unreadable, TargetRefused, WorkFolderFailed."""
        base = shared.base
        tasks = [
            Task(group.partitions, None if base is None else base.share(group.partitions))
            for group in groups
        ]
        try:
            found = run_tasks(
                self._session,
                [pickle.dumps(task) for task in tasks],
                partial(export_task, work=self._work(shared)),
                _Rows(sum(group.rows for group in groups), tell),
                self._watch,
            )
        finally:  # what is deleted afterwards has to stay so
            end_tasks(self._session)
        ends = [_decoder.decode(each) for each in found]
        for end in ends:
            if base is not None:
                base.take_refused(end.refused, end.details)
        for end in ends:
            if end.problem:
                raise _KINDS.get(end.kind, Unreadable)(end.problem)
        parts = {partition: part for end in ends for partition, part in end.parts.items()}
        wanted = {each for group in groups for each in group.partitions}
        if parts.keys() != wanted:
            raise Unreadable(
                f"Spark's tasks exported {len(parts)} partitions, and not the {len(wanted)} that"
                " were asked for: run it again"
            )
        tell(sum(part.rows for part in parts.values()))
        return parts

    def _work(self, shared: Shared) -> Work:
        copies, cipher = shared.copies, shared.cipher
        return Work(
            shared.target.text,
            copies.zone,
            copies.agents,
            copies.cluster.name,
            copies.cluster.secret_file,
            copies.partitions,
            copies.replicas,
            copies.uid,
            shared.settings,
            shared.export_id,
            self._key_file and self._key_file.absolute(),
            None if cipher is None else SealedBy(cipher.key_id, cipher.salt),
        )


@contextmanager
def led_export(
    led: Led | None, folder: Path, key_file: Path | None
) -> Iterator[ExportByTasks | None]:
    """Yield an export by these executors, with a session of its own in `folder`; None: of none.

    Raises TargetRefused: nothing was exported.
    """
    if led is None:
        yield None
        return
    spark = folder / "spark"
    spark.mkdir()
    with ExitStack() as stack:
        try:
            session = stack.enter_context(own_spark(spark, led))
        except SparkMissing as error:
            raise TargetRefused(str(error)) from error
        watch = ExecutorsWatch(led, spark)
        yield ExportByTasks(session, key_file, led.executors.at_once, watch)


class _Rows(Progress):
    """Tells the rows of tasks that have ended: their share of all."""

    def __init__(self, rows: int, tell: Tell) -> None:
        super().__init__()
        self._rows = rows
        self._tell = tell

    def reached(self, done: int, total: int) -> None:
        """Take in that `done` tasks of `total` have ended."""
        self._tell(self._rows * done // total)


def export_task(task: bytes, work: Work) -> bytes:
    """Turn a pickled Task into an encoded Done; runs in a worker."""
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    return _encoder.encode(export_partitions(pickle.loads(task), work, attempt))


def export_partitions(task: Task, work: Work, attempt: int) -> Done:
    """Export the partitions of a task; `attempt`: how often it was begun before."""
    base: Base | None = None
    parts: dict[int, PartTold] = {}
    kind = problem = ""
    try:
        key = None if work.encryption is None else _key(work.key_file, work.encryption)
        base = None if task.base is None else Base.of_share(task.base, key)
        shared = _shared(work, key, base)
        exporting = GroupExport(shared, writer_id(work.export_id, attempt), lambda rows: None)
        exporting.run(Group(task.partitions))
        parts = exporting.parts
    except QuorateError as error:
        problem = str(error)
        # A key that is not there leaves nothing half done: only reading may have a passing cause.
        told = TargetRefused if isinstance(error, KeyRefused) else type(error)
        kind = next((each.__name__ for each in told.__mro__ if each.__name__ in _KINDS), "")
    refused, details = ({}, {}) if base is None else (base.refused, base.details)
    return Done(parts, refused, details, kind, problem)


def _shared(work: Work, key: ExportKey | None, base: Base | None) -> Shared:
    copies = ZoneCopies(
        work.zone,
        work.agents,
        read_cluster(work.cluster, work.secret_file),
        work.partitions,
        work.replicas,
        work.uid,
    )
    cipher = None
    if key is not None and work.encryption is not None:
        cipher = Cipher(key, work.export_id, work.encryption.salt)
    # The driver's folder for temporary files need not be there.
    return Shared(Target(work.target), copies, work.settings, None, work.export_id, cipher, base)


def _key(file: Path | None, wanted: SealedBy) -> ExportKey:
    """Return the key of the export, as this process finds it.  Raises KeyRefused."""
    key = read_key(file, is_required=True)
    assert key is not None
    if key.id != wanted.key_id:
        raise KeyRefused(
            f"this process has the key {key.id}, and the export has {wanted.key_id}: give all pods"
            " the same"
        )
    return key
