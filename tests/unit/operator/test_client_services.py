"""Two clusters of one namespace serve a zone of one name: which of them has its Service."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quorate.wire.storage_cluster import StorageCluster
from quorate_loopback.memory_api import MemoryApi, MemoryWatches
from quorate_operator.kube.api import path_of
from quorate_operator.owned import owned_objects
from quorate_owned.rivals import SERVICE, Rivals, manifest

AT = f"/api/v1/namespaces/shop/services/{SERVICE}"


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi()


@pytest.fixture
async def rivals(api: MemoryApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rivals]:
    """Zone `library` of cluster `a` was deleted and its data is kept; cluster `b` has none."""
    monkeypatch.setattr(owned_objects, "LOOK_S", 0.005)
    bodies = [manifest(name, namespace="shop", uid=f"uid-of-{name}") for name in ("a", "b")]
    for body in bodies:
        api.put(path_of("shop", StorageCluster.plural, body["metadata"]["name"]), body)
    made = Rivals(api.as_api, "shop", MemoryWatches(api.as_api), *bodies)
    made.declare("a")
    for cluster in ("a", "b"):
        made.see(cluster)
    await made.until_leads_to("a")
    made.retain()
    yield made
    assert made.failures == []
    await made.owned.close()


async def until_at_rest(rivals: Rivals, api: MemoryApi) -> None:
    """Nothing is written in 40 looks."""
    seen = -1
    for _ in range(20):
        seen = api.revision
        await asyncio.sleep(0.2)
        if api.revision == seen:
            return
    raise AssertionError((seen, api.requests[-20:]))


async def test_kept_data_is_led_to_while_no_zone_of_its_name_is_declared(
    rivals: Rivals, api: MemoryApi
) -> None:
    await until_at_rest(rivals, api)

    assert await rivals.leads_to() == ("a",) * 3
    assert (rivals.why("a"), rivals.is_named("a")) == ("", True)


async def test_a_declared_zone_takes_the_service_from_the_kept_data_of_another_cluster(
    rivals: Rivals, api: MemoryApi
) -> None:
    rivals.declare("b")
    await rivals.until_leads_to("b")
    await rivals.until(lambda: rivals.why("a"), "told")
    await until_at_rest(rivals, api)

    assert await rivals.leads_to() == ("b",) * 3
    assert rivals.why("a") == (
        "no Service leads to the data kept of an earlier Zone library: Zone library is declared for"
        " StorageCluster b"
    )
    assert not rivals.is_named("a")
    await rivals.until(lambda: rivals.is_named("b"), "named")
    assert rivals.why("b") == ""


async def test_the_service_is_given_up_before_the_other_cluster_can_make_its_own(
    rivals: Rivals, api: MemoryApi
) -> None:
    """Clients that start there would be answered with the kept data."""
    await until_at_rest(rivals, api)
    rivals.declare("b")
    rivals.worlds["b"].master.zones.clear()  # its agents do not serve the zone yet

    await rivals.until_leads_to("")


async def test_a_service_is_not_taken_from_a_cluster_that_exists(
    rivals: Rivals, api: MemoryApi
) -> None:
    """Both have kept data; another operator begins, too."""
    rivals.declare("b")
    await rivals.until_leads_to("b")
    rivals.retain()
    await rivals.restart()
    owner = api.objects[AT]["metadata"]["ownerReferences"]
    await rivals.until(lambda: rivals.why("a") and rivals.is_named("b"), "told")
    await until_at_rest(rivals, api)

    assert rivals.why("a") == (
        "no Service leads to the data kept of an earlier Zone library: Service library-clients is"
        " that of StorageCluster b; declare a Zone library for this StorageCluster to have it"
    )
    assert api.objects[AT]["metadata"]["ownerReferences"] == owner
    assert await rivals.leads_to() == ("b",) * 3


async def test_whose_label_alone_was_edited_stays_with_the_cluster_that_controls_it(
    rivals: Rivals, api: MemoryApi
) -> None:
    rivals.declare("b")
    await rivals.until_leads_to("b")
    rivals.retain()
    made = api.objects[AT]
    labels = {**made["metadata"]["labels"], "quorate.io/cluster": "a"}
    await rivals.until(lambda: rivals.is_named("b"), "named")
    api.put(AT, {**made, "metadata": {**made["metadata"], "labels": labels}})

    await rivals.until_leads_to("b")
    await until_at_rest(rivals, api)
    assert await rivals.leads_to() == ("b",) * 3


async def test_kept_data_has_its_service_again_when_the_other_zone_is_gone_with_its_data(
    rivals: Rivals,
) -> None:
    rivals.declare("b")
    await rivals.until_leads_to("b")
    await rivals.until(lambda: rivals.why("a"), "told")
    rivals.retain()
    await rivals.until(lambda: "is that of StorageCluster b" in rivals.why("a"), "told of it")

    rivals.erase("b")
    await rivals.until_leads_to("a")
    await rivals.until(lambda: not rivals.why("a"), "no longer told")


async def test_it_has_it_again_when_the_other_cluster_is_gone(rivals: Rivals) -> None:
    rivals.declare("b")
    await rivals.until_leads_to("b")
    rivals.retain()
    await rivals.until(lambda: "is that of StorageCluster b" in rivals.why("a"), "told of it")

    del rivals.clusters["b"]
    rivals.runners.pop("b").is_stopped = True
    await rivals.until_leads_to("a")


async def test_a_zone_that_names_no_cluster_takes_nothing(rivals: Rivals, api: MemoryApi) -> None:
    rivals.declare("b")
    await rivals.until_leads_to("b")
    rivals.declare("a")
    await rivals.until_leads_to("a")
    rivals.worlds["b"].master.zones.clear()
    rivals.clusters.pop("b")
    rivals.runners.pop("b").is_stopped = True
    rivals.zones["library"] = rivals.zones["library"]._replace(cluster="b")
    await until_at_rest(rivals, api)

    assert await rivals.leads_to() == ("a",) * 3
    assert rivals.why("a") == ""
