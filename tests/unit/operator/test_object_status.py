"""What the status of objects says, and whether a zone may be led at all."""

import json
import re
from collections import deque
from typing import Any

import msgspec
import pytest

from quorate.facts.zone import ZoneRecord
from quorate.planning.queue.retries import StuckMigration
from quorate.planning.steps.intent import Intent
from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.status import ClusterStatus, NodeStatus, TimerStatus
from quorate.protocol.status import ZoneStatus as Observed
from quorate.wire.restoring import RESTORING
from quorate.wire.schema.resource import API_VERSION, Condition
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone, ZonePartitions, ZoneStatus, to_record
from quorate_lone_master.zone_status import status_of_zone
from quorate_operator.declared.acceptance import Acceptance, accept
from quorate_operator.declared.object_status import (
    Seen,
    cluster_status,
    refused_zone_status,
    zone_status,
)
from quorate_operator.kube.api import ApiRefused
from quorate_operator.mastership.decisions import MESSAGE_MAX, About, Decisions, tell_all
from quorate_operator.mastership.refused_writes import Refusal

EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
NODE = NodeStatus("agent-1", "s", 1, True, "Online", "10.0.0.7:7100", "", 16, 16, None, "127.0.0.1")
SERVING = {"phase": "Available", "sentence": "all well", "available": 16}


def zone(generation: int = 3, deleting: bool = False, **spec: Any) -> Zone:
    metadata: dict[str, Any] = {"name": "sessions", "uid": "u", "generation": generation}
    if deleting:
        metadata["deletionTimestamp"] = LATER
    whole = {"clusterRef": {"name": "main"}, "partitions": 16, **spec}
    return Zone.parse(
        {"apiVersion": API_VERSION, "kind": "Zone", "metadata": metadata, "spec": whole}
    )


def observed(**changes: Any) -> Observed:
    whole: dict[str, Any] = {
        "name": "sessions",
        "phase": "Pending",
        "sentence": "waiting for agents",
        "partitions": 16,
        "available": 0,
        "ports": {"agent-1": 7000, "agent-9": 7000},
    }
    return status_of_zone(**{**whole, **changes})


def status(seen: Observed | None, of: Zone | None = None, problem: str = "") -> ZoneStatus:
    of = of or zone()
    led = Seen(ClusterStatus(1, (NODE,), ()), problem)
    return zone_status(of, accept(of, True, None), seen, led, LATER)


def said(made: ZoneStatus) -> dict[str, str]:
    return {each.type: each.status for each in made.conditions}


def test_a_zone_into_which_an_export_is_imported_is_not_available_until_that_is_done() -> None:
    of = zone()
    metadata = of.metadata.model_copy(
        update={"annotations": {RESTORING: "s3://b/x?scheme=http&region=r#01234567.89abcdef"}}
    )
    of = of.model_copy(update={"metadata": metadata})

    made = status(observed(**SERVING), of)

    told = next(each for each in made.conditions if each.type == "Available")
    assert (told.status, told.reason, made.phase) == ("False", "Restoring", "Restoring")
    assert "run `quorate import 's3://b/x?scheme=http&region=r' sessions` again" in told.message
    assert status(observed(), of).phase == "Pending"
    uid = "1b671a64-40d5-491e-99b0-da01ff1f3341"
    metadata = metadata.model_copy(
        update={"annotations": {RESTORING: f"s3://b/x?scheme=http#01234567.{uid}"}}
    )
    made = status(observed(**SERVING), of.model_copy(update={"metadata": metadata}))
    told = next(each for each in made.conditions if each.type == "Available")
    assert told.message.endswith("after an interruption create another ZoneRestore of it")
    made = status(observed(**SERVING))
    assert (said(made)["Available"], made.phase) == ("True", "Available")


@pytest.mark.parametrize(("uid", "available"), [("u", "True"), ("earlier", "False")])
def test_the_note_of_this_zone_that_a_person_removed_is_not_of_an_earlier_one(
    uid: str, available: str
) -> None:
    """The zone is paused: its record has the import still."""
    made = status(observed(**SERVING, importing=f"{uid} backups:monday#01234567.89abcdef"))

    assert said(made)["Available"] == available


