"""What the real API server makes of manifests: defaults filled in, bad ones refused readably.

Each bad manifest is refused by the API server and by the models the embedded operator uses: both
read the same rules.
"""

import json
from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.crds import KINDS
from quorate.wire.schema.resource import Resource
from quorate.wire.storage_cluster import StorageCluster, external
from quorate.wire.zone import Zone
from quorate.wire.zone_recovery import ZoneRecovery
from quorate_control_plane.fixtures import Kubectl
from quorate_control_plane.manifests import (
    HIGH,
    MANAGED,
    NEW_PLAN,
    OTHER_VOTER,
    PLAN_PLACE,
    READ_PLAN,
    ROW,
    Manifest,
    backup,
    backup_schedule,
    cluster,
    master_term,
    node,
    recovery,
    repair,
    restore,
    schedule,
    table,
    validation,
    without,
    zone,
)
from quorate_operator.declared.acceptance import accept

pytestmark = pytest.mark.integration

BAD = {
    "executors of a level": (validation(executors=1, level="Digest"), "write 0, or level: Rows"),
    "executors of a schedule": (
        schedule(
            template={"spec": {"zoneRef": {"name": "books"}, "level": "Counters", "executors": 2}}
        ),
        "write 0, or level: Rows",
    ),
    "small executors": (backup(executors=1, executorMemory="1000Mi"), "write at least 1Gi"),
    "many cores": (backup(executors=1, executorCores=9, executorMemory="4Gi"), "least 512Mi for"),
    "no name": (backup(executors=1, podTemplate={"env": [{"value": "a"}]}), "or only such env"),
    "code for a pod with rights": (
        backup(executors=1, podTemplate={"env": [{"name": "TZ"}, {"name": "LD_PRELOAD"}]}),
        "or only such env as cannot choose",
    ),
    "unknown field": (zone(replicaCount=3), "replicaCount"),
    "unknown nested field": (zone(clusterRef={"name": "m", "uid": "x"}), "uid"),
    "no cluster": (without(zone(), "clusterRef"), "clusterRef"),
    "cluster without a name": (zone(clusterRef={}), "name"),
    "cluster with an empty name": (zone(clusterRef={"name": ""}), "clusterRef.name"),
    "partitions not a power of two": (zone(partitions=100), "write a power of two"),
    "no partitions": (zone(partitions=0), "write a power of two"),
    "too many partitions": (zone(partitions=32768), "write a power of two"),
    "partitions as text": (zone(partitions="256"), "partitions"),
    "no replicas": (zone(replicas=0), "greater than or equal to 1"),
    "eight replicas": (zone(replicas=8), "less than or equal to 7"),
    "half a replica": (zone(replicas=1.5), "replicas"),
    "unknown mode": (zone(consistencyMode="EVENTUAL"), "STRONG_CONSISTENCY"),
    "unknown storage": (zone(storage="Tape"), "Persistent"),
    "reset timeout of a strong zone": (
        zone(partitionDistributionResetTimeoutSeconds=5),
        "a STRONG_CONSISTENCY zone never resets",
    ),
    "isolation of a strong zone": (zone(isolationTimeoutSeconds="Never"), "need no operator"),
    "short isolation": (zone(isolationTimeoutSeconds=4, **HIGH), "at least 5 seconds, or Never"),
    "isolation with a unit": (zone(isolationTimeoutSeconds="30s", **HIGH), "or Never"),
    "write mode of a strong zone": (zone(writeMode="PRIMARY_SYNC"), "remove writeMode"),
    "unknown write mode": (zone(writeMode="NO_SYNC", **HIGH), "FULL_SYNC"),
    "negative timer": (zone(dataNodesAutoAdjustScaleDownSeconds=-1), "seconds as an integer"),
    "endless timer": (zone(dataNodesAutoAdjustScaleUpSeconds=10**10), "or Never"),
    "timer with a unit": (zone(dataNodesAutoAdjustScaleUpSeconds="10s"), "or Never"),
    "timer in lower case": (zone(dataNodesAutoAdjustScaleUpSeconds="never"), "or Never"),
    "reset timer with a unit": (
        zone(partitionDistributionResetTimeoutSeconds="5s", **HIGH),
        "or Never",
    ),
    "synced writes in memory": (
        zone(storage="InMemory", syncWrites="Always"),
        "only a zone with storage: Persistent has syncWrites",
    ),
    "unknown sync": (zone(syncWrites="Sometimes"), "Interval"),
    "memory limit on disk": (
        zone(maxMemory="512Mi"),
        "only a zone with storage: InMemory has maxMemory",
    ),
    "no memory": (zone(storage="InMemory", maxMemory=0), "for example 512Mi"),
    "memory in words": (zone(storage="InMemory", maxMemory="plenty"), "for example 512Mi"),
    "empty filter": (zone(dataNodesFilter=""), "dataNodesFilter"),
    "storage profile of two words": (zone(storageProfile="fast disk"), "storageProfile"),
    "long zone name": (zone(name="z" * 51), "at most 50 characters"),
    "dotted zone name": (zone(name="a.b"), "lower-case letters, digits and '-'"),
    "cluster without agents": (
        without(cluster(), "external"),
        "write either spec.external.addresses",
    ),
    "cluster without addresses": (cluster(external={}), "addresses"),
    "cluster with no address": (cluster(**external([])), "at least 1 item"),
    "address without a port": (cluster(**external(["10.0.0.7"])), "write host:port"),
    "address with a huge port": (cluster(**external(["10.0.0.7:70000"])), "write host:port"),
    "address twice": (cluster(**external(["a:1", "a:1"])), "a:1"),
    "addresses in both forms": (
        cluster(addresses=["a:1"], **external(["a:1"])),
        "write either spec.external.addresses",
    ),
    "bad address in the earlier form": (cluster(addresses=["10.0.0.7"]), "write host:port"),
    "agents of another kind": (cluster(agents="pods", addresses=["a:1"]), "external"),
    "agents of both kinds": (
        cluster(managed=MANAGED, **external(["a:1"])),
        "write either spec.external.addresses",
    ),
    "no image": (cluster(managed={**MANAGED, "image": ""}), "managed.image"),
    "fewer than no agents": (cluster(managed={**MANAGED, "replicas": -1}), "managed.replicas"),
    "small volume": (cluster(managed={**MANAGED, "storage": {"size": "5Mi"}}), "at least 1Gi"),
    "label that is not copied": (
        cluster(managed={**MANAGED, "failureDomainLabel": "rack one"}),
        "failureDomainLabel",
    ),
    "long name of a managed cluster": (
        cluster("c" * 41, managed=MANAGED),
        "write at most 40 characters",
    ),
    "long cluster name": (cluster(name="c" * 51), "at most 50 characters"),
    "recovery of nothing": (recovery(partitions=[]), "at least 1 item"),
    "recovery in other words": (recovery(action="reset"), "Cancel"),
    "recovery without rows": (recovery(dryRun=False), "write the version of each partition's row"),
    "recovery with a row too few": (recovery(rowVersions=[7]), "in the order of partitions"),
    "cancel on one agent": (
        recovery(action="Cancel", node="agent-1"),
        "only Reset and Restart are about one agent",
    ),
    "validation at no level": (validation(level="rows"), "Counters"),
    "validation without a rate": (
        validation(maxMiBPerSecondPerAgent=0),
        "greater than or equal to 1",
    ),
    "backup above all rates": (
        backup(maxMiBPerSecondPerAgent=10_001),
        "less than or equal to 10000",
    ),
    "validation in no mode": (validation(mode="idle"), "Idle"),
    "validation without time": (validation(deadlineSeconds=0), "greater than or equal to 10"),
    "too many executors": (validation(executors=101), "executors"),
    "restore from nowhere": (restore(source={}), "write persistentVolumeClaim or s3"),
    "backup to nowhere": (backup(destination={}), "write persistentVolumeClaim or s3"),
    "backup without a folder": (
        backup(destination={"s3": {"url": "s3://bucket"}}),
        "write s3://BUCKET/FOLDER",
    ),
    "backup outside of its volume": (
        backup(destination={"persistentVolumeClaim": {"claimName": "b", "path": "../x"}}),
        "path",
    ),
    "backup to an endpoint without a scheme": (
        backup(destination={"s3": {"url": "s3://bucket/books", "endpoint": "minio:9000"}}),
        "write https://HOST:PORT",
    ),
    "repair of nothing": (repair(), "write destination, for a new plan, or plan"),
    "repair with two plans": (repair(**NEW_PLAN, plan=READ_PLAN), "one of them"),
    "repair without a strategy": (repair(destination=PLAN_PLACE), "write strategy"),
    "repair by a plan that is not said": (repair(plan=READ_PLAN), "with plan write dryRun: false"),
    "repair unread": (repair(**NEW_PLAN, dryRun=False), "write withoutReview: true"),
    "repair read and unread": (
        repair(plan=READ_PLAN, dryRun=False, withoutReview=True),
        "and never else",
    ),
    "repair that only checks": (
        repair(destination=PLAN_PLACE, strategy="CHECK_ONLY", dryRun=False, withoutReview=True),
        "CHECK_ONLY changes nothing",
    ),
    "repair by another digest": (
        repair(plan={**READ_PLAN, "digest": "0A"}, dryRun=False),
        "digest",
    ),
    "schedule of nothing": (without(schedule(), "template"), "template"),
    "schedule with a long name": (schedule("a" * 40), "at most 39 characters"),
    "schedule with seconds": (schedule(schedule="*/20 * * * * *"), "write five fields"),
    "schedule with a word": (schedule(schedule="@daily"), "write five fields"),
    "backup schedule with seconds": (
        backup_schedule(schedule="0 0 3 * * *"),
        "write five fields",
    ),
    "schedule with another policy": (schedule(concurrencyPolicy="Queue"), "Forbid"),
    "backup schedule that keeps nothing": (
        backup_schedule(retention={"keepLast": 0}),
        "greater than or equal to 1",
    ),
    "backup schedule that keeps by age alone": (
        backup_schedule(retention={"maxAgeDays": 7}),
        "keepLast",
    ),
    "backup schedule that is incremental in part": (
        backup_schedule(incremental="daily"),
        "boolean",
    ),
    "backup schedule without room for folders": (
        backup_schedule(path="b" * 401),
        "at most 400 characters",
    ),
    "backup schedule with a long name": (backup_schedule("a" * 40), "at most 39 characters"),
    "restart without an agent": (recovery(action="Restart"), "write the agent whose copies"),
    "erase without a restart": (recovery(erase=True), "only Restart can erase a copy"),
}
CHANGES = {
    "partitions": (zone(partitions=16), zone(partitions=32), "partitions cannot be changed"),
    "storage": (zone(), zone(storage="InMemory"), "storage cannot be changed"),
    "cluster": (zone(), zone(clusterRef={"name": "b"}), "clusterRef cannot be changed"),
    "mode": (zone(), zone(**HIGH), "consistencyMode cannot be changed"),
    "managed to external": (cluster(managed=MANAGED), cluster(), "spec.managed cannot be added"),
    "external to managed": (cluster(), cluster(managed=MANAGED), "spec.managed cannot be added"),
    "earlier form to managed": (
        cluster(addresses=["a:1"]),
        cluster(managed=MANAGED),
        "spec.managed cannot be added",
    ),
    "row version": (table(), table(rows=[{**ROW, "version": 4}]), "never decrease"),
    "row term": (table(), table(rows=[{**ROW, "term": 2}]), "never decrease"),
    "one set of voters": (
        table(),
        table(rows=[{**ROW, "voterSets": [{"voters": ROW["voters"]}]}]),
        "there are two sets of voters or none",
    ),
    "sets of other voters": (
        table(),
        table(rows=[{**ROW, "voterSets": [{"voters": [OTHER_VOTER]}] * 2}]),
        "there are two sets of voters or none",
    ),
    "shard": (table(), table(shard=1), "shard cannot be changed"),
    "shard to head": (table(), without(table(), "shard"), "either a shard's rows or"),
    "incarnation": (node(), node(incarnation=2), "never decrease"),
    "node": (node(), node(node="agent-2"), "node cannot be changed"),
    "recovery": (recovery(), recovery(node="agent-1"), "spec cannot be changed"),
    "recovery done after a look": (
        recovery(rowVersions=[7, 9]),
        recovery(rowVersions=[7, 9], dryRun=False),
        "a ZoneRecovery is run once; create another one",
    ),
    "validation": (validation(), validation(level="Digest"), "spec cannot be changed"),
    "restore": (restore(), restore(intoNonEmpty=True), "spec cannot be changed"),
    "backup": (backup(), backup(deadlineSeconds=60), "spec cannot be changed"),
    "repair": (repair(**NEW_PLAN), repair(**NEW_PLAN, level="Digest"), "spec cannot be changed"),
    "mastership": (master_term(7), master_term(6), "master terms never decrease"),
}


