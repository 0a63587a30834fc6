"""Clusters of the same name, or of names that join to the same text, do not meet each other."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import NodeKey, Stored
from quorate_control_plane.control_plane import ControlPlane
from quorate_link.secret import SecretRefused
from quorate_loopback.waiting import closed
from quorate_operator.kube.access import read_kubeconfig
from quorate_operator.kube.api import KubeApi, path_of
from quorate_operator.kube.secret import cluster_secret
from quorate_operator.metastores.kubernetes import KubernetesMetastore

pytestmark = pytest.mark.integration


def node(name: str, store: str) -> NodeRecord:
    return NodeRecord(name, store, 1, "127.0.0.1", 7100, "127.0.0.1")


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[KubeApi]:
    api = KubeApi(read_kubeconfig(control_plane.kubeconfig), None)
    yield api
    await closed(api)


async def test_the_names_of_two_clusters_and_their_agents_do_not_join_to_one_object(
    api: KubeApi, namespace: str
) -> None:
    two = KubernetesMetastore(api, namespace, "two")
    other = KubernetesMetastore(api, namespace, "two-agent")

    await two.write(NodeKey("agent-1"), node("agent-1", "of-two"), None)
    await other.write(NodeKey("1"), node("1", "of-two-agent"), None)

    assert {key: each.value for key, each in (await two.load()).items()} == {
        NodeKey("agent-1"): node("agent-1", "of-two")
    }
    assert {key: each.value for key, each in (await other.load()).items()} == {
        NodeKey("1"): node("1", "of-two-agent")
    }


async def test_a_registration_under_a_name_of_before_is_kept_under_the_present_one(
    api: KubeApi, namespace: str
) -> None:
    metastore = KubernetesMetastore(api, namespace, "main")
    await metastore.write(NodeKey("agent-1"), node("agent-1", "s"), None)
    nodes = path_of(namespace, "storagenodes")
    made = await api.get(f"{nodes}/main.agent-1")
    metadata = {"name": "main-agent-1", "labels": made["metadata"]["labels"]}
    await api.create(nodes, {**made, "metadata": metadata})
    await api.delete(f"{nodes}/main.agent-1")

    loaded = await metastore.load()

    assert [each["metadata"]["name"] async for each in api.list(nodes)] == ["main.agent-1"]
    stored = loaded[NodeKey("agent-1")]
    assert stored == Stored(node("agent-1", "s"), stored.revision)
    # Compare-and-set goes on from there; a copy that an interrupted move left is removed.
    await api.create(nodes, {**made, "metadata": metadata})
    await metastore.write(NodeKey("agent-1"), node("agent-1", "newer"), stored.revision)
    assert (await metastore.load())[NodeKey("agent-1")].value == node("agent-1", "newer")
    assert [each["metadata"]["name"] async for each in api.list(nodes)] == ["main.agent-1"]


async def test_a_cluster_has_one_secret_that_is_never_written_again(
    api: KubeApi, namespace: str
) -> None:
    made = await asyncio.gather(*(cluster_secret(api, namespace, "main") for _ in range(4)))

    assert len({(each.cluster_id, each.key) for each in made}) == 1
    found = await api.get(f"/api/v1/namespaces/{namespace}/secrets/main-quorate")
    assert sorted(found["data"]) == ["clusterId", "key"]
    assert "ownerReferences" not in found["metadata"]
    assert (await cluster_secret(api, namespace, "other")).cluster_id != made[0].cluster_id


async def test_a_secret_that_is_damaged_is_named_and_not_replaced(
    api: KubeApi, namespace: str
) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "main-quorate"}}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    await api.create(path, {**body, "stringData": {"clusterId": "x"}})

    with pytest.raises(SecretRefused, match=r"Secret main-quorate in namespace .*: key is missing"):
        await cluster_secret(api, namespace, "main")
    assert sorted((await api.get(f"{path}/main-quorate"))["data"]) == ["clusterId"]


async def test_without_the_right_the_way_out_is_named(
    control_plane: ControlPlane, namespace: str
) -> None:
    account = f"system:serviceaccount:{namespace}:nobody"
    api = KubeApi(read_kubeconfig(control_plane.kubeconfig_for(account)), None)
    try:
        with pytest.raises(SecretRefused, match=r"get main-quorate, as in examples/operator-role"):
            await cluster_secret(api, namespace, "main")
    finally:
        await closed(api)
