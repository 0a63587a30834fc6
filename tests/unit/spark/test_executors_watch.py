"""Why a run whose executors come to nothing has no result, without Java."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from quorate.wire.jobs.executors import Executors
from quorate_spark.passes import follow_tasks
from quorate_spark.passes.executors import Led
from quorate_spark.passes.executors_watch import WAIT_S, ExecutorsWatch
from quorate_spark.passes.run_tasks import run_tasks
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Unreadable

EXECUTORS = Executors(4, 1, "500m", 2 << 30, "image", {})
LED = Led(EXECUTORS, "nightly-x", "nightly", "shop", "10.0.0.7", "https://a", Path("secret"))


class JavaRefused(Py4JJavaError):
    """The error that py4j raises when Java answers by an exception."""

    def __init__(self, words: str | None) -> None:
        self.java_exception = SimpleNamespace(toString=self._words)
        self._said = words

    def _words(self) -> str:
        if self._said is None:
            raise ConnectionRefusedError
        return self._said

    def __str__(self) -> str:
        return "An error occurred while calling o1.collectToPython."


class Session:
    """A Spark session whose job goes on until it is cancelled, or Java ends."""

    def __init__(self) -> None:
        self.executors = 0
        self.cancelled = threading.Event()
        self.ends_by: Callable[[], None] = self._ends_when_cancelled
        self.createDataFrame = self.mapInArrow = lambda *_: self
        tracker = SimpleNamespace(
            getExecutorInfos=lambda: [None] * (1 + self.executors), getActiveStageIds=list
        )
        java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
        self.sparkContext: Any = SimpleNamespace(
            parallelize=lambda *_: None,
            statusTracker=lambda: tracker,
            cancelAllJobs=self.cancelled.set,
            _jsc=java,
        )

    def collect(self) -> list[Any]:
        self.ends_by()
        raise Py4JNetworkError("Answer from Java side is empty")

    def _ends_when_cancelled(self) -> None:
        assert self.cancelled.wait(20)


def run(session: Any, watch: ExecutorsWatch | None) -> str:
    with pytest.raises(Unreadable) as ended:
        run_tasks(session, [b"task"], lambda task: task, Progress(), watch)
    return str(ended.value)


def test_a_job_without_executors_is_given_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_tasks, "POLL_S", 0.01)
    times = iter(range(0, 100_000, 60))

    said = run(Session(), ExecutorsWatch(LED, tmp_path, lambda: float(next(times))))

    assert said.startswith("none of 4 executors was there for 10 minutes: has a node room for")
    assert "500m CPU and 2048Mi" in said
    assert "--namespace shop" in said


def test_only_time_without_any_executor_counts(tmp_path: Path) -> None:
    now, session = [0.0], Session()
    watch = ExecutorsWatch(LED, tmp_path, lambda: now[0])
    looked_at: Any = session

    def look(seconds: float, executors: int) -> bool:
        now[0] += seconds
        session.executors = executors
        watch.look(looked_at)
        return session.cancelled.is_set()

    watch.begin()
    assert not look(WAIT_S - 1, 0)
    assert not look(2 * WAIT_S, 1)
    assert not look(WAIT_S - 1, 0)
    now[0] += 2 * WAIT_S  # between two jobs nobody looks
    watch.begin()
    assert not look(WAIT_S - 1, 0)
    assert look(1, 0)


def test_executors_that_end_too_often_are_the_reason_and_not_java(tmp_path: Path) -> None:
    session = Session()
    watch = ExecutorsWatch(LED, tmp_path)
    (tmp_path / "spark.log").write_text("ERROR x: Max number of executor failures (8) reached\n")

    def cancelled() -> None:
        raise JavaRefused("x.SparkException: Job 0 cancelled because SparkContext was shut down")

    for ends in (lambda: None, cancelled):
        session.ends_by = ends
        said = run(session, watch)
        assert said.startswith("executors ended by themselves more than 8 times within an hour")


def test_a_java_that_ends_otherwise_is_told_as_before(tmp_path: Path) -> None:
    session = Session()
    session.ends_by = lambda: None
    (tmp_path / "spark.log").write_text("WARN x: something else\n")

    for watch in (None, ExecutorsWatch(LED, tmp_path)):
        assert run(session, watch).startswith("Spark's Java process was lost")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "x.SparkException: ExecutorLostFailure (executor 2 exited)\nReason: 137\n  at x",
            "an executor was lost at each attempt of a task: did it need more memory than",
        ),
        ("java.io.IOException: no room\n  at x", "Spark could not read the copies: java.io.IO"),
        ("", "Spark's Java process was lost"),
        (None, "Spark's Java process was lost"),  # it ended after that
    ],
)
def test_tasks_that_failed_too_often_say_why(tmp_path: Path, words: str | None, said: str) -> None:
    session = Session()

    def ends() -> None:
        raise JavaRefused(words)

    session.ends_by = ends

    for watch in (None, ExecutorsWatch(LED, tmp_path)):
        told = run(session, watch)
        assert told.startswith(said)
        assert "\n" not in told


def test_a_job_without_a_result_of_each_task_has_none() -> None:
    session: Any = Session()
    session.collect = lambda: [(b"one",)]

    with pytest.raises(Unreadable, match="1 results of 2 tasks"):
        run_tasks(session, [b"one", b"two"], lambda task: task, Progress())
