"""Finds objects that are gone although no watch has told it.

After a gap, such as a revision that is too old, kopf lists anew and tells only of what is there.
So the uids that were shown are compared with a list now and then.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator.declared.kinds import RUNS, Kind
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, path_of
from quorate_operator.kube.scope import Scope, place_text
from quorate_operator.kube.watch import AS_METADATA, LIST_S

_log = logging.getLogger("quorate.namespaces")

_PLURALS = {
    Kind.CLUSTER: StorageCluster.plural,
    Kind.ZONE: Zone.plural,
    **{kind: plural for plural, kind in RUNS.items()},
}

Body = Mapping[str, Any]


class ShownObject(NamedTuple):
    """One object that a watch has shown."""

    kind: Kind
    namespace: str
    name: str
    uid: str


class ShownObjects:
    """The declared objects that were shown and are not known to be gone."""

    def __init__(self, api: KubeApi, scope: Scope) -> None:
        self._api = api
        self._scope = scope
        self._shown: dict[ShownObject, None] = {}

    def seen(self, kind: Kind, body: Body) -> None:
        """Note an object that is new or changed."""
        self._shown[_shown(kind, body)] = None

    def gone(self, kind: Kind, body: Body) -> None:
        """Note that an object is gone."""
        self._shown.pop(_shown(kind, body), None)

    async def missed(self, place: str) -> AsyncIterator[ShownObject]:
        """Yield the objects of a place that are gone.

        Kinds that cannot be listed, and those of which nothing was shown, are left out.
        """
        for kind, plural in _PLURALS.items():
            shown = [each for each in self._shown if self._is_in(each, kind, place)]
            if not shown:
                continue
            try:
                there = await self._there(path_of(place, plural))
            except (ApiRefused, ApiUnclear) as error:
                where = place_text(place)
                _log.warning("%s: %s are not compared with those known: %s", where, plural, error)
                continue
            for each in shown:
                if each in self._shown and (each.namespace, each.uid) not in there:
                    yield each

    def _is_in(self, shown: ShownObject, kind: Kind, place: str) -> bool:
        return shown.kind is kind and self._scope.place_of(shown.namespace) == place

    async def _there(self, path: str) -> set[tuple[str, str]]:
        """Return namespace and uid of each object of a collection.  Raises the API's errors."""
        there: set[tuple[str, str]] = set()
        async for page in self._api.pages(path, "", AS_METADATA.format("List"), LIST_S):
            each = [item["metadata"] for item in page.get("items") or ()]
            there |= {(metadata["namespace"], metadata["uid"]) for metadata in each}
        return there


def _shown(kind: Kind, body: Body) -> ShownObject:
    metadata = body["metadata"]
    return ShownObject(kind, metadata["namespace"], metadata["name"], metadata["uid"])
