"""Keeps what users declared to the embedded operator, as the API server would keep it.

Objects have uid, generation and timestamps.  A deleted Zone stays, marked, until its data is gone.
A manifest without the annotation of an import leaves it as it is, as a manifest has no say in it;
it is removed by an empty value.  The models that the CRDs are made from check the manifests.

Changes follow one another: each begins with what the one before has stored.
"""

import asyncio
import sqlite3
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from quorate.facts.errors import QuorateError, WireError
from quorate.wire.restoring import RESTORING
from quorate.wire.schema.resource import API_VERSION, Resource, describe, shortened
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.metastores.sqlite_file import EmbeddedStore
from quorate_operator.process.clock import rfc3339

KINDS: dict[str, type[Resource]] = {kind.plural: kind for kind in (StorageCluster, Zone)}

R = TypeVar("R", bound=Resource)

Object = dict[str, Any]
"""An object as JSON; read it through the models of quorate.wire."""


class BeingDeleted(QuorateError):
    """The object is being deleted and cannot be changed."""


class Kept(QuorateError):
    """The object must not be deleted as it is now."""


class Changed(QuorateError):
    """The object is not any more as it was seen."""


class Seen(NamedTuple):
    """A Zone as a client has seen it before it changes it."""

    uid: str
    generation: int
    restoring: str


