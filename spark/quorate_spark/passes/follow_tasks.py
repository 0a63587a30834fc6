"""Follows the tasks of a Spark job: one of its stages has a task for each partition of a zone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from quorate_spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.5
END_S = 5.0
"""How long the thread may take to end; Java answers it or has ended."""


class TasksWatch(Protocol):
    """Watches a session while it runs a job.

    `problem`: why it has cancelled the job; empty: it has not.
    """

    problem: str

    def begin(self) -> None:
        """Begin with a job."""

    def look(self, session: "SparkSession") -> None:
        """Look at the session, every moment."""

    def why_lost(self) -> str:
        """Return why Java has ended; empty: not known."""


@contextmanager
def followed(
    session: "SparkSession", tasks: int, progress: Progress, watch: TasksWatch | None = None
) -> Iterator[None]:
    """Tell while the job runs how many of its `tasks` have ended: one reads one partition.

    The thread has its own connection to Java, so that it never reads the answer to a question of
    the job's thread, also when that is interrupted.
    """
    ended = threading.Event()

    def follow() -> None:
        if watch is not None:
            watch.begin()
        while not ended.wait(POLL_S):
            try:
                tracker = session.sparkContext.statusTracker()
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                if watch is not None:
                    watch.look(session)
            except Exception:  # Java has ended, or is being ended: the job's thread tells why
                return
            for stage in stages:
                if stage is not None and stage.numTasks == tasks:
                    progress.reached(stage.numCompletedTasks, tasks)

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_S)
