"""The nodes of Kubernetes that agents' pods are on: whether they are cordoned, and their labels.

Nodes belong to the whole cluster, and an operator with the rights of one namespace may not read
them.  It asks the API server whether it may, and works without them if not.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from quorate.facts.topology import PodFacts
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, MandateLost, find
from quorate_operator.kube.watch import watch_revisions

_log = logging.getLogger("quorate.owned")

NODES = "/api/v1/nodes"
MAY_I = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERBS = ("get", "list", "watch")
ASK_AGAIN_S = 300.0
"""Seconds for which a newly given right may go unnoticed."""
ANEW_S = 5.0
NO_NODE_YET = "its pod is on no node yet"
"""The one reason for an unknown failure domain that needs no action."""

Json = Mapping[str, Any]


class KubeNode(NamedTuple):
    """The part of a Node that agents on it depend on."""

    cordoned: bool
    labels: Mapping[str, str]


class KubeNodes:
    """The nodes that agents' pods are on, as they are now; none if unreadable.

    Other nodes are not read: a large cluster has many, and each tells its state every few minutes.
    `on_change`: called if a node changes.
    """

    def __init__(self, api: KubeApi, on_change: Callable[[], None]) -> None:
        self._api = api
        self._on_change = on_change
        self._on: dict[str, frozenset[str]] = {}
        """Cluster -> the nodes of its pods."""
        self._is_readable = False
        self._reading = asyncio.Lock()
        """One node is read at a time, so that an earlier answer never replaces a later one."""
        self.known: dict[str, KubeNode] = {}

    async def follow(self) -> None:
        """Keep `known` up to date; endless."""
        while True:
            pause_s = ANEW_S
            try:
                self._is_readable = await self._may_read()
                if self._is_readable:
                    pause_s = 0.0
                    await self._watch_while_readable()
                else:
                    pause_s = ASK_AGAIN_S
                    self._replace({})
            except (ApiRefused, ApiUnclear, MandateLost) as error:
                pause_s = ANEW_S
                _log.warning("nodes cannot be read: %s; retrying in %g s", error, pause_s)
            except Exception:  # a defect here must not end the mastership
                pause_s = ANEW_S
                _log.exception("the watch of nodes has failed")
            await asyncio.sleep(pause_s)

    async def of_pods(self, cluster: str, pods: Iterable[Json | None]) -> Mapping[str, KubeNode]:
        """Return the known nodes by name; those of a cluster's pods are read if unknown."""
        names = {str(pod["spec"].get("nodeName", "")) for pod in pods if pod is not None} - {""}
        self._on[cluster] = frozenset(names)
        self._prune()
        new = names - self.known.keys()
        for name in sorted(new) if self._is_readable else ():
            try:
                await self._read(name, tell=False)
            except (ApiRefused, ApiUnclear) as error:
                _log.warning("node %s cannot be read: %s", name, error)
        self._prune()  # the cluster may be forgotten meanwhile
        return self.known

    def forget(self, cluster: str) -> None:
        """The cluster is not looked after any more: neither are its nodes."""
        self._on.pop(cluster, None)
        self._prune()

    def _all_on(self) -> set[str]:
        return {name for names in self._on.values() for name in names}

    def _prune(self) -> None:
        """Nodes that are not followed would be out of date when a pod is on them again."""
        on = self._all_on()
        self.known = {name: node for name, node in self.known.items() if name in on}

    async def _may_read(self) -> bool:
        for verb in VERBS:
            asked = {"resourceAttributes": {"verb": verb, "resource": "nodes"}}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": asked,
            }
            answer = await self._api.create(MAY_I, body)
            if not answer.get("status", {}).get("allowed"):
                return False
        return True

    async def _watch_while_readable(self) -> None:
        """Watch until the API server says that nodes may not be read any more."""
        watch = asyncio.create_task(self._watch())
        try:
            while not (await asyncio.wait([watch], timeout=ASK_AGAIN_S))[0]:
                if await self._is_denied():
                    return
            await watch
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _is_denied(self) -> bool:
        """Return whether nodes may not be read; False if that is not known now."""
        try:
            return not await self._may_read()
        except (ApiRefused, ApiUnclear, MandateLost) as error:
            _log.warning("whether nodes may be read is not known: %s", error)
            return False

    async def _watch(self) -> None:
        seen: dict[str, str | None] = {}
        async for _, revisions, are_all in watch_revisions(self._api, [NODES], ""):
            if are_all:
                self._replace({name: self.known[name] for name in self.known if name in revisions})
            changed = [name for name, revision in revisions.items() if seen.get(name) != revision]
            seen = {**({} if are_all else seen), **revisions}
            for name in changed:
                if name in self._all_on():
                    await self._read(name)

    async def _read(self, name: str, *, tell: bool = True) -> None:
        async with self._reading:
            found = await find(self._api, f"{NODES}/{name}")
            known = {each: node for each, node in self.known.items() if each != name}
            if found is not None:
                known[name] = kube_node(found)
            if tell:
                self._replace(known)
            else:
                self.known = known

    def _replace(self, known: dict[str, KubeNode]) -> None:
        before, self.known = self.known, known
        if known != before:
            self._on_change()


