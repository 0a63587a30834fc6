"""A zone is exported by tasks of a real Spark, also when executors are killed meanwhile."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.manifest import MANIFEST, Manifest
from quorate_spark.exports.target import Target
from quorate_spark.exports.verify import verify
from quorate_spark.passes.export_tasks import ExportByTasks
from quorate_spark_fixtures import export_on_executors
from quorate_spark_fixtures.based_exports import KEYS, clients_rows, copies_of, filled_zone, rows_in
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(400)]

PATIENT = replace(QUICK, connect_timeout_s=20.0, answer_timeout_s=60.0, settle_timeout_s=20.0)
EXECUTOR = b"CoarseGrainedExecutorBackend"


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    with filled_zone() as zone:
        yield zone


def export(zone: LoggedZone, place: Path, by: ExportByTasks | None) -> Manifest:
    return export_zone(Target(str(place)), copies_of(zone), "u", {}, PATIENT, None, export=by)


def checked(place: Path) -> Manifest:
    """The manifest, of an export that is whole and has no other file."""
    manifest = verify(Target(str(place)), lambda done, total: None)
    names = sorted(path.name for path in place.iterdir())
    assert names == [MANIFEST, *sorted(part.file for part in manifest.partitions)]
    return manifest


def test_tasks_export_what_one_process_exports(
    spark: "SparkSession", zone: LoggedZone, tmp_path: Path
) -> None:
    """Keys are written meanwhile: each partition is at one counter all the same."""
    written = threading.Event()

    def write(number: int) -> None:
        if not written.is_set():
            written.set()
            zone.put(KEYS[3], b"meanwhile")
            zone.put(KEYS[4], None)

    zone.while_read = write

    made = export(zone, tmp_path / "tasks", ExportByTasks(spark))

    assert checked(tmp_path / "tasks") == made
    assert written.is_set()
    assert made.digest == export(zone, tmp_path / "plain", None).digest
    assert rows_in(tmp_path / "tasks") == clients_rows(zone)


def executors() -> list[int]:
    """The executors of Spark that descend from this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if EXECUTOR in (path / "cmdline").read_bytes() and _is_ours(int(path.name)):
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


@pytest.mark.deep
def test_executors_that_are_killed_leave_no_trace_in_the_export(
    zone: LoggedZone, tmp_path: Path
) -> None:
    """They are killed while an agent answers: a task of one of them is begun, and not done."""
    home, place = tmp_path / "spark", tmp_path / "export"
    home.mkdir()
    for part in Path(pyspark.__path__[0]).iterdir():
        (home / part.name).symlink_to(part)
    killed: list[int] = []

    def kill(number: int) -> None:
        if not killed:
            killed.extend(executors())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    zone.while_read = kill
    order = {
        "cluster": "c",
        "secret_file": zone.secret_file,
        "zone": "z",
        "agents": [agent.address for agent in zone.agents],
        "partitions": zone.partitions,
        "replicas": len(zone.agents),
        "target": str(place),
        "settings": asdict(PATIENT),
        "folder": str(tmp_path),
    }
    (tmp_path / "order.json").write_text(json.dumps(order))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(tmp_path),
    }

    command = [sys.executable, "-m", export_on_executors.__name__, str(tmp_path / "order.json")]
    with (tmp_path / "spark.log").open("wb") as log:
        ended = subprocess.run(
            command, env=environment, stdout=log, stderr=log, timeout=360, check=False
        )

    said = (tmp_path / "spark.log").read_text(errors="replace")
    assert ended.returncode == 0, said[-3000:]
    assert killed
    made = checked(place)
    assert made.digest == export(zone, tmp_path / "plain", None).digest
    assert any(made.export_id not in part.file for part in made.partitions), "one was run again"
    assert executors() == []
