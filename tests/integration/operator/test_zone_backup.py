"""A ZoneBackup on a real API server with a real controller of Jobs and real agents.

No kubelet runs: the test starts the program of each pod as the Job has it, and tells how it ended.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from quorate_cluster.background import Background
from quorate_cluster.job_pods import IMAGE, pods, run_pod, tell_end, waiting_pod, zone_with_keys
from quorate_cluster.road import Json, Road
from quorate_cluster.waiting import wait_until
from quorate_s3.server import s3_server

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]

LABEL = "quorate.io/backup"
HUSH = "never-to-be-told"
KEY_ID = "AWS_ACCESS_KEY_ID=someone"
SECRET_KEY = b64encode(HUSH.encode().ljust(32, b"-")).decode()


@pytest.fixture
def road(road: Road) -> Iterator[Road]:
    """A zone with keys."""
    with zone_with_keys(road) as made:
        yield made


def _declare(road: Road, name: str, path: str) -> None:
    claim = {"claimName": "backups", "path": path}
    destination = {"persistentVolumeClaim": claim}
    road.apply("ZoneBackup", name, zoneRef={"name": "sessions"}, destination=destination)


def _wait(road: Road, name: str, phase: str) -> Json:
    wait_until(
        lambda: road.status("zonebackup", name).get("phase") == phase,
        f"{phase}: {name}",
        60,
        lambda: (road.status("zonebackup", name), road.items("jobs,pods"), road.logs()),
    )
    return road.status("zonebackup", name)


def test_a_zone_is_exported_and_read_back(road: Road, tmp_path: Path) -> None:
    _declare(road, "monday", "sessions/monday")
    pod = waiting_pod(road, LABEL, "monday")
    volumes = {"/exports": tmp_path / "volume"}
    code, message = run_pod(road, pod, tmp_path / "first", volumes)
    assert code == 0, message
    tell_end(road, pod, code, message)
    told = _wait(road, "monday", "Finished")

    manifest = json.loads((tmp_path / "volume/sessions/monday/manifest.json").read_bytes())
    assert told["outcome"] == "Complete", told
    assert told["place"] == "backups:sessions/monday"
    assert (told["rows"], told["bytes"]) == (manifest["rows"], manifest["bytes"])
    assert told["rows"] > 0
    assert (told["digest"], told["exportId"]) == (manifest["digest"], manifest["export_id"])
    assert manifest["zone"]["spec"]["clusterRef"] == {"name": "main"}
    wait_until(lambda: "Exported" in road.told_of_zones(), "its Event", 60)

    _declare(road, "again", "sessions/monday")
    for attempt in ("second", "third"):
        pod = waiting_pod(road, LABEL, "again")
        code, message = run_pod(road, pod, tmp_path / attempt, volumes)
        assert code == 2, message
        tell_end(road, pod, code, message)
    told = _wait(road, "again", "Finished")

    assert told["outcome"] == "Failed", told
    assert "has an export already" in told["message"]
    road.kubectl("delete", "zonebackup", "--all")
    wait_until(lambda: not road.items("jobs"), "the end of its Jobs", 60)


def test_a_pod_that_was_killed_is_followed_by_one_that_reads_the_export_back(
    road: Road, tmp_path: Path
) -> None:
    """The first pod has exported, and is killed before it tells anything; the operator, too."""
    _declare(road, "monday", "monday")
    volumes = {"/exports": tmp_path / "volume"}
    pod = waiting_pod(road, LABEL, "monday")
    run_pod(road, pod, tmp_path / "first", volumes)
    before = (tmp_path / "volume/monday/manifest.json").read_bytes()
    tell_end(road, pod, 137, "")
    road.operators.pop("operator-a").kill()
    again = waiting_pod(road, LABEL, "monday")
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    tell_end(road, again, *run_pod(road, again, tmp_path / "second", volumes))
    other = road.start_operator("operator-b", serves=("--namespace", road.namespace, *IMAGE))
    road.wait_led_by(other)
    told = _wait(road, "monday", "Finished")

    assert told["outcome"] == "Complete", told
    assert (tmp_path / "volume/monday/manifest.json").read_bytes() == before
    assert len(pods(road, LABEL, "monday")) == 2

    _declare(road, "silent", "tuesday")
    for _ in range(2):
        tell_end(road, waiting_pod(road, LABEL, "silent"), 137, "Killed")
    told = _wait(road, "silent", "Finished")

    assert told["outcome"] == "Unknown", told
    assert "exit code 137" in told["message"]


@pytest.mark.needs("s3-server")
def test_credentials_of_a_bucket_reach_the_pod_and_nothing_else(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", HUSH)
    with s3_server() as endpoint:
        store = {"endpoint_override": endpoint, "scheme": "http"}
        S3FileSystem(**store, allow_bucket_creation=True).create_dir("backups")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        keys = (f"--from-literal={name}" for name in (KEY_ID, f"AWS_SECRET_ACCESS_KEY={HUSH}"))
        road.kubectl("create", "secret", "generic", "keys-of-s3", *keys)
        s3 = {
            "url": "s3://backups/sessions/monday",
            "region": "us-east-1",
            "endpoint": f"http://{endpoint}",
            "credentialsSecretRef": {"name": "keys-of-s3"},
        }
        road.apply("ZoneBackup", "monday", zoneRef={"name": "sessions"}, destination={"s3": s3})
        pod = waiting_pod(road, LABEL, "monday")
        code, message = run_pod(road, pod, tmp_path / "first")
        assert code == 0, message
        tell_end(road, pod, code, message)
        told = _wait(road, "monday", "Finished")

    assert told["outcome"] == "Complete", told
    assert told["place"].startswith("s3://backups/sessions/monday?")
    seen = ("zonebackups,jobs,pods,events", "--output=json")
    assert HUSH not in road.kubectl("get", *seen)
    assert HUSH not in road.all_logs()


RESTORED = "quorate.io/restore"


def _restored(road: Road, name: str) -> Json:
    """Return the status of a ZoneRestore once it has ended."""
    wait_until(lambda: road.status("zonerestore", name).get("outcome"), f"the end of {name}", 60)
    return road.status("zonerestore", name)


def test_an_encrypted_export_is_restored_by_the_key_of_its_secret_alone(
    road: Road, tmp_path: Path
) -> None:
    volumes = {"/exports": tmp_path / "volume"}
    for name, key in (("right", SECRET_KEY), ("wrong", b64encode(bytes(32)).decode())):
        road.kubectl("create", "secret", "generic", name, f"--from-literal=of-june={key}")
    claim = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    by = {name: {"name": name, "key": "of-june"} for name in ("right", "wrong")}
    zone = {"zoneRef": {"name": "sessions"}}
    road.apply(
        "ZoneBackup", "monday", **zone, destination=claim, encryptionKeySecretRef=by["right"]
    )
    pod = waiting_pod(road, LABEL, "monday")
    killed, message = run_pod(road, pod, tmp_path / "backup", volumes)
    assert killed == 0, message
    tell_end(road, pod, 137, "")
    pod = waiting_pod(road, LABEL, "monday")
    tell_end(road, pod, *run_pod(road, pod, tmp_path / "again", volumes))
    exported = _wait(road, "monday", "Finished")

    manifest = json.loads((tmp_path / "volume/monday/manifest.json").read_bytes())
    assert exported["outcome"] == "Complete", exported
    assert exported["encryptionKeyId"] == manifest["encryption"]["key"]
    assert f"encrypted with key {exported['encryptionKeyId']}" in exported["message"]
    assert exported["exportId"] == manifest["export_id"]
    assert not exported.get("digest")
    parts = list((tmp_path / "volume/monday").glob("*.parquet"))
    assert parts
    assert {path.read_bytes()[:4] for path in parts} == {b"PARE"}, "encrypted footers"

    road.apply("Zone", "shelves", clusterRef={"name": "main"}, partitions=4, replicas=2)
    wait_until(lambda: _available(road, "shelves") == "True", "the other zone", 60)
    shelves = {"zoneRef": {"name": "shelves"}, "source": claim}
    refusals = {"wrong": "and the key", "none": "no key is given"}
    for name, said in refusals.items():
        ref = {"encryptionKeySecretRef": by[name]} if name in by else {}
        road.apply("ZoneRestore", name, **shelves, **ref)
        for attempt in ("one", "two"):
            pod = waiting_pod(road, RESTORED, name)
            tell_end(road, pod, *run_pod(road, pod, tmp_path / f"{name}-{attempt}", volumes))
        told = _restored(road, name)
        assert told["outcome"] == "Failed", told
        assert said in told["message"], told
        assert _available(road, "shelves") == "True", "nothing is noted"
    road.apply("ZoneRestore", "back", **shelves, encryptionKeySecretRef=by["right"])
    for folder in ("check", "import"):
        pod = waiting_pod(road, RESTORED, "back")
        code, message = run_pod(road, pod, tmp_path / folder, volumes)
        assert code == 0, message
        tell_end(road, pod, code, message)
    told = _restored(road, "back")

    assert (told["outcome"], told["rows"]) == ("Complete", exported["rows"]), told
    assert told["encryptionKeyId"] == exported["encryptionKeyId"]
    seen = road.kubectl("get", "zonebackups,zonerestores,jobs,pods,events", "--output=json")
    for secret in (SECRET_KEY, HUSH):
        assert secret not in seen + road.all_logs()


def _available(road: Road, zone: str) -> str:
    return road.conditions(name=zone).get("Available", "")


def test_a_zone_is_restored_and_never_available_before_it_is_whole(
    road: Road, tmp_path: Path
) -> None:
    """Killed between its two Jobs, and its pod with a part of the rows: it goes on."""
    volumes = {"/exports": tmp_path / "volume"}
    _declare(road, "monday", "monday")
    pod = waiting_pod(road, LABEL, "monday")
    tell_end(road, pod, *run_pod(road, pod, tmp_path / "backup", volumes))
    exported = _wait(road, "monday", "Finished")
    road.apply("Zone", "shelves", clusterRef={"name": "main"}, partitions=4, replicas=2)
    wait_until(lambda: _available(road, "shelves") == "True", "the other zone", 60)
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    road.apply("ZoneRestore", "back", zoneRef={"name": "shelves"}, source=source)
    check = waiting_pod(road, RESTORED, "back")
    code, message = run_pod(road, check, tmp_path / "check", volumes)
    assert code == 0, message
    road.operators.pop("operator-a").kill()
    tell_end(road, check, code, message)
    other = road.start_operator("operator-b", serves=("--namespace", road.namespace, *IMAGE))
    road.wait_led_by(other)
    pod = waiting_pod(road, RESTORED, "back")
    wait_until(lambda: _available(road, "shelves") == "False", "it is being restored", 60)
    zone = road.get("zone", "shelves")
    assert zone is not None
    noted = zone["metadata"]["annotations"]["quorate.io/restoring"]
    assert noted.startswith(f"backups:monday#{exported['exportId']}.")
    beside, seen = Background(), set[str]()

    def sample() -> None:
        while not beside.stop.is_set():
            seen.add(_available(road, "shelves"))

    beside.add_road(sample)
    with beside:
        tell_end(road, pod, 137, "Killed")
        again = waiting_pod(road, RESTORED, "back")
        code, message = run_pod(road, again, tmp_path / "import", volumes)
        assert code == 0, message
    assert seen == {"False"}
    tell_end(road, again, code, message)
    told = road.status("zonerestore", "back")
    wait_until(lambda: _available(road, "shelves") == "True", "it is whole", 60, road.logs)
    wait_until(lambda: road.status("zonerestore", "back").get("outcome"), "its end", 60)
    told = road.status("zonerestore", "back")

    assert told["outcome"] == "Complete", told
    assert (told["rows"], told["digest"]) == (exported["rows"], exported["digest"])
    wait_until(lambda: "Imported" in road.told_of_zones(), "its Event", 60)


def test_a_zone_deleted_during_an_import_is_not_available_when_it_is_declared_again(
    road: Road, tmp_path: Path
) -> None:
    """Its data was kept; another ZoneRestore of the same source ends it."""
    volumes = {"/exports": tmp_path / "volume"}
    of_main = {"clusterRef": {"name": "main"}, "partitions": 4, "replicas": 2}
    _declare(road, "monday", "monday")
    pod = waiting_pod(road, LABEL, "monday")
    tell_end(road, pod, *run_pod(road, pod, tmp_path / "backup", volumes))
    _wait(road, "monday", "Finished")
    road.apply("Zone", "shelves", **of_main, deletionPolicy="Retain")
    wait_until(lambda: _available(road, "shelves") == "True", "the other zone", 60)
    source = {"persistentVolumeClaim": {"claimName": "backups", "path": "monday"}}
    road.apply("ZoneRestore", "back", zoneRef={"name": "shelves"}, source=source)
    check = waiting_pod(road, RESTORED, "back")
    tell_end(road, check, *run_pod(road, check, tmp_path / "check", volumes))
    tell_end(road, waiting_pod(road, RESTORED, "back"), 137, "Killed")
    road.kubectl("delete", "zone", "shelves", "--timeout=60s")
    road.kubectl("delete", "zonerestore", "back", "--timeout=60s")
    road.apply("Zone", "shelves", **of_main)
    wait_until(lambda: _available(road, "shelves") == "False", "it says so", 60, road.logs)
    conditions = road.status("zone", "shelves")["conditions"]
    said = next(each for each in conditions if each["type"] == "Available")
    assert said["reason"] == "Restoring", said
    assert "create a ZoneRestore of backups:monday" in said["message"]

    road.apply("ZoneRestore", "again", zoneRef={"name": "shelves"}, source=source)
    for folder in ("look", "import"):
        pod = waiting_pod(road, RESTORED, "again")
        code, message = run_pod(road, pod, tmp_path / folder, volumes)
        assert code == 0, message
        assert _available(road, "shelves") == "False"
        tell_end(road, pod, code, message)
    wait_until(lambda: _available(road, "shelves") == "True", "it is whole", 60, road.logs)
    wait_until(
        lambda: road.status("zonerestore", "again").get("outcome") == "Complete", "its end", 60
    )
