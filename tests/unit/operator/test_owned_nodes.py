"""Nodes that pods of managed agents are on: cordons and labels, and which are read at all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from quorate_loopback.memory_api import MemoryApi, watch_all
from quorate_loopback.waiting import until
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.watch import Revisions
from quorate_operator.owned import kube_nodes
from quorate_operator.owned.kube_nodes import KubeNodes
from quorate_owned.managed import Managed


async def test_an_agent_on_a_cordoned_node_gives_its_primaries_away(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_nodes, "watch_revisions", _watch_nodes)
    managed = undeclared
    managed.api.reads_nodes = True
    node = f"{kube_nodes.NODES}/node-of-main-agent-2-0"
    managed.api.put(node, {"metadata": {"name": "node-of-main-agent-2-0"}, "spec": {}})
    managed.declare(replicas=3)
    await managed.until(lambda: len(managed.registered) == 3, "three agents")
    managed.place_zone()

    def primaries() -> int:
        [agent] = [e for e in managed.runner.status().nodes if e.name == "agent-2"]
        return agent.primaries

    assert primaries()
    managed.api.put(node, {**managed.api.objects[node], "spec": {"unschedulable": True}})
    await managed.until(lambda: not primaries(), "its primaries are with others")
    managed.api.put(node, {**managed.api.objects[node], "spec": {}})
    await managed.until(primaries, "they are back")


async def test_labels_of_pods_and_nodes_are_attributes_of_agents(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_nodes, "watch_revisions", _watch_nodes)
    managed = undeclared
    managed.world.client_ports = dict.fromkeys(("agent-1", "agent-2"), (7200, 7299))
    managed.api.reads_nodes = True
    name = "node-of-main-agent-2-0"
    node = f"{kube_nodes.NODES}/{name}"
    managed.api.put(node, {"metadata": {"name": name, "labels": {"disk": "ssd"}}, "spec": {}})
    managed.declare(replicas=2)

    def attributes(agent: str) -> dict[str, str]:
        return next((e.attributes for e in managed.runner.status().nodes if e.name == agent), {})

    await managed.until(lambda: attributes("agent-2").get("disk") == "ssd", "the node's label")
    assert attributes("agent-2")["quorate.io/agent"] == "agent-2"
    assert "disk" not in attributes("agent-1")
    labels = {"name": name, "labels": {"disk": "hdd"}}
    managed.api.put(node, {**managed.api.objects[node], "metadata": labels})

    await managed.until(lambda: attributes("agent-2").get("disk") == "hdd", "its new value")


async def test_only_nodes_with_pods_of_agents_are_read(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large cluster has many others, and each tells its state every few minutes."""
    monkeypatch.setattr(kube_nodes, "watch_revisions", _watch_nodes)
    managed = undeclared
    managed.api.reads_nodes = True
    mine, other = "node-of-main-agent-2-0", "node-of-somebody"
    for name in (mine, other):
        managed.api.put(f"{kube_nodes.NODES}/{name}", {"metadata": {"name": name}, "spec": {}})
    managed.declare(replicas=2)
    await managed.until(lambda: len(managed.registered) == 2, "two agents")

    def asked() -> set[str]:
        return {at for _, at in managed.api.requests if at.startswith(f"{kube_nodes.NODES}/")}

    await managed.until(lambda: f"{kube_nodes.NODES}/{mine}" in asked(), "the pod's node is read")
    managed.api.put(f"{kube_nodes.NODES}/{other}", {"metadata": {"name": other}, "spec": {}})
    again = {"metadata": {"name": mine}, "spec": {"unschedulable": True}}
    managed.api.put(f"{kube_nodes.NODES}/{mine}", again)
    known = managed.owned._nodes
    await managed.until(lambda: mine in known.known and known.known[mine].cordoned, "cordoned")
    assert f"{kube_nodes.NODES}/{other}" not in asked()
    assert other not in known.known


async def test_without_the_right_to_read_nodes_none_is_asked_for(managed: Managed) -> None:
    await managed.until(managed.is_ready, "ready")

    assert [at for _, at in managed.api.requests if at.startswith(kube_nodes.NODES)] == []


async def test_a_node_that_could_not_be_read_is_read_again() -> None:
    """Another cluster has a pod on it, or the same one looks again."""
    api = MemoryApi()
    api.put(f"{kube_nodes.NODES}/one", {"metadata": {"name": "one"}, "spec": {}})
    nodes = KubeNodes(api.as_api, lambda: None)
    nodes._is_readable = True
    pods = [{"spec": {"nodeName": "one"}}]
    api.refuse = lambda method, path: 500
    assert "one" not in await nodes.of_pods("main", pods)
    api.refuse = lambda method, path: 0

    assert "one" in await nodes.of_pods("other", pods)


async def test_the_watch_of_nodes_goes_on_until_they_may_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watches = list[str]()

    async def watch(*given: object) -> AsyncIterator[tuple[str, Revisions, bool]]:
        watches.append("begun")
        try:
            await asyncio.Event().wait()
            yield "", {}, False
        finally:
            watches.append("ended")

    def asked() -> int:
        return api.requests.count(("POST", kube_nodes.MAY_I))

    monkeypatch.setattr(kube_nodes, "watch_revisions", watch)
    monkeypatch.setattr(kube_nodes, "ASK_AGAIN_S", 0.002)
    api = MemoryApi()
    api.reads_nodes = True
    nodes = KubeNodes(api.as_api, lambda: None)
    following = asyncio.create_task(nodes.follow())
    await until(lambda: asked() > 9, "asked again")
    api.refuse = lambda method, path: 500
    before = asked()
    await until(lambda: asked() > before + 3, "asked without an answer")
    assert watches == ["begun"]

    api.refuse = lambda method, path: 0
    api.reads_nodes = False
    await until(lambda: watches[1:] == ["ended"], "the answer is no")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def _watch_nodes(
    api: KubeApi, paths: Sequence[str], selector: str
) -> AsyncIterator[tuple[str, Revisions, bool]]:
    async for _ in watch_all(api, paths, selector):
        objects = cast(MemoryApi, api).objects
        nodes = [each["metadata"] for at, each in objects.items() if at.startswith(paths[0])]
        yield paths[0], {each["name"]: each["resourceVersion"] for each in nodes}, True
