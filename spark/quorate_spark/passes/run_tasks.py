"""Runs a list of tasks as one Spark job, each on its own: their results come back as bytes."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from quorate_spark.passes.follow_tasks import TasksWatch, followed
from quorate_spark.passes.spark_session import java_words
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def run_tasks(
    session: "SparkSession",
    tasks: Sequence[bytes],
    work: Callable[[bytes], bytes],
    progress: Progress,
    watch: TasksWatch | None = None,
) -> list[bytes]:
    """Return the result of `work` for each task, in any order.  Raises Unreadable.

    `work` goes to all workers, a task only to its own.  Spark may run a task again, also while an
    earlier process of it goes on.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def work_on(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            done = [work(task) for task in batch.column("task").to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(done, pa.binary())], names=["done"])

    try:
        rows = session.sparkContext.parallelize([(task,) for task in tasks], len(tasks))
        with followed(session, len(tasks), progress, watch):
            encoded = session.createDataFrame(rows, "task binary")
            found = encoded.mapInArrow(work_on, "done binary").collect()
    except PySparkException as error:
        problem = watch.problem if watch is not None else ""
        raise Unreadable(problem or reason_of(str(error))) from error
    except (Py4JError, OSError) as error:
        words = java_words(error) if isinstance(error, Py4JError) else ""
        problem = (watch.problem or watch.why_lost()) if watch is not None else ""
        raise Unreadable(
            problem
            or _why_given_up(words)
            or f"Spark's Java process was lost while it read rows ({type(error).__name__}): has"
            " the machine enough memory?"
        ) from error
    if len(found) != len(tasks):
        raise Unreadable(f"Spark has {len(found)} results of {len(tasks)} tasks: run it again")
    return [bytes(row[0]) for row in found]


def _why_given_up(words: str) -> str:
    """Return the sentence about a job whose task failed too often, by what Java says of it.

    Empty: Java says nothing.
    """
    if "ExecutorLostFailure" in words:
        return (
            "an executor was lost at each attempt of a task: did it need more memory than"
            f" executorMemory? Spark says: {words}"
        )
    return words and f"Spark could not read the copies: {words}"


def reason_of(text: str) -> str:
    """Return the sentence of an Unreadable inside Spark's message about a failed query."""
    marker = f"{Unreadable.__module__}.{Unreadable.__qualname__}: "
    _, found, rest = text.rpartition(marker)
    lines = (rest if found else text).strip().splitlines()
    sentence = lines[0].strip() if lines else "no reason given"
    return sentence if found else f"Spark could not read the copies: {sentence}"