class ObjectStore:
    """All declared objects.  Reads come from memory; changes are durable when they return."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._objects: dict[tuple[str, str], Object] = {}
        self._parsed: dict[str, tuple[Object, Resource]] = {}  # by uid
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Read everything once, at the start."""

        def job(at: sqlite3.Connection) -> list[tuple[str, str, bytes]]:
            return at.execute("SELECT kind, name, manifest FROM objects").fetchall()

        for kind, name, manifest in await self._store.run(job):
            self._objects[kind, name] = msgspec.json.decode(manifest)

    def get(self, plural: str, name: str) -> Object | None:
        """Return one object, None if there is none."""
        return self._objects.get((plural, name))

    def list(self, plural: str) -> list[Object]:
        """Return all objects of a kind, sorted by name."""
        return [self._objects[key] for key in sorted(self._objects) if key[0] == plural]

    def parsed(self, kind: type[R], made: Object) -> R:
        """Return one of these objects as its model, parsed once: objects are never changed."""
        uid = made["metadata"]["uid"]
        known = self._parsed.get(uid)
        if known is not None and known[0] is made and isinstance(known[1], kind):
            return known[1]
        parsed = kind.parse_stored(made)
        self._parsed[uid] = (made, parsed)
        return parsed

    async def put(
        self, plural: str, name: str, manifest: Mapping[str, Any], seen: Seen | None = None
    ) -> tuple[Object, bool]:
        """Create or change an object, if it is as it was `seen`.  Return it and whether it is new.

        Raises WireError, BeingDeleted, Changed.
        """
        async with self._changing:
            if seen is not None and seen != _seen(self.get(plural, name)):
                raise Changed(f"{name} has changed meanwhile: look again")
            made, is_new = self.prepare(plural, name, manifest)
            await self._save(plural, name, made)
        return made, is_new

    def prepare(self, plural: str, name: str, manifest: Mapping[str, Any]) -> tuple[Object, bool]:
        """Return what `put` would store, and whether it is new.  Raises what `put` raises."""
        kind = KINDS[plural]
        about = describe(manifest, kind.kind_name())
        metadata = manifest.get("metadata")
        found = metadata.get("name") if isinstance(metadata, Mapping) else None
        if found != name:
            wrong = shortened(repr(found))
            raise WireError(f"{about}: metadata.name is {wrong}: the address says {name!r}")
        present = self.get(plural, name)
        old = None if present is None else kind.parse_stored(present)
        if present is not None and "deletionTimestamp" in present["metadata"]:
            raise BeingDeleted(f"{about} is being deleted: wait until it is gone, then apply again")
        parsed = kind.parse(manifest, old)
        if isinstance(parsed, StorageCluster) and parsed.spec.managed is not None:
            raise WireError(
                f"{about}: spec.managed: an operator without Kubernetes creates no pods: write "
                "spec.external.addresses, or apply it to Kubernetes"
            )
        if isinstance(parsed, StorageCluster) and parsed.spec.drain_agents:
            raise WireError(
                f"{about}: spec.drainAgents: an operator without Kubernetes does not support it: "
                "remove the field, and use `quorate dev remove AGENT`"
            )
        dumped = parsed.model_dump(mode="json", by_alias=True, exclude_none=True)
        made: Object = {
            "apiVersion": API_VERSION,
            "kind": kind.kind_name(),
            "metadata": {
                "name": name,
                "uid": str(uuid.uuid4()),
                "generation": 1,
                "creationTimestamp": rfc3339(),
            },
            "spec": dumped["spec"],
        }
        if present is not None:
            changed = made["spec"] != present["spec"]
            made["metadata"] = dict(present["metadata"])
            made["metadata"]["generation"] += 1 if changed else 0
            if "status" in present:
                made["status"] = present["status"]
        for field in ("labels", "annotations"):
            made["metadata"].pop(field, None)
            if dumped["metadata"].get(field):
                made["metadata"][field] = dumped["metadata"][field]
        _keep_restoring(made["metadata"], {} if present is None else present["metadata"])
        return made, present is None

    async def restore(
        self, plural: str, wanted: Sequence[str], manifest: Mapping[str, Any], uid: str
    ) -> Object | None:
        """Declare an object again under its earlier uid, with what is still known of it.

        It gets the first of the `wanted` names that is free.  None, and nothing is changed, if an
        object has this uid already or no name is free.
        """
        async with self._changing:
            if any(each["metadata"]["uid"] == uid for each in self.list(plural)):
                return None
            name = next((each for each in wanted if self.get(plural, each) is None), None)
            if name is None:
                return None
            made, _ = self.prepare(plural, name, {**manifest, "metadata": {"name": name}})
            made = {**made, "metadata": {**made["metadata"], "uid": uid}}
            await self._save(plural, name, made)
        return made

    async def keep_status(
        self, plural: str, name: str, uid: str, status: Mapping[str, Any]
    ) -> None:
        """Store the part of an object's status needed after a restart, if it has changed.

        Nothing is stored if the object of that name has another uid: it was created anew.
        """
        async with self._changing:
            present = self.get(plural, name)
            if present is None or present["metadata"]["uid"] != uid:
                return
            if present.get("status") != status:
                await self._save(plural, name, {**present, "status": dict(status)})

    async def mark_deleted(
        self, plural: str, name: str, refusal: Callable[[Object], str] = lambda present: ""
    ) -> Object | None:
        """Mark a Zone as deleted; it stays until `remove`.  Returns None if there is none.

        Raises Kept with what `refusal` returns for the Zone as it is now, if that is not empty.
        """
        async with self._changing:
            present = self.get(plural, name)
            if present is not None and (said := refusal(present)):
                raise Kept(said)
            if present is None or "deletionTimestamp" in present["metadata"]:
                return present
            marked = {**present["metadata"], "deletionTimestamp": rfc3339()}
            marked["finalizers"] = [names.FINALIZER]
            made = {**present, "metadata": marked}
            await self._save(plural, name, made)
        return made

    async def remove(self, plural: str, name: str) -> None:
        """Delete the object."""

        def job(at: sqlite3.Connection) -> None:
            at.execute("DELETE FROM objects WHERE kind = ? AND name = ?", (plural, name))

        async def change() -> None:
            await self._store.run(job)
            gone = self._objects.pop((plural, name), None)
            if gone is not None:
                self._parsed.pop(gone["metadata"]["uid"], None)

        async with self._changing:
            await _to_its_end(change())

    async def _save(self, plural: str, name: str, made: Object) -> None:
        """Store the object; changes of others wait meanwhile."""
        manifest = msgspec.json.encode(made)

        def job(at: sqlite3.Connection) -> None:
            at.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (plural, name, manifest))

        async def change() -> None:
            await self._store.run(job)
            self._objects[plural, name] = made

        await _to_its_end(change())


async def _to_its_end(change: Coroutine[Any, Any, None]) -> None:
    """Make a change in the file and in memory, also if the caller is cancelled meanwhile.

    The caller is held up until then: it holds the lock that the next change waits for.
    """
    making = asyncio.get_running_loop().create_task(change)
    try:
        await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.gather(making, return_exceptions=True)
        raise


def _seen(present: Object | None) -> Seen | None:
    if present is None:
        return None
    metadata = present["metadata"]
    noted = metadata.get("annotations", {}).get(RESTORING, "")
    return Seen(metadata["uid"], metadata["generation"], noted)


def _keep_restoring(made: Object, present: Object) -> None:
    """Keep the annotation of an import in the new metadata, unless it is given, or given empty."""
    before = present.get("annotations", {}).get(RESTORING, "")
    annotations = {RESTORING: before, **made.get("annotations", {})}
    if not annotations[RESTORING]:
        del annotations[RESTORING]
    made.pop("annotations", None)
    if annotations:
        made["annotations"] = annotations
