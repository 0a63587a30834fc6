"""Ownership objects are deleted, put back to an older state or changed by hand, on a real API
server with real agents: no key is lost, and what is wrong is said and mended."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quorate_cluster.road import QUIET, Json, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import ANNOTATION_RECOVERING, LEASE

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]

WHOLE = {**QUIET, "OwnershipDamaged": "False"}
GAP = 1 << 20


@pytest.fixture
def road(road: Road) -> Road:
    """Led, with keys."""
    road.start_agents()
    road.start_operator()
    road.declare(partitions=128)
    road.wait_zone(**WHOLE)
    wait_until(lambda: bool(road.status("zone", "sessions").get("placedUid")), "placed")
    road.write_keys("first")
    return road


def _shards(road: Road) -> list[Json]:
    tables = [each for each in road.items("partitiontables") if "rows" in each["spec"]]
    return sorted(tables, key=lambda each: int(each["spec"]["shard"]))


def _versions(road: Road, data_id: str = "") -> dict[int, int]:
    """Partition -> version, of one zone where there are several."""
    shards = [each for each in _shards(road) if data_id in ("", each["spec"]["zoneRef"]["uid"])]
    rows = [row for shard in shards for row in shard["spec"]["rows"]]
    return {row["partition"]: row["version"] for row in rows}


def _put_back(road: Road, *objects: Json, check: bool = True) -> None:
    """In the place of what is there, as from a backup: deleted, then made."""
    for each in objects:
        about = {key: each["metadata"][key] for key in ("name", "labels")}
        manifest = json.dumps({**each, "metadata": about})
        road.kubectl("replace", "--force", "--filename=-", stdin=manifest, check=check)


def _as_of_now(road: Road, older: Json) -> Json:
    """The older object, to be written over the present one."""
    present = road.get("partitiontable", older["metadata"]["name"])
    assert present is not None
    return {**older, "metadata": present["metadata"]}


def _stop(road: Road) -> None:
    road.operators.pop("operator-a").kill()


def _wait_told(road: Road, reason: str, sentence: str = "") -> str:
    """The first Event of this reason whose message has the sentence."""

    def told() -> list[str]:
        events = [each for each in road.items("events") if each["reason"] == reason]
        return [each["message"] for each in events if sentence in each["message"]]

    wait_until(lambda: bool(told()), f"an Event {reason}", 60, lambda: road.items("events"))
    return told()[0]


def _wait_whole(road: Road, value: str) -> None:
    road.wait_zone(**WHOLE)
    road.check_keys(value)


def test_a_shard_deleted_while_no_operator_runs_is_rebuilt_and_the_other_kept(road: Road) -> None:
    kept, lost = _shards(road)
    _stop(road)
    road.kubectl("delete", "partitiontable", lost["metadata"]["name"])

    road.start_operator("operator-b")

    assert "have no row in the metastore" in _wait_told(road, "OwnershipLost")
    _wait_whole(road, "first")
    _wait_told(road, "OwnershipRebuilt")
    versions = _versions(road)
    assert all(versions[row["partition"]] > GAP for row in lost["spec"]["rows"])
    assert all(versions[row["partition"]] < GAP for row in kept["spec"]["rows"])


def test_when_all_objects_are_gone_rows_wait_for_a_quorum_that_is_named(road: Road) -> None:
    _stop(road)
    for name in ("agent-2", "agent-3"):
        road.agents[name].kill()
    road.kubectl("delete", "partitiontables,storagenodes", "--all")
    road.kubectl("delete", "masterterm", "main")
    road.kubectl("delete", "lease", LEASE)

    road.start_operator("operator-b")

    road.wait_zone(OwnershipDamaged="True", Available="False")
    wait_until(
        lambda: (
            "waiting for the reports of agent-2, agent-3"
            in json.dumps(road.status("zone", "sessions"))
        ),
        "who is missing",
        60,
        lambda: (road.status("zone", "sessions"), road.logs()),
    )
    _wait_told(road, "RebuildWaits", "waiting for the reports of agent-2, agent-3")
    assert _shards(road) == []
    for name in ("agent-2", "agent-3"):
        road.agents[name].start()
    _wait_whole(road, "first")
    road.write_keys("second")
    road.check_keys("second")
    assert min(_versions(road).values()) > GAP


def _lose_namespace(road: Road) -> str:
    """What its deletion does, with agents on hosts of their own; the id of the zone's data."""
    data_id = str(road.status("zone", "sessions")["zoneId"])
    _stop(road)
    road.kubectl(
        "patch", "zone", "sessions", "--type=merge", '--patch={"metadata":{"finalizers":null}}'
    )
    own = "zones,storageclusters,partitiontables,storagenodes,masterterms,leases,events"
    road.kubectl("delete", own, "--all")
    return data_id


