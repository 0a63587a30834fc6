"""The models of the custom resources: what they accept, what they say of the rest, both ways."""

from typing import Any

import msgspec
import pytest

from quorate.facts.addresses import split_address
from quorate.facts.errors import WireError
from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow
from quorate.facts.topology import Holder, NodeRecord, PodFacts, Voter
from quorate.facts.zone import NEVER_MS, Planner, StorageKind, SyncWrites, ZoneRecord
from quorate.wire.crds import KINDS, crds
from quorate.wire.partition_table import (
    StoredRow,
    ZoneRef,
    accepted_zone,
    partition_row,
    stored_row,
    zone_record,
)
from quorate.wire.schema.resource import API_VERSION, Resource, Rule, is_short_name
from quorate.wire.storage_cluster import StorageCluster, external
from quorate.wire.storage_node import StorageNodeSpec, node_record, node_spec
from quorate.wire.zone import Zone, manifest_of, memory_bytes, to_record

Manifest = dict[str, Any]


def zone(**spec: Any) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "Zone",
        "metadata": {"name": "sessions", "uid": "uid-1"},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }


def refusal(manifest: Manifest, kind: type[Resource] = Zone) -> str:
    with pytest.raises(WireError) as refused:
        kind.parse(manifest)
    return str(refused.value)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            zone(partitions=100),
            "Zone sessions: spec.partitions is 100: write a power of two from 1 to 16384, for",
        ),
        (
            zone(replica=3),
            "Zone sessions: spec.replica is not a known field: did you mean replicas?",
        ),
        (
            zone(replicas="3"),
            "Zone sessions: spec.replicas is '3': should be a valid integer",
        ),
        (
            zone(replicas=True),
            "Zone sessions: spec.replicas is True: should be a valid integer",
        ),
        (
            zone(planner="Fast"),
            "Zone sessions: spec.planner is Fast: write 'Minimal' or 'Staged'",
        ),
        (
            zone(storage="Tape"),
            "Zone sessions: spec.storage is Tape: write 'Persistent' or 'InMemory'",
        ),
        (
            {**zone(), "spec": {}},
            "Zone sessions: spec.clusterRef is missing: write it",
        ),
        (
            zone(partitionDistributionResetTimeoutSeconds=5),
            "Zone sessions: spec.partitionDistributionResetTimeoutSeconds is 5: a STRONG_CONSIST",
        ),
        (
            zone(isolationTimeoutSeconds=30),
            "Zone sessions: spec.isolationTimeoutSeconds is 30: primaries of a STRONG_CONSISTENCY",
        ),
        (
            zone(isolationTimeoutSeconds=4, consistencyMode="HIGH_AVAILABILITY"),
            "Zone sessions: spec.isolationTimeoutSeconds is 4: write at least 5 seconds, or Never",
        ),
        (
            zone(isolationTimeoutSeconds="never", consistencyMode="HIGH_AVAILABILITY"),
            "Zone sessions: spec.isolationTimeoutSeconds is never: write seconds as an integer",
        ),
        (
            {**zone(), "apiVersion": "quorate.io/v1"},
            "Zone sessions: apiVersion is 'quorate.io/v1': write quorate.io/v1alpha1",
        ),
        ({**zone(), "kind": "Pool"}, "Zone sessions: kind is 'Pool': write Zone"),
        ({"apiVersion": API_VERSION, "kind": "Zone"}, "a Zone without a name: metadata is missing"),
    ],
)
def test_a_refusal_names_object_field_value_and_way_out(manifest: Manifest, said: str) -> None:
    assert refusal(manifest).startswith(said)


def test_every_broken_field_is_named_at_once() -> None:
    said = refusal(zone(replicas=8, partitions="x", dataNodesAutoAdjustScaleUpSeconds=-1))

    for field in ("replicas", "partitions", "dataNodesAutoAdjustScaleUpSeconds"):
        assert f"spec.{field} is" in said


@pytest.mark.parametrize("junk", [None, 3, [], "x", {"metadata": 7}, {"spec": []}])
def test_junk_is_refused_not_crashed_on(junk: Any) -> None:
    body = {"apiVersion": API_VERSION, "kind": "Zone"}
    for part in ("metadata", "spec"):
        refusal({**zone(), part: junk})
        refusal({**body, **(junk if isinstance(junk, dict) else {"metadata": junk})})


def test_null_is_absent_as_the_api_server_has_it() -> None:
    parsed = Zone.parse(zone(replicas=None, syncWrites=None))

    assert parsed.spec.replicas == 3


def test_a_zone_becomes_the_record_that_the_core_uses() -> None:
    assert to_record(Zone.parse(zone())) == ZoneRecord("uid-1", "sessions", 256, 3)
    memory = Zone.parse(zone(storage="InMemory", maxMemory="64Mi", partitions=1, replicas=7))
    assert to_record(memory) == ZoneRecord(
        "uid-1", "sessions", 1, 7, StorageKind.IN_MEMORY, SyncWrites.ALWAYS, 64 << 20,
        start_empty=True,
    )  # fmt: skip
    hasty = Zone.parse(zone(dataNodesAutoAdjustScaleDownSeconds=0))
    assert to_record(hasty).scale_down_ms == 0


