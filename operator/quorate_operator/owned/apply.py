"""Makes objects as desired, and deletes those that are no longer wanted.

Server-side apply under one field manager: fields that others add to an object stay; our fields that
they change are set back.  An object is applied again only if it, or what is wanted of it, has
changed since the last apply.  What somebody else has made under its name stays as it is.  Claims
and Secrets are never deleted here, pods only by name.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from quorate.wire.storage_cluster import StorageCluster
from quorate_operator import names
from quorate_operator.kube.api import (
    ApiRefused,
    ApiThrottled,
    ApiUnclear,
    KubeApi,
    find,
    path_of,
)
from quorate_operator.owned.volumes import is_growth, with_its_size

_log = logging.getLogger("quorate.owned")

Json = dict[str, Any]
Failure = ApiRefused | ApiUnclear
"""A request that was not done, or perhaps not; others may still be sent."""

PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Pod": "/api/v1/namespaces/{}/pods",
}
"""Kind -> path of its collection, for the kinds that a managed cluster has."""
WATCHED = {path.rpartition("/")[2]: path.partition("/namespaces/")[0] for path in PATHS.values()}
"""The plural of each of these kinds, and the path of its group."""
PRUNED = ("StatefulSet", "Service")
"""Kinds of which some objects may be no longer wanted while there are agents."""
NOT_OURS = "NotOurs"
"""The reason of the refusal to take over an object of somebody else."""
MANY = 20
"""More missing objects of a kind than this are looked for by one list of all."""
GROW_AGAIN_S = 60.0
"""Seconds until a refused growth of a claim is tried again: its class may allow it then."""


class Applier:
    """Applies and deletes the objects of one cluster in one namespace."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._applied: dict[str, tuple[Json, str]] = {}
        """path -> what was applied, and the resulting revision."""
        self.changed: list[str] = []
        """StatefulSets that the last `apply` made or changed."""
        self.ungrown: dict[str, str] = {}
        """Claim -> the API server's sentence why it may not grow as the last `apply` wanted."""
        self._refused_growth: dict[str, tuple[Json, float]] = {}
        """Claim -> the refused manifest, and until when it is not tried again."""

    async def present(self, selector: str) -> dict[str, dict[str, Json]]:
        """Return kind -> name -> object, of all kinds, by label."""
        found: dict[str, dict[str, Json]] = {}
        for kind, path in PATHS.items():
            items = self._api.list(path.format(self._namespace), selector)
            found[kind] = {item["metadata"]["name"]: item async for item in items}
        return found

    async def apply(
        self,
        wanted: Iterable[Json],
        there: Mapping[str, Mapping[str, Json]],
        may_write: Callable[[], bool],
    ) -> dict[tuple[str, str], Failure]:
        """Apply each of `wanted`; return failures by kind and name; they hold up no others.

        `may_write`: asked before each write; if it returns False, nothing more is written.  After
        two requests without any answer, the kinds of these wait for the next `apply`: each such
        request takes a worker for seconds.

        Raises ApiThrottled: nothing more is to be sent now.
        """
        failed: dict[tuple[str, str], Failure] = {}
        not_looked_for: set[tuple[str, str]] = set()
        self.changed = []
        said, self.ungrown = self.ungrown, {}
        wanted = [*wanted]
        listed = self._to_list(wanted, there)
        for manifest in wanted:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            present = there.get(kind, {}).get(name)
            if kind == "StatefulSet" and _uses_of_others(manifest, failed, not_looked_for):
                continue
            if is_silent_again(failed.values()) and kind in _silent_kinds(failed):
                if present is None:
                    not_looked_for.add((kind, name))
                continue
            grows = present is not None and is_growth(manifest, present)
            before, until = self._refused_growth.get(name, ({}, 0.0))
            if grows and name in said and before == manifest and time.monotonic() < until:
                self.ungrown[name] = said[name]
                continue
            try:
                found = present or await self._unlabelled(kind, name, listed)
            except ApiThrottled:
                raise
            except (ApiRefused, ApiUnclear) as error:
                not_looked_for.add((kind, name))
                failed[kind, name] = error
                continue
            try:
                if not may_write():
                    break
                is_changed = await self._put(manifest, found)
            except ApiThrottled:
                raise
            except (ApiRefused, ApiUnclear) as error:
                if present is None or not grows or error.is_passing:
                    failed[kind, name] = error
                    continue
                self.ungrown[name] = str(error)
                self._refused_growth[name] = manifest, time.monotonic() + GROW_AGAIN_S
                if not may_write():
                    break
                failure = await self._apply_with_its_size(manifest, present)
                if failure is not None:
                    failed[kind, name] = failure
                continue
            if is_changed and kind == "StatefulSet":
                self.changed.append(name)
        return failed

    async def put(self, manifest: Json, present: Json | None) -> bool:
        """Apply one object unless it is unchanged since its last apply; return whether it changed.

        `present`: the object as last seen by our label.  What somebody else has made, or is to
        outlive its StorageCluster, is refused.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        return await self._put(manifest, present or await self._unlabelled(kind, name, {}))

    async def _put(self, manifest: Json, present: Json | None) -> bool:
        """As `put`; an object that has changed since it was read is looked at once more."""
        try:
            return await self._put_seen(manifest, present)
        except ApiRefused as refused:
            if present is None or refused.status != HTTPStatus.CONFLICT:
                raise
            now = await self.find(manifest["kind"], manifest["metadata"]["name"])
            if now is None:
                raise
        return await self._put_seen(manifest, now)

    async def _put_seen(self, manifest: Json, present: Json | None) -> bool:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        path = self._path(kind, name)
        revision = present["metadata"]["resourceVersion"] if present is not None else ""
        if present is not None and self._applied.get(path) == (manifest, revision):
            return False
        if present is not None and not _is_ours(present):
            raise self._not_ours(manifest)
        if present is not None and await self._is_let_go(manifest, present):
            sentence = f"{kind} {self._namespace}/{name} is to outlive its StorageCluster"
            raise ApiRefused(HTTPStatus.FORBIDDEN, "LetGo", f"{sentence}, and stays as it is")
        self._applied.pop(path, None)  # without an answer, it is not known
        made = await self._api.apply(path, _of_revision(manifest, present))
        self._applied[path] = manifest, made["metadata"]["resourceVersion"]
        if made["metadata"]["resourceVersion"] == revision:
            return False
        _log.info("applied %s %s in namespace %s", kind, name, self._namespace)
        return True

    async def _is_let_go(self, manifest: Json, present: Json) -> bool:
        """Return whether Kubernetes has taken the owner from an object, so that it stays.

        It does so where a StorageCluster is deleted with --cascade=orphan.
        """
        for owner in manifest["metadata"].get("ownerReferences") or ():
            if is_owned(present, owner["uid"]):
                continue
            path = path_of(self._namespace, StorageCluster.plural, owner["name"])
            cluster = await find(self._api, path)
            if cluster is None or cluster["metadata"]["uid"] != owner["uid"]:
                return True
            if cluster["metadata"].get("deletionTimestamp"):
                return True
        return False

    async def find(self, kind: str, name: str) -> Json | None:
        """Return one object, whatever its labels are; None if there is none."""
        path = PATHS[kind].format(self._namespace)
        return next(iter([each async for each in self._api.list(path, name=name)]), None)

    def _to_list(
        self, wanted: Sequence[Json], there: Mapping[str, Mapping[str, Json]]
    ) -> dict[str, dict[str, Json] | None]:
        """Return the kinds of which so many objects are missing that all are to be listed."""
        missing = Counter(
            each["kind"]
            for each in wanted
            if each["metadata"]["name"] not in there.get(each["kind"], {})
        )
        return {kind: None for kind, count in missing.items() if count > MANY}

    async def _unlabelled(
        self, kind: str, name: str, listed: dict[str, dict[str, Json] | None]
    ) -> Json | None:
        """Return an object that is there without our label, None if there is none.

        An apply would take it over, whosever it is.  `listed`: name -> object, of kinds of which
        all are listed; None: not yet.
        """
        if kind not in listed:
            return await self.find(kind, name)
        found = listed[kind]
        if found is None:
            items = self._api.list(PATHS[kind].format(self._namespace))
            found = listed[kind] = {each["metadata"]["name"]: each async for each in items}
        return found.get(name)

    def _not_ours(self, manifest: Json) -> ApiRefused:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        label = f"{names.LABEL_CLUSTER}={manifest['metadata']['labels'][names.LABEL_CLUSTER]}"
        return ApiRefused(
            HTTPStatus.FORBIDDEN,
            NOT_OURS,
            f"{kind} {self._namespace}/{name} was not made by Quorate, and stays as it is: delete"
            f" it, or label it {label} if it is to be taken over",
        )

    def has(self, kind: str, name: str) -> bool:
        """Return whether the object was applied and not deleted since."""
        return self._path(kind, name) in self._applied

    def _path(self, kind: str, name: str) -> str:
        return f"{PATHS[kind].format(self._namespace)}/{name}"

    async def _apply_with_its_size(self, manifest: Json, present: Json) -> Failure | None:
        """Apply everything but the size to a claim that may not grow."""
        path = self._path(manifest["kind"], manifest["metadata"]["name"])
        try:
            await self._api.apply(path, _of_revision(with_its_size(manifest, present), present))
        except ApiThrottled:
            raise
        except (ApiRefused, ApiUnclear) as error:
            return error
        return None

    async def prune(
        self,
        wanted: Sequence[Json],
        there: Mapping[str, Mapping[str, Json]],
        owner: str,
        may_write: Callable[[], bool],
    ) -> tuple[list[str], list[Failure]]:
        """Delete objects owned by the StorageCluster with uid `owner` and not in `wanted`.

        Return the names of those that are deleted, and the failures; the second one without any
        answer ends it.  `may_write`, and what is raised: as of `apply`.
        """
        deleted: list[str] = []
        failed: list[Failure] = []
        kept = {(each["kind"], each["metadata"]["name"]) for each in wanted}
        for kind in PRUNED:
            for name, item in there[kind].items():
                if (kind, name) in kept or not is_owned(item, owner):
                    continue
                if not may_write():
                    return deleted, failed
                failure = await self.delete(kind, item)
                if failure is None:
                    deleted.append(name)
                else:
                    failed.append(failure)
                if is_silent_again(failed):
                    return deleted, failed
        return deleted, failed

    async def delete(self, kind: str, item: Json) -> Failure | None:
        """Delete exactly this object, as it was seen; return the failure if there is one.

        Raises ApiThrottled: nothing more is to be sent now.
        """
        name, revision = item["metadata"]["name"], item["metadata"]["resourceVersion"]
        if item["metadata"].get("deletionTimestamp"):
            return None
        path = self._path(kind, name)
        _log.info("deleting %s %s in namespace %s", kind, name, self._namespace)
        try:
            await self._api.delete(path, revision)
        except ApiThrottled:
            raise
        except ApiUnclear as error:
            return error
        except ApiRefused as error:
            if error.status != 404:
                return error
        self._applied.pop(path, None)
        return None


def is_owned(item: Json, owner: str) -> bool:
    """Return whether the object is owned by the one with uid `owner`, and deleted with it."""
    references = item["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == owner for each in references)


def is_silent_again(failures: Iterable[Failure]) -> bool:
    """Return whether two requests have got no answer at all: others may take as long."""
    return sum(map(_is_silent, failures)) > 1


def looked_at_again(conflicts: Sequence[Failure]) -> str:
    """Return the sentence about the first object that has changed since it was read."""
    return f"an object has changed meanwhile and is looked at again: {conflicts[0]}"


def _is_silent(failure: Failure) -> bool:
    return isinstance(failure, ApiUnclear) and not failure.is_answered


def _silent_kinds(failed: Mapping[tuple[str, str], Failure]) -> set[str]:
    return {kind for (kind, _), failure in failed.items() if _is_silent(failure)}


def _uses_of_others(
    stateful_set: Json,
    failed: Mapping[tuple[str, str], Failure],
    not_looked_for: Collection[tuple[str, str]],
) -> bool:
    """Return whether its pod would use, or might use, a claim or an account of somebody else."""
    account = stateful_set["spec"]["template"]["spec"]["serviceAccountName"]
    claim = stateful_set["metadata"]["name"]  # it has the same name
    for key in (("ServiceAccount", account), ("PersistentVolumeClaim", claim)):
        failure = failed.get(key)
        if isinstance(failure, ApiRefused) and failure.reason == NOT_OURS:
            return True
        if key in not_looked_for:
            return True
    return False


def _of_revision(manifest: Json, present: Json | None) -> Json:
    """Return the manifest so that it is applied only to the object as it was seen.

    Its owner may be taken away while the request waits for its turn.
    """
    if present is None:
        return manifest
    seen = {"resourceVersion": present["metadata"]["resourceVersion"]}
    return {**manifest, "metadata": {**manifest["metadata"], **seen}}


def _is_ours(item: Json) -> bool:
    """Return whether an operator has made the object, or a person has given it to one."""
    labels = item["metadata"].get("labels") or {}
    references = item["metadata"].get("ownerReferences") or ()
    return (
        names.LABEL_CLUSTER in labels
        or labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
        or any(each.get("kind") == StorageCluster.kind_name() for each in references)
    )
