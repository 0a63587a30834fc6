"""Which data an object has, and whether it goes with it."""

from typing import Any

import msgspec
import pytest

from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.zone import Zone
from quorate_operator.declared.acceptance import accept
from quorate_operator.declared.deletion import (
    differs,
    erasable,
    erases,
    is_freed,
    kept_ids,
    own_id,
    zone_id,
)

KEPT = ZoneRecord("uid-1", "sessions", 16, 3)
GOING = msgspec.structs.replace(KEPT, deleting=True)
OTHER = ZoneRecord("uid-9", "carts", 16, 3)


def zone(uid: str = "uid-2", name: str = "sessions", **spec: Any) -> Zone:
    whole = {"clusterRef": {"name": "main"}, "partitions": 16, **spec}
    metadata = {"name": name, "uid": uid, "generation": 1}
    return Zone.parse(
        {"apiVersion": API_VERSION, "kind": "Zone", "metadata": metadata, "spec": whole}
    )


def body(uid: str, chosen: str = "") -> dict[str, Any]:
    annotations = {"quorate.io/zone-id": chosen} if chosen else {}
    return {"metadata": {"uid": uid, "name": "sessions", "annotations": annotations}}


@pytest.mark.parametrize(
    ("uid", "known", "wanted"),
    [
        ("uid-1", [KEPT, OTHER], "uid-1"),
        ("uid-2", [KEPT, OTHER], "uid-1"),  # made again
        ("uid-2", [GOING, OTHER], "uid-2"),  # that data is on its way out
        ("uid-1", [GOING], "uid-1"),
        ("uid-2", [OTHER], "uid-2"),
        ("uid-2", [], "uid-2"),
    ],
)
def test_an_object_has_the_data_that_was_kept_under_its_name(
    uid: str, known: list[ZoneRecord], wanted: str
) -> None:
    assert zone_id(uid, "sessions", {record.uid: record for record in known}) == wanted


def test_replicas_may_differ_partitions_and_storage_may_not() -> None:
    assert differs(zone(replicas=5), KEPT) == ""
    assert differs(zone(partitions=32), None) == ""
    assert "with partitions: 16 and storage: Persistent, but this one has partitions: 32" in (
        differs(zone(partitions=32), KEPT)
    )
    in_memory = msgspec.structs.replace(KEPT, storage=StorageKind.IN_MEMORY)
    assert "declare it as it was, or under another name" in differs(zone(), in_memory)


def test_data_that_a_zone_cannot_have_goes_on_being_kept_as_it_is() -> None:
    acceptance = accept(zone(partitions=32), True, KEPT)

    assert (acceptance.record, acceptance.reason) == (KEPT, "KeptDataDiffers")


@pytest.mark.parametrize(
    ("uid", "of", "known", "goes"),
    [
        ("uid-1", zone("uid-1"), KEPT, True),
        ("uid-2", zone(), KEPT, True),
        ("uid-2", zone(partitions=32), KEPT, False),  # it never had that data
        ("uid-2", None, KEPT, False),
        ("uid-1", None, KEPT, True),
        ("uid-2", zone(), GOING, False),
    ],
)
def test_only_data_that_an_object_has_goes_with_it(
    uid: str, of: Zone | None, known: ZoneRecord, goes: bool
) -> None:
    found = erasable(body(uid), "", of, {known.uid: known})

    assert found == (known if goes else None)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"deletionPolicy": "Delete"}, True),
        ({"deletionPolicy": "Retain"}, False),
        ({"deletionPolicy": "delete"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_anything_but_a_clear_delete_keeps_data(spec: object, wanted: bool) -> None:
    assert erases({"spec": spec}) is wanted


@pytest.mark.parametrize(
    ("annotations", "wanted"),
    [({"quorate.io/release": "true"}, True), ({"quorate.io/release": "no"}, False), (None, False)],
)
def test_an_annotation_frees_an_object(annotations: object, wanted: bool) -> None:
    assert is_freed({"metadata": {"annotations": annotations}}) is wanted


def test_of_two_that_were_kept_under_one_name_none_is_erased() -> None:
    other = msgspec.structs.replace(KEPT, uid="uid-0")
    known = {record.uid: record for record in (other, KEPT)}
    assert kept_ids("uid-2", "sessions", known) == ["uid-0", "uid-1"]
    assert erasable(body("uid-2"), "", zone(), known) is None
    assert erasable(body("uid-1"), "", zone("uid-1"), known) == KEPT


@pytest.mark.parametrize(
    ("told", "chosen", "left", "goes"),
    [
        ("uid-1", "", ["uid-0", "uid-1"], "uid-1"),
        ("", "uid-1", ["uid-0", "uid-1"], "uid-1"),
        ("uid-1", "uid-0", ["uid-0", "uid-1"], "uid-1"),  # what it was told to have counts
        ("uid-1", "uid-1", ["uid-0"], None),  # its own is gone: the rest is of another zone
        ("", "uid-1", ["uid-0"], None),
        ("uid-1", "uid-0", ["uid-0"], "uid-0"),
        ("", "uid-9", ["uid-1", "uid-9"], None),  # of another name
        ("", "unknown", ["uid-0", "uid-1"], None),
    ],
)
def test_of_several_that_were_kept_only_the_one_that_it_says_it_has_goes_with_it(
    told: str, chosen: str, left: list[str], goes: str | None
) -> None:
    other = msgspec.structs.replace(KEPT, uid="uid-0")
    known = {record.uid: record for record in (other, KEPT, OTHER) if record.uid in left}

    found = erasable(body("uid-2", chosen), told, zone(), known)

    assert (found.uid if found is not None else None) == goes


def test_chosen_data_that_the_zone_cannot_have_is_kept() -> None:
    other = msgspec.structs.replace(KEPT, uid="uid-0")
    known = {record.uid: record for record in (other, KEPT)}
    chosen = body("uid-2", "uid-1")

    assert erasable(chosen, "", zone(partitions=32), known) is None
    assert erasable(chosen, "", None, known) is None


def test_the_data_of_a_zone_of_another_name_cannot_be_chosen() -> None:
    known = {record.uid: record for record in (KEPT, OTHER)}

    assert own_id(body("uid-2", "uid-9"), "", known) == "uid-2"
    assert own_id(body("uid-2", "uid-1"), "", known) == "uid-1"
