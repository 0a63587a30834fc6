"""Objects that a later version wrote can be read; a user's slip of the pen is still refused."""

from typing import Any

import pytest

from quorate.facts.errors import WireError
from quorate.wire.partition_table import PartitionTable
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.schema.unknown_fields import UnknownField, put_back, without_unknown
from quorate.wire.zone import Zone, ZoneStatus

ROW = {
    "partition": 1,
    "version": 3,
    "term": 2,
    "replicas": ["a"],
    "voters": [{"node": "a", "storeId": "s", "weight": 3}, {"node": "b", "storeId": "t"}],
    "reason": {"of": "later"},
}
TABLE: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "PartitionTable",
    "metadata": {"name": "u-000"},
    "spec": {
        "clusterRef": {"name": "main"},
        "zoneRef": {"name": "z", "uid": "u", "generation": 2},
        "shard": 0,
        "rows": [ROW],
        "written": "today",
    },
}
ZONE: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "Zone",
    "metadata": {"name": "z"},
    "spec": {"clusterRef": {"name": "main"}, "partitions": 64, "replicas": 3, "later": {"a": 1}},
}


def test_fields_of_a_later_version_are_ignored_at_every_depth_and_told() -> None:
    table, later = PartitionTable.parse_known(TABLE)

    assert table.spec.rows is not None
    assert [(row.partition, row.version, len(row.voters)) for row in table.spec.rows] == [(1, 3, 2)]
    assert sorted(later, key=str) == sorted(
        [
            UnknownField(("spec", "written"), "today"),
            UnknownField(("spec", "zoneRef", "generation"), 2),
            UnknownField(("spec", "rows", 0, "reason"), {"of": "later"}),
            UnknownField(("spec", "rows", 0, "voters", 0, "weight"), 3),
        ],
        key=str,
    )
    assert "written" in TABLE["spec"], "what was given stays as it was"


def test_what_is_taken_out_can_be_put_back() -> None:
    body = {field: TABLE[field] for field in ("metadata", "spec")}
    known, unknown = without_unknown(PartitionTable, body)
    assert known != body

    put_back(known, unknown)

    assert known == body


def test_a_field_that_is_not_known_is_refused_in_what_users_send() -> None:
    assert Zone.parse_stored(ZONE).spec.partitions == 64
    with pytest.raises(WireError, match=r"spec\.later is not a known field"):
        Zone.parse(ZONE)


def test_other_errors_of_a_stored_object_are_still_told() -> None:
    wrong = {**ZONE, "spec": {**ZONE["spec"], "partitions": "many"}}

    with pytest.raises(WireError, match=r"spec\.partitions is 'many'"):
        Zone.parse_stored(wrong)
    with pytest.raises(WireError, match="kind is 'Zone': write PartitionTable"):
        PartitionTable.parse_stored(ZONE)


def test_a_status_of_a_later_version_is_read() -> None:
    told = {"placedUid": "u", "later": 1, "conditions": []}

    assert ZoneStatus.model_validate(without_unknown(ZoneStatus, told).body).placed_uid == "u"