@pytest.mark.parametrize(("written", "ms"), [(0, 0), (7, 7_000), ("Never", NEVER_MS)])
@pytest.mark.parametrize("field", ["ScaleUp", "ScaleDown"])
def test_a_timer_is_seconds_or_never(field: str, written: int | str, ms: int) -> None:
    name = f"dataNodesAutoAdjust{field}Seconds"
    record = to_record(Zone.parse(zone(**{name: written})))
    assert (record.scale_up_ms if field == "ScaleUp" else record.scale_down_ms) == ms
    spec = manifest_of(record, "main")["spec"]
    assert isinstance(spec, dict)
    assert to_record(Zone.parse(zone(**spec))) == record
    reference = ZoneRef(name="sessions", uid="uid-1")
    assert zone_record(reference, accepted_zone(record)) == record


@pytest.mark.parametrize(
    ("storage", "written", "starts_empty"),
    [
        ("InMemory", None, True),
        ("InMemory", "Wait", False),
        ("Persistent", None, False),
        ("Persistent", "StartEmpty", True),
    ],
)
def test_what_becomes_of_lost_partitions(
    storage: str, written: str | None, starts_empty: bool
) -> None:
    record = to_record(Zone.parse(zone(storage=storage, onAllCopiesLost=written)))
    assert record.start_empty is starts_empty
    spec = manifest_of(record, "main")["spec"]
    assert isinstance(spec, dict)
    assert ("onAllCopiesLost" in spec) is (written is not None)
    assert to_record(Zone.parse(zone(**spec))) == record


@pytest.mark.parametrize("written", ["never", "60", "", 60.5, True, -1, 10**9, [60], {}])
def test_another_timer_is_refused_with_what_to_write(written: object) -> None:
    said = refusal(zone(dataNodesAutoAdjustScaleUpSeconds=written))

    assert "spec.dataNodesAutoAdjustScaleUpSeconds is" in said
    assert "write seconds as an integer from 0 to 315360000, or Never" in said


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [(5, 5), ("5", 5), ("3k", 3000), ("2Ki", 2048), ("512Mi", 512 << 20), ("1T", 10**12)],
)
def test_quantities_become_bytes(quantity: int | str, expected: int) -> None:
    assert memory_bytes(quantity) == expected


@pytest.mark.parametrize(
    ("spec", "by_all", "alone"),
    [
        ({}, False, False),
        ({"consistencyMode": "HIGH_AVAILABILITY"}, True, False),
        ({"consistencyMode": "HIGH_AVAILABILITY", "writeMode": "PRIMARY_SYNC"}, False, True),
    ],
)
def test_the_write_mode_says_who_has_a_write_before_it_is_acknowledged(
    spec: dict[str, str], by_all: bool, alone: bool
) -> None:
    record = to_record(Zone.parse(zone(**spec)))

    assert (record.acknowledges_by_all, record.acknowledges_alone) == (by_all, alone)


def test_addresses_are_taken_apart() -> None:
    assert split_address("10.0.0.7:7100") == ("10.0.0.7", 7100)
    assert split_address("[fd00::7]:1") == ("fd00::7", 1)


@pytest.mark.parametrize("address", ["a", "a:", ":1", "a:0", "a:65536", "a b:1", "[::1:1", "::1:1"])
def test_a_bad_address_is_refused(address: str) -> None:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "StorageCluster",
        "metadata": {"name": "main"},
        "spec": external([address]),
    }

    assert f"spec.external.addresses is ['{address}']: write host:port" in refusal(
        manifest, StorageCluster
    )


def test_a_cluster_of_the_earlier_form_is_read_as_one_of_the_new() -> None:
    about = {"apiVersion": API_VERSION, "kind": "StorageCluster", "metadata": {"name": "main"}}
    earlier = {"agents": "external", "addresses": ["a:1", "b:2"]}

    assert StorageCluster.parse({**about, "spec": earlier}).spec.dialed == ["a:1", "b:2"]
    assert StorageCluster.parse({**about, "spec": external(["c:3"])}).spec.dialed == ["c:3"]
    for spec in ({}, {**earlier, **external(["a:1"])}):
        assert "write either spec.external.addresses" in refusal(
            {**about, "spec": spec}, StorageCluster
        )


@pytest.mark.parametrize("name", ["a", "a-1", "1", "a" * 50])
def test_short_names_are_told_from_others(name: str) -> None:
    assert is_short_name(name)
    for bad in ("", f"{name}.", f"-{name}", f"{name}-", f"{name}_", name.upper() + "A", "a" * 51):
        assert not is_short_name(bad)


