"""The embedded operator's API: objects as the API server would keep them, refusals that help."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Voter
from quorate.protocol.recovery import PartitionAnswer, RecoveryAction, RecoveryAnswer
from quorate_link.secret import write_private
from quorate_loopback.embedded_api import CLUSTER, ROOT, ZONE, Client, Json, Server, manifest
from quorate_loopback.runner_world import World
from quorate_loopback.sides import SECRET
from quorate_operator.mastership import awaited_writes
from quorate_operator.mastership.runner import Runner


async def test_a_name_that_is_kept_for_another_zone_is_refused(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.embedded, "kept_name", lambda name: f"{name} is kept")
    refused = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    assert refused == (409, {"message": "sessions is kept"})
    assert (await client.ask("GET", f"{ROOT}/zones/sessions"))[0] == 404
    assert (await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER))[0] == 201


async def test_an_object_is_created_read_changed_and_deleted(client: Client) -> None:
    status, made = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    assert status == 201
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["uid"]
    assert made["spec"]["replicas"] == 3
    assert made["status"]["observedGeneration"] == 1

    same, again = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    assert (same, again["metadata"]) == (200, made["metadata"])

    spec = {**ZONE["spec"], "replicas": 5}
    _, changed = await client.ask("PUT", f"{ROOT}/zones/sessions", {**ZONE, "spec": spec})
    assert changed["metadata"] == {**made["metadata"], "generation": 2}
    assert (await client.ask("GET", f"{ROOT}/zones/sessions"))[1]["spec"]["replicas"] == 5
    _, listed = await client.ask("GET", f"{ROOT}/zones")
    assert listed["kind"] == "ZoneList"
    assert [each["metadata"]["name"] for each in listed["items"]] == ["sessions"]

    assert (await client.ask("DELETE", f"{ROOT}/zones/sessions"))[0] == 202
    while (await client.ask("GET", f"{ROOT}/zones/sessions"))[0] != 404:
        pass


async def test_a_zone_without_a_cluster_says_so_in_its_status(client: Client) -> None:
    _, made = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)

    conditions = {each["type"]: each for each in made["status"]["conditions"]}
    assert conditions["Accepted"]["status"] == "False"
    assert "there is no StorageCluster of that name" in conditions["Accepted"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        ("zones/sessions", {**ZONE, "spec": {**ZONE["spec"], "replicas": 8}}, 422, "replicas is 8"),
        ("zones/other", ZONE, 422, "the address says 'other'"),
        ("zones/main", CLUSTER, 422, "kind is 'StorageCluster': write Zone"),
        ("zones/sessions", [], 400, "write a JSON object"),
        ("zones/sessions", b"{", 400, "is not JSON"),
        ("zones/sessions", {"metadata": 3}, 422, "metadata.name is None"),
        ("pools/sessions", ZONE, 404, "no kind pools: the kinds are storageclusters, zones"),
    ],
)
async def test_a_bad_manifest_is_refused_with_a_sentence(
    client: Client, path: str, body: object, code: int, message: str
) -> None:
    status, answered = await client.ask("PUT", f"{ROOT}/{path}", body)

    assert status == code
    assert message in answered["message"]


@pytest.mark.parametrize(
    ("zone", "refused"),
    [
        (ZONE, ""),
        ({**ZONE, "spec": {**ZONE["spec"], "replicas": 9}}, "spec.replicas is 9"),
        ({**ZONE, "spec": {**ZONE["spec"], "replica": 3}}, "did you mean replicas?"),
        (
            manifest("Zone", "z", clusterRef={"name": "main"}, writeMode="PRIMARY_SYNC"),
            "a STRONG_CONSISTENCY zone always waits for a majority: remove writeMode",
        ),
        (
            manifest("Zone", "z", clusterRef={"name": "main"}, dataNodesFilter="$[?@.a = 1]"),
            "spec.dataNodesFilter is $[?@.a = 1]: at character 8: unexpected token '='",
        ),
        (
            manifest("Zone", "z", clusterRef={"name": "main"}, dataNodesFilter="a=b c"),
            "spec.dataNodesFilter is a=b c: at character 5: a comma or the end is expected, not",
        ),
        (manifest("Zone", "z", clusterRef={"name": "main"}, dataNodesFilter="a=b,c"), ""),
        (
            manifest("Zone", "z", clusterRef={"name": "other"}),
            "spec.clusterRef.name is other, and there is no StorageCluster of that name",
        ),
        ({**ZONE, "kind": "Pod"}, "kind is 'Pod': write StorageCluster or Zone"),
        ({**ZONE, "metadata": 3}, "metadata"),
    ],
)
async def test_what_would_be_refused_is_told_and_nothing_is_stored(
    client: Client, zone: Json, refused: str
) -> None:
    """The cluster is declared beside the zone, behind it at that."""
    status, answered = await client.ask("POST", "/judge", {"items": [zone, CLUSTER]})

    assert status == 200
    (of_zone, of_cluster) = answered["refusals"]
    assert refused in of_zone
    assert bool(of_zone) == bool(refused)
    assert of_cluster == ""
    for plural in ("zones", "storageclusters"):
        assert (await client.ask("GET", f"{ROOT}/{plural}"))[1]["items"] == []


async def test_what_is_judged_is_compared_with_what_is_declared(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)

    spec = {**ZONE["spec"], "partitions": 16}
    changed = {**ZONE, "spec": spec}
    _, answered = await client.ask("POST", "/judge", {"items": [changed, ZONE]})

    assert "partitions cannot be changed" in answered["refusals"][0]
    assert answered["refusals"][1] == ""


@pytest.mark.parametrize("body", [b"{", [], {}, {"items": 3}, {"items": ["x"]}])
async def test_what_is_no_list_of_manifests_is_not_judged(client: Client, body: object) -> None:
    assert (await client.ask("POST", "/judge", body))[0] == 400


async def test_a_zone_is_accepted_as_soon_as_its_cluster_is_declared(client: Client) -> None:
    """Whoever is told of the zone now must not read that there is no such cluster."""
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)

    _, made = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)

    assert made["status"]["conditions"][0]["type"] == "Accepted"
    assert made["status"]["conditions"][0]["status"] == "True"


async def test_an_immutable_field_stays(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)

    spec = {**ZONE["spec"], "partitions": 16}
    status, answered = await client.ask("PUT", f"{ROOT}/zones/sessions", {**ZONE, "spec": spec})

    assert status == 422
    assert "partitions cannot be changed" in answered["message"]


async def test_everything_declared_survives_a_restart(server: Server, tmp_path: Path) -> None:
    root = await server.start()
    async with aiohttp.ClientSession(headers=server.headers) as session:
        client = Client(session, root)
        await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
        _, made = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
        await server.stop()
        client = Client(session, await server.start())

        _, found = await client.ask("GET", f"{ROOT}/zones/sessions")

    assert found["metadata"] == made["metadata"]
    assert found["spec"] == made["spec"]


async def test_status_is_of_the_one_cluster_or_of_the_named_one(client: Client) -> None:
    assert (await client.ask("GET", "/status"))[1]["nodes"] == []
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    while (await client.ask("GET", "/status"))[0] == 503:
        pass

    assert (await client.ask("GET", "/status"))[1]["cluster"] == "main"
    assert (await client.ask("GET", "/status?cluster=x"))[0] == 404
    other = {**CLUSTER, "metadata": {"name": "other"}}
    await client.ask("PUT", f"{ROOT}/storageclusters/other", other)
    status, answered = await client.ask("GET", "/status")
    assert status == 400
    assert "there are main, other" in answered["message"]


async def test_draining_an_unknown_node_is_refused(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    while (await client.ask("GET", "/status"))[1].get("master_term", 0) == 0:
        pass

    status, answered = await client.ask("POST", "/nodes/agent-7/drain")

    assert status == 409
    assert "agent-7 is not registered" in answered["message"]


async def test_what_answers_a_declaration_says_how_it_is_with_that_declaration(
    client: Client, tmp_path: Path, world: World
) -> None:
    """Who declares reads the answer at once, before the operator has looked again."""
    addresses = [agent.address for agent in world.agents.values()]
    here = manifest("StorageCluster", "main", addresses=addresses)
    few = manifest("Zone", "sessions", clusterRef={"name": "main"}, partitions=16, replicas=2)
    for agent in world.agents.values():  # rows are kept elsewhere than in the world's metastore
        agent._check = lambda table: None
    (tmp_path / "secrets").mkdir(exist_ok=True)
    write_private(tmp_path / "secrets" / "main.json", json.dumps(SECRET.texts()))
    await client.ask("PUT", f"{ROOT}/storageclusters/main", here)
    await client.ask("PUT", f"{ROOT}/zones/sessions", few)
    async with asyncio.timeout(20):
        while True:
            _, cluster = await client.ask("GET", f"{ROOT}/storageclusters/main")
            _, zone = await client.ask("GET", f"{ROOT}/zones/sessions")
            if said(cluster, "Ready") == said(zone, "FullyReplicated") == "True":
                break

    more = {**few, "spec": {**few["spec"], "replicas": 5}}
    _, zone = await client.ask("PUT", f"{ROOT}/zones/sessions", more)
    another = manifest("StorageCluster", "main", addresses=[*addresses, "127.0.0.1:9"])
    _, cluster = await client.ask("PUT", f"{ROOT}/storageclusters/main", another)

    for changed in (zone, cluster):
        assert changed["status"]["observedGeneration"] == changed["metadata"]["generation"] == 2
    assert (said(zone, "FullyReplicated"), said(cluster, "Ready")) == ("False", "False")


def said(whole: Json, condition: str) -> str:
    return next(
        (e["status"] for e in whole["status"]["conditions"] if e["type"] == condition), "nothing"
    )


async def test_health_and_metrics_are_there(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    while (await client.text("/readyz"))[0] != 200:
        pass

    assert await client.text("/healthz") == (200, "ok\n")
    status, metrics = await client.text("/metrics")
    assert status == 200
    assert "quorate_operator_is_master 1.0" in metrics
    assert 'quorate_operator_master_term{cluster="main",namespace=""} 1.0' in metrics


async def test_a_plan_of_a_zone_that_cannot_be_planned_says_why(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    while (await client.ask("GET", "/plan/sessions"))[0] == 503:
        pass

    assert (await client.ask("GET", "/plan/sessions"))[1]["message"].startswith(
        "Zone sessions: its"
    )
    assert (await client.ask("GET", "/plan/sessions?with=many"))[0] == 422
    assert (
        "agent-7 is not registered"
        in ((await client.ask("GET", "/plan/sessions?without=agent-7"))[1]["message"])
    )
    assert await client.ask("GET", "/plan/books") == (
        404, {"message": "Zone books does not exist"}
    )  # fmt: skip


async def test_a_zone_that_says_that_its_data_is_retained_is_not_deleted(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    zone = {**ZONE, "spec": {**ZONE["spec"], "deletionPolicy": "Retain"}}
    await client.ask("PUT", f"{ROOT}/zones/sessions", zone)

    status, answer = await client.ask("DELETE", f"{ROOT}/zones/sessions")

    assert status == 409
    assert "spec.deletionPolicy is Retain" in answer["message"]
    assert "apply the zone with deletionPolicy: Delete, then delete it" in answer["message"]
    zone["spec"]["deletionPolicy"] = "Delete"
    await client.ask("PUT", f"{ROOT}/zones/sessions", zone)
    assert (await client.ask("DELETE", f"{ROOT}/zones/sessions"))[0] == 202


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {**ZONE["spec"], "deletionPolicy": "Retain"}}, "deletionPolicy is Retain"),
        (
            {"metadata": {"name": "sessions", "annotations": {"quorate.io/paused": "true"}}},
            "then delete it",
        ),
    ],
    ids=["Retain", "paused"],
)
async def test_a_zone_is_not_deleted_after_a_change_that_forbids_it(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, change: Json, said: str
) -> None:
    """The deletion is asked for while the change is being stored."""
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    objects, asked, storing = server.embedded.objects, asyncio.Event(), asyncio.Event()
    mark, save = objects.mark_deleted, objects._save

    async def late_save(plural: str, name: str, made: Json) -> None:
        if plural == "zones":
            storing.set()
            await asked.wait()
        await save(plural, name, made)

    async def noted_mark(*about: Any) -> Json | None:
        asked.set()
        return await mark(*about)

    monkeypatch.setattr(objects, "_save", late_save)
    monkeypatch.setattr(objects, "mark_deleted", noted_mark)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        changing = group.create_task(
            client.ask("PUT", f"{ROOT}/zones/sessions", {**ZONE, **change})
        )
        await storing.wait()
        deleting = group.create_task(client.ask("DELETE", f"{ROOT}/zones/sessions"))

    assert changing.result()[0] == 200
    assert deleting.result()[0] == 409
    assert said in deleting.result()[1]["message"]
    assert "deletionTimestamp" not in changing.result()[1]["metadata"]


async def test_only_an_empty_value_removes_the_annotation_of_an_import(client: Client) -> None:
    def zone(**annotations: str) -> dict[str, object]:
        told = {f"quorate.io/{name}": value for name, value in annotations.items()}
        return {**ZONE, "metadata": {**ZONE["metadata"], "annotations": told}}

    async def after(manifest: dict[str, object]) -> dict[str, str]:
        await client.ask("PUT", f"{ROOT}/zones/sessions", manifest)
        _, made = await client.ask("GET", f"{ROOT}/zones/sessions")
        found: dict[str, str] = made["metadata"].get("annotations", {})
        return found

    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    assert await after(zone(restoring="/a#1.2", paused="true")) == {
        "quorate.io/restoring": "/a#1.2",
        "quorate.io/paused": "true",
    }
    assert await after(ZONE) == {"quorate.io/restoring": "/a#1.2"}
    assert await after(zone(restoring="/a#1.3")) == {"quorate.io/restoring": "/a#1.3"}
    assert await after(zone(restoring="")) == {}
    assert await after(ZONE) == {}


async def test_changes_of_one_object_follow_one_another(client: Client) -> None:
    """Each began with what was stored when it came, also if another was being stored."""
    path = f"{ROOT}/zones/sessions"

    def put(replicas: int) -> Json:
        return {**ZONE, "spec": {**ZONE["spec"], "replicas": replicas}}

    made = await asyncio.gather(*(client.ask("PUT", path, put(number)) for number in (1, 2, 3)))

    assert sorted(status for status, _ in made) == [200, 200, 201]
    assert len({zone["metadata"]["uid"] for _, zone in made}) == 1
    assert {zone["metadata"]["generation"] for _, zone in made} == {1, 2, 3}

    await asyncio.gather(
        client.ask("PUT", path, put(4)),
        client.ask("DELETE", path),
        client.ask("PUT", path, put(5)),
    )
    status, left = await client.ask("GET", path)
    assert status == 404 or left["metadata"]["deletionTimestamp"], "a deletion is not undone"


async def test_an_object_is_changed_only_if_it_is_as_it_was_seen(client: Client) -> None:
    path = f"{ROOT}/zones/sessions"
    note = "quorate.io/restoring"
    noted = {**ZONE, "metadata": {"name": "sessions", "annotations": {note: "/x#1.a"}}}
    _, made = await client.ask("PUT", path, ZONE)
    uid = made["metadata"]["uid"]

    for seen in (
        "uid=another&generation=1&restoring=",
        f"uid={uid}&generation=2&restoring=",
        f"uid={uid}&generation=1&restoring=/y%231.b",
    ):
        status, said = await client.ask("PUT", f"{path}?{seen}", noted)
        assert (status, said["message"]) == (412, "sessions has changed meanwhile: look again")
    there = await client.ask("GET", path)
    assert "annotations" not in there[1]["metadata"]
    assert (await client.ask("PUT", f"{path}?uid={uid}&generation=x", noted))[0] == 422
    for unclear in ("generation=1", "restoring=", "uid=&generation=1"):
        status, said = await client.ask("PUT", f"{path}?{unclear}", noted)
        assert (status, said["message"]) == (
            422,
            "generation and restoring are of one object: write its uid too",
        )
    gone = f"{ROOT}/zones/gone?uid={uid}&generation=1"
    absent = {**ZONE, "metadata": {"name": "gone"}}
    assert (await client.ask("PUT", gone, absent))[0] == 412, "it is not created again"

    right = f"{path}?uid={uid}&generation=1&restoring="
    outcomes = await asyncio.gather(*(client.ask("PUT", right, noted) for _ in range(2)))
    assert sorted(status for status, _ in outcomes) == [200, 412]


async def test_a_zone_that_is_paused_is_not_deleted(client: Client) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    annotated = {**ZONE["metadata"], "annotations": {"quorate.io/paused": "true"}}
    await client.ask("PUT", f"{ROOT}/zones/sessions", {**ZONE, "metadata": annotated})

    status, answer = await client.ask("DELETE", f"{ROOT}/zones/sessions")

    assert status == 409
    assert "Zone sessions has the annotation quorate.io/paused" in answer["message"]
    _, made = await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    assert "annotations" not in made["metadata"]
    assert (await client.ask("DELETE", f"{ROOT}/zones/sessions"))[0] == 202


CANCEL = {"action": "Cancel", "versions": {"5": 17}}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"versions": {"5": "x"}}, 422, "Expected `int`, got `str` - at `$.versions[...]`"),
        ({"action": "restore"}, 422, "Invalid enum value 'restore' - at `$.action`"),
        ({"dry": True}, 422, "unknown field `dry`"),
        ({}, 503, "Zone sessions is not led yet: try again soon"),
    ],
)
async def test_a_recovery_that_cannot_be_done_is_refused(
    client: Client, change: Json, code: int, message: str
) -> None:
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)

    status, told = await client.ask("POST", "/zones/sessions/recover", CANCEL | change)

    assert (status, message in told["message"]) == (code, True), told


async def test_an_unknown_zone_is_not_recovered(client: Client) -> None:
    status, told = await client.ask("POST", "/zones/none/recover", CANCEL)

    assert (status, told["message"]) == (404, "Zone none does not exist")


@pytest.mark.parametrize("action", [each.value for each in RecoveryAction])
async def test_it_is_said_of_each_partition_why_nothing_is_done(
    client: Client, action: str
) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    zone = manifest("Zone", "sessions", clusterRef={"name": "main"}, partitions=64)
    await client.ask("PUT", f"{ROOT}/zones/sessions", zone)
    body = {"action": action, "versions": {"5": 17, "99": 2}, "dryRun": False}
    path = "/zones/sessions/recover"
    while (await client.ask("POST", path, body))[0] == 503:
        pass

    status, told = await client.ask("POST", path, body)

    gets_one = ", and gets one without a decision" if action == "Rebuild" else ""
    assert status == 409
    assert told["message"] == (
        f"zone sessions, partition 5: it has no row{gets_one}: `quorate describe zone` says what it"
        " waits for; zone sessions, partition 99: there is none: write a number from 0 to 63"
    )


@pytest.mark.parametrize(
    ("dry_run", "code", "told"),
    [
        (True, 200, "so it is"),
        (False, 503, "whether it was done is unknown: the metastore did not confirm the rows of"),
    ],
)
async def test_what_a_person_decided_is_not_told_as_done_before_its_rows_are_stored(
    client: Client, monkeypatch: pytest.MonkeyPatch, dry_run: bool, code: int, told: str
) -> None:
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    row = PartitionRow(5, 18, 1, None, ("a",), (Voter("a", "store-a"),))
    answer = RecoveryAnswer((PartitionAnswer(5, 17, "so it is", row),))
    monkeypatch.setattr(Runner, "recover", lambda self, uid, asked: answer)
    monkeypatch.setattr(awaited_writes, "WRITTEN_S", 0.05)

    status, said = await client.ask("POST", "/zones/sessions/recover", CANCEL | {"dryRun": dry_run})

    assert status == code
    assert told in str(said)
    assert "store-a" not in str(said)
    shown = said.get("partitions", [])
    assert all(each == {"partition": 5, "version": 17, "sentence": "so it is"} for each in shown)