def test_a_zone_without_a_name_for_clients_is_not_available_yet() -> None:
    of, led = zone(), Seen(ClusterStatus(1, (NODE,), ()))
    why = "Service sessions-clients is not created yet"
    made = zone_status(of, accept(of, True, None), observed(**SERVING), led, LATER, lacks_name=why)

    available = next(each for each in made.conditions if each.type == "Available")
    assert (available.status, available.reason) == ("False", "ServiceMissing")
    assert available.message == f"every partition serves; {why}"
    assert made.phase == "Pending"
    assert said(made)["FullyReplicated"] == "True"


@pytest.mark.parametrize(
    ("storage", "way_out"),
    [
        ("Persistent", "free space on these disks, delete keys or add agents"),
        ("InMemory", "delete keys or add agents"),
    ],
)
def test_agents_without_room_are_named_with_the_way_out(storage: str, way_out: str) -> None:
    full = {"agent-1": "/data/1: 7 bytes left", "agent-3": "/data/3: 0 bytes left"}

    made = status(observed(**SERVING, full=full), zone(storage=storage))

    condition = next(each for each in made.conditions if each.type == "StorageFull")
    assert (condition.status, condition.reason) == ("True", "NoRoom")
    assert condition.message == (
        "commands that need room are refused; agent agent-1: /data/1: 7 bytes left; "
        f"agent agent-3: /data/3: 0 bytes left; {way_out}; writes then resume"
    )
    assert said(status(observed(**SERVING)))["StorageFull"] == "False"


@pytest.mark.parametrize(
    ("seen", "available", "replicated", "rebalancing", "violated"),
    [
        ({}, "False", "False", "False", "False"),
        (SERVING, "True", "True", "False", "False"),
        ({"available": 10, "degraded": 6}, "True", "False", "False", "False"),
        ({"available": 15, "unavailable": 1}, "False", "False", "False", "False"),
        ({**SERVING, "migrations_running": 1}, "True", "True", "True", "False"),
        ({**SERVING, "migrations_queued": 1}, "True", "True", "True", "False"),
        ({**SERVING, "spread_violations": (("rack", 3),)}, "True", "True", "False", "True"),
    ],
)
def test_conditions_say_what_is_so(
    seen: dict[str, Any], available: str, replicated: str, rebalancing: str, violated: str
) -> None:
    conditions = said(status(observed(**seen)))

    assert conditions == {
        "Accepted": "True",
        "Available": available,
        "FullyReplicated": replicated,
        "Rebalancing": rebalancing,
        "RebalanceStuck": "False",
        "SpreadViolated": violated,
        "StorageFull": "False",
        "TooFewDataNodes": "False",
        "RefusedByAgents": "False",
        "Blocked": "False",
        "OwnershipDamaged": "False",
    }


def test_writes_that_the_metastore_refuses_are_a_condition_with_its_sentence() -> None:
    refusal = Refusal("Forbidden", "partitiontables is forbidden: cannot update")
    of = zone()
    seen = Seen(ClusterStatus(3, (NODE,), ()), refusal=refusal)
    made = zone_status(of, accept(of, True, None), observed(), seen, LATER, blocked=refusal)
    led = cluster_status(cluster("127.0.0.1:7100"), seen, "me/1", LATER)

    for conditions in (made.conditions, led.conditions):
        [blocked] = [each for each in conditions if each.type == "Blocked"]
        assert (blocked.status, blocked.reason) == ("True", "Forbidden")
        assert blocked.message == (
            "decisions cannot be written: partitiontables is forbidden: cannot update"
        )
    [ready] = [each for each in led.conditions if each.type == "Ready"]
    assert (ready.status, ready.reason) == ("False", "Blocked")


