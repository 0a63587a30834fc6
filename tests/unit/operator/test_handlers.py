"""What kopf shows of declared objects: events, and who has the operator's finaliser or loses it."""

import asyncio
from typing import Any, cast

import pytest

from quorate_operator import names
from quorate_operator.declared.handlers import WATCHED, cluster_needs_finaliser, make_registry
from quorate_operator.declared.kinds import RUNS
from quorate_operator.declared.served_namespaces import ServedNamespaces
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.traffic import Traffic
from quorate_operator.process.metrics import Metrics

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


class Noted:
    """Stands in for ServedNamespaces: notes what it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *shown: self.shown.append((name, *shown))


@pytest.mark.parametrize("plural", WATCHED)
@pytest.mark.parametrize(
    ("kind", "shown"), [(None, "seen"), ("MODIFIED", "seen"), ("DELETED", "gone")]
)
async def test_an_event_is_shown_and_is_a_sign_of_life_of_its_watch(
    plural: str, kind: str | None, shown: str
) -> None:
    noted, traffic = Noted(), Traffic(Metrics().api_requests)
    served, loop = cast(ServedNamespaces, noted), asyncio.get_running_loop()
    registry = make_registry(served, loop, cast(KubeApi, None), traffic, "shop")
    names = {"storageclusters": "cluster", "zones": "zone"}
    name = RUNS.get(plural) or names[plural]
    handlers, told = registry._watching.get_all_handlers(), f"{name}_changed"
    [changed] = [cast(Any, each.fn) for each in handlers if each.id.split(".")[-1] == told]
    body = {"metadata": {"name": "a", "managedFields": []}, "spec": {}}

    await changed(event={"type": kind, "object": body})
    await asyncio.sleep(0)

    called = (f"run_{shown}", name) if plural in RUNS else (f"{name}_{shown}",)
    assert noted.shown == [(*called, {"metadata": {"name": "a"}, "spec": {}})]
    assert list(traffic.watch_ages_s()) == [("shop", plural)]
