"""An export by tasks is that of one process, whatever becomes of the processes of a task."""

import pickle
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyspark
import pytest

from quorate.protocol.messages.tools import AskColumns
from quorate_spark.exports.base_export import Base, open_base
from quorate_spark.exports.export_group import GroupExport, writer_id
from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.export_zone import _groups, export_zone
from quorate_spark.exports.manifest import MANIFEST, Manifest
from quorate_spark.exports.part_file import file_name
from quorate_spark.exports.target import Target, TargetRefused
from quorate_spark.exports.verify import verify
from quorate_spark.passes import export_tasks
from quorate_spark.passes.executors import Led
from quorate_spark.passes.export_tasks import ExportByTasks, led_export
from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.validate import run_validation
from quorate_spark.verdict import Level
from quorate_spark_fixtures.based_exports import copies_of, filled_zone, partitions_asked
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK

SECRET_KEY = bytes(range(32))
SLOTS = 2


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    with filled_zone() as zone:
        yield zone


class Spark:
    """Runs tasks as Spark does, one after the other; `attempts`: of a task before its last one.

    An attempt that is lost has `lost` called in place of its result, after it has written.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts = 0
        self.sent: list[bytes] = []
        self.lost: Callable[[], None] = lambda: None
        self._attempt = 0
        context = SimpleNamespace(attemptNumber=lambda: self._attempt)
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
        monkeypatch.setattr(export_tasks, "run_tasks", self._run)
        self.running: Callable[[], int] = lambda: 0
        self.cancelled = threading.Event()
        tracker = SimpleNamespace(getExecutorInfos=self._executors)
        java = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
        self.session: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(
                defaultParallelism=SLOTS, cancelAllJobs=self.cancelled.set, _jsc=java
            )
        )

    def _executors(self) -> list[object]:
        return [SimpleNamespace(numRunningTasks=lambda: self.running())]

    def _run(
        self,
        session: object,
        tasks: Sequence[bytes],
        work: Callable[[bytes], bytes],
        told: Progress,
        watch: object,
    ) -> list[bytes]:
        self.sent += [pickle.dumps(work), *tasks]
        done = []
        for number, task in enumerate(tasks):
            for attempt in range(self.attempts + 1):
                self._attempt = attempt
                end = pickle.loads(pickle.dumps(work))(task)
                if attempt < self.attempts:
                    self.lost()
            done.append(end)
            told.reached(number + 1, len(tasks))
        return done[::-1]


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(monkeypatch)


def export(
    zone: LoggedZone,
    place: Path,
    by: ExportByTasks | None,
    key: ExportKey | None = None,
    base: Base | None = None,
    told: list[tuple[int, int]] | None = None,
) -> Manifest:
    def progress(done: int, total: int) -> None:
        if told is not None:
            told.append((done, total))

    target = Target(str(place))
    return export_zone(
        target, copies_of(zone), "u", {}, QUICK, None, progress, key=key, base=base, export=by
    )


def checked(place: Path, manifest: Manifest, key: ExportKey | None = None) -> Manifest:
    """The manifest, of an export that is whole and has no other file."""
    assert verify(Target(str(place)), lambda done, total: None, key) == manifest
    names = sorted(path.name for path in place.iterdir())
    assert names == [MANIFEST, *sorted(part.file for part in manifest.partitions)]
    return manifest


def test_an_export_by_tasks_is_that_of_one_process(
    zone: LoggedZone, spark: Spark, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []

    made = export(zone, tmp_path / "tasks", ExportByTasks(spark.session), told=told)

    plain = export(zone, tmp_path / "plain", None)
    assert checked(tmp_path / "tasks", made).digest == plain.digest
    assert [part.rows for part in made.partitions] == [part.rows for part in plain.partitions]
    assert len(spark.sent) == 1 + 4, "a task for each of four partitions"
    assert told[-1] == (40, 40)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_a_task_answers_is_read_as_data(
    zone: LoggedZone, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a pickle, which can be code: the driver has rights, and executors have none."""
    ran = tmp_path / "ran"

    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (ran,)

    answer = pickle.dumps(Code())
    monkeypatch.setattr(export_tasks, "run_tasks", lambda *_: [answer])

    with pytest.raises(msgspec.DecodeError):
        export(zone, tmp_path / "tasks", ExportByTasks(spark.session))

    assert not ran.exists()