def test_a_condition_names_who_is_waited_for_and_which_rows_are_set_aside() -> None:
    waits = observed(**SERVING, rebuilding=True, ownership="waiting for the reports of b, c")
    aside = observed(**SERVING, ownership="partition 5 set aside: an owner twice; repair it")

    said_of = [
        next(each for each in status(seen).conditions if each.type == "OwnershipDamaged")
        for seen in (waits, aside)
    ]

    assert [(each.status, each.reason) for each in said_of] == [
        ("True", "Rebuilding"),
        ("True", "RowsSetAside"),
    ]
    assert "waiting for the reports of b, c" in said_of[0].message
    assert said_of[1].message == "partition 5 set aside: an owner twice; repair it"


def test_that_a_zone_was_placed_is_said_with_its_uid_and_never_forgotten() -> None:
    placed = status(observed(**SERVING, placed=True))

    assert placed.placed_uid
    again = zone().model_copy(update={"status": placed})
    assert to_record(again).placed
    assert not to_record(zone()).placed
    other = again.metadata.model_copy(update={"uid": "another"})
    assert not to_record(again.model_copy(update={"metadata": other})).placed
    unreadable = refused_zone_status(1, "unreadable", "now", placed)
    assert unreadable.placed_uid
    assert unreadable.zone_id == placed.zone_id != ""


def test_a_condition_names_each_agent_that_refuses_the_zone_and_says_why() -> None:
    refusals = (("agent-1", "no descriptors left"), ("agent-2", "its database is damaged"))

    made = status(observed(**SERVING, refusals=refusals))

    [refused] = [each for each in made.conditions if each.type == "RefusedByAgents"]
    assert (refused.status, refused.reason) == ("True", "CannotOpen")
    assert refused.message == (
        "agent agent-1: no descriptors left; agent agent-2: its database is damaged"
    )


def test_a_status_tells_of_which_generation_it_is() -> None:
    made = status(observed(**SERVING))

    assert made.observed_generation == 3
    assert {each.observed_generation for each in made.conditions} == {3}


def test_a_zone_that_is_not_led_any_more_keeps_its_generation_and_is_unknown() -> None:
    of = zone().model_copy(update={"status": ZoneStatus(observed_generation=2)})

    timers = (TimerStatus("ScaleUp", ("agent-4",), None),)
    serving = {**SERVING, "missing_copies": {1: 4}, "migrations_running": 2, "timers": timers}
    made = status(observed(**serving), of, problem="stopped")

    assert made.observed_generation == 2
    assert {each.observed_generation for each in made.conditions} == {2}
    assert said(made)["Available"] == said(made)["FullyReplicated"] == "Unknown"
    assert (made.phase, made.partitions.total, made.partitions.available) == ("Unknown", 16, 0)
    assert made.under_replicated == {}
    assert made.migrations.running == 0
    assert made.timers == []
    assert made.ports == status(observed(**SERVING)).ports


def test_a_zone_that_is_not_led_and_is_being_deleted_says_so() -> None:
    assert status(observed(phase="Deleting"), problem="stopped").phase == "Deleting"


def test_a_placed_zone_of_which_its_master_knows_nothing_yet_is_unknown_not_pending() -> None:
    placed = zone().model_copy(update={"status": ZoneStatus(placed_uid="u")})

    assert status(None, placed, problem="the metastore cannot be read").phase == "Unknown"
    assert status(None, placed).phase == "Unknown"
    assert status(None, problem="the metastore cannot be read").phase == "Pending"


def test_addresses_of_a_placed_zone_stay_while_its_master_knows_nothing_of_it() -> None:
    counts = ZonePartitions(total=16, available=12, degraded=4)
    before = status(observed(**SERVING, aside={"agent-1": (2, 9)})).model_copy(
        update={
            "placed_uid": "u",
            "partitions": counts,
            "data_nodes": ["agent-1"],
            "external_endpoints": ["192.0.2.1:7000"],
        }
    )
    placed = zone().model_copy(update={"status": before})

    made = status(None, placed, problem="the metastore cannot be read")

    for kept in ("ports", "endpoints", "external_endpoints", "data_nodes", "set_aside"):
        assert getattr(made, kept) == getattr(before, kept)
        assert getattr(made, kept), kept
    assert made.partitions == ZonePartitions(total=16)