def test_of_a_lost_namespace_the_secret_suffices_to_find_all_keys(road: Road) -> None:
    """The zone has another uid, and no status that says which data it has."""
    data_id = _lose_namespace(road)
    road.agents["agent-3"].kill()
    road.declare(partitions=128)
    road.apply("Zone", "second", clusterRef={"name": "main"}, partitions=16)
    road.start_operator("operator-b")

    def waits_for(zone: str) -> str:
        conditions = road.status("zone", zone).get("conditions", [])
        return str([each["message"] for each in conditions if each["type"] == "Available"])

    # Nobody knows whether the agent that is away has data of zones of these names.
    away = f"not reached yet: {road.agents['agent-3'].peer_address}"
    for zone in ("sessions", "second"):
        said = partial(waits_for, zone)
        wait_until(partial(_contains, said, away), away, 30, lambda: road.logs())
    assert _is_recovering(road)
    road.agents["agent-3"].start()

    _wait_whole(road, "first")
    assert road.status("zone", "sessions")["zoneId"] == data_id
    assert min(_versions(road, data_id).values()) > GAP
    wait_until(
        lambda: road.conditions(name="second").get("FullyReplicated") == "True",
        "a new zone",
        60,
        lambda: (road.status("zone", "second"), road.logs()),
    )
    assert not _is_recovering(road)
    assert road.status("zone", "second")["zoneId"] != data_id


def _contains(text: Callable[[], str], part: str) -> bool:
    return part in text()


def _is_recovering(road: Road) -> bool:
    counter = road.get("masterterm", "main")
    assert counter is not None
    return ANNOTATION_RECOVERING in counter["metadata"].get("annotations", {})


def test_older_objects_put_back_while_no_operator_runs_are_rebuilt(road: Road) -> None:
    older = [*_shards(road), *road.items("storagenodes")]
    counter = road.get("masterterm", "main")
    assert counter is not None
    road.agents["agent-2"].kill()
    road.wait_zone(Available="True", FullyReplicated="False")
    road.write_keys("second")
    road.agents["agent-2"].start()
    road.wait_zone(**WHOLE)
    road.write_keys("third")
    newest = _versions(road)
    _stop(road)
    _put_back(road, *older)
    road.kubectl("delete", "masterterm", "main")
    assert _versions(road) != newest

    road.start_operator("operator-b")

    assert "and the metastore holds" in _wait_told(road, "OwnershipLost")
    _wait_whole(road, "third")
    found = _versions(road)
    assert all(found[partition] >= version for partition, version in newest.items())


def test_what_is_deleted_or_put_back_under_an_operator_is_seen_and_made_again(road: Road) -> None:
    term = road.wait_led_by(road.operators["operator-a"])
    tables, nodes = road.items("partitiontables"), road.items("storagenodes")
    older = _shards(road)
    road.agents["agent-3"].kill()
    road.wait_zone(Available="True", FullyReplicated="False")
    road.agents["agent-3"].start()
    road.wait_zone(**WHOLE)
    newest = _versions(road)

    road.kubectl("delete", "partitiontables,storagenodes", "--all", "--wait=false")

    def names() -> tuple[set[str], set[str]]:
        kinds = [road.items(kind) for kind in ("partitiontables", "storagenodes")]
        first, second = [{each["metadata"]["name"] for each in kind} for kind in kinds]
        return first, second

    wanted = tuple({each["metadata"]["name"] for each in kind} for kind in (tables, nodes))
    wait_until(lambda: names() == wanted, "all objects again", 10, lambda: (names(), road.logs()))
    assert all(_versions(road)[p] >= version for p, version in newest.items())
    _wait_told(road, "RecordRestored")
    road.check_keys("first")
    with pytest.raises(RuntimeError, match="versions and terms never decrease"):
        road.kubectl("replace", "--filename=-", stdin=json.dumps(_as_of_now(road, older[0])))
    _put_back(road, *older, check=False)  # the operator may be the first to make it
    wait_until(
        lambda: all(_versions(road).get(p, 0) >= version for p, version in newest.items()),
        "newer rows again",
        10,
        lambda: (_versions(road), road.logs()),
    )
    road.kubectl("delete", "lease", LEASE)
    road.write_keys("second")
    road.agents["agent-2"].kill()
    road.wait_zone(Available="True", FullyReplicated="False")
    road.check_keys("second")
    assert road.master()[1] == term


def _without_rules(control_plane: ControlPlane, road: Road) -> Json:
    """The kind as an older version declared it: it takes any row.  The kind as it was."""
    name = "customresourcedefinition/partitiontables.quorate.io"
    found: Json = json.loads(control_plane.kubectl("get", name, "--output=json").stdout)
    changed = json.loads(json.dumps(found))
    for version in changed["spec"]["versions"]:
        rows = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["rows"]
        rows["items"].pop("x-kubernetes-validations")
    _replace_kind(control_plane, changed)
    return found


