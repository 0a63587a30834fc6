"""A DataValidation on a real API server with a real controller of Jobs and real agents.

No kubelet runs: the test starts the program of each pod as the Job has it, and tells how it ended.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from quorate_cli.copies.agent_question import Asked
from quorate_cli.copies.damage import damage_copy
from quorate_cluster.job_pods import (
    IMAGE,
    NO_LONG_WAIT,
    pods,
    run_pod,
    tell_end,
    waiting_pod,
    zone_with_keys,
)
from quorate_cluster.processes import secret_file
from quorate_cluster.road import Json, Road
from quorate_cluster.waiting import wait_until
from quorate_spark_fixtures.read_page import PageRead, read_page

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]

LABEL = "quorate.io/validation"


@pytest.fixture
def road(road: Road) -> Iterator[Road]:
    """A zone with keys, all copies of which agree."""
    with zone_with_keys(road, "--debug-commands") as made:
        yield made


def _declare(road: Road, name: str, **spec: object) -> None:
    road.apply("DataValidation", name, zoneRef={"name": "sessions"}, level="Digest", **spec)


def _status(road: Road, name: str) -> Json:
    return road.status("datavalidation", name)


def _wait(road: Road, name: str, phase: str) -> Json:
    wait_until(
        lambda: _status(road, name).get("phase") == phase,
        f"{phase}: {name}",
        60,
        lambda: (_status(road, name), road.items("jobs,pods"), road.logs()),
    )
    return _status(road, name)


def _pods(road: Road, name: str) -> list[Json]:
    return pods(road, LABEL, name)


def _waiting_pod(road: Road, name: str) -> Json:
    return waiting_pod(road, LABEL, name)


def _condition(road: Road) -> Json:
    conditions = road.status("zone", "sessions")["conditions"]
    return next((each for each in conditions if each["type"] == "CopiesAgree"), {})


def _wait_condition(road: Road, status: str) -> Json:
    wait_until(
        lambda: _condition(road).get("status") == status,
        f"CopiesAgree {status}",
        60,
        lambda: (_condition(road), road.logs()),
    )
    return _condition(road)


def _damage(road: Road, agent: str, key: str) -> None:
    at = road.agents[agent]
    secret = secret_file(road.kept.path, "main")
    asked = Asked(at.host, at.peer_port, "main", agent, secret)
    damage_copy(asked, "sessions", key.encode(), b"damaged")


def test_agreeing_copies_are_told_then_a_damaged_one(road: Road, tmp_path: Path) -> None:
    _declare(road, "before")
    _wait(road, "before", "Running")
    pod = _waiting_pod(road, "before")
    tell_end(road, pod, *run_pod(road, pod, tmp_path / "before"))
    told = _wait(road, "before", "Finished")

    assert told["verdict"] == "Agree", told
    assert (told["partitions"], told["copies"]) == (16, 48)
    condition = _wait_condition(road, "True")
    assert condition["lastTransitionTime"] == told["completionTime"]

    _damage(road, "agent-2", "key-7")
    _declare(road, "after")
    pod = _waiting_pod(road, "after")
    code, message = run_pod(road, pod, tmp_path / "after")
    assert code == 1, message
    tell_end(road, pod, code, message)
    told = _wait(road, "after", "Finished")

    assert told["verdict"] == "Differ", told
    assert told["classes"] == {"value": 1}
    assert [each["node"] for each in told["outvoted"]] == ["agent-2"]
    assert "DataValidation after" in _wait_condition(road, "False")["message"]
    assert len(_pods(road, "after")) == 1, "a proven difference is not tried again"
    wait_until(lambda: {"CopiesAgree", "CopiesDiffer"} <= road.told_of_zones(), "Events", 60)
    series = "quorate_operator_validation_verdict"
    verdicts = {
        verdict: value
        for each, value in road.metrics("operator-a").items()
        for verdict in ("agree", "differ", "could_not_tell")
        if each.startswith(series) and f'verdict="{verdict}"' in each
    }
    assert verdicts == {"agree": 0, "differ": 1, "could_not_tell": 0}


def test_one_that_could_not_tell_is_tried_once_more_by_whichever_operator(
    road: Road, tmp_path: Path
) -> None:
    road.agents["agent-3"].kill()
    wait_until(
        lambda: road.conditions().get("FullyReplicated") == "False", "the loss", 60, road.logs
    )
    _declare(road, "lame")
    pod = _waiting_pod(road, "lame")
    tell_end(road, pod, *run_pod(road, pod, tmp_path / "first", options=NO_LONG_WAIT))
    road.operators.pop("operator-a").kill()
    again = _waiting_pod(road, "lame")
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    code, message = run_pod(road, again, tmp_path / "second", options=NO_LONG_WAIT)
    assert code == 2, message
    tell_end(road, again, code, message)
    other = road.start_operator("operator-b", serves=("--namespace", road.namespace, *IMAGE))
    road.wait_led_by(other)
    told = _wait(road, "lame", "Finished")

    assert told["verdict"] == "CouldNotTell", told
    assert told["reasons"]
    assert len(_pods(road, "lame")) == 2
    _wait_condition(road, "Unknown")


def test_a_validation_that_is_deleted_takes_its_job_along(road: Road) -> None:
    _declare(road, "nightly")
    _waiting_pod(road, "nightly")
    assert road.get("job", "nightly-validation") is not None

    road.kubectl("delete", "datavalidation", "nightly")

    wait_until(lambda: not road.items("jobs"), "the end of its Job", 60)


def test_a_schedule_creates_runs_and_keeps_some(road: Road, tmp_path: Path) -> None:
    """Each minute; the run of one minute is replaced in the next, and a finished one removed."""
    spec = {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Replace",
        "successfulRunsHistoryLimit": 0,
        "template": {
            "labels": {"team": "shop"},
            "spec": {"zoneRef": {"name": "sessions"}, "level": "Digest"},
        },
    }
    road.apply("ScheduledDataValidation", "often", **spec)

    def run_other_than(name: str) -> str:
        told = road.status("scheduleddatavalidation", "often").get("lastRun", "")
        return told if told != name else ""

    def wait_run(other_than: str) -> str:
        found = wait_until(
            lambda: run_other_than(other_than),
            "a run",
            120,
            lambda: (road.status("scheduleddatavalidation", "often"), road.logs()),
        )
        assert found
        return found

    first = wait_run("")
    made = road.get("datavalidation", first)
    assert made is not None
    assert made["metadata"]["labels"]["team"] == "shop"
    second = wait_run(first)
    wait_until(lambda: road.get("datavalidation", first) is None, "its replacement", 60)
    road.apply("ScheduledDataValidation", "often", **spec, suspend=True)
    pod = _waiting_pod(road, second)
    tell_end(road, pod, *run_pod(road, pod, tmp_path / "second"))
    wait_until(lambda: road.get("datavalidation", second) is None, "its removal", 90, road.logs)

    assert _condition(road)["status"] == "True", "the zone keeps the result"
    road.kubectl("delete", "scheduleddatavalidation", "often")
    wait_until(lambda: not road.items("datavalidations,jobs"), "the end of all runs", 60)


def test_reports_on_a_volume_tell_what_changed_and_the_past_of_the_zone(
    road: Road, tmp_path: Path
) -> None:
    volumes = {"/exports": tmp_path / "exports", "/reports": tmp_path / "reports"}

    def run(kind: str, name: str, label: str, options: Sequence[str] = (), **spec: object) -> Json:
        road.apply(kind, name, zoneRef={"name": "sessions"}, **spec)
        for attempt in ("first", "again"):
            pod = waiting_pod(road, label, name)
            code, message = run_pod(road, pod, tmp_path / f"{name}-{attempt}", volumes, options)
            tell_end(road, pod, code, message)
            if code != 2:
                break
        wait_until(
            lambda: road.status(kind.lower(), name).get("phase") == "Finished",
            f"the end of {name}",
            60,
            lambda: (road.status(kind.lower(), name), road.logs()),
        )
        return road.status(kind.lower(), name)

    def claim(path: str) -> Json:
        return {"persistentVolumeClaim": {"claimName": "volume", "path": path}}

    def pages() -> list[PageRead]:
        found = sorted((tmp_path / "reports" / "shop").glob("*.html"))
        return [read_page(path.read_bytes()) for path in found]

    exported = run("ZoneBackup", "monday", "quorate.io/backup", destination=claim("sessions/1"))
    assert exported["outcome"] == "Complete", exported
    wait_until(
        lambda: "lastBackup" in road.status("zone", "sessions"), "the last backup", 60, road.logs
    )
    spec = {"level": "Digest", "report": claim("shop")}
    assert run("DataValidation", "first", LABEL, **spec)["verdict"] == "Agree"
    primaries = road.status("storagecluster", "main")["members"][2]["primaries"]
    road.agents["agent-3"].kill()

    def failovers() -> int:
        hours = road.status("zone", "sessions")["lastDay"].get("hours", [])
        return sum(each.get("failovers", 0) for each in hours)

    wait_until(lambda: failovers() == primaries > 0, "failovers in the status", 60, road.logs)
    assert run("DataValidation", "second", LABEL, NO_LONG_WAIT, **spec)["verdict"] == "CouldNotTell"

    first, _, second = pages()
    assert "No earlier report" in first.section("Since the last run")
    assert "Failovers 0 " in first.section("The last 24 hours")
    assert "monday, at volume:sessions/1" in first.section("Backups")
    assert "could not tell . This one: could not tell" in second.section("Since the last run")
    assert "✓??" in second.section("The last 3 runs").replace(" ", "")
    assert "Copies missing or not reached" in second.section("Not proven")
    assert f"Failovers {primaries} " in second.section("The last 24 hours")
    assert "Last verified restore none is known" in second.section("Backups")