VOTERS = (Voter("a", "s1"), Voter("b", "s2"))
MIGRATION = Migration(
    "m", MigrationKind.MOVE, "b", Holder("c", "s3", 2), ("a", None), (*VOTERS, Voter("c", "s3"))
)


@pytest.mark.parametrize(
    "row",
    [
        PartitionRow(0, 1, 1, None, (None, None), VOTERS),
        PartitionRow(7, 9, 8, Holder("a", "s1", 4), ("a", "b"), VOTERS),
        PartitionRow(7, 9, 8, Holder("a", "s1", 4), ("a", None), VOTERS, MIGRATION),
        PartitionRow(7, 9, 9, None, ("a", None), VOTERS, None, (VOTERS, VOTERS[:1])),
    ],
)
def test_rows_survive_storage(row: PartitionRow) -> None:
    dumped = stored_row(row).model_dump(mode="json", by_alias=True, exclude_none=True)

    assert partition_row(StoredRow.model_validate(dumped)) == row


def test_a_stored_row_without_sets_of_voters_has_none() -> None:
    row = PartitionRow(0, 1, 1, None, (None, None), VOTERS)
    dumped = stored_row(row).model_dump(mode="json", by_alias=True, exclude_none=True)

    assert "voterSets" not in dumped


@pytest.mark.parametrize(
    "row",
    [
        PartitionRow(7, 9, 9, None, (None,), VOTERS, None, (VOTERS,)),
        PartitionRow(7, 9, 9, None, (None,), VOTERS, MIGRATION, (VOTERS, VOTERS[:1])),
        PartitionRow(7, 9, 9, None, (None,), VOTERS, None, (VOTERS[:1], VOTERS[:1])),
    ],
    ids=["one set", "a migration is active", "a voter of none"],
)
def test_wrong_sets_of_voters_are_refused(row: PartitionRow) -> None:
    [rule] = [rule for rule in StoredRow.rules if rule.field == "voterSets"]
    stored = stored_row(row)
    assert not rule.holds(stored, stored)


def test_registrations_and_zones_survive_storage() -> None:
    node = NodeRecord("a", "s", 3, "h", 1, "ch", "rack", 2, 17, "p", True, (7000, 7009), "x.org")
    record = ZoneRecord("u", "z", 8, 2, StorageKind.IN_MEMORY, SyncWrites.ALWAYS, 5, {"a": 7}, True)
    record = msgspec.structs.replace(
        record, planner=Planner.STAGED, port=7003, external_ports={"a": 31001}
    )

    assert node_record(node_spec("main", node)) == node
    for pod in (PodFacts({}), PodFacts({"app": "x"}, {}, "", "n1")):
        node = msgspec.structs.replace(node, pod=pod)
        spec = node_spec("main", node).model_dump(mode="json", by_alias=True, exclude_none=True)
        assert node_record(StorageNodeSpec.model_validate(spec)) == node
    for isolation_ms in (30_000, NEVER_MS):
        record = msgspec.structs.replace(record, isolation_ms=isolation_ms)
        assert zone_record(ZoneRef(name="z", uid="u"), accepted_zone(record)) == record


@pytest.mark.parametrize("isolation", [30, "Never", None])
def test_an_isolation_timeout_survives_its_manifest(isolation: int | str | None) -> None:
    spec = {"consistencyMode": "HIGH_AVAILABILITY"}
    spec |= {} if isolation is None else {"isolationTimeoutSeconds": isolation}
    record = to_record(Zone.parse(zone(**spec)))

    assert record.isolation_ms == (30_000 if isolation == 30 else NEVER_MS)
    again = manifest_of(record, "main")
    again["metadata"] = {"name": "sessions", "uid": "uid-1"}
    assert to_record(Zone.parse(again)) == record


def test_schemas_are_structural() -> None:
    def check(schema: Any, path: str) -> None:
        if isinstance(schema, list):
            for each in schema:
                check(each, path)
        if not isinstance(schema, dict):
            return
        for forbidden in ("$ref", "$defs", "anyOf", "allOf", "oneOf", "title", "const"):
            assert forbidden not in schema, f"{path}: {forbidden}"
        assert schema.get("additionalProperties") is not False, path
        for name, inner in schema.get("properties", {}).items():
            assert "type" in inner or "x-kubernetes-int-or-string" in inner, f"{path}.{name}"
            check(inner, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            check(schema.get(key), f"{path}.{key}")

    for stem, definition in crds().items():
        [version] = definition["spec"]["versions"]
        check(version["schema"]["openAPIV3Schema"], stem)


def test_every_rule_says_what_to_write_and_names_a_field_that_exists() -> None:
    seen: list[Rule] = []
    for kind in KINDS:
        parts: list[Any] = [kind, kind.model_fields["spec"].annotation]
        for part in parts:
            fields = {field.alias for field in part.model_fields.values()}
            for rule in part.rules:
                assert rule.field in fields | {""}
                assert any(
                    word in rule.message for word in ("write", "remove", "create", "declare")
                )
                seen.append(rule)
    assert len(seen) > 15