@pytest.mark.parametrize("phase", ["Pending", "Unavailable", "Rebalancing", "Degraded", "Deleting"])
@pytest.mark.parametrize("available", [0, 16])
@pytest.mark.parametrize("problem", ["", "stopped: it was ended"])
def test_reasons_are_words_for_programs(phase: str, available: int, problem: str) -> None:
    full, refusals = {"a": "no room"}, (("a", "no descriptors"),)
    stuck = (StuckMigration(1, None, 3, "it was rolled back"),)
    ill = {"full": full, "refusals": refusals, "spread_violations": (("b", 1),), "stuck": stuck}
    more: dict[str, Any] = {"ownership": "waits", "migrations_running": 1, **ill}

    for seen in (observed(phase=phase, available=available, **each) for each in ({}, more)):
        made = status(seen, problem=problem).conditions
        assert made
        assert all(re.fullmatch("[A-Z][A-Za-z]+", each.reason) for each in made)
        assert all(each.message for each in made)


def test_the_first_that_is_planned_is_named() -> None:
    intents = tuple(Intent(p, ("a", "b"), None, ("a", "c")) for p in range(8))
    seen = observed(migrations_running=1, migrations_queued=30, planned=29, intents=intents)

    told = status(seen)
    made = next(c for c in told.conditions if c.type == "Rebalancing")

    migrations = told.migrations
    assert (migrations.running, migrations.queued, migrations.planned) == (1, 30, 29)
    assert made.message.startswith(
        "1 migrations are running, 30 are queued; planned: partition 0: a, b > a, c (planned); "
    )
    assert made.message.endswith("(planned); and 26 more partitions")


def test_what_fails_again_and_again_is_named_with_its_last_reason() -> None:
    why = "z/5/9 failed: the destination refused the prepared row"
    seen = observed(stuck=tuple(StuckMigration(p, "agent-4", 3 + p, why) for p in range(5)))

    made = next(c for c in status(seen).conditions if c.type == "RebalanceStuck")

    assert (made.status, made.reason) == ("True", "MigrationsFail")
    assert made.message.startswith(f"partition 0 to agent-4 failed 3 times, last: {why}; ")
    assert "and 2 more. Owners are unchanged" in made.message


def test_the_reason_of_a_false_condition_is_the_masters_own_sentence() -> None:
    made = status(observed())

    [available] = [each for each in made.conditions if each.type == "Available"]
    assert available.message == "waiting for agents"


def test_a_conditions_time_changes_with_its_status_only() -> None:
    before = [
        Condition(type=kind, status="True", reason="R", message="m", last_transition_time=EARLIER)
        for kind in ("Available", "FullyReplicated")
    ]
    of = zone().model_copy(update={"status": ZoneStatus(conditions=before)})

    made = status(observed(available=10, degraded=6), of)

    times = {each.type: each.last_transition_time for each in made.conditions}
    assert times["Available"] == EARLIER
    assert times["FullyReplicated"] == LATER


def test_the_time_of_what_cannot_be_read_stays_while_it_cannot() -> None:
    first = refused_zone_status(1, "unreadable", EARLIER, ZoneStatus())

    again = refused_zone_status(2, "still unreadable", LATER, first)

    assert [each.last_transition_time for each in again.conditions] == [EARLIER]


@pytest.mark.parametrize(
    "seen",
    [
        observed(available=8, phase="Available"),  # the other rows are still to be written
        observed(**{**SERVING, "phase": "Deleting"}),
        observed(available=8, degraded=7, unavailable=1, phase="Unavailable"),
        observed(),
    ],
)
def test_a_zone_of_which_a_client_is_refused_is_not_available(seen: Observed) -> None:
    made = said(status(seen))

    assert (made["Available"], made["FullyReplicated"]) == ("False", "False")


def test_what_is_led_is_said_with_the_copies_in_force_whatever_a_refused_spec_asks_for() -> None:
    led = to_record(zone())
    asked = zone(dataNodesFilter="$[?(@.region = 'EU')]", replicas=2)

    seen = observed(**SERVING)
    made = zone_status(asked, accept(asked, True, led), seen, Seen(), LATER)

    [full] = [each for each in made.conditions if each.type == "FullyReplicated"]
    assert full.message == "every partition has 3 copies"


