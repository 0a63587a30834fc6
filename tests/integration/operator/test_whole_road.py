"""The whole road on a real API server: Zone by kubectl, rows, data, losses, deletion.

Operators and agents are real processes; only pods are missing.
"""

import json
import time

import pytest

from quorate_cluster.defective_operator import defective_operator
from quorate_cluster.road import LEASE_S, QUIET, Json, Road
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.names import LEASE

pytestmark = [pytest.mark.integration, pytest.mark.process, pytest.mark.timeout(300)]


def test_from_kubectl_to_replicated_data_a_lost_agent_and_nothing_left(road: Road) -> None:
    road.start_agents()
    road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)

    road.kubectl("wait", "--for=condition=Available", "zone/sessions", "--timeout=30s")
    road.kubectl("wait", "--for=condition=Ready", "storagecluster/main", "--timeout=30s")
    heads = [each for each in road.items("partitiontables") if "accepted" in each["spec"]]
    shards = [each for each in road.items("partitiontables") if "rows" in each["spec"]]
    assert len(heads) == 1
    assert [len(each["spec"]["rows"]) for each in shards] == [16]
    assert [each["spec"]["node"] for each in road.items("storagenodes")] == list(road.agents)
    zone = road.get("zone", "sessions")
    assert zone is not None
    assert zone["status"]["observedGeneration"] == zone["metadata"]["generation"]
    assert "annotations" not in zone["metadata"] or not any(
        "kopf" in name for name in zone["metadata"]["annotations"]
    )
    road.write_keys("first")
    road.check_keys("first")

    road.agents["agent-2"].kill()

    road.wait_zone(Available="True", FullyReplicated="False")
    road.check_keys("first")
    road.write_keys("second")
    states = {each["name"]: each["state"] for each in road.status("stc", "main")["members"]}
    assert states == {"agent-1": "Online", "agent-2": "Offline", "agent-3": "Online"}
    wait_until(
        lambda: {"NodeLeft", "RowChanged"} <= {each["reason"] for each in road.items("events")},
        "events of the loss",
        say=lambda: road.items("events"),
    )
    assert len([each for each in road.items("events") if each["reason"] == "RowChanged"]) < 16

    road.agents["agent-2"].start()

    road.wait_zone(**QUIET)
    road.check_keys("second")
    # Primaries go back to it, and whoever reads Events of the zone is told how far that is.
    told = {"MigrationStarted", "MigrationSwitched", "MigrationFinished", "ZoneRebalanced"}
    wait_until(lambda: told <= road.told_of_zones(), "events of migrations", 60, road.told_of_zones)

    road.kubectl("delete", "zone", "sessions", "--timeout=60s")

    assert road.zone_folders() == []
    wait_until(lambda: road.items("partitiontables") == [], "end of all rows")
    assert len(road.items("storagenodes")) == 3
    road.kubectl("delete", "storagecluster", "main", "--timeout=30s")
    assert len(road.items("storagenodes")) == 3  # its own deletionPolicy keeps what it has


def test_whoever_waits_for_more_copies_is_not_told_that_they_are_there_before_they_are(
    road: Road,
) -> None:
    """For `kubectl wait` and deployment tools the first status with the new generation counts."""
    road.start_agents()
    road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)

    road.kubectl(
        "patch", "zone", "sessions", "--type=merge", '--patch={"spec":{"replicas":5}}'
    )  # of three agents
    said_of: list[Json] = []

    def is_new() -> bool:
        said_of.append(road.status("zone", "sessions"))
        return bool(said_of[-1]["observedGeneration"] == 2)

    wait_until(is_new, "the new generation")

    first = said_of[-1]
    said = {each["type"]: each["status"] for each in first["conditions"]}
    assert (said["FullyReplicated"], first["phase"]) == ("False", "Degraded")


def test_the_role_of_the_examples_is_all_that_an_operator_needs(road: Road) -> None:
    account = road.use_example_role()
    road.start_agents()
    first = road.start_operator("operator-a")
    road.declare()
    road.wait_zone(**QUIET)
    road.write_keys("first")
    road.wait_led_by(first)

    road.agents["agent-2"].kill()  # rows are changed, a registration, Events are told
    road.wait_zone(Available="True", FullyReplicated="False")
    wait_until(lambda: road.items("events"), "events")
    second = road.start_operator("operator-b")
    first.kill()
    road.wait_led_by(second)
    road.agents["agent-2"].start()
    road.wait_zone(**QUIET)
    road.check_keys("first")
    road.kubectl("delete", "zone", "sessions", "--timeout=60s")
    wait_until(lambda: road.items("partitiontables") == [], "end of all rows")

    refused = [line for line in road.all_logs().splitlines() if "orbidden" in line]
    assert refused == []
    for verb, what in (
        ("get", "secrets"),
        ("get", "secrets/another"),
        ("list", "secrets"),
        ("update", "secrets/main-quorate"),
        ("delete", "secrets/main-quorate"),
        ("create", "pods"),
        ("delete", "persistentvolumeclaims"),
        ("get", "configmaps/another"),
        ("update", "leases/another"),
        ("delete", "zones"),
        ("update", "storageclusters"),
        ("create", "customresourcedefinitions"),
    ):
        assert not road.may(account, verb, what), f"{verb} {what}"
    assert not road.may(account, "list", "zones", "default")


