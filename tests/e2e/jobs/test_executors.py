"""Runs whose rows are read by executors: pods that Spark makes, without a token, and deletes."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from secrets import token_bytes

import pytest
import yaml

from quorate_cluster.fixtures import Measured
from quorate_control_plane.audit import Right, granted_rights, used_rights
from quorate_nodes.cluster import Json
from quorate_nodes.release.bucket import SECRET, bucket
from quorate_nodes.release.installed import CLUSTER, NAMESPACE, ROOT, Installed
from quorate_nodes.release.jobs import Jobs
from quorate_nodes.volumes import claimed
from quorate_spark.exports.manifest import MANIFEST

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(1500)]

ZONE = "shelves"
SPEC = {"clusterRef": {"name": CLUSTER}, "partitions": 16, "deletionPolicy": "Delete"}
VALUE = bytes(256 * 1024)
KEYS = [f"book-{number}" for number in range(160)]
"""40 MiB: with the limit below, agents take 40 seconds to tell all copies."""
MORE = [f"book-{number}" for number in range(160, 480)]
"""80 MiB more, for exports, which read one copy: they take 40 seconds."""
ROWS, BATCH = 200_000, 2_000
SLOWLY = {"maxMiBPerSecondPerAgent": 1}
CLAIM = "backups"
SHARED = {"executors": 2, "executorCpu": "100m", "executorMemory": "1Gi"}
EXECUTORS = "--selector=app.kubernetes.io/component=executor"
EXPORT_KEY = "key-of-exports"
"""The Secret of that key."""
BOUGHT = [f"bought-{number}" for number in range(40)]
SEEN_BY_USERS = "events,jobs,pods,scheduledzonebackups,zonebackups,zonerestores"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:quorate-driver"


def test_executors_read_rows_and_write_exports(first_day: Installed, jobs: Jobs) -> None:
    with _with_executors(first_day, jobs):
        client = first_day.client(ZONE)
        for key in KEYS:
            client.set(key, VALUE)
        of_zone = {"zoneRef": {"name": ZONE}, **jobs.place, **SHARED}

        jobs.declare("DataValidation", "shared", **of_zone, **SLOWLY, level="Rows")
        found = _seen(first_day, 2)
        for pod in found:
            _assert_harmless(pod, first_day, "shared-validation-")
        first_day.wait(lambda: _percent(first_day, "datavalidation", "shared"), "a first task", 200)
        _lose_one(first_day, found)
        status = jobs.wait_end("datavalidation", "shared")
        assert status["verdict"] == "Agree", status
        assert status["settledKeys"] >= len(KEYS), status
        first_day.wait(lambda: not _names(first_day), "an end of executors")

        for key in MORE:
            client.set(key, VALUE)
        found = _begun_export(jobs, "monday", **of_zone)
        _lose_one(first_day, found)
        _assert_exported(jobs, "monday")

        found = _begun_export(jobs, "tuesday", **of_zone)
        [driver] = first_day.pods("--selector=batch.kubernetes.io/job-name=tuesday-backup")
        _kill(first_day, driver)
        lost = {each["metadata"]["name"] for each in found}
        first_day.wait(lambda: not _names(first_day) & lost, "an end with who led them", 100)
        _assert_exported(jobs, "tuesday")
    audit = first_day.nodes.plane.audit_log
    rules = yaml.safe_load_all((ROOT / "examples" / "driver-role.yaml").read_text())
    [role] = (each for each in rules if each["kind"] == "Role")
    unnamed = {each for each in used_rights(audit.events(ACCOUNT)) if not each.name}
    # A single pod is deleted by Spark only if it has ended by itself.
    assert unnamed | {Right("delete", "", "pods")} == granted_rights(role["rules"])


@pytest.mark.needs("s3-server")
def test_executors_write_encrypted_exports_into_a_bucket_from_a_base(
    first_day: Installed, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = b64encode(token_bytes(32)).decode()
    with (
        _with_executors(first_day, jobs),
        jobs.deleted_in_the_end("scheduledzonebackups,zonerestores"),
        bucket(first_day, "shelves", monkeypatch) as place,
        _secret(first_day, EXPORT_KEY, key),
    ):
        client = first_day.client(ZONE)
        for each in KEYS:
            client.set(each, f"text of {each}")
        encrypted = {"encryptionKeySecretRef": {"name": EXPORT_KEY}}
        run = {"zoneRef": {"name": ZONE}, **jobs.place, **SHARED, **encrypted, "destination": place}
        jobs.declare(
            "ScheduledZoneBackup",
            "often",
            schedule="* * * * *",
            incremental=True,
            template={"spec": run},
        )
        first = jobs.next_run("zonebackup", "often", "")
        assert (first["outcome"], first["rows"]) == ("Complete", len(KEYS)), first
        assert first["encryptionKeyId"], first
        for each in BOUGHT:
            client.set(each, f"text of {each}")
        second = jobs.next_run("zonebackup", "often", first["job"])
        first_day.kubectl(
            "patch",
            "scheduledzonebackup",
            "often",
            "--type=merge",
            '--patch={"spec":{"suspend":true}}',
        )
        assert (second["outcome"], second["rows"]) == ("Complete", len(KEYS + BOUGHT)), second
        assert second["base"] == first["exportId"], second
        assert second["partitionsFromBase"] == SPEC["partitions"], second

        first_day.kubectl("delete", "zone", ZONE, "--timeout=120s")
        jobs.declare("Zone", ZONE, **SPEC, replicas=3)
        first_day.wait(lambda: first_day.zone_is(ZONE, "FullyReplicated"), "an empty zone")
        url, _, _ = second["place"].partition("?")  # what follows is in fields
        newest = {"s3": {**place["s3"], "url": url}}
        jobs.declare(
            "ZoneRestore", "back", zoneRef={"name": ZONE}, **jobs.place, **encrypted, source=newest
        )
        restored = jobs.wait_end("zonerestore", "back")
        assert (restored["outcome"], restored["rows"]) == ("Complete", second["rows"]), restored
        first_day.wait(lambda: first_day.zone_is(ZONE, "Available"), "the whole zone")
        client = first_day.client(ZONE)
        told = [client.get(each) for each in KEYS + BOUGHT]
        assert told == [f"text of {each}".encode() for each in KEYS + BOUGHT]
        seen = first_day.kubectl("get", SEEN_BY_USERS, "--output=json")
        assert not [each for each in (key, SECRET) if each in seen]


def test_figures_of_runs_without_executors_with_one_and_with_two(
    first_day: Installed, jobs: Jobs, measured: Measured
) -> None:
    """All of them share this machine's cores with the agents, so more are not faster here."""
    with _with_executors(first_day, jobs):
        client = first_day.client(ZONE)
        for first in range(0, ROWS, BATCH):
            batch = client.pipeline()
            for number in range(first, first + BATCH):
                batch.set(f"reader:{number}", f"{number:0{50 + number % 101}}")
            batch.execute()
        settled = set()
        for count in range(3):
            shared = {**SHARED, "executors": count} if count else {}
            run = {"zoneRef": {"name": ZONE}, **jobs.place, **shared}
            what = f"{count} executors" if count else "no executors"

            jobs.declare("DataValidation", f"rows-{count}", **run, level="Rows")
            status = jobs.wait_end("datavalidation", f"rows-{count}")
            assert status["verdict"] == "Agree", status
            settled.add(status["settledKeys"])
            took = jobs.report(status)["duration_ms"] / 1000
            rate = f"{3 * ROWS / took:,.0f} rows/s in {took:.1f} s"
            measured(f"rows of three copies compared with {what}", f"{rate}, {_whole(status)}")

            claim = {"claimName": CLAIM, "path": f"figures/{count}"}
            place = {"persistentVolumeClaim": claim}
            jobs.declare("ZoneBackup", f"rows-{count}", **run, destination=place)
            exported = jobs.wait_end("zonebackup", f"rows-{count}")
            assert exported["outcome"] == "Complete", exported
            assert exported["rows"] == ROWS, exported
            measured(f"{ROWS:,} rows exported with {what}", _whole(exported))
        assert settled == {ROWS}


