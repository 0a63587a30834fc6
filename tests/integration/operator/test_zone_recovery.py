"""A ZoneRecovery on a real API server, with real agents: shown, done, kept, and never run twice."""

import json

import pytest

from quorate_cluster.road import QUIET, Json, Road
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]

PARTITIONS = [0, 1, 2, 3]


@pytest.fixture
def road(road: Road) -> Road:
    """A zone in STRONG_CONSISTENCY that has lost two of its three agents, and waits for them."""
    road.use_example_role()
    road.start_agents()
    road.start_operator()
    road.declare(partitions=len(PARTITIONS))
    road.wait_zone(**QUIET)
    road.write_keys("first")
    for name in ("agent-2", "agent-3"):
        road.agents[name].kill()
    wait_until(
        lambda: all({*row["replicas"]} <= {"agent-1", ""} for row in _rows(road)),
        "the loss of both",
        60,
        road.logs,
    )
    return road


def _ask(road: Road, name: str, **spec: object) -> Json:
    """Create one; its status once it was run."""
    whole = {"zoneRef": {"name": "sessions"}, "action": "Reset", "partitions": PARTITIONS, **spec}
    road.apply("ZoneRecovery", name, **whole)
    wait_until(
        lambda: road.status("zonerecovery", name).get("phase") not in (None, "Waiting", "Running"),
        f"the result of {name}",
        60,
        lambda: (road.status("zonerecovery", name), road.logs()),
    )
    return road.status("zonerecovery", name)


def _rows(road: Road) -> list[Json]:
    rows = [row for table in road.items("partitiontables") for row in table["spec"].get("rows", [])]
    return sorted(rows, key=lambda row: int(row["partition"]))


def _versions(road: Road) -> list[int]:
    return [row["version"] for row in _rows(road)]


def _resets(road: Road) -> list[int]:
    """The term of each partition's last reset."""
    return [(row.get("reset") or {"term": 0})["term"] for row in _rows(road)]


def test_a_lost_majority_is_reset_once_and_the_result_is_kept(road: Road) -> None:
    before = _versions(road)
    shown = _ask(road, "look")
    assert shown["phase"] == "Shown"
    assert [each["rowVersion"] for each in shown["partitions"]] == before == _versions(road)
    assert all("it would narrow to agent-1" in each["message"] for each in shown["partitions"])

    done = _ask(road, "do", rowVersions=before, dryRun=False)
    assert done["phase"] == "Done", done
    road.wait_zone(Available="True", DataLossAccepted="True")
    road.check_keys("first")
    road.write_keys("second")

    refused = _ask(road, "late", rowVersions=before, dryRun=False)
    assert refused["phase"] == "Refused"
    assert "its row has changed" in refused["refusals"][0]

    for name in ("agent-2", "agent-3"):
        road.agents[name].start()
    road.wait_zone(**QUIET)
    resets = _resets(road)
    assert all(resets)
    road.operators.pop("operator-a").kill()
    road.wait_led_by(road.start_operator("operator-b"))
    road.wait_zone(**QUIET)
    assert _ask(road, "after", action="Cancel")["phase"] == "Refused"
    assert {"look": shown, "do": done, "late": refused} == {
        name: road.status("zonerecovery", name) for name in ("look", "do", "late")
    }
    assert _resets(road) == resets
    road.check_keys("second")


def test_one_that_was_being_run_is_not_run_again(road: Road) -> None:
    """As if the operator had ended in between."""
    before = _versions(road)
    road.operators.pop("operator-a").kill()
    spec = {"zoneRef": {"name": "sessions"}, "action": "Reset", "partitions": PARTITIONS}
    road.apply("ZoneRecovery", "do", **spec, rowVersions=before, dryRun=False)
    patch = json.dumps({"status": {"phase": "Running"}})
    road.kubectl(
        "patch", "zonerecovery", "do", "--subresource=status", "--type=merge", f"--patch={patch}"
    )
    road.start_operator("operator-b")
    wait_until(
        lambda: road.status("zonerecovery", "do")["phase"] == "Unknown",
        "the result",
        60,
        lambda: (road.status("zonerecovery", "do"), road.logs()),
    )

    assert "create another ZoneRecovery" in road.status("zonerecovery", "do")["message"]
    assert not any(_resets(road))