def test_a_cluster_of_the_same_name_in_another_namespace_does_not_get_the_agents(
    control_plane: ControlPlane, road: Road
) -> None:
    road.start_agents()
    road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)
    road.write_keys("first")
    _, term = road.master()
    other = Road(control_plane, f"{road.namespace}-other")
    control_plane.kubectl("create", "namespace", other.namespace)
    try:
        other.agents = dict(road.agents)
        other.start_operator()
        other.declare()

        def said() -> str:
            conditions = other.status("storagecluster", "main").get("conditions", [])
            return " ".join(each.get("message", "") for each in conditions)

        wait_until(
            lambda: "this agent belongs to cluster 'main' (id" in said(),
            "the sentence whose the agents are",
            60,
            lambda: (said(), other.logs()),
        )
        assert other.items("storagenodes") == []
    finally:
        other.agents = {}
        other.close()
        control_plane.drop_namespace(other.namespace)

    road.check_keys("first")
    assert road.conditions()["Available"] == "True"
    assert road.master()[1] == term
    for agent in road.agents.values():
        assert agent.metrics("quorate_peer_strangers_total")[0] > 0


def test_rights_that_are_taken_back_are_said_and_asked_for_rarely(road: Road) -> None:
    account = road.use_example_role()
    road.start_agents()
    operator = road.start_operator()
    road.declare()
    road.wait_zone(**QUIET, Blocked="False")
    road.write_keys("first")
    term = road.wait_led_by(operator)
    assert road.asked("operator-a", "readyz") == (200, "ok\n")

    role = road.get("role", "quorate-operator")
    assert role is not None
    for rule in role["rules"]:
        if "partitiontables" in rule["resources"]:
            rule["verbs"] = ["get", "list", "watch"]
    road.kubectl("replace", "--filename=-", stdin=json.dumps(role))
    road.agents["agent-2"].kill()

    road.wait_zone(Blocked="True", Available="False")
    blocked = {each["type"]: each for each in road.status("stc", "main")["conditions"]}["Blocked"]
    assert (blocked["status"], blocked["reason"]) == ("True", "Forbidden")
    assert f'User "{account}" cannot' in blocked["message"]
    status, said = road.asked("operator-a", "readyz")
    assert status == 503
    assert f"cluster {road.namespace}/main: blocked: " in said
    wait_until(lambda: "retrying in 3.2 s" in operator.log_tail(1000), "rarer attempts", 60)
    attempts = operator.log_tail(1000).count(f"cluster {road.namespace}/main: refused: ")
    assert attempts <= 2 * 6  # a registration and a shard, each after 0, 0.2, 0.6, 1.4, 3, 6 s
    told = [each for each in road.items("events") if each["reason"] == "WritesRefused"]
    assert len(told) == 1

    road.use_example_role()

    road.wait_zone(Blocked="False", Available="True", FullyReplicated="False")
    road.check_keys("first")
    assert road.wait_led_by(operator) == term
    wait_until(lambda: road.asked("operator-a", "readyz")[0] == 200, "ready again")
    assert len([each for each in road.items("events") if each["reason"] == "WritesTaken"]) == 1


def test_when_the_operator_is_killed_another_goes_on_and_data_was_there_all_the_time(
    road: Road,
) -> None:
    road.start_agents()
    first = road.start_operator("operator-a")
    road.declare()
    road.wait_zone(**QUIET)
    term = road.wait_led_by(first)
    standby = road.start_operator("operator-b")
    road.write_keys("first")

    first.kill()
    road.check_keys("first")
    road.write_keys("second")
    road.agents["agent-3"].kill()

    assert road.wait_led_by(standby) > term
    road.wait_zone(Available="True", FullyReplicated="False")
    road.check_keys("second")
    road.agents["agent-3"].start()
    road.wait_zone(**QUIET)
    road.check_keys("second")


def test_an_operator_that_ends_in_order_hands_over_at_once(road: Road) -> None:
    road.start_agents()
    first = road.start_operator("operator-a")
    road.declare()
    road.wait_led_by(first)
    standby = road.start_operator("operator-b")
    wait_until(lambda: "is held by" in standby.log_tail(), "standby")

    began = time.monotonic()
    first.terminate()

    road.wait_led_by(standby)
    assert time.monotonic() - began < LEASE_S
    assert "Traceback" not in first.log_tail(200)
    assert first.exit_status == 0


def test_an_operator_whose_master_meets_a_defect_gives_the_lease_up_and_ends(road: Road) -> None:
    road.start_agents()
    road.declare()

    defective = road.start_operator("operator-a", program=defective_operator)
    wait_until(lambda: not defective.is_alive(), "its end", 60, road.logs)

    assert defective.exit_status == 1
    assert (
        f"cluster {road.namespace}/main: stopped by a defect: KeyError: 'planted'"
        in defective.log_tail(3)
    )
    lease = road.get("lease", LEASE)
    assert lease is not None
    assert lease["spec"].get("holderIdentity", "") == ""
    road.wait_led_by(road.start_operator("operator-b"))
    road.wait_zone(**QUIET)