@contextmanager
def _with_executors(installed: Installed, jobs: Jobs) -> Iterator[None]:
    """Their rights, a claim for exports and the zone; in the end nothing of it is left."""
    with (
        jobs.upgraded(f"executors.namespaces={{{NAMESPACE}}}"),
        claimed(installed, CLAIM),
        jobs.deleted_in_the_end("datavalidations,zonebackups"),
        installed.zone_made(ZONE, SPEC),
    ):
        yield


@contextmanager
def _secret(installed: Installed, name: str, key: str) -> Iterator[None]:
    """The key of exports, as the manual makes its Secret."""
    installed.kubectl("create", "secret", "generic", name, f"--from-literal=key={key}")
    try:
        yield
    finally:
        installed.kubectl("delete", "secret", name)


def _whole(status: Json) -> str:
    """How long a run took with all that is started for it."""
    began, ended = (
        datetime.fromisoformat(status[name]) for name in ("startTime", "completionTime")
    )
    return f"{(ended - began).total_seconds():.0f} s from start to end"


def _seen(installed: Installed, count: int) -> list[Json]:
    """So many executors that run."""

    def running() -> list[Json]:
        return [
            each
            for each in installed.pods(EXECUTORS)
            if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
        ]

    installed.wait(lambda: len(running()) >= count, f"{count} executors", 200)
    return running()


