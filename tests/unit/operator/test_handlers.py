"""Which objects have the operator's finaliser, and which lose it."""

from typing import Any

import pytest

from quorate_operator import names
from quorate_operator.declared.handlers import cluster_needs_finaliser

MANAGED = {"managed": {"replicas": 3}}
EXTERNAL = {"external": {"addresses": ["10.0.0.7:7100"]}}


def body(policy: str, is_held: bool, **spec: Any) -> dict[str, Any]:
    """A StorageCluster; `is_held`: it has the finaliser."""
    finalizers = ["example.org/other", *([names.FINALIZER] if is_held else [])]
    return {"metadata": {"finalizers": finalizers}, "spec": {**spec, "deletionPolicy": policy}}


@pytest.mark.parametrize("owns_no_claim", [False, True])
def test_with_delete_it_is_held_whatever_it_owns(owns_no_claim: bool) -> None:
    for spec in (MANAGED, EXTERNAL):
        assert cluster_needs_finaliser(body("Delete", False, **spec), owns_no_claim)


def test_with_retain_it_is_not_held_anew() -> None:
    """So that it can be deleted where no operator runs."""
    assert not cluster_needs_finaliser(body("Retain", False, **MANAGED), False)
    assert not cluster_needs_finaliser({"metadata": {}}, False)


def test_one_of_an_earlier_version_is_held_until_it_owns_no_claim() -> None:
    """Also while it is being deleted: without the finaliser, claims would go with it."""
    assert cluster_needs_finaliser(body("Retain", True, **MANAGED), False)
    assert not cluster_needs_finaliser(body("Retain", True, **MANAGED), True)
    assert not cluster_needs_finaliser(body("Retain", True, **EXTERNAL), False)
