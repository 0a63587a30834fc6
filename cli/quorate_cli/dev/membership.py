"""The agents of a cluster of this machine, as the operator knows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from quorate.wire.schema.names import API_VERSION
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.objects.operator_api import NotReady, NotThere, OperatorApi, object_path
from quorate_cli.objects.resources import STORAGE_CLUSTER, Whole
from quorate_cli.objects.serving import not_serving
from quorate_cli.processes.cluster_folder import OPERATOR, ClusterEntry, ClusterFolder
from quorate_cli.terminal.problem import Problem

HOST = "127.0.0.1"
START_S = 30.0
"""Seconds until a process must take part: opening a large store after a crash is slow."""
POLL_S = 0.05


class Cluster(Protocol):
    """The part of the cluster that is needed here."""

    folder: ClusterFolder

    def api(self) -> OperatorApi:
        """Return the API of the running operator."""

    def state(self) -> ClusterState:
        """Return everything the operator knows of this cluster now."""

    def last_words(self, name: str) -> str:
        """Return the last message of the process, and where its log is."""


class Membership:
    """Tells the operator which agents are members, and waits until it counts them."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._say = say

    def declare(self, entry: ClusterEntry) -> None:
        """Tell the operator which agents the cluster has; do nothing if it knows."""
        # Imported here: only this needs the models, which take long to import.
        from quorate.wire.storage_cluster import EARLIER, external

        api = self._cluster.api()
        addresses = [f"{HOST}:{agent.peer_port}" for agent in entry.agents if agent.peer_port]
        path = object_path(STORAGE_CLUSTER.plural, entry.cluster)
        spec = external(addresses)
        try:
            present = api.get(path, Whole)
        except NotThere:
            present = {}
        known, metadata = present.get("spec"), present.get("metadata")
        if isinstance(known, dict):
            # Fields that an earlier version wrote in place of `external` are removed.
            kept = {field: each for field, each in known.items() if field not in EARLIER}
            spec = {**kept, **spec}
        if spec == known:
            return
        body = {
            "apiVersion": API_VERSION,
            "kind": STORAGE_CLUSTER.name,
            # Labels and annotations that are left out would be removed; one of them is a pause.
            "metadata": metadata or {"name": entry.cluster},
            "spec": spec,
        }
        api.put(path, body, Whole)

    def check_declared(self, entry: ClusterEntry) -> None:
        """Raise Problem if the cluster was not declared to the operator, or its object is gone."""
        try:
            self._cluster.api().get(object_path(STORAGE_CLUSTER.plural, entry.cluster), Whole)
        except NotThere as error:
            raise Problem(
                f"storagecluster {entry.cluster!r} was deleted: `quorate dev up` declares it again"
            ) from error

    def wait_for(self, names: Sequence[str]) -> None:
        """Wait until the master counts all of `names` as online.  Raises Problem."""
        folder, deadline = self._cluster.folder, time.monotonic() + START_S
        while missing := self._offline(names):
            for name in missing:
                if folder.process(name) is None:
                    raise Problem(
                        f"{name} ended before it joined: {self._cluster.last_words(name)}"
                    )
            if time.monotonic() > deadline:
                raise Problem(
                    f"{', '.join(missing)} did not join within {START_S:g} s:"
                    f" {self._why_unled()}see `quorate describe storageclusters` and"
                    f" {folder.log(OPERATOR)}"
                )
            time.sleep(POLL_S)

    def wait_until_serving(self, seconds: float) -> list[str]:
        """Wait at most `seconds` until every zone serves; return what is missing then."""
        deadline = time.monotonic() + seconds
        while missing := self._not_serving():
            if time.monotonic() >= deadline:
                return [f"after {seconds:g} s {each}" for each in missing] if seconds else []
            time.sleep(POLL_S)
        return []

    def _not_serving(self) -> list[str]:
        try:
            return not_serving(self._cluster.state())
        except NotReady as problem:
            return [str(problem)]

    def _offline(self, names: Sequence[str]) -> list[str]:
        """Return which of `names` take no part now."""
        try:
            state = self._cluster.state()
        except NotReady:
            return [*names]  # the operator has only just heard of the cluster
        online = [node.name for node in state.nodes if node.online]
        return [name for name in names if name not in online]

    def _why_unled(self) -> str:
        """Return why nobody leads the cluster, with a semicolon; empty if somebody does."""
        try:
            state = self._cluster.state()
        except NotReady as problem:
            return f"{problem}; "
        return f"cluster {state.cluster} is not led: {state.problem}; " if state.problem else ""

    def take_drains_back(self, entry: ClusterEntry) -> None:
        """End all drains: an interrupted removal could not do so if the operator ended too."""
        names = {agent.name for agent in entry.agents}
        for node in self._cluster.state().nodes:
            if node.name in names and node.draining:
                path = f"/nodes/{node.name}/undrain?cluster={entry.cluster}"
                self._cluster.api().post(path)
                self._say(f"{node.name}: drain undone")