def test_a_partition_of_which_no_task_tells_ends_the_export(
    zone: LoggedZone, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, run = tmp_path / "tasks", spark._run
    monkeypatch.setattr(export_tasks, "run_tasks", lambda *given: run(*given)[1:])

    with pytest.raises(Unreadable, match="exported 3 partitions, and not the 4 that were asked"):
        export(zone, place, ExportByTasks(spark.session))

    assert [*place.iterdir()] == []


def test_partitions_are_spread_over_all_tasks_that_run_together(zone: LoggedZone) -> None:
    owned = copies_of(zone).read_answering(QUICK).owned
    many = {partition: owned[partition % 4] for partition in range(256)}

    assert len([*_groups(many, None)]) == 256 // 16
    assert len([*_groups(many, None, 16)]) == 4 * 16
    assert len([*_groups(many, None, 1000)]) == 256
    size = owned[0][0].state.bytes
    limited = [*_groups(dict.fromkeys(range(8), owned[0]), size, 1)]
    assert len(limited[0].partitions) == 5, "what takes 5 s"
    together = [*_groups(dict.fromkeys(range(64), owned[0]), size, 2)]
    assert len(together[0].partitions) == 2, "two tasks share the limit"
    assert sum(group.rows for group in together) == 64 * owned[0][0].state.rows


def test_a_task_that_is_run_again_neither_doubles_nor_damages_files(
    zone: LoggedZone, spark: Spark, tmp_path: Path
) -> None:
    """The first processes are lost after they have written; one of them writes on at the end."""
    place, late = tmp_path / "tasks", set[Path]()

    def lost() -> None:
        if not [*place.glob("partition-00001-*")]:  # partition 0 is not exported yet
            late.update(place.glob("partition-00000-*"))
        for path in late:
            path.write_bytes(path.read_bytes()[:100])

    spark.attempts, spark.lost = 2, lost

    made = export(zone, place, ExportByTasks(spark.session))

    assert checked(place, made).digest == export(zone, tmp_path / "plain", None).digest
    assert len(late) == 2, "each process has files of its own"


def test_files_of_all_attempts_are_deleted_when_a_task_fails(
    zone: LoggedZone, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = GroupExport.run
    spark.attempts = 2

    def fails(self: GroupExport, group: Any) -> None:
        run(self, group)
        if group.partitions == (2,):
            raise error

    monkeypatch.setattr(GroupExport, "run", fails)
    for error in (TargetRefused("the disk is full"), Unreadable("no copy is there")):
        with pytest.raises(type(error), match=str(error)):
            export(zone, tmp_path / "tasks", ExportByTasks(spark.session))
        assert [*(tmp_path / "tasks").iterdir()] == []


@pytest.mark.parametrize("error", [Unreadable("Spark gave up"), KeyboardInterrupt()])
def test_no_task_writes_when_the_files_are_deleted(
    zone: LoggedZone,
    spark: Spark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    """One task fails at once; another is in the middle of a file, and writes until it is ended."""
    place, begun = tmp_path / "tasks", threading.Event()

    def goes_on(export_id: str) -> None:
        begun.set()
        spark.cancelled.wait(1)
        Target(str(place)).make()
        (place / file_name(1, export_id)).write_bytes(b"late")

    others: list[threading.Thread] = []

    def run(session: object, tasks: object, work: Any, *_: object) -> list[bytes]:
        others.append(threading.Thread(target=goes_on, args=(work.keywords["work"].export_id,)))
        others[0].start()
        assert begun.wait(20)
        raise error

    spark.running = lambda: sum(each.is_alive() for each in others)
    monkeypatch.setattr(export_tasks, "run_tasks", run)

    with pytest.raises(type(error)):
        export(zone, place, ExportByTasks(spark.session))

    [other] = others
    other.join(20)
    assert [*place.iterdir()] == []


def test_a_task_that_still_runs_when_all_have_succeeded_leaves_nothing(
    zone: LoggedZone, spark: Spark, tmp_path: Path
) -> None:
    place = tmp_path / "tasks"
    others: list[threading.Thread] = []

    def goes_on() -> None:
        spark.cancelled.wait(1)
        (place / file_name(0, "0" * 8)).write_bytes(b"late")

    def lost() -> None:
        if not others:
            others.append(threading.Thread(target=goes_on))
            others[0].start()

    spark.attempts, spark.lost = 1, lost
    spark.running = lambda: sum(each.is_alive() for each in others)

    made = export(zone, place, ExportByTasks(spark.session))

    [other] = others
    other.join(20)
    checked(place, made)


def test_a_folder_whose_listing_lags_is_no_hindrance(
    zone: LoggedZone, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: other machines have written the files a moment ago."""
    place = tmp_path / "tasks"
    monkeypatch.setattr(Target, "files", lambda self: [])

    made = export(zone, place, ExportByTasks(spark.session))

    checked(place, made)
    for path in place.iterdir():
        path.unlink()
    run = GroupExport.run
    spark.attempts = 2

    def fails(self: GroupExport, group: Any) -> None:
        run(self, group)
        if group.partitions == (2,):
            raise TargetRefused("the disk is full")

    monkeypatch.setattr(GroupExport, "run", fails)
    with pytest.raises(TargetRefused, match="the disk is full"):
        export(zone, place, ExportByTasks(spark.session))
    assert [*place.iterdir()] == []


def test_files_of_late_attempts_are_deleted_where_they_are_listed(
    zone: LoggedZone, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, written = tmp_path / "tasks", []

    def lost(session: object, tasks: object, work: Any, *_: object) -> list[bytes]:
        for attempt in (0, 7, 8, 50):
            writer = writer_id(work.keywords["work"].export_id, attempt)
            written.append(place / file_name(1, writer))
            written[-1].write_bytes(b"half")
        (place / file_name(1, "0" * 8)).write_bytes(b"of another export")
        raise Unreadable("Spark gave up")

    monkeypatch.setattr(export_tasks, "run_tasks", lost)
    with pytest.raises(Unreadable):
        export(zone, place, ExportByTasks(spark.session))

    assert [path.name for path in place.iterdir()] == [file_name(1, "0" * 8)]


def test_no_secret_goes_with_a_task(zone: LoggedZone, spark: Spark, tmp_path: Path) -> None:
    key, file = ExportKey(SECRET_KEY), tmp_path / "key"
    file.write_bytes(b64encode(SECRET_KEY))
    file.chmod(0o600)

    made = export(zone, tmp_path / "tasks", ExportByTasks(spark.session, file), key)

    assert checked(tmp_path / "tasks", made, key).key_id == key.id
    access = zone.agents[0].secret
    secrets = [SECRET_KEY, b64encode(SECRET_KEY), access.key, access.key.hex().encode()]
    secrets += access.keys().by_role.values()
    assert not [each for each in secrets for sent in spark.sent if each in sent]


def test_a_task_with_another_key_exports_nothing(
    zone: LoggedZone, spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUORATE_EXPORT_KEY", b64encode(bytes(32)).decode())

    with pytest.raises(TargetRefused, match="give all pods the same"):
        export(zone, tmp_path / "tasks", ExportByTasks(spark.session), ExportKey(SECRET_KEY))

    assert [*(tmp_path / "tasks").iterdir()] == []


@pytest.mark.parametrize("key", [None, ExportKey(SECRET_KEY)], ids=["clear", "encrypted"])
def test_tasks_take_rows_of_a_base_where_it_is_of_use(
    zone: LoggedZone, spark: Spark, tmp_path: Path, key: ExportKey | None
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b64encode(SECRET_KEY))
    file.chmod(0o600)
    first = export(zone, tmp_path / "base", None, key)
    for number in range(0, 40, 3):
        zone.put(b"key-%02d" % number, b"anew")
    (tmp_path / "base" / first.partitions[2].file).unlink()
    for agent in zone.agents:
        agent.asked.clear()
    base = open_base(Target(str(tmp_path / "base")), key)

    made = export(
        zone, tmp_path / "tasks", ExportByTasks(spark.session, file if key else None), key, base
    )

    assert checked(tmp_path / "tasks", made, key).base == first.export_id
    assert [part.from_base for part in made.partitions] == [True, True, False, True]
    assert [part.read_whole for part in made.partitions] == ["", "", "BaseUnusable", ""]
    assert partitions_asked(zone, AskColumns) == {2}
    assert [*map(str, base.details)] == ["BaseUnusable"]
    assert made.digest == export(zone, tmp_path / "plain", None).digest


def test_a_backup_without_java_is_not_told_of_levels(
    zone: LoggedZone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, led: Led
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    with (
        pytest.raises(TargetRefused, match="reading all rows needs Java") as refused,
        led_export(led, tmp_path, None),
    ):
        pass

    assert "--level" not in str(refused.value)
    copies = copies_of(zone)
    verdict = run_validation(
        "z", copies.agents, Level.ROWS, work_dir=tmp_path, cluster=copies.cluster, settings=QUICK
    )
    assert verdict.reasons[0].endswith("(--level digest works without)")
