"""How far a validation is: percentages that rise, at each level, and where they are told."""

import io
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quorate_spark.passes import follow_tasks
from quorate_spark.passes.follow_tasks import followed
from quorate_spark.progress import Progress
from quorate_spark.tell_progress import progress_bar
from quorate_spark.validate import run_validation
from quorate_spark.verdict import Level, Outcome
from quorate_spark_fixtures.scripted_zone import QUICK, ScriptedZone, listening


def test_a_percentage_rises_and_stays_below_100() -> None:
    told: list[int] = []
    progress = Progress(told.append)

    for done, total in ((0, 0), (0, 8), (1, 8), (1, 8), (6, 8), (1, 2), (8, 8), (9, 8)):
        progress.reached(done, total)

    assert told == [12, 75, 99]
    assert progress.percent == 99


@pytest.mark.parametrize("level", [Level.COUNTERS, Level.DIGEST])
def test_partitions_that_are_compared_count(tmp_path: Path, level: Level) -> None:
    zone = ScriptedZone(partitions=4)
    for partition in range(4):
        zone.write(b"key", b"value", partition)
    progress = Progress()
    with listening(zone):
        verdict = run_validation(
            "z",
            zone.copies.agents,
            level,
            work_dir=tmp_path,
            cluster=zone.cluster,
            settings=QUICK,
            progress=progress,
        )

    assert verdict.outcome is Outcome.AGREE
    assert progress.percent == 99


class Stage(NamedTuple):
    numTasks: int  # noqa: N815  pyspark's names
    numCompletedTasks: int  # noqa: N815


class Spark:
    """A session with one active stage after another; when all were seen, Java has ended."""

    def __init__(self, *stages: Stage | None) -> None:
        self.sparkContext = self
        self.ended = threading.Event()
        self._stages = list(stages)

    def statusTracker(self) -> "Spark":  # noqa: N802
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        if not self._stages:
            self.ended.set()
            raise ConnectionError("Java has ended")
        return [1]

    def getStageInfo(self, stage: int) -> Stage | None:  # noqa: N802
        return self._stages.pop(0)


def test_the_tasks_that_read_copies_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_tasks, "POLL_S", 0.001)
    told: list[int] = []
    spark: Any = Spark(Stage(192, 48), None, Stage(4, 4), Stage(192, 96), Stage(192, 192))

    with followed(spark, 192, Progress(told.append)):
        assert spark.ended.wait(20)

    assert told == [25, 50, 99]
    assert not [each for each in threading.enumerate() if each.name == "progress"]


def test_the_bar_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with progress_bar("library", terminal) as progress:
        progress.reached(1, 2)

    written = terminal.getvalue()
    assert "copies of library are read" in written
    assert "50%" in written
    assert written.endswith("\x1b[2K")
