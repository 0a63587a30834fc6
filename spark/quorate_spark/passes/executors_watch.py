"""Watches the executors of a Spark session while it runs tasks, and knows why they came to nothing.

The pod of a Job tells the operator only a percentage while it runs: so a run whose executors do not
come is given up, and its result says why, long before its deadline.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorate_spark.passes.executors import Led

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 600.0
"""Tasks wait so long while there is no executor: a cluster may have to start a node for one."""
_TOO_OFTEN = "Max number of executor failures"
"""Words of Spark's log, with which its Java process ends."""


class ExecutorsWatch:
    """A TasksWatch of executors; `folder`: of the session."""

    def __init__(self, led: Led, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.problem = ""
        self._led = led
        self._folder = folder
        self._clock = clock
        self._there_at = 0.0

    def begin(self) -> None:
        """Begin with a job."""
        self.problem = ""
        self._there_at = self._clock()

    def look(self, session: "SparkSession") -> None:
        """Cancel the job if there was no executor for too long."""
        context: Any = session.sparkContext
        infos = context._jsc.sc().statusTracker().getExecutorInfos()  # pyspark does not tell it
        now = self._clock()
        if len(infos) > 1:  # the driver is one of them
            self._there_at = now
        elif now - self._there_at >= WAIT_S and not self.problem:
            self.problem = self._none_there()
            session.sparkContext.cancelAllJobs()

    def why_lost(self) -> str:
        """Return why Spark's Java process has ended; empty: not known."""
        try:
            log = (self._folder / "spark.log").read_text(errors="replace")
        except OSError:
            return ""
        if _TOO_OFTEN not in log:
            return ""
        executors = self._led.executors
        return (
            f"executors ended by themselves more than {executors.failures_max} times within an"
            " hour, so Spark gave up: did they need more memory than executorMemory, or could"
            f" they not read the cluster's Secret? {self._way()}"
        )

    def _none_there(self) -> str:
        executors = self._led.executors
        return (
            f"none of {executors.instances} executors was there for {WAIT_S / 60:.0f} minutes: has"
            f" a node room for {executors.cpu} CPU and {executors.memory >> 20}Mi, and the image?"
            f" {self._way()}"
        )

    def _way(self) -> str:
        return (
            "While a run goes on, events of its pods say more: kubectl describe pods --namespace"
            f" {self._led.namespace} --selector app.kubernetes.io/component=executor"
        )
