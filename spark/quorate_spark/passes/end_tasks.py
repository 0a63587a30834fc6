"""Ends the tasks of a Spark session, so that none of them writes any more."""

import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_S = 15.0
"""Tasks may take so long to end.  Spark kills a worker that goes on two seconds after its end."""
POLL_S = 0.2
READINGS = 2
"""So often in a row no executor may have a task: Spark tells it a moment late."""


def end_tasks(session: "SparkSession") -> None:
    """Cancel all jobs, and wait until no executor that Spark knows runs a task, or END_S.

    An executor that Spark has given up may go on: it ends by itself when it finds that out.  A
    thread with its own connection to Java asks, so this works also after an interrupt.
    """
    thread = threading.Thread(target=_end, args=(session,), name="end of tasks", daemon=True)
    thread.start()
    thread.join(END_S)


def _end(session: "SparkSession") -> None:
    deadline = time.monotonic() + END_S
    calm = 0
    try:
        session.sparkContext.cancelAllJobs()
        while calm < READINGS and time.monotonic() < deadline:
            calm = 0 if _running(session) else calm + 1
            time.sleep(POLL_S)
    except Exception:  # Java has ended: executors end without it
        return


def _running(session: "SparkSession") -> int:
    """Return how many tasks run."""
    context: Any = session.sparkContext
    infos = context._jsc.sc().statusTracker().getExecutorInfos()  # pyspark does not tell it
    return sum(each.numRunningTasks() for each in infos)
