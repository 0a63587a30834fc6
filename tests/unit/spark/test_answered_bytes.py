"""A pass of Spark over rows: what agents answer to its tasks is counted once; without Java."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from quorate_spark.passes import scan_rows
from quorate_spark.passes.scan_rows import SparkRowScan
from quorate_spark.validate import Validation
from quorate_spark.verdict import Outcome, Verdict
from quorate_spark_fixtures.scripted_zone import QUICK, ScriptedZone, listening

Compare = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Session:
    """A Spark session that runs tasks here, one after the other; `failing` jobs fail after that."""

    def __init__(self, failing: int = 0) -> None:
        self.sparkContext = self
        self.createDataFrame = self._of_rows
        self.mapInArrow = self._compared_by
        self._failing = failing
        self._rows: list[tuple[bytes]] = []
        self._compare: Compare = iter
        self.jobs = 0

    def parallelize(self, rows: list[tuple[bytes]], tasks: int) -> list[tuple[bytes]]:
        assert len(rows) == tasks
        return rows

    def _of_rows(self, rows: list[tuple[bytes]], schema: str) -> "Session":
        self._rows = rows
        return self

    def _compared_by(self, compare: Compare, schema: str) -> "Session":
        self._compare = compare
        return self

    def collect(self) -> list[tuple[bytes]]:
        self.jobs += 1
        tasks = [pa.record_batch({"task": [row[0]]}) for row in self._rows]
        parts = [(part,) for batch in self._compare(iter(tasks)) for part in batch[0].to_pylist()]
        if self.jobs <= self._failing:
            raise PySparkException("a worker ended")
        return parts


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedZone]:
    monkeypatch.setattr(scan_rows, "followed", lambda *of: nullcontext())
    made = ScriptedZone(partitions=2)
    for partition in (0, 1):
        made.write(b"key", b"v" * 100_000, partition)
    with listening(made):
        yield made


def validated(zone: ScriptedZone, session: Any) -> Verdict:
    copies = zone.copies
    scan = SparkRowScan(session, copies.zone, copies.agents, copies.cluster, QUICK)
    return Validation(copies, QUICK).run(scan)


def test_what_is_answered_to_tasks_is_counted_once(zone: ScriptedZone) -> None:
    verdict = validated(zone, Session())

    assert verdict.outcome is Outcome.AGREE, verdict
    assert verdict.answered is not None
    assert verdict.answered.bytes == sum(agent.answered for agent in zone.agents) > 600_000


def test_what_is_answered_in_a_second_pass_is_added(zone: ScriptedZone) -> None:
    session = Session()
    copy, again = zone.copy(2), []

    def changes_owner(*message: object) -> Any:
        if session.jobs == 1 and not again:
            again.append(True)
            for agent in zone.agents:
                agent.copies[0].version += 1
        return ...

    zone.agents[0].on_ask = changes_owner
    verdict = validated(zone, session)

    assert (verdict.outcome, session.jobs, copy.version) == (Outcome.AGREE, 2, 4)
    assert verdict.answered is not None
    assert verdict.answered.bytes == sum(agent.answered for agent in zone.agents) > 900_000


def test_what_is_answered_in_a_pass_that_failed_is_not_known(zone: ScriptedZone) -> None:
    verdict = validated(zone, Session(failing=1))

    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.answered is None
