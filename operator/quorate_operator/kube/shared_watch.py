"""One watch per kind and place for all clusters that a process leads.

Each object belongs to the cluster that its label names, in its namespace.  A follower of a cluster
is shown the cluster's objects, then each change.  More followed clusters cost the API server
nothing.

    first follower of a place --> list and watch per kind --> by (namespace, label) --> followers
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial

from quorate_operator.kube.api import KubeApi, collection_path
from quorate_operator.kube.scope import Scope, place_text
from quorate_operator.kube.watch import Revisions, Shown, watch_objects
from quorate_operator.process.defects import report_defect

_log = logging.getLogger("quorate.watch")

Cluster = tuple[str, str]
"""Namespace and name."""
Change = tuple[str, Revisions, bool]
"""(kind's plural, name -> revision or None if it is gone, whether these are all)."""


class _Watched:
    """Objects of one kind in one place, as far as a watch has shown them."""

    def __init__(self) -> None:
        self.is_listed = False
        self.objects: dict[Cluster, dict[str, str]] = {}
        self._cluster_of: dict[tuple[str, str], Cluster] = {}

    def replace(self) -> None:
        """Forget all objects: a new list is about to be taken."""
        self.is_listed = True
        self.objects, self._cluster_of = {}, {}

    def take(self, shown: Shown, label: str) -> dict[Cluster, Revisions]:
        """Note an object; return the changes by cluster: two if the object's label changed."""
        namespace, name = str(shown.metadata["namespace"]), shown.name
        labels = shown.metadata.get("labels") or {}
        cluster = None if shown.is_gone else (namespace, str(labels.get(label, "")))
        before = self._cluster_of.pop((namespace, name), None)
        changes: dict[Cluster, Revisions] = {}
        if before is not None and before != cluster:
            self.objects[before].pop(name, None)
            changes[before] = {name: None}
        if cluster is not None:
            self._cluster_of[namespace, name] = cluster
            self.objects.setdefault(cluster, {})[name] = shown.revision
            changes[cluster] = {name: shown.revision}
        return changes


class SharedWatches:
    """Watches objects with `label` in the places of a scope; all methods belong to one loop.

    `kinds`: plural -> path of its group.  `on_failed`: called with a sentence if a defect has ended
    a watch.  Changes are then missed for all clusters, so the process must end.
    """

    def __init__(
        self,
        api: KubeApi,
        scope: Scope,
        kinds: Mapping[str, str],
        label: str,
        on_failed: Callable[[str], None],
    ) -> None:
        self._api = api
        self._scope = scope
        self._kinds = kinds
        self._label = label
        self._on_failed = on_failed
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._followers: dict[Cluster, list[asyncio.Queue[Change]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._problems: dict[tuple[str, str], str] = {}

    def problems(self) -> list[str]:
        """Return a sentence for each watch that is refused or has no answer."""
        return [f"{place_text(place)}: {problem}" for (place, _), problem in self._problems.items()]

    async def follow(self, namespace: str, cluster: str) -> AsyncGenerator[Change]:
        """Yield what there is of a cluster, kind by kind, then each change; endless."""
        found: asyncio.Queue[Change] = asyncio.Queue()
        key = namespace, cluster
        self._followers.setdefault(key, []).append(found)
        try:
            for plural in self._kinds:
                watched = self._begin(self._scope.place_of(namespace), plural)
                if watched.is_listed:
                    found.put_nowait((plural, dict(watched.objects.get(key, {})), True))
            while True:
                yield await found.get()
        finally:
            self._followers[key].remove(found)
            if not self._followers[key]:
                del self._followers[key]

    async def close(self) -> None:
        """End all watches."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, place: str, plural: str) -> _Watched:
        watched = self._watched.get((place, plural))
        if watched is None:
            watched = self._watched[place, plural] = _Watched()
            task = asyncio.get_running_loop().create_task(self._watch(place, plural, watched))
            self._tasks.append(task)
            task.add_done_callback(partial(report_defect, log=_log, on_failed=self._on_failed))
        return watched

    async def _watch(self, place: str, plural: str, watched: _Watched) -> None:
        path = collection_path(self._kinds[plural], place, plural)

        def note(problem: str) -> None:
            self._problems.pop((place, plural), None)
            if problem:
                self._problems[place, plural] = problem

        objects = watch_objects(self._api, path, self._label, note)
        async with aclosing(objects):
            async for shown, is_all in objects:
                if is_all:
                    watched.replace()
                changes = [watched.take(each, self._label) for each in shown]
                if is_all:
                    self._tell_all(place, plural, watched)
                    continue
                for change in changes:
                    for cluster, revisions in change.items():
                        self._tell(cluster, (plural, revisions, False))

    def _tell_all(self, place: str, plural: str, watched: _Watched) -> None:
        for cluster in self._followers:
            if self._scope.place_of(cluster[0]) == place:
                found = watched.objects.get(cluster, {})
                self._tell(cluster, (plural, dict(found), True))

    def _tell(self, cluster: Cluster, change: Change) -> None:
        for follower in self._followers.get(cluster, ()):
            follower.put_nowait(change)