def _replace_kind(control_plane: ControlPlane, kind: Json) -> None:
    about = {"name": kind["metadata"]["name"]}
    patch = json.dumps({"spec": {"versions": kind["spec"]["versions"]}})
    control_plane.kubectl(
        "patch", "customresourcedefinition", about["name"], "--type=merge", f"--patch={patch}"
    )


def _change_row(road: Road, shard: Json, at: int, **fields: Any) -> bool:
    """Whether the API server takes it."""
    changes = [
        {"op": "replace", "path": f"/spec/rows/{at}/{field}", "value": value}
        for field, value in fields.items()
    ]
    name = shard["metadata"]["name"]
    arguments = ("patch", "partitiontable", name, "--type=json", f"--patch={json.dumps(changes)}")
    try:
        road.kubectl(*arguments)
    except RuntimeError:
        return False
    return True


def _recover(road: Road, name: str, **spec: object) -> Json:
    """Have partition 5 rebuilt by a ZoneRecovery; its status once it was run."""
    whole = {"zoneRef": {"name": "sessions"}, "action": "Rebuild", "partitions": [5], **spec}
    road.apply("ZoneRecovery", name, **whole)
    wait_until(
        lambda: road.status("zonerecovery", name).get("phase") not in (None, "Waiting", "Running"),
        f"the result of {name}",
        60,
        lambda: (road.status("zonerecovery", name), road.logs()),
    )
    return road.status("zonerecovery", name)


def test_a_row_that_is_set_aside_is_rebuilt_when_a_person_says_so(
    control_plane: ControlPlane, road: Road
) -> None:
    first, _ = _shards(road)
    before = _versions(road)
    kind = _without_rules(control_plane, road)
    _stop(road)
    try:
        twice = ["agent-1", "agent-1", "agent-2"]
        wait_until(lambda: _change_row(road, first, 5, replicas=twice), "a bad row", 30)
    finally:
        _replace_kind(control_plane, kind)
    road.start_operator("operator-b")
    road.wait_zone(OwnershipDamaged="True")
    _wait_told(road, "RowSetAside")

    def shown() -> Json:
        return _recover(road, f"look-{time.monotonic_ns()}")

    found: list[Json] = []

    def is_shown() -> bool:
        found.append(shown())
        return bool(found[-1]["phase"] == "Shown")

    wait_until(is_shown, "agents have told what they know", 60, lambda: found[-1])
    [each] = found[-1]["partitions"]
    assert each["rowVersion"] == before[5]
    assert "every acknowledged write is found" in each["message"]
    assert _versions(road) == before

    other = _recover(road, "other", rowVersions=[before[5] + 1], dryRun=False)
    assert other["phase"] == "Refused"
    assert "look again" in other["refusals"][0]
    done = _recover(road, "do", rowVersions=[before[5]], dryRun=False)
    assert done["phase"] == "Done", done

    _wait_whole(road, "first")
    assert "partition 5" in _wait_told(road, "RowDiscarded")
    assert _versions(road)[5] > before[5] + (1 << 20)
    late = _recover(road, "late", rowVersions=[before[5]], dryRun=False)
    assert late["phase"] == "Refused"
    assert "its row is valid" in late["refusals"][0]


def test_a_row_that_is_none_is_refused_by_the_api_server_else_set_aside_alone(
    control_plane: ControlPlane, road: Road
) -> None:
    first, _ = _shards(road)
    good = first["spec"]["rows"][5]
    twice = ["agent-1", "agent-1", "agent-2"]
    _stop(road)
    assert not _change_row(road, first, 5, replicas=twice)
    assert not _change_row(road, first, 5, term=good["version"] + 1)
    kind = _without_rules(control_plane, road)
    try:
        wait_until(lambda: _change_row(road, first, 5, replicas=twice), "a bad row", 30)
        road.start_operator("operator-b")

        road.wait_zone(OwnershipDamaged="True")
        said = json.dumps(road.status("zone", "sessions"))
        assert "row of partition 5" in said
        assert "repair these rows, or have them rebuilt" in said
        assert "partition 5" in _wait_told(road, "RowSetAside")
        road.agents["agent-3"].kill()
        wait_until(
            lambda: road.status("zone", "sessions")["partitions"]["unavailable"] == 1,
            "the others taken over",
            60,
            lambda: (road.status("zone", "sessions"), road.logs()),
        )
        road.agents["agent-3"].start()
        assert _change_row(road, first, 5, replicas=good["replicas"])

        _wait_whole(road, "first")
        _wait_told(road, "RowRepaired")
    finally:
        _replace_kind(control_plane, kind)