def test_endpoints_are_those_of_registered_agents_on_their_hosts() -> None:
    assert status(observed(**SERVING)).endpoints == ["127.0.0.1:7000"]


def test_missing_copies_are_counted_by_severity() -> None:
    made = status(observed(available=10, degraded=6, missing_copies={1: 4, 2: 2}))

    assert made.under_replicated == {"1": 4, "2": 2}


def test_a_zone_that_is_not_led_says_why_and_pretends_nothing() -> None:
    made = status(None, problem="the metastore cannot be read")

    assert said(made) == {
        "Accepted": "True",
        "Available": "Unknown",
        "FullyReplicated": "Unknown",
        "Blocked": "False",
    }
    assert "the metastore cannot be read" in made.conditions[1].message


def test_a_zone_without_its_cluster_is_not_led() -> None:
    acceptance = accept(zone(), False, None)

    assert acceptance.record is None
    assert acceptance.reason == "ClusterNotFound"
    assert "clusterRef.name is main" in acceptance.message


def test_a_filter_that_cannot_be_read_names_the_place_and_a_led_zone_stays_as_it_was() -> None:
    led = ZoneRecord("u", "sessions", 16, 3)
    wrong = "$[?(@.region = 'EU')]"

    acceptance = accept(zone(dataNodesFilter=wrong, replicas=5), True, led)

    assert acceptance.record == led
    assert acceptance.reason == "Invalid"
    assert acceptance.message == (
        f"Zone sessions: spec.dataNodesFilter is {wrong}: at character 14: unexpected token '='"
    )
    assert accept(zone(dataNodesFilter=wrong), True, None).record is None
    deleted = accept(zone(dataNodesFilter=wrong, deleting=True), True, None)
    assert deleted.record is not None
    assert deleted.record.deleting


def test_agents_that_do_not_match_are_a_condition_only_if_too_few_do() -> None:
    why = "of 4 agents 2 (a, b) match dataNodesFilter x, and the zone has 3 replicas: add agents"

    made = status(observed(**SERVING, misfits=why))

    condition = next(each for each in made.conditions if each.type == "TooFewDataNodes")
    assert (condition.status, condition.message) == ("True", why)


def cluster(*addresses: str) -> StorageCluster:
    return StorageCluster.parse(
        {
            "apiVersion": API_VERSION,
            "kind": "StorageCluster",
            "metadata": {"name": "main", "generation": 2},
            "spec": {"addresses": list(addresses)},
        }
    )


def test_a_cluster_is_ready_when_every_address_has_its_agent() -> None:
    of = cluster("127.0.0.1:7100", "127.0.0.1:7101")
    seen = Seen(ClusterStatus(4, (NODE,), ()))
    unreached = {"127.0.0.1:7101": "nobody answers there"}

    missing = cluster_status(of, seen._replace(unreached=unreached), "me", LATER)
    ready = cluster_status(of, seen, "me", LATER)
    unled = cluster_status(of, seen._replace(problem="starting"), "me", LATER)

    assert missing.conditions[0].message == (
        "1 of 2 agents are online; 127.0.0.1:7101: nobody answers there"
    )
    assert [each.conditions[0].status for each in (missing, ready, unled)] == [
        "False",
        "True",
        "False",
    ]
    assert ready.master.term == 4
    assert ready.members[0].address == "10.0.0.7:7100"


def test_a_cluster_names_zones_without_a_record_and_the_way_out() -> None:
    node = msgspec.structs.replace(NODE, unrecorded=("uid-7",))
    of = cluster("127.0.0.1:7100")

    told, quiet = (
        cluster_status(of, Seen(ClusterStatus(4, (each,), ())), "me", LATER)
        for each in (node, NODE)
    )

    found = told.conditions[-1]
    assert (found.type, found.status) == ("ZonesUnrecorded", "True")
    assert "without a record: uid-7 (agent-1): " in found.message
    assert "`kubectl annotate masterterm main quorate.io/recovering=true`" in found.message
    assert "ZonesUnrecorded" not in [each.type for each in quiet.conditions]


