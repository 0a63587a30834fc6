"""A pass of Spark over rows: what agents answer to its tasks is counted once; without Java."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from quorate_spark.passes import run_tasks
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
    monkeypatch.setattr(run_tasks, "followed", lambda *of: nullcontext())
    made = ScriptedZone(partitions=2)
    for partition in (0, 1):
        made.write(b"key", b"v" * 100_000, partition)
    with listening(made):
        yield made


class Watch:
    """Of executors that work."""

    problem = ""

    def begin(self) -> None:
        pass

    def look(self, session: object) -> None:
        pass

    def why_lost(self) -> str:
        return ""


def validated(zone: ScriptedZone, session: Any, watch: Watch | None = None) -> Verdict:
    copies = zone.copies
    scan = SparkRowScan(session, copies.zone, copies.agents, copies.cluster, QUICK, None, watch)
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


def test_tasks_of_executors_have_no_key_of_the_cluster(zone: ScriptedZone) -> None:
    session = Session()

    assert validated(zone, session, Watch()).outcome is Outcome.AGREE

    dumps: Callable[[object], bytes] = cloudpickle.dumps  # it has no types
    sent = dumps(session._compare) + b"".join(row[0] for row in session._rows)
    assert zone.secret_file.encode() in sent
    assert not [each for each in zone.cluster.keys.by_role.values() if each in sent]


def test_an_executor_without_the_secret_is_a_reason_and_no_defect(zone: ScriptedZone) -> None:
    zone.secret_file += "-that-is-not-there"

    verdict = validated(zone, Session(), Watch())

    assert verdict.outcome is Outcome.UNKNOWN
    assert any(zone.secret_file in reason for reason in verdict.reasons), verdict.reasons


def test_without_executors_a_task_reads_no_secret(zone: ScriptedZone) -> None:
    zone.secret_file += "-that-is-not-there"

    assert validated(zone, Session()).outcome is Outcome.AGREE


@pytest.mark.parametrize("told", [slice(1), [0, 0]], ids=["one is missing", "one is told twice"])
def test_zones_agree_only_if_each_partition_is_told_of(
    zone: ScriptedZone, told: slice | list[int]
) -> None:
    session: Any = Session()
    collect = session.collect

    def others() -> list[tuple[bytes]]:
        parts = collect()
        return parts[told] if isinstance(told, slice) else [parts[each] for each in told]

    session.collect = others

    verdict = validated(zone, session)

    assert verdict.outcome is Outcome.UNKNOWN, verdict
    assert any("run it again" in reason for reason in verdict.reasons), verdict.reasons
