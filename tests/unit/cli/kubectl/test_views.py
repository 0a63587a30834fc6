"""Status, description, events and plan from canned objects; what is said where they are missing."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quorate.facts.partition_row import Migration, MigrationKind
from quorate.facts.topology import Holder, Voter
from quorate_cli.kubectl import told_events
from quorate_cli.kubectl.kube_api import KubeApi
from quorate_kubectl.canned import (
    AGENTS,
    CORE,
    LEASE,
    OURS,
    Answer,
    CannedApi,
    Kubectl,
    condition,
    kubeconfig,
    register,
    renewed,
    tables,
)


def test_status_shows_agents_and_zones(kubectl: Kubectl) -> None:
    text = kubectl("status")

    assert "cluster main: 3 of 3 agents online, master term 7" in text
    assert "agent-2" in text
    assert "4 of 4" in text
    assert "7200" in text
    assert "not led" not in text


def test_status_as_json_has_the_documented_keys_that_objects_know(kubectl: Kubectl) -> None:
    whole = json.loads(kubectl("status", "--json"))

    [cluster] = whole["clusters"]
    assert whole["not_running"] == {}
    assert (cluster["namespace"], cluster["cluster"], cluster["master_term"]) == ("shop", "main", 7)
    assert [node["name"] for node in cluster["nodes"]] == list(AGENTS)
    assert cluster["zones"][0]["available"] == 4
    assert "bytes_moved" not in cluster["zones"][0]
    assert "unrecorded" not in cluster["nodes"][0], "a condition tells it in words"


def schedule(api: CannedApi, **spec: object) -> None:
    place = {"persistentVolumeClaim": {"claimName": "backups", "path": "library"}}
    template = {"spec": {"zoneRef": {"name": "library"}, "destination": place}}
    whole = {"spec": {"schedule": "0 3 * * *", "template": template, **spec}}
    api.put(f"{OURS}/scheduledzonebackups/nightly", whole)


def backups(kubectl: Kubectl) -> Any:
    return json.loads(kubectl("status", "--json"))["clusters"][0]["backups"]


def test_no_backup_is_said_only_where_a_schedule_is_to_make_them(
    kubectl: Kubectl, api: CannedApi
) -> None:
    assert "backup" not in kubectl("status").lower()
    [told] = backups(kubectl)
    assert told == {
        "zone": "library",
        "last_backup": None,
        "last_restore": None,
        "scheduled": False,
    }
    schedule(api, suspend=True)
    assert "backup" not in kubectl("status").lower()

    schedule(api)
    assert "zone library: no backup yet, though a ScheduledZoneBackup" in kubectl("status")
    schedule(api, template={"spec": {"zoneRef": None}})  # stored before the API server checked it
    assert backups(kubectl)[0]["scheduled"] is False
    api.refused["GET", f"{OURS}/scheduledzonebackups"] = Answer(403, {"message": "forbidden"})
    assert "backup" not in kubectl("status").lower()
    assert backups(kubectl)[0]["scheduled"] is None


def test_the_age_of_the_last_backup_and_restore_is_said(kubectl: Kubectl, api: CannedApi) -> None:
    began = datetime.now(UTC) - timedelta(days=2, hours=5, minutes=1)
    ended = (datetime.now(UTC) - timedelta(hours=3, minutes=12, seconds=1)).isoformat()
    status: Any = api.objects[f"{OURS}/zones/library"]["status"]
    status["lastBackup"] = {"time": began.isoformat(), "run": "monday", "place": "backups:monday"}
    schedule(api)
    text = " ".join(kubectl("status").split())
    assert "zone library: last backup 2 d 5 h ago (backups:monday)" in text
    assert "no backup" not in text
    assert "restore" not in text

    status["lastRestore"] = {"time": ended, "run": "drill", "place": "backups:monday"}
    text = " ".join(kubectl("status").split())
    assert "(backups:monday), last verified restore 3 h 12 min ago" in text
    assert backups(kubectl)[0]["last_restore"]["run"] == "drill"
    status["lastRestore"]["time"] = "soon"
    assert "last verified restore at an unknown time" in " ".join(kubectl("status").split())


def test_an_operator_that_does_not_renew_its_lease_is_named(
    kubectl: Kubectl, api: CannedApi
) -> None:
    renewed(api, 42)
    text = " ".join(kubectl("status").split())
    assert "no operator leads: Lease quorate-operator in namespace shop was last renewed 4" in text
    assert "by pod-a/1/x" in text
    assert "last renewed" in json.loads(kubectl("status", "--json"))["not_running"]["operator"]

    del api.objects[LEASE]
    assert "namespace shop has no Lease quorate-operator" in " ".join(kubectl("status").split())

    api.refused["GET", LEASE] = Answer(403, {"message": 'leases "quorate-operator" is forbidden'})
    text = " ".join(kubectl("status").split())
    assert "whether an operator runs is unknown" in text
    assert "is not led" not in text


def test_what_is_not_as_declared_is_said(kubectl: Kubectl, api: CannedApi) -> None:
    register(api, "agent-3", left=True)
    cluster: Any = api.objects[f"{OURS}/storageclusters/main"]["status"]
    cluster["members"][2]["state"] = "Offline"
    cluster["conditions"] = [
        condition("Ready", "False", "2 of 3 agents are online", "AgentsMissing"),
        condition("AgentsDrained", "False", "copies still have to move", "Draining"),
    ]
    zone: Any = api.objects[f"{OURS}/zones/library"]["status"]
    zone["partitions"] = {"total": 4, "available": 0, "degraded": 4}
    zone["conditions"][2] = condition("FullyReplicated", "False", "agent-3 is offline")

    text = kubectl("status")

    assert "2 of 3 agents online" in text
    assert "Offline" in text
    assert "cluster main: 2 of 3 agents are online" in text
    assert "cluster main: copies still have to move" in text
    assert "zone library: agent-3 is offline" in text


def test_migrations_are_read_from_the_rows(kubectl: Kubectl, api: CannedApi) -> None:
    after = tuple(Voter(name, "first") for name in AGENTS)
    tables(api, AGENTS, active=Migration(
        "m", MigrationKind.MOVE, "agent-1", Holder("agent-3", "first", 1), AGENTS, after
    ))  # fmt: skip
    zone: Any = api.objects[f"{OURS}/zones/library"]["status"]
    zone["migrations"] = {"running": 4, "queued": 2, "planned": 2}
    planned = "4 migrations are running, 2 are queued; planned: partition 1: a > b (planned)"
    zone["conditions"].append(condition("Rebalancing", "True", planned, "Migrating"))

    text = kubectl("status")

    line = next(line for line in text.splitlines() if "│ library" in line)
    assert "4 / 2" in [cell.strip() for cell in line.split("│")]
    assert f"zone library: {planned}" in text
    assert "zone library: 4 migrations running, 2 waiting" in text
    assert "partition 0 MOVE agent-1 > agent-3" in text


def _unled(api: CannedApi) -> None:
    zone: Any = api.objects[f"{OURS}/zones/library"]["status"]
    zone["phase"], zone["partitions"] = "Unknown", {"total": 4}
    zone["conditions"] = [
        condition("Accepted", "True"),
        condition("Available", "Unknown", "the cluster is not led", "NotLed"),
    ]


def test_what_no_master_counts_is_not_shown_as_zero(kubectl: Kubectl, api: CannedApi) -> None:
    _unled(api)

    line = next(line for line in kubectl("status").splitlines() if "│ library" in line)

    cells = [cell.strip() for cell in line.split("│")]
    assert cells[1:6] == ["library", "Unknown", "? of 4", "?", "?"]


def test_lost_partitions_and_migrations_are_read_from_the_rows_while_no_master_counts_them(
    kubectl: Kubectl, api: CannedApi
) -> None:
    after = tuple(Voter(name, "first") for name in AGENTS)
    tables(api, AGENTS, active=Migration(
        "m", MigrationKind.MOVE, "agent-1", Holder("agent-3", "first", 1), AGENTS, after
    ))  # fmt: skip
    for agent in AGENTS:
        register(api, agent, store="another")
    _unled(api)

    text = kubectl("status")

    assert "? (4 lost)" in text
    assert "4 / ?" in text
    assert "zone library: 4 migrations running, ? waiting" in text
    assert "partition 0 MOVE agent-1 > agent-3" in text


def test_a_state_that_no_master_knows_is_a_warning(kubectl: Kubectl, api: CannedApi) -> None:
    _unled(api)

    [line] = kubectl("events", "library").splitlines()
    told = json.loads(kubectl("events", "library", "--json"))

    said = "Unknown: the cluster is not led  (the states of its 4 partitions are not known)"
    assert line.endswith(f"State  library  {said}")
    assert (told["kind"], told["state"]["phase"]) == ("Warning", "Unknown")


def test_all_namespaces_are_shown_with_their_names(kubectl: Kubectl) -> None:
    assert "cluster shop/main: 3 of 3" in kubectl("status", "-A")


def test_a_namespace_without_clusters_is_said(kubectl: Kubectl) -> None:
    assert "no StorageCluster is declared in this" in kubectl("status", "-n", "x")


def test_describe_is_that_of_the_local_command(kubectl: Kubectl) -> None:
    text = kubectl("describe", "zone", "library")
    assert "Zone library" in text
    assert "Available is True (R) since 2026-01-01T00:00:00Z" in text
    assert (
        json.loads(kubectl("describe", "stc", "main", "--json"))["spec"]["managed"]["replicas"] == 3
    )
    assert len(json.loads(kubectl("describe", "zones", "-A", "--json"))["items"]) == 1


def test_what_does_not_exist_is_answered_with_what_does(kubectl: Kubectl) -> None:
    for command in (("describe", "zone", "x"), ("plan", "x"), ("cli", "x"), ("events", "x")):
        said = kubectl.problem(*command)
        assert "zone 'x' does not exist in namespace shop: there are library" in said
    said = kubectl.problem("drain", "agent-1", "--cluster", "x")
    assert "storagecluster 'x' does not exist in namespace shop: there are main" in said
    assert "kind 'pod' is not known" in kubectl.problem("describe", "pod")


def test_events_are_those_of_our_kinds_and_then_the_state(kubectl: Kubectl, api: CannedApi) -> None:
    for name, kind, of, reason, time, count in (
        ("b", "Zone", "library", "ZoneCreated", "2026-01-01T00:00:02Z", 1),
        ("a", "StorageCluster", "main", "NodeLeft", "2026-01-01T00:00:01Z", 3),
        ("c", "Zone", "carts", "ZoneCreated", "2026-01-01T00:00:03Z", 1),
    ):
        about = {"kind": kind, "name": of, "namespace": "shop"}
        api.put(f"{CORE}/events/{name}", {
            "involvedObject": about, "type": "Warning" if count > 1 else "Normal",
            "reason": reason, "message": "said", "lastTimestamp": time, "count": count,
        })  # fmt: skip

    lines = kubectl("events", "library").splitlines()

    assert lines[0] == "2026-01-01T00:00:01Z  NodeLeft  said  (x3)"
    assert lines[1] == "2026-01-01T00:00:02Z  ZoneCreated  library  said"
    assert "State  library  Available: every partition has all its copies  (4 of 4" in lines[2]
    assert len(lines) == 3
    told = [json.loads(line) for line in kubectl("events", "--json").splitlines()]
    assert [each["reason"] for each in told] == ["NodeLeft", "ZoneCreated", "ZoneCreated", "State"]
    assert told[0]["count"] == 3
    assert all("sequence" not in each for each in told)


def test_who_follows_is_told_news_once_and_the_state_after_what_may_have_been_missed(
    kubectl: Kubectl, api: CannedApi
) -> None:
    def event(name: str, reason: str) -> dict[str, Any]:
        return api.put(
            f"{CORE}/events/{name}",
            {
                "involvedObject": {"kind": "Zone", "name": "library", "namespace": "shop"},
                "reason": reason,
                "message": "said",
                "lastTimestamp": f"2026-01-01T00:00:0{name}Z",
            },
        )

    event("1", "ZoneCreated")
    news = {"type": "ADDED", "object": event("2", "RowChanged")}
    del api.objects[f"{CORE}/events/2"]
    mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in (news, mark))
    api.watched = [Answer(200, lines), Answer(410, {"message": "too old"}), Answer(200, b"")]
    found = told_events.read(KubeApi(str(kubectl.kubeconfig)), "shop", None, True)

    told = [next(found).event.reason for _ in range(4)]

    assert told == ["ZoneCreated", "State", "RowChanged", "State"]
    found.close()


def test_events_of_a_zone_that_is_made_later_are_told(kubectl: Kubectl, api: CannedApi) -> None:
    """Not those of other clusters, nor of zones that are gone and whose cluster is unknown."""

    def change(zone: str) -> bytes:
        made = {
            "involvedObject": {"kind": "Zone", "name": zone, "namespace": "shop"},
            "reason": "ZoneCreated",
            "message": "said",
            "metadata": {"name": zone, "uid": f"event-of-{zone}", "resourceVersion": "12"},
        }
        return json.dumps({"type": "ADDED", "object": made}).encode() + b"\n"

    lines = b"".join(map(change, ("elsewhere", "gone", "carts")))
    api.watched = [Answer(200, lines), Answer(410, {"message": "too old"})]
    asked = KubeApi(str(kubectl.kubeconfig))
    found = told_events.read(asked, "shop", None, True, "main")
    assert next(found).event.reason == "State"
    for name, cluster in (("carts", "main"), ("elsewhere", "other")):
        spec = {"clusterRef": {"name": cluster}, "partitions": 4}
        api.put(f"{OURS}/zones/{name}", {"spec": spec})

    told = [(each.event.zone, each.event.reason) for each in (next(found), next(found))]

    assert told == [("carts", "ZoneCreated"), ("carts", "State")]
    found.close()


def test_a_plan_shows_who_stands_in_for_an_agent_that_is_away(
    kubectl: Kubectl, api: CannedApi
) -> None:
    """Agent-3 is drained, agent-5 is away and waited for."""
    for name in ("agent-4", "agent-5"):
        register(api, name, left=name == "agent-5")
    api.objects[f"{OURS}/storagenodes/main.agent-3"]["spec"]["draining"] = True
    [head] = [body for path, body in api.objects.items() if path.endswith("-head")]
    head["spec"]["accepted"]["dataNodes"] = {"nodes": [f"agent-{at}" for at in range(1, 6)]}

    plan = json.loads(kubectl("plan", "library", "--json"))

    assert plan["stand_ins"]
    assert {each["instead_of"] for each in plan["stand_ins"]} == {"agent-5"}
    assert "would stand in for agent-5, which is away" in kubectl("plan", "library")


def test_a_plan_is_made_from_the_rows(kubectl: Kubectl, api: CannedApi) -> None:
    register(api, "agent-4")

    text = kubectl("plan", "library", "--without", "agent-1")

    assert "MOVE" in text or "COPY" in text
    assert "agent-4" in text
    assert "would move 4 copies in " in text
    assert "0 B" not in text
    assert "this was a preview" in text
    assert "bytes" not in json.loads(kubectl("plan", "library", "--with", "1", "--json"))
    said = kubectl.problem("plan", "library", "--without", "agent-9")
    assert said.startswith("node agent-9 is not registered: registered nodes are agent-1, agent-2")


def test_what_is_forbidden_is_named_with_verb_and_resource(
    kubectl: Kubectl, api: CannedApi
) -> None:
    message = 'storageclusters.quorate.io is forbidden: User "eve" cannot list resource'
    api.refused["GET", f"{OURS}/storageclusters"] = Answer(403, {"message": message})

    assert message in kubectl.problem("status")


def test_an_api_server_without_our_kinds_is_told_apart(kubectl: Kubectl, api: CannedApi) -> None:
    message = "the server could not find the requested resource"
    api.refused["GET", f"{OURS}/storageclusters"] = Answer(404, {"message": message, "details": {}})

    assert "does not know the kinds of quorate.io: install the operator" in kubectl.problem(
        "status"
    )


def test_credentials_that_are_not_accepted(kubectl: Kubectl, api: CannedApi) -> None:
    api.refused["GET", f"{OURS}/storageclusters"] = Answer(401, {"message": "Unauthorized"})

    assert "context here: the API server does not accept" in kubectl.problem("status")


def test_contexts(kubectl: Kubectl) -> None:
    said = kubectl.problem("status", "--context", "nowhere")
    assert said.endswith("has no such context: write one of here, there")
    assert "3 of 3 agents online" in kubectl("status", "--context", "there", "-n", "shop")
    assert "no StorageCluster is declared in this" in kubectl("status", "--context", "there")


def test_no_kubeconfig(kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl.kubeconfig = tmp_path / "none"
    assert kubectl.problem("status").startswith(f"--kubeconfig {tmp_path / 'none'}: ")

    kubectl.kubeconfig = tmp_path / "broken"
    kubectl.kubeconfig.write_text("a: [")
    assert "cannot be read" in kubectl.problem("status")


def test_no_api_server(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.kubeconfig = kubeconfig(tmp_path / "gone", "http://127.0.0.1:1")

    said = kubectl.problem("status")

    assert said.startswith("API server http://127.0.0.1:1 (context here) cannot be reached")