def test_many_decisions_of_one_reason_become_one_event() -> None:
    decisions = Decisions()
    for partition in range(300):
        decisions.add(Event("u", partition, Reason.ROW_CHANGED, "agent-2 left", "Normal"))
    decisions.add(
        Event("", None, Reason.NODE_LEFT, "agent-2 left: its process has ended", "Warning")
    )

    about, zones = About("StorageCluster", "main", "c"), {"u": About("Zone", "sessions", "u")}
    bodies = decisions.take(about, zones, "here", LATER, 0.0)

    assert [(body["involvedObject"]["name"], body["message"]) for body in bodies] == [
        ("sessions", "partition 0: agent-2 left (and 299 more)"),
        ("main", "agent-2 left: its process has ended"),
    ]
    assert decisions.take(about, zones, "here", LATER, 1.0) == []


def test_an_events_message_is_bounded() -> None:
    decisions = Decisions()
    for _ in range(2):
        decisions.add(Event("", None, Reason.NEW_STORE, "x" * 5000))

    [body] = decisions.take(About("StorageCluster", "main", "c"), {}, "here", LATER, 0.0)

    assert len(body["message"]) == MESSAGE_MAX
    json.dumps(body)


def test_acceptance_is_a_value() -> None:
    assert accept(zone(), True, None) == Acceptance(
        ZoneRecord("u", "sessions", 16, 3), "Accepted", "led by the master of main"
    )


def test_what_every_migration_tells_becomes_few_events_however_long_it_goes_on() -> None:
    decisions, bodies = Decisions(), []
    about = About("Zone", "sessions", "u")
    for second in range(60):
        for partition in range(20):
            decisions.add(Event("u", partition, Reason.MIGRATION_STARTED, "MOVE a > b"))
        decisions.add(Event("u", second, Reason.MIGRATION_FAILED, "b left", "Warning"))
        bodies += decisions.take(about, {"u": about}, "here", LATER, float(second))

    routine = [body["message"] for body in bodies if body["reason"] == "MigrationStarted"]
    assert routine[:2] == [
        "partition 0: MOVE a > b (and 19 more)",
        "partition 0: MOVE a > b (and 199 more)",
    ]
    assert len(routine) == 6
    assert len([body for body in bodies if body["reason"] == "MigrationFailed"]) == 60


async def test_no_event_is_dropped_because_the_api_server_was_away_for_a_moment() -> None:
    untold = deque([{"reason": reason} for reason in ("A", "B", "C")])
    asked: list[str] = []

    async def create(body: dict[str, Any]) -> None:
        asked.append(body["reason"])
        if asked.count("B") == 1 and body["reason"] == "B":
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await tell_all(untold, create)
    await tell_all(untold, create)

    assert asked == ["A", "B", "B", "C"]
    assert not untold


@pytest.mark.parametrize(("status", "is_dropped"), [(400, True), (422, True), (403, False)])
async def test_an_event_that_is_invalid_holds_up_no_later_one(
    caplog: pytest.LogCaptureFixture, status: int, is_dropped: bool
) -> None:
    untold = deque([{"reason": reason} for reason in ("A", "B", "C")])
    created: list[str] = []

    async def create(body: dict[str, Any]) -> None:
        if body["reason"] == "B":
            raise ApiRefused(status, "Invalid", f"POST events: {status}: too long")
        created.append(body["reason"])

    if is_dropped:
        await tell_all(untold, create)
        assert created == ["A", "C"]
        assert caplog.messages == [f"an Event B is dropped: POST events: {status}: too long"]
        return
    with pytest.raises(ApiRefused):
        await tell_all(untold, create)
    assert [body["reason"] for body in untold] == ["B", "C"]
    assert caplog.messages == []


def test_unavailable_partitions_are_told_by_what_is_left_of_them() -> None:
    made = status(observed(phase="Unavailable", available=4, unavailable=12, read_only=7, lost=2))

    counted = made.partitions
    assert (counted.available, counted.unavailable, counted.read_only, counted.lost) == (
        4,
        12,
        7,
        2,
    )