def kube_node(node: Json) -> KubeNode:
    """Return the part of a Node object that matters here."""
    is_cordoned = bool(node.get("spec", {}).get("unschedulable"))
    return KubeNode(is_cordoned, dict(node["metadata"].get("labels") or {}))


def cordoned_agents(
    pods: Mapping[str, Json | None], nodes: Mapping[str, KubeNode]
) -> tuple[str, ...]:
    """Return the agents whose pod is on a cordoned node.  `pods`: by agent; `nodes`: by name."""
    cordoned = {name for name, node in nodes.items() if node.cordoned}
    on = {agent: pod["spec"].get("nodeName") for agent, pod in pods.items() if pod is not None}
    return tuple(sorted(agent for agent, node in on.items() if node in cordoned))


def pod_facts(
    pods: Mapping[str, Json | None], nodes: Mapping[str, KubeNode], claims: Mapping[str, Json]
) -> dict[str, PodFacts]:
    """Return labels and storage class of each agent that has a pod.

    `pods` and `claims`: by agent; `nodes`: by name.
    """
    found: dict[str, PodFacts] = {}
    for agent, pod in sorted(pods.items()):
        if pod is not None:
            name = str(pod["spec"].get("nodeName", ""))
            node = nodes.get(name)
            of_pod = dict(pod["metadata"].get("labels") or {})
            claim = claims.get(agent)
            found[agent] = PodFacts(
                of_pod,
                dict(node.labels) if node is not None else None,
                str(claim["spec"].get("storageClassName") or "") if claim is not None else None,
                name,
            )
    return found


class Domains(NamedTuple):
    """Failure domains.  `known`: of each agent whose node is known; empty if the node has no label.

    `missing`: agent -> why there is none.
    """

    known: dict[str, str]
    missing: dict[str, str]


def failure_domains(
    label: str, pods: Mapping[str, Json | None], nodes: Mapping[str, KubeNode]
) -> Domains:
    """Return failure domains by the pods' nodes.  `pods`: by agent; `nodes`: by name."""
    found = Domains({}, {})
    for agent, pod in sorted(pods.items()):
        name = str(pod["spec"].get("nodeName", "")) if pod is not None else ""
        if not nodes:
            found.missing[agent] = "no Node can be read"
        elif not name:  # what was told of it last holds until it is on a node again
            found.missing[agent] = NO_NODE_YET
        elif name not in nodes:
            found.missing[agent] = f"node {name} cannot be read"
        else:
            found.known[agent] = nodes[name].labels.get(label, "")
            if not found.known[agent]:
                found.missing[agent] = f"node {name} has no label {label}"
    return found
