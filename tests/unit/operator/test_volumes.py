"""Claims that are smaller than declared: what is told of them."""

from typing import Any

import pytest

from quorate_operator.owned.volumes import (
    Growth,
    growth,
    is_growth,
    larger,
    quantity_bytes,
    with_its_size,
)

Json = dict[str, Any]
OF_THE_CLASS = (
    'persistentvolumeclaims "main-agent-1" is forbidden: only dynamically provisioned pvc can be '
    "resized and the storageclass that provisions the pvc must support resize"
)


def claim(size: str, capacity: str = "", class_name: str = "fast") -> Json:
    spec = {"resources": {"requests": {"storage": size}}, "storageClassName": class_name}
    status = {"capacity": {"storage": capacity}} if capacity else {}
    return {"kind": "PersistentVolumeClaim", "spec": spec, "status": status}


def test_sizes_are_compared_and_not_texts() -> None:
    assert is_growth(claim("2Gi"), claim("1Gi"))
    assert not is_growth(claim("1024Mi"), claim("1Gi"))
    assert not is_growth(claim("1Gi"), None)
    assert not is_growth({"kind": "Service"}, {"kind": "Service"})
    kept = with_its_size(claim("2Gi"), claim("1Gi"))
    assert kept["spec"] == claim("1Gi")["spec"]


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("1000", 1000),
        (5, 5),
        ("1500m", 2),
        ("2k", 2000),
        ("1.5Gi", 3 << 29),
        (".5Ki", 512),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1e12", 10**12),
        ("+1E3", 1000),
        ("12e-1", 2),
        ("7u", 1),
        ("1n", 1),
        ("", None),
        ("none", None),
        ("1kk", None),
        ("1e", None),
        ("-1Gi", None),
        ("1e999999999", None),
    ],
)
def test_every_quantity_of_kubernetes_is_read(quantity: str | int, size: int | None) -> None:
    assert quantity_bytes(quantity) == size


def test_a_size_that_cannot_be_read_is_neither_small_nor_replaced() -> None:
    assert growth({"main-agent-1": claim("1Gi", "1Pi")}, "1Gi", {}) == Growth()
    assert growth({"main-agent-1": claim("1Gi", "much")}, "1Gi", {}) == Growth()
    assert not is_growth(claim("2Gi"), claim("much"))
    assert larger("much", "2Gi") == "much"
    assert larger("1e3", "2Gi") == "2Gi"
    assert larger("1Ei", "2Gi") == "1Ei"
    assert larger("1024Mi", "1Gi") == "1024Mi", "as it is already"


def test_a_refusal_names_claim_class_and_way_out() -> None:
    claims = {"main-agent-1": claim("1Gi", "1Gi"), "main-agent-2": claim("1Gi", "1Gi")}
    told = growth(claims, "2Gi", {"main-agent-2": OF_THE_CLASS})

    assert told.reason == "ExpansionRefused"
    assert told.message == (
        "claim main-agent-2 stays at 1Gi instead of 2Gi: StorageClass fast does not let volumes "
        "grow: set allowVolumeExpansion: true in it if its provisioner can, or write "
        "spec.managed.storage.size: 1Gi and add agents"
    )
    other = growth(claims, "2Gi", dict.fromkeys(claims, "exceeded quota: few"))
    assert other.message.endswith("the API server says: exceeded quota: few; and 1 more claims")


def test_a_volume_that_has_not_grown_yet_is_told_and_one_that_is_not_there_is_not() -> None:
    claims = {"main-agent-1": claim("2Gi", "1Gi"), "main-agent-2": claim("2Gi")}

    assert growth(claims, "2Gi", {}) == Growth(
        "Resizing", "the volume of claim main-agent-1 is not of 2Gi yet"
    )
    not_asked_yet = {"main-agent-1": claim("1Gi", "1Gi")}
    assert growth(not_asked_yet, "2Gi", {}).reason == "Resizing", "as seen before it was applied"
    assert growth({"main-agent-2": claim("2Gi")}, "2Gi", {}) == Growth()
    assert growth({"main-agent-1": claim("4Gi", "2Gi")}, "2Gi", {}) == Growth(), "as is declared"
    assert growth({"main-agent-1": claim("2Gi", "2Gi")}, "2Gi", {}) == Growth()
