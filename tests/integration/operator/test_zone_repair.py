"""A ZoneRepair on a real API server with a real controller of Jobs and real agents.

No kubelet runs: the test starts the program of each pod as the Job has it, and tells how it ended.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from pyarrow.fs import S3FileSystem

from quorate_cli.copies.agent_question import Asked
from quorate_cli.copies.damage import damage_copy
from quorate_cluster.job_pods import (
    IMAGE,
    pods,
    run_pod,
    start_pod,
    tell_end,
    waiting_pod,
    zone_with_keys,
)
from quorate_cluster.processes import secret_file
from quorate_cluster.road import Json, Road
from quorate_cluster.waiting import wait_until
from quorate_s3.server import s3_server

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]

LABEL = "quorate.io/repair"
HUSH = "never-to-be-told"
NEW = {"strategy": "RELATIVE_MAJORITY", "level": "Digest"}


@pytest.fixture
def road(road: Road) -> Iterator[Road]:
    """A zone with keys, all copies of which agree."""
    with zone_with_keys(road, "--debug-commands") as made:
        yield made


def _claim(path: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": "backups", "path": path}}


def _declare(road: Road, name: str, **spec: object) -> None:
    road.apply("ZoneRepair", name, zoneRef={"name": "sessions"}, **spec)


def _wait(road: Road, name: str, phase: str, kind: str = "zonerepair") -> Json:
    wait_until(
        lambda: road.status(kind, name).get("phase") == phase,
        f"{phase}: {name}",
        60,
        lambda: (road.status(kind, name), road.items("jobs,pods"), road.logs()),
    )
    return road.status(kind, name)


def _damage(road: Road, agent: str, *keys: str) -> None:
    at = road.agents[agent]
    asked = Asked(at.host, at.peer_port, "main", agent, secret_file(road.kept.path, "main"))
    for key in keys:
        damage_copy(asked, "sessions", key.encode(), b"damaged")


def _verdict(road: Road, name: str, folder: Path) -> str:
    """Run a DataValidation; return its verdict."""
    road.apply("DataValidation", name, zoneRef={"name": "sessions"}, level="Digest")
    pod = waiting_pod(road, "quorate.io/validation", name)
    tell_end(road, pod, *run_pod(road, pod, folder))
    return str(_wait(road, name, "Finished", "datavalidation")["verdict"])


def test_a_plan_is_read_then_executed_and_copies_agree(road: Road, tmp_path: Path) -> None:
    volumes = {"/exports": tmp_path / "volume"}
    _damage(road, "agent-2", "key-7", "key-8")
    _declare(road, "plan", **NEW, destination=_claim("one"))
    pod = waiting_pod(road, LABEL, "plan")
    code, message = run_pod(road, pod, tmp_path / "plan", volumes)
    assert code == 0, message
    tell_end(road, pod, code, message)
    planned = _wait(road, "plan", "Finished")

    assert (planned["outcome"], planned["planned"]) == ("Planned", {"write": 2}), planned
    assert "--execute plan" in planned["message"]
    rows = parquet.read_table(tmp_path / "volume/one/repair-plan.parquet").to_pylist()
    assert {row["key"] for row in rows} == {"key-7", "key-8"}
    assert _verdict(road, "between", tmp_path / "between") == "Differ", "nothing is changed"

    source = _claim("one")
    quoted = {"source": source, "digest": "0" * 64}
    _declare(road, "other", dryRun=False, plan=quoted)
    pod = waiting_pod(road, LABEL, "other")
    code, message = run_pod(road, pod, tmp_path / "other", volumes)
    assert code == 1, message
    tell_end(road, pod, code, message)
    refused = _wait(road, "other", "Finished")
    assert refused["outcome"] == "Failed"
    assert "is another file than the plan that was read" in refused["message"]
    assert len(pods(road, LABEL, "other")) == 1, "another pod would find the same"

    quoted = {"source": source, "digest": planned["planDigest"]}
    _declare(road, "repair", dryRun=False, plan=quoted)
    pod = waiting_pod(road, LABEL, "repair")
    code, message = run_pod(road, pod, tmp_path / "repair", volumes)
    assert code == 0, message
    tell_end(road, pod, code, message)
    done = _wait(road, "repair", "Finished")

    assert (done["outcome"], done["keys"]) == ("Repaired", {"repaired": 2}), done
    assert f"kubectl quorate validate sessions --namespace {road.namespace}" in done["message"]
    assert _verdict(road, "after", tmp_path / "after") == "Agree"
    wait_until(
        lambda: {"RepairPlanned", "RepairFailed", "Repaired"} <= road.told_of_zones(),
        "its Events",
        60,
        road.told_of_zones,
    )


def test_a_pod_that_is_killed_in_the_middle_is_followed_by_one_that_goes_on(
    road: Road, tmp_path: Path
) -> None:
    """Meanwhile the operator is replaced, and another repair waits."""
    volumes, keys = {"/exports": tmp_path / "volume"}, [f"key-{at}" for at in range(20)]
    _damage(road, "agent-2", *keys)
    at_once = {"dryRun": False, "withoutReview": True}
    _declare(road, "first", **NEW, **at_once, destination=_claim("first"))
    pod = waiting_pod(road, LABEL, "first")
    plan = tmp_path / "volume/first/repair-plan.parquet"
    with start_pod(road, pod, tmp_path / "killed", volumes) as process:
        try:
            wait_until(plan.exists, "its plan", 60)
        finally:
            process.kill()
    before = plan.read_bytes()
    road.operators.pop("operator-a").kill()
    tell_end(road, pod, 137, "")
    other = road.start_operator("operator-b", serves=("--namespace", road.namespace, *IMAGE))
    road.wait_led_by(other)
    _declare(road, "second", **NEW, **at_once, destination=_claim("second"))
    waiting = _wait(road, "second", "Waiting")
    assert waiting["message"] == "ZoneRepair first of the same zone is waited for"
    again = waiting_pod(road, LABEL, "first")
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    code, message = run_pod(road, again, tmp_path / "again", volumes)
    assert code == 0, message
    tell_end(road, again, code, message)
    done = _wait(road, "first", "Finished")

    assert (done["outcome"], done["keys"]) == ("Repaired", {"repaired": 20}), done
    assert plan.read_bytes() == before
    for _ in range(2):
        tell_end(road, waiting_pod(road, LABEL, "second"), 137, "Killed")
    silent = _wait(road, "second", "Finished")
    assert silent["outcome"] == "Unknown", silent
    assert "may be repaired, or not" in silent["message"]
    assert _verdict(road, "after", tmp_path / "after") == "Agree"


@pytest.mark.needs("s3-server")
def test_a_plan_in_a_bucket_is_executed_from_there(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _damage(road, "agent-2", "key-7")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", HUSH)
    with s3_server() as endpoint:
        store = {"endpoint_override": endpoint, "scheme": "http"}
        S3FileSystem(**store, allow_bucket_creation=True).create_dir("plans")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        words = ("AWS_ACCESS_KEY_ID=someone", f"AWS_SECRET_ACCESS_KEY={HUSH}")
        literals = (f"--from-literal={each}" for each in words)
        road.kubectl("create", "secret", "generic", "keys-of-s3", *literals)
        s3 = {
            "url": "s3://plans/sessions/one",
            "region": "us-east-1",
            "endpoint": f"http://{endpoint}",
            "credentialsSecretRef": {"name": "keys-of-s3"},
        }
        _declare(road, "plan", **NEW, destination={"s3": s3})
        pod = waiting_pod(road, LABEL, "plan")
        tell_end(road, pod, *run_pod(road, pod, tmp_path / "plan"))
        planned = _wait(road, "plan", "Finished")
        quoted = {"source": {"s3": s3}, "digest": planned["planDigest"]}
        _declare(road, "repair", dryRun=False, plan=quoted)
        pod = waiting_pod(road, LABEL, "repair")
        code, message = run_pod(road, pod, tmp_path / "repair")
        assert code == 0, message
        tell_end(road, pod, code, message)
        done = _wait(road, "repair", "Finished")

    assert (done["outcome"], done["keys"]) == ("Repaired", {"repaired": 1}), done
    assert done["place"].startswith("s3://plans/sessions/one?")
    seen = ("zonerepairs,jobs,pods,events", "--output=json")
    assert HUSH not in road.kubectl("get", *seen)
    assert HUSH not in road.all_logs()
