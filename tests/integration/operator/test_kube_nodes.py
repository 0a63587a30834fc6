"""Nodes as an operator sees them on a real API server, with the right to read them and without."""

import asyncio
import json

import pytest

from quorate_control_plane.control_plane import ControlPlane
from quorate_loopback.waiting import closed, until
from quorate_operator.kube.access import find_access
from quorate_operator.kube.api import KubeApi
from quorate_operator.owned import kube_nodes
from quorate_operator.owned.kube_nodes import KubeNode, KubeNodes

pytestmark = pytest.mark.integration


async def kubectl(control_plane: ControlPlane, *arguments: str, stdin: str | None = None) -> None:
    await asyncio.to_thread(control_plane.kubectl, *arguments, stdin=stdin)


async def test_a_cordoned_node_is_seen_at_once(control_plane: ControlPlane, namespace: str) -> None:
    user = f"reader-of-{namespace}"
    name = f"node-{namespace}"
    rights = ("--verb=get,list,watch", "--resource=nodes")
    await kubectl(control_plane, "create", "clusterrole", user, *rights)
    bound = (f"--clusterrole={user}", f"--user={user}")
    await kubectl(control_plane, "create", "clusterrolebinding", user, *bound)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": "7"}}}
    api = KubeApi(find_access(control_plane.kubeconfig_for(user)), None)
    changes: list[dict[str, KubeNode]] = []
    nodes = KubeNodes(api, lambda: changes.append(nodes.known))
    following = asyncio.create_task(nodes.follow())
    try:
        await kubectl(control_plane, "create", "--filename=-", stdin=json.dumps(node))
        await nodes.of_pods("main", [{"spec": {"nodeName": name}}])
        await until(lambda: name in nodes.known, "seen")
        assert not nodes.known[name].cordoned
        assert nodes.known[name].labels["rack"] == "7"

        await kubectl(control_plane, "cordon", name)
        await until(lambda: nodes.known[name].cordoned, "cordoned")
        await kubectl(control_plane, "uncordon", name)
        await until(lambda: not nodes.known[name].cordoned, "uncordoned")
        await kubectl(control_plane, "delete", "node", name)
        await until(lambda: name not in nodes.known, "gone")
        assert changes
    finally:
        following.cancel()
        await closed(api)
        await kubectl(control_plane, "delete", "node", name, "--ignore-not-found")
        await kubectl(control_plane, "delete", "clusterrole,clusterrolebinding", user)


async def test_a_right_that_is_taken_away_is_noticed(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_nodes, "ASK_AGAIN_S", 0.5)
    user = name = f"former-reader-of-{namespace}"
    rights = ("--verb=get,list,watch", "--resource=nodes")
    await kubectl(control_plane, "create", "clusterrole", user, *rights)
    bound = (f"--clusterrole={user}", f"--user={user}")
    await kubectl(control_plane, "create", "clusterrolebinding", user, *bound)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    api = KubeApi(find_access(control_plane.kubeconfig_for(user)), None)
    nodes = KubeNodes(api, lambda: None)
    following = asyncio.create_task(nodes.follow())
    try:
        await kubectl(control_plane, "create", "--filename=-", stdin=json.dumps(node))
        await nodes.of_pods("main", [{"spec": {"nodeName": name}}])
        await until(lambda: name in nodes.known, "seen")

        await kubectl(control_plane, "delete", "clusterrolebinding", user)
        await until(lambda: not nodes.known, "not known any more")
    finally:
        following.cancel()
        await closed(api)
        await kubectl(control_plane, "delete", "node", name, "--ignore-not-found")
        await kubectl(control_plane, "delete", "clusterrole", user)


async def test_without_the_right_nodes_are_not_asked_for(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = KubeApi(find_access(control_plane.kubeconfig_for(f"stranger-in-{namespace}")), None)
    nodes = KubeNodes(api, lambda: None)
    watched: list[str] = []
    monkeypatch.setattr(KubeNodes, "_watch", lambda self: watched.append("nodes"))
    try:
        assert not await nodes._may_read()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await nodes.follow()
        assert not watched
    finally:
        await closed(api)