def _lose_one(installed: Installed, running: list[Json]) -> None:
    """Kill one of these executors.  Returns when there is another."""
    before = {each["metadata"]["name"] for each in running}
    _kill(installed, running[0])
    installed.wait(lambda: _names(installed) - before, "another executor", 100)


def _begun_export(jobs: Jobs, name: str, **of_zone: object) -> list[Json]:
    """The executors of a backup of which a part is exported."""
    place = {"persistentVolumeClaim": {"claimName": CLAIM, "path": f"shelves/{name}"}}
    jobs.declare("ZoneBackup", name, **of_zone, **SLOWLY, destination=place)
    found = _seen(jobs.installed, 2)
    jobs.installed.wait(
        lambda: _percent(jobs.installed, "zonebackup", name), "a part of the export", 100
    )
    return found


def _assert_exported(jobs: Jobs, name: str) -> None:
    """In the end all rows are in files that the manifest names, and there are no others."""
    installed = jobs.installed
    exported = jobs.wait_end("zonebackup", name)
    assert exported["outcome"] == "Complete", exported
    assert exported["rows"] == len(KEYS + MORE), exported
    installed.wait(lambda: not _names(installed), "an end of executors")
    node, _, number = installed.get("pvc", CLAIM)["spec"]["volumeName"].rpartition("-")
    folder = installed.nodes.node(node).volume(int(number)) / "shelves" / name
    files = {path.name for path in folder.iterdir()} - {MANIFEST}
    told = {part["file"] for part in json.loads((folder / MANIFEST).read_text())["partitions"]}
    assert files == told
    assert len(files) == SPEC["partitions"]


def _names(installed: Installed) -> set[str]:
    return {each["metadata"]["name"] for each in installed.pods(EXECUTORS)}


def _percent(installed: Installed, kind: str, name: str) -> int:
    return int(installed.get(kind, name).get("status", {}).get("percent", 0))


def _kill(installed: Installed, pod: Json) -> None:
    name = pod["metadata"]["name"]
    installed.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")


def _assert_harmless(pod: Json, installed: Installed, driver: str) -> None:
    """It has no token, no secret but mounted ones, and goes with the pod that leads it."""
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not [each for each in spec["volumes"] if "projected" in each]
    assert "serviceaccount" not in json.dumps(spec["containers"])
    [owner] = pod["metadata"]["ownerReferences"]
    assert owner["kind"] == "Pod"
    assert owner["name"].startswith(driver)
    [secret] = [each["secret"] for each in spec["volumes"] if "secret" in each]
    assert secret["secretName"] == f"{CLUSTER}-quorate"
    [container] = spec["containers"]
    assert not [each for each in container["env"] if "SECRET" in each["name"]], container["env"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