def test_an_operator_whose_api_server_stood_still_ends_and_its_next_process_goes_on(
    control_plane: ControlPlane, road: Road
) -> None:
    road.start_agents()
    operator = road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)
    term = road.wait_led_by(operator)
    road.write_keys("first")
    client = road.client()

    control_plane.etcd.pause()
    try:
        wait_until(lambda: "lost: the lease was not renewed" in operator.log_tail(100), "its end")
        assert client.get("key-0") == b"first-0"
    finally:
        control_plane.etcd.resume()
        control_plane.wait_ready()
    client.close()
    road.agents["agent-2"].kill()

    road.wait_zone(Available="True", FullyReplicated="False")
    assert road.wait_led_by(operator) > term
    road.check_keys("first")


def test_an_operator_frozen_past_its_lease_writes_nothing_on_waking_and_ends(road: Road) -> None:
    road.start_agents()
    frozen = road.start_operator("operator-a")
    road.declare()
    road.wait_zone(**QUIET)
    term = road.wait_led_by(frozen)
    successor = road.start_operator("operator-b")
    road.write_keys("first")

    frozen.pause()
    road.agents["agent-1"].kill()  # so that it has something to decide when it wakes
    assert road.wait_led_by(successor) > term
    road.wait_zone(Available="True", FullyReplicated="False")
    road.apply("Zone", "second", clusterRef={"name": "main"}, partitions=16)
    successor.pause()  # from here on nobody else writes
    before = road.settled_revisions()

    frozen.resume()
    wait_until(lambda: not frozen.is_alive(), "end of the operator that was frozen", 30)

    assert road.revisions() == before
    assert "lost: the lease was not renewed" in frozen.log_tail(100)
    assert "Task exception" not in frozen.log_tail(100)
    successor.kill()
    third = road.start_operator("operator-c")
    road.wait_led_by(third)
    road.check_keys("first")
    road.agents["agent-1"].start()
    road.wait_zone(**QUIET)
    road.check_keys("first")


def test_of_two_operators_started_at_once_one_leads_and_one_only_stands(road: Road) -> None:
    road.start_agents()
    both = [road.start_operator("operator-a"), road.start_operator("operator-b")]
    road.declare()
    road.wait_zone(**QUIET)

    leaders = [each for each in both if f"/{each.pid}/" in road.master()[0]]
    assert len(leaders) == 1
    [standby] = [each for each in both if each not in leaders]
    assert "master in term" not in standby.log_tail(1000)
    assert road.master()[1] == 1


def test_what_only_the_operator_can_know_is_a_condition_that_says_what_to_do(road: Road) -> None:
    road.start_operator()
    road.apply("Zone", "sessions", clusterRef={"name": "elsewhere"})
    road.wait_zone(Accepted="False", Available="False")
    [said] = [
        each["message"]
        for each in road.status("zone", "sessions")["conditions"]
        if each["type"] == "Accepted"
    ]
    assert "there is no StorageCluster of that name: create it" in said

    road.apply("StorageCluster", "elsewhere", external={"addresses": ["127.0.0.1:9"]})
    road.wait_zone(Accepted="True", Available="False")

    road.apply(
        "Zone",
        "narrow",
        clusterRef={"name": "elsewhere"},
        dataNodesFilter="$[?(@.region = 'EU')]",
    )
    wait_until(
        lambda: road.conditions("zone", "narrow").get("Accepted") == "False", "refused filter"
    )
    assert "at character 14: unexpected token" in json.dumps(road.status("zone", "narrow"))
    assert len(road.items("partitiontables")) == 1
    wait_until(
        lambda: "no agent answers there" in json.dumps(road.status("stc", "elsewhere")), "no agent"
    )


def test_a_zone_whose_cluster_is_gone_is_released(road: Road) -> None:
    road.start_agents()
    road.start_operator()
    road.declare()
    road.wait_zone(**QUIET)

    road.kubectl("delete", "storagecluster", "main", "--timeout=30s")
    road.wait_zone(Accepted="False")
    road.kubectl("delete", "zone", "sessions", "--timeout=30s")

    assert road.get("zone", "sessions") is None
    assert len(road.items("partitiontables")) == 2  # kept with the cluster


def test_a_zone_that_is_deleted_while_no_operator_runs_is_deleted_by_the_next(road: Road) -> None:
    road.start_agents()
    first = road.start_operator("operator-a")
    road.declare()
    road.wait_zone(**QUIET)
    road.write_keys("first")
    assert len(road.zone_folders()) == 3
    first.kill()

    road.kubectl("delete", "zone", "sessions", "--wait=false")
    road.start_operator("operator-b")

    wait_until(lambda: road.get("zone", "sessions") is None, "end of the zone", 60, road.logs)
    assert road.zone_folders() == []
    wait_until(lambda: road.items("partitiontables") == [], "end of all rows")