def model(manifest: Manifest) -> type[Resource]:
    return next(kind for kind in KINDS if kind.kind_name() == manifest["kind"])


def apply(kubectl: Kubectl, namespace: str, manifest: Manifest, check: bool = True) -> str:
    arguments = ("apply", f"--namespace={namespace}", "--filename=-")
    done = kubectl(*arguments, stdin=json.dumps(manifest), check=check)
    assert check or done.returncode != 0, f"accepted: {done.stdout}"
    return done.stderr


@pytest.fixture(scope="module")
def shared_namespace(control_plane: Any) -> str:
    name = "test-manifests"
    control_plane.kubectl("create", "namespace", name)
    return name


@pytest.mark.parametrize(("manifest", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_manifest_is_refused_with_a_readable_reason(
    kubectl: Kubectl, shared_namespace: str, manifest: Manifest, reason: str
) -> None:
    said = apply(kubectl, shared_namespace, manifest, check=False)

    assert reason in said
    with pytest.raises(WireError):
        model(manifest).parse(manifest)


def test_a_refusal_shows_no_credentials(kubectl: Kubectl, shared_namespace: str) -> None:
    manifest = backup(destination={"s3": {"url": "s3://AKIAKEY:hush@bucket/books"}})

    said = apply(kubectl, shared_namespace, manifest, check=False)

    assert "write s3://BUCKET/FOLDER" in said
    assert "hush" not in said


@pytest.mark.parametrize("written", ["a in (b", "a=b c", "$.region"])
def test_a_filter_that_cannot_be_read_is_refused_and_a_stored_one_is_still_a_zone(
    kubectl: Kubectl, shared_namespace: str, written: str
) -> None:
    """Another version may have stored it: the zone is led as before, and says where it is wrong."""
    manifest = zone(dataNodesFilter=written)
    assert "write a label selector" in apply(kubectl, shared_namespace, manifest, check=False)

    acceptance = accept(Zone.parse_stored(manifest), True, None)
    assert acceptance.record is None
    assert acceptance.reason == "Invalid"
    assert written in acceptance.message


@pytest.mark.parametrize(("before", "after", "reason"), CHANGES.values(), ids=CHANGES.keys())
def test_a_forbidden_change_is_refused_with_a_readable_reason(
    kubectl: Kubectl, namespace: str, before: Manifest, after: Manifest, reason: str
) -> None:
    apply(kubectl, namespace, before)

    assert reason in apply(kubectl, namespace, after, check=False)

    if before["kind"] in (
        "Zone",
        "ZoneRecovery",
        "DataValidation",
        "ZoneBackup",
        "ZoneRestore",
        "ZoneRepair",
    ):
        kind = model(before)
        with pytest.raises(WireError, match=reason):
            kind.parse(after, kind.parse(before))


def test_a_change_that_is_allowed_is_taken(kubectl: Kubectl, namespace: str) -> None:
    apply(kubectl, namespace, zone(replicas=3))
    apply(kubectl, namespace, zone(replicas=5, dataNodesAutoAdjustScaleDownSeconds=300))
    apply(kubectl, namespace, zone(dataNodesFilter="a=b, x.io/c in (d,e),!f", storageProfile="b"))
    apply(kubectl, namespace, zone(dataNodesFilter="$[?(@.region == 'EU' && @.size > 5)]"))
    apply(kubectl, namespace, repair(plan=READ_PLAN, dryRun=False))
    apply(kubectl, namespace, schedule())
    apply(kubectl, namespace, schedule(suspend=True, timeZone="Europe/Berlin"))
    apply(kubectl, namespace, backup_schedule())
    apply(kubectl, namespace, backup_schedule(path="elsewhere", retention={"keepLast": 7}))
    apply(kubectl, namespace, backup_schedule(incremental=True))
    more = {"env": [{"name": "TZ", "value": "b"}]}
    divided = backup(executors=2, executorCpu="500m", executorMemory="1Gi", podTemplate=more)
    apply(kubectl, namespace, divided)
    apply(kubectl, namespace, cluster())
    everywhere = ["127.0.0.1:7100", "[::1]:7101", "a.example:1"]
    apply(kubectl, namespace, cluster(**external(everywhere)))
    apply(kubectl, namespace, table())
    apply(kubectl, namespace, table(rows=[{**ROW, "version": 6}]))
    both = [{"voters": ROW["voters"]}, {"voters": [*ROW["voters"], OTHER_VOTER]}]
    apply(kubectl, namespace, table(rows=[{**ROW, "version": 7, "voterSets": both}]))
    apply(kubectl, namespace, node())
    apply(kubectl, namespace, node(storeId="new", incarnation=1))


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_a_stored_cluster_of_the_earlier_form_is_served_and_takes_the_new_one(
    kubectl: Kubectl, namespace: str, how: tuple[str, ...]
) -> None:
    """As versions before stored it: `agents` with the default they filled in."""
    here = f"--namespace={namespace}"
    earlier = cluster(addresses=["127.0.0.1:7100"], agents="external")
    apply_it = ("apply", here, *how, "--filename=-")
    kubectl(*apply_it, stdin=json.dumps(earlier))
    status = '{"status": {"online": "1/1"}}'
    patch = ("patch", "storagecluster", "main", here, "--type=merge")
    kubectl(*patch, "--subresource=status", f"--patch={status}")
    stored = json.loads(kubectl("get", "storagecluster", "main", here, "--output=json").stdout)
    assert StorageCluster.parse(stored).spec.dialed == ["127.0.0.1:7100"]

    kubectl(*apply_it, stdin=json.dumps(cluster()))
    stored = json.loads(kubectl("get", "storagecluster", "main", here, "--output=json").stdout)
    assert stored["spec"] == external(["127.0.0.1:7100"])
    assert stored["status"] == {"online": "1/1"}


def test_the_api_server_and_the_models_fill_in_the_same_defaults(
    kubectl: Kubectl, namespace: str
) -> None:
    apply(kubectl, namespace, zone())
    here = f"--namespace={namespace}"
    stored = json.loads(kubectl("get", "zone", "sessions", here, "--output=json").stdout)

    dumped = Zone.parse(zone()).spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert stored["spec"] == dumped


@pytest.mark.parametrize("quantity", [1, 536870912, "512Mi", "2G", "1073741824"])
def test_memory_may_be_written_as_a_number_or_a_quantity(
    kubectl: Kubectl, namespace: str, quantity: int | str
) -> None:
    manifest = zone(storage="InMemory", maxMemory=quantity)

    apply(kubectl, namespace, manifest)

    Zone.parse(manifest)


def test_short_names_category_and_columns_work(kubectl: Kubectl, namespace: str) -> None:
    here = f"--namespace={namespace}"
    exports = (backup(), backup_schedule(), restore())
    runs = (recovery(), validation(), schedule(), *exports, repair(**NEW_PLAN))
    for manifest in (zone(), cluster(), table(), node(), *runs):
        apply(kubectl, namespace, manifest)

    for short, header in {
        "zn": (
            "NAME CLUSTER PARTITIONS REPLICAS STORAGE AVAILABLE REPLICATED PENDING PLANNED PHASE"
            " AGE"
        ),
        "stc": "NAME AGENTS READY MASTER AGE",
        "zrec": "NAME ZONE ACTION DRY RUN PHASE AGE",
        "dv": "NAME ZONE LEVEL MODE PHASE PERCENT VERDICT FINISHED AGE",
        "sdv": "NAME ZONE SCHEDULE TIME ZONE SUSPEND LAST AGE",
        "zb": "NAME ZONE PHASE PERCENT OUTCOME ROWS PLACE FINISHED AGE",
        "szb": "NAME ZONE SCHEDULE TIME ZONE SUSPEND LAST SUCCESSFUL AGE",
        "zr": "NAME ZONE PHASE PERCENT OUTCOME ROWS PLACE FINISHED AGE",
        "zrp": "NAME ZONE STRATEGY DRY RUN PHASE PERCENT OUTCOME PLACE FINISHED AGE",
        "pt": "NAME ZONE SHARD AGE",
        "sn": "NAME CLUSTER NODE HOST PORT INCARNATION LEFT ENDED DRAINING AGE",
    }.items():
        lines = kubectl("get", short, here).stdout.splitlines()
        assert lines[0].split() == header.split()
        assert len(lines) == 2
    everything = kubectl("get", "quorate", here, "--output=name").stdout.split()
    assert len(everything) == 11


def test_the_defaults_of_a_recovery_change_nothing(kubectl: Kubectl, namespace: str) -> None:
    apply(kubectl, namespace, recovery())
    apply(kubectl, namespace, recovery())
    here = f"--namespace={namespace}"
    stored = json.loads(kubectl("get", "zonerecovery", "reset", here, "--output=json").stdout)

    assert stored["spec"]["dryRun"] is True
    parsed = ZoneRecovery.parse(recovery()).spec
    assert stored["spec"] == parsed.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_a_users_apply_does_not_touch_the_status(kubectl: Kubectl, namespace: str) -> None:
    here = f"--namespace={namespace}"
    apply(kubectl, namespace, zone())

    apply(kubectl, namespace, {**zone(replicas=4), "status": {"phase": "Available"}})

    stored = json.loads(kubectl("get", "zone", "sessions", here, "--output=json").stdout)
    assert stored["spec"]["replicas"] == 4
    assert "status" not in stored


def condition(kind: str, status: str, time: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "R",
        "message": "m",
        "lastTransitionTime": time,
    }


def test_who_applies_one_condition_leaves_the_others_alone(
    kubectl: Kubectl, namespace: str
) -> None:
    here = f"--namespace={namespace}"
    apply(kubectl, namespace, zone())
    for manager, made in (
        ("operator", [condition("Available", "True"), condition("Blocked", "False")]),
        ("another", [condition("Audited", "True")]),
    ):
        said = {**zone(), "spec": {"clusterRef": {"name": "main"}}, "status": {"conditions": made}}
        how = ("--server-side", "--subresource=status", f"--field-manager={manager}")
        kubectl("apply", here, *how, "--filename=-", stdin=json.dumps(said))

    stored = json.loads(kubectl("get", "zone", "sessions", here, "--output=json").stdout)
    assert {each["type"] for each in stored["status"]["conditions"]} == {
        "Available",
        "Blocked",
        "Audited",
    }


def test_a_time_that_is_none_is_refused(kubectl: Kubectl, namespace: str) -> None:
    apply(kubectl, namespace, cluster())
    said = {**cluster(), "status": {"conditions": [condition("Ready", "True", "yesterday")]}}
    how = ("--server-side", "--subresource=status", "--field-manager=test")

    done = kubectl(
        "apply",
        f"--namespace={namespace}",
        *how,
        "--filename=-",
        stdin=json.dumps(said),
        check=False,
    )

    assert done.returncode != 0
    assert "lastTransitionTime" in done.stderr
