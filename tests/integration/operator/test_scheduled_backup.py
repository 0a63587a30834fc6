"""A ScheduledZoneBackup on a real API server, to a bucket, with real agents and real programs.

No kubelet runs: the test starts the program of each pod as the Job has it, and tells how it ended.
A run is due each minute; the test deletes no object and waits for the next minute.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from quorate_cluster.job_pods import run_pod, tell_end, waiting_pod, zone_with_keys
from quorate_cluster.road import Json, Road
from quorate_cluster.waiting import wait_until
from quorate_s3.server import s3_server

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.deep,
    pytest.mark.needs("s3-server"),
    pytest.mark.timeout(480),
]

LABEL = "quorate.io/backup"
HUSH = "never-to-be-told"


@pytest.fixture
def road(road: Road) -> Iterator[Road]:
    """A zone with keys."""
    with zone_with_keys(road) as made:
        yield made


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, S3FileSystem]]:
    """The address of a store with an empty bucket `backups`, and its contents."""
    with s3_server() as endpoint:
        with monkeypatch.context() as here:
            here.setenv("AWS_ACCESS_KEY_ID", "someone")
            here.setenv("AWS_SECRET_ACCESS_KEY", HUSH)
            store = S3FileSystem(
                endpoint_override=endpoint,
                scheme="http",
                region="us-east-1",
                allow_bucket_creation=True,
            )
            store.create_dir("backups")
        yield endpoint, store


def _status(road: Road) -> Json:
    return dict(road.status("scheduledzonebackup", "often"))


def _wait_run(road: Road, other_than: str) -> str:
    def found() -> str:
        told = str(_status(road).get("lastRun", ""))
        return told if told != other_than else ""

    run = wait_until(found, "a run", 120, lambda: (_status(road), road.logs()))
    assert run
    return run


def _finish(road: Road, run: str, folder: Path, code: int | None = None) -> Json:
    """Play the kubelet until the run has ended; `code`: of pods that are killed."""
    while not road.status("zonebackup", run).get("outcome"):
        pod = waiting_pod(road, LABEL, run)
        name = pod["metadata"]["name"]
        killed = (code, "Killed") if code is not None else None
        tell_end(road, pod, *(killed or run_pod(road, pod, folder / name)))

        def is_told(name: str = name) -> bool:
            pods = [each["metadata"]["name"] for each in road.items("pods") if _is_waiting(each)]
            is_next = any(each.startswith(f"{run}-") and each != name for each in pods)
            return is_next or bool(road.status("zonebackup", run).get("outcome"))

        wait_until(is_told, "the end of the run, or another pod", 60, road.logs)
    return dict(road.status("zonebackup", run))


def _is_waiting(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Pending")


def _wait_listed(road: Road, *wanted: tuple[str, str, str]) -> None:
    def listed() -> list[tuple[str, str, str]]:
        return [
            (each["run"], each["outcome"], each.get("deletedBy", ""))
            for each in _status(road).get("backups", [])
        ]

    wait_until(lambda: listed() == [*wanted], f"{wanted}", 60, lambda: (listed(), road.logs()))


def test_older_exports_are_deleted_by_the_pod_of_a_verified_one(
    road: Road, bucket: tuple[str, S3FileSystem], tmp_path: Path
) -> None:
    """Four minutes: an export; one that is not known; two more, the last of which deletes both."""
    endpoint, store = bucket
    keys = (
        f"--from-literal=AWS_{name}"
        for name in ("ACCESS_KEY_ID=someone", f"SECRET_ACCESS_KEY={HUSH}")
    )
    road.kubectl("create", "secret", "generic", "keys-of-s3", *keys)
    s3 = {
        "url": "s3://backups/sessions",
        "region": "us-east-1",
        "endpoint": f"http://{endpoint}",
        "credentialsSecretRef": {"name": "keys-of-s3"},
    }
    run_spec = {"zoneRef": {"name": "sessions"}, "destination": {"s3": s3}}
    spec = {
        "schedule": "* * * * *",
        "successfulRunsHistoryLimit": 1,
        "retention": {"keepLast": 1},
        "incremental": True,
        "template": {"labels": {"team": "shop"}, "spec": run_spec},
    }

    def folders() -> set[str]:
        found = store.get_file_info(FileSelector("backups/sessions", allow_not_found=True))
        return {each.base_name for each in found}

    road.apply("ScheduledZoneBackup", "often", **spec)
    first = _wait_run(road, "")
    told = _finish(road, first, tmp_path)
    assert told["outcome"] == "Complete", told
    assert "partitionsFromBase" not in told, "there was no other"
    base = told["exportId"]
    [folder] = folders()
    assert told["place"].startswith(f"s3://backups/sessions/{folder}?")
    _wait_listed(road, (first, "Complete", ""))
    assert _status(road)["lastVerified"] == told["place"]
    assert _status(road)["lastSuccessfulTime"] == told["completionTime"]
    assert _status(road)["nextScheduleTime"] > _status(road)["lastScheduleTime"]

    second = _wait_run(road, first)
    made = road.get("zonebackup", second)
    assert made is not None
    left_in = made["spec"]["destination"]["s3"]["url"].removeprefix("s3://")
    with store.open_output_stream(f"{left_in}/partition-00000-0011aabb.parquet") as file:
        file.write(b"a part")  # by a pod before it was killed
    told = _finish(road, second, tmp_path, code=137)
    assert told["outcome"] == "Unknown", told
    assert len(folders()) == 2, "the newest verified one, and one of which nothing is known"
    _wait_listed(road, (first, "Complete", ""), (second, "Unknown", ""))

    third = _wait_run(road, second)
    kept = _finish(road, third, tmp_path)
    assert kept["outcome"] == "Complete", kept
    assert (kept["base"], kept["partitionsReadWhole"]) == (base, 0), kept
    assert kept["partitionsFromBase"] > 0
    assert "deleted" not in kept, "without its own export the first one is to be kept"
    wait_until(lambda: road.get("zonebackup", first) is None, "its object goes", 60, road.logs)
    _wait_listed(road, (first, "Complete", ""), (second, "Unknown", ""), (third, "Complete", ""))

    fourth = _wait_run(road, third)
    waiting_pod(road, LABEL, fourth)  # its Job has the list of what is deleted
    road.apply("ScheduledZoneBackup", "often", **spec, suspend=True)
    told = _finish(road, fourth, tmp_path)
    assert told["outcome"] == "Complete", told
    assert told["base"] == kept["exportId"], "the newest verified one"
    assert len(told["deleted"]) == 2, told
    assert folder in told["deleted"]
    assert "2 older exports of the schedule deleted" in told["message"]
    left = {each["place"].partition("?")[0].rpartition("/")[2] for each in (kept, told)}
    assert folders() == left

    wait_until(lambda: road.get("zonebackup", third) is None, "its object goes", 60, road.logs)
    _wait_listed(
        road, (second, "Unknown", fourth), (third, "Complete", ""), (fourth, "Complete", "")
    )
    assert "nextScheduleTime" not in _status(road)
    road.kubectl("delete", "scheduledzonebackup", "often")
    wait_until(lambda: not road.items("zonebackups,jobs"), "the end of all runs", 60)
    assert folders() == left
    assert HUSH not in road.kubectl("get", "events", "--output=json")
