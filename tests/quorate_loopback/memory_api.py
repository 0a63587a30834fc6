"""An API server in memory, as far as the operator uses one; it refuses what it is told to."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, cast

from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi, OtherObject
from quorate_operator.kube.shared_watch import Change, SharedWatches
from quorate_operator.kube.watch import Revisions

Json = dict[str, Any]
NO_ANSWER = 999


class MemoryApi:
    """Stands in for KubeApi.  `refuse`: (method, path) -> the status to refuse it with, 0: none.

    From 500 on it is not refused, but has no clear answer, and with NO_ANSWER none at all."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.requests: list[tuple[str, str]] = []
        self.refuse: Callable[[str, str], int] = lambda method, path: 0
        self.revision = 0
        self.reads_nodes = False
        """The answer to who asks whether it may read nodes."""

    @property
    def as_api(self) -> KubeApi:
        return cast(KubeApi, self)

    def writes(self, of: str) -> list[tuple[str, str]]:
        """Requests that wrote, to paths that name `of`."""
        return [each for each in self.requests if each[0] != "GET" and of in each[1]]

    async def get(self, path: str, timeout_s: float = 5.0) -> Json:
        self._asked("GET", path)
        if path not in self.objects:
            raise ApiRefused(404, "NotFound", f"GET {path}: 404")
        return self.objects[path]

    async def list(self, path: str, selector: str = "", name: str = "") -> AsyncIterator[Json]:
        self._asked("GET", path)
        label, _, wanted = selector.partition("=")
        place, _, plural = path.rpartition("/")
        for at, item in list(self.objects.items()):
            labels = item["metadata"].get("labels", {})
            # A path without a namespace is of all namespaces.
            if (
                at.startswith(f"{place}/")
                and at.split("/")[-2] == plural
                and (not selector or labels.get(label) == wanted)
                and name in ("", item["metadata"]["name"])
            ):
                yield item

    async def pages(
        self,
        path: str,
        selector: str = "",
        accept: str = "application/json",
        timeout_s: float = 5.0,
        name: str = "",
    ) -> AsyncIterator[Json]:
        items = [item async for item in self.list(path, selector, name)]
        yield {"metadata": {"resourceVersion": str(self.revision)}, "items": items}

    async def create(self, path: str, body: Json, timeout_s: float = 5.0) -> Json:
        self._asked("POST", path)
        if body.get("kind") == "SelfSubjectAccessReview":
            return {**body, "status": {"allowed": self.reads_nodes}}
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{self.revision}"
        made = {**body, "metadata": {"uid": f"uid-of-{name}", **body["metadata"]}}
        return self._put(f"{path}/{name}", made, "")

    async def replace(self, path: str, body: Json, timeout_s: float = 5.0) -> Json:
        self._asked("PUT", path)
        return self._put(path, body, body["metadata"]["resourceVersion"])

    async def apply(self, path: str, body: Json) -> Json:
        """Without merging: what others add to the spec is lost, the rest stays."""
        self._asked("PATCH", path)
        known: Json = self.objects.get(path, {})
        expected = body["metadata"].get("resourceVersion")
        if expected not in (None, known.get("metadata", {}).get("resourceVersion")):
            raise ApiRefused(409, "Conflict", f"PATCH {path}: it is not at {expected}")
        kept = {each: known[each] for each in ("status",) if each in known}
        uid = known.get("metadata", {}).get("uid", f"uid-{len(self.requests)}")
        generation = known.get("metadata", {}).get("generation", 0)
        generation += known.get("spec") != body.get("spec")
        metadata = {"uid": uid, "generation": generation, **body["metadata"]}
        if "deletionTimestamp" in known.get("metadata", {}):
            metadata["deletionTimestamp"] = known["metadata"]["deletionTimestamp"]
        whole = {**kept, **body, "metadata": metadata}
        revision = known.get("metadata", {}).get("resourceVersion")
        same = {**whole, "metadata": {**whole["metadata"], "resourceVersion": revision}}
        return known if same == known else self.put(path, whole)

    async def set_status(self, path: str, status: Json, revision: str = "", uid: str = "") -> Json:
        self._asked("PATCH", path)
        if path not in self.objects:
            raise ApiRefused(404, "NotFound", f"PATCH {path}: 404")
        if uid not in ("", self.objects[path]["metadata"]["uid"]):
            raise OtherObject(f"PATCH {path}: the object has not the uid {uid}")
        if revision:
            return self._put(path, {**self.objects[path], "status": status}, revision)
        return self.put(path, {**self.objects[path], "status": status})

    async def set_owners(self, path: str, owners: Sequence[Json], revision: str) -> Json:
        self._asked("PATCH", path)
        known = self.objects[path]
        metadata = {**known["metadata"], "ownerReferences": [*owners]}
        return self._put(path, {**known, "metadata": metadata}, revision)

    async def annotate(self, path: str, annotations: Json, revision: str) -> Json:
        self._asked("PATCH", path)
        known = self.objects.get(path)
        if known is None:
            raise ApiRefused(404, "NotFound", f"PATCH {path}: 404")
        both = {**known["metadata"].get("annotations", {}), **annotations}
        kept = {name: text for name, text in both.items() if text is not None}
        metadata = {**known["metadata"], "annotations": kept}
        is_same = kept == known["metadata"].get("annotations", {})
        if is_same and revision == known["metadata"]["resourceVersion"]:
            return known
        return self._put(path, {**known, "metadata": metadata}, revision)

    async def delete(self, path: str, revision: str = "", timeout_s: float = 5.0) -> None:
        self._asked("DELETE", path)
        if self.objects.pop(path, None) is None:
            raise ApiRefused(404, "NotFound", f"DELETE {path}: 404")

    def put(self, path: str, body: Json) -> Json:
        """As a user would, whatever is there."""
        self.revision += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.revision)}
        self.objects[path] = made = {**body, "metadata": metadata}
        return made

    def _put(self, path: str, body: Json, expected: str) -> Json:
        known = self.objects.get(path, {}).get("metadata", {}).get("resourceVersion", "")
        if known != expected:
            raise ApiRefused(409, "Conflict", f"{path} is at {known}, not at {expected}")
        return self.put(path, body)

    def _asked(self, method: str, path: str) -> None:
        self.requests.append((method, path))
        status = self.refuse(method, path)
        if status >= 500:
            raise ApiUnclear(f"{method} {path}: {status}", is_answered=status != NO_ANSWER)
        if status:
            raise ApiRefused(status, "Refused", f"{method} {path}: {status}")


async def watch_all(
    api: KubeApi, paths: Sequence[str], selector: str
) -> AsyncIterator[tuple[str, Revisions, bool]]:
    """Stands in for watch_revisions: says that something has changed, and not what."""
    seen = -1
    while True:
        revision = cast(MemoryApi, api).revision
        if revision != seen:
            seen = revision
            yield "", {}, False
        await asyncio.sleep(0.002)


class NoWatches(SharedWatches):
    """Stands in for SharedWatches, whose requests this server does not know: nothing is seen."""

    def __init__(self) -> None:
        pass

    async def follow(self, namespace: str, cluster: str) -> AsyncGenerator[Change]:
        await asyncio.Event().wait()
        yield "", {}, False


class MemoryWatches(SharedWatches):
    """Stands in for SharedWatches: says that something has changed, and not what."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def follow(self, namespace: str, cluster: str) -> AsyncGenerator[Change]:
        async for change in watch_all(self._api, (), ""):
            yield change
