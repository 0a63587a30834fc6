"""The metastore in custom resources: PartitionTables, StorageNodes and MasterTerms of a namespace.

Compare-and-set is the API server's own, by resourceVersion.  Objects are named by the zone's id.
None has an owner: if a cluster is deleted and declared again, it finds them.  When a zone's data is
deleted, its head stays until every agent, even an absent one, has removed the data.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from quorate.facts.errors import InvariantError, WireError
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import (
    Conflict,
    Key,
    MetastoreUnavailable,
    NodeKey,
    OutcomeUnknown,
    ReadRefused,
    Revision,
    Seen,
    ShardKey,
    Stored,
    Value,
    WriteRefused,
    ZoneKey,
)
from quorate.wire.master_term import MasterTerm, MasterTermSpec
from quorate.wire.partition_table import (
    PartitionTable,
    PartitionTableSpec,
    ZoneRef,
    accepted_zone,
    partition_row,
    stored_row,
    zone_record,
)
from quorate.wire.schema.resource import API_VERSION, Part, Resource
from quorate.wire.storage_node import StorageNode, node_record, node_spec
from quorate.wire.zone import ObjectName
from quorate_operator import names
from quorate_operator.kube.api import (
    GROUP_PATH,
    ApiRefused,
    ApiThrottled,
    ApiUnclear,
    Json,
    KubeApi,
    MandateLost,
    find,
    path_of,
)
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.metastores.damaged_rows import all_damaged, sift
from quorate_operator.metastores.later_fields import LaterFields, dump

_log = logging.getLogger("quorate.metastore")

_TERM_ATTEMPTS = 20
WATCHED = dict.fromkeys((StorageNode.plural, PartitionTable.plural), GROUP_PATH)
"""Kinds for which others' changes are looked at as soon as they are seen, with their group."""


class KubernetesMetastore:
    """Records of `cluster`.  `told_term`: the mastership that its status told last.

    Terms count on from `told_term` only if their counter is missing: a user who may patch a status
    must not raise them above what agents believe.
    """

    def __init__(self, api: KubeApi, namespace: str, cluster: str, told_term: int = 0) -> None:
        self._api = api
        self._namespace = namespace
        self._cluster = cluster
        self._selector = f"{names.LABEL_CLUSTER}={cluster}"
        self._told_term = told_term
        self._is_new = False
        self.recovering = False
        """Whether everything was lost, as far as the newest mastership knows, so that agents are to
        tell which zones there are.  Stored with the counter of masterships."""
        self._zone_names: dict[str, str] = {}
        self._damaged: dict[ShardKey, dict[int, Json]] = {}
        self._unreadable: dict[str, Revision] = {}
        self._later = LaterFields()

    def note_new(self) -> None:
        """Note that the cluster's secret is new: no agent has anything of the cluster."""
        self._is_new = True

    async def acquire_master_term(self, above: int = 0) -> int:
        """See Metastore.  There is one MasterTerm per cluster; it outlives clusters of the same
        name.

        If the secret existed but no mastership is known, the cluster may have been led in a
        namespace that is gone: `recovering`.
        """
        collection = path_of(self._namespace, MasterTerm.plural)
        path = path_of(self._namespace, MasterTerm.plural, self._cluster)
        for _ in range(_TERM_ATTEMPTS):
            try:
                found = await find(self._api, path)
                if found is None:
                    known = await self._known_term()
                    recovering = known == 0 and not self._is_new
                    term = max(above, known) + 1
                    await self._api.create(collection, self._counter(term, recovering, None))
                else:
                    recovering = _is_recovering(found)
                    term = max(int(found["spec"]["term"]), above) + 1
                    revision = found["metadata"]["resourceVersion"]
                    await self._api.replace(path, self._counter(term, recovering, revision))
            except ApiRefused as refused:
                if refused.status != 409:
                    raise MetastoreUnavailable(str(refused)) from refused
            except (ApiUnclear, MandateLost, KeyError, ValueError) as error:
                raise MetastoreUnavailable(f"{path}: {error}") from error
            else:
                self.recovering = recovering
                return term
        raise MetastoreUnavailable(f"{path}: {_TERM_ATTEMPTS} others counted at the same time")

    async def end_recovery(self) -> None:
        """End the recovery: every agent has told its zones, and these are stored.

        Raises ApiRefused, ApiUnclear, MandateLost.
        """
        path = path_of(self._namespace, MasterTerm.plural, self._cluster)
        found = await find(self._api, path)
        if found is not None and _is_recovering(found):
            about = found["metadata"]
            counter = self._counter(int(found["spec"]["term"]), False, about["resourceVersion"])
            await self._api.replace(path, counter)
        self.recovering = False

    async def _known_term(self) -> int:
        """Return a term that no earlier mastership exceeds, for a cluster without a counter.

        Earlier versions counted all clusters of a namespace in one ConfigMap, which is only read
        here.
        """
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{names.MASTER_TERM_OF_BEFORE}"
        found = await find(self._api, path)
        return int(found["data"]["term"]) if found is not None else self._told_term

    async def load(self) -> dict[Key, Stored]:
        """See Metastore."""
        loaded: dict[Key, Stored] = {}
        misnamed: list[tuple[Key, Stored, str]] = []
        remembered: set[Key] = {*self._damaged, *self._later.keys()}
        gone = {self._place(key)[1]: key for key in remembered}  # unless they are listed
        try:
            for plural in (StorageNode.plural, PartitionTable.plural):
                path = path_of(self._namespace, plural)
                async for item in self._api.list(path, self._selector):
                    name, found = str(item["metadata"]["name"]), self._decode(item, plural)
                    gone.pop(name, None)
                    if found is None:
                        continue
                    if name == self._place(found[0])[1]:
                        loaded[found[0]] = found[1]
                    elif isinstance(found[0], NodeKey):
                        misnamed.append((*found, name))
                    else:
                        _log.warning("PartitionTable %s is not the operator's: passed over", name)
            for key, stored, name in misnamed:
                if key not in loaded:
                    loaded[key] = await self._named_anew(key, stored)
                await self._api.delete(path_of(self._namespace, self._place(key)[0], name))
        except (ApiRefused, ApiUnclear, MandateLost) as error:
            raise MetastoreUnavailable(str(error)) from error
        for name, key in gone.items():
            if key not in loaded:
                self._forget(key, name)
        return loaded

    async def _named_anew(self, key: Key, stored: Stored) -> Stored:
        """Store a registration of an earlier version under its present name.

        Nodes were called CLUSTER-NODE then, so `two` with `agent-1` and `two-agent` with `1` were
        one object.
        """
        plural, name = self._place(key)
        body = self._encode(key, stored.value, name, None)
        made = await self._api.create(path_of(self._namespace, plural), body)
        return Stored(stored.value, str(made["metadata"]["resourceVersion"]))

    async def changes(self, watches: SharedWatches) -> AsyncIterator[Seen]:
        """Yield the revisions of all objects, then of each that anybody writes; endless."""
        async with aclosing(watches.follow(self._namespace, self._cluster)) as changes:
            async for plural, changed, is_all in changes:
                revisions = {
                    key: revision
                    for name, revision in changed.items()
                    if (key := self._key_named(plural, name)) is not None
                }
                kinds = ("node",) if plural == StorageNode.plural else ("zone", "shard")
                yield Seen(revisions, frozenset(kinds if is_all else ()))

    async def read(self, key: Key) -> Stored | None:
        """See Metastore."""
        plural, name = self._place(key)
        try:
            item = await self._api.get(path_of(self._namespace, plural, name))
        except ApiRefused as refused:
            if refused.status == 404:
                self._forget(key, name)
                return None
            if isinstance(refused, ApiThrottled):
                raise MetastoreUnavailable(str(refused)) from refused
            raise ReadRefused(str(refused)) from refused
        except ApiUnclear as unclear:
            raise MetastoreUnavailable(str(unclear)) from unclear
        found = self._decode(item, plural)
        return found[1] if found is not None and found[0] == key else None

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        """See Metastore."""
        plural, name = self._place(key)
        path = path_of(self._namespace, plural, name)
        if isinstance(value, ZoneRecord):
            self._zone_names[value.uid] = value.name
        if expected is None:
            expected = self._unreadable.get(name)  # the object exists, but is unreadable
        try:
            if value is None:
                if expected is not None:
                    await self._api.delete(path, expected)
                    self._forget(key, name)
                    if isinstance(key, ZoneKey):
                        self._zone_names.pop(key.uid, None)
                return ""
            body = self._encode(key, value, name, expected)
            if expected is None:
                made = await self._api.create(path_of(self._namespace, plural), body)
            else:
                made = await self._api.replace(path, body)
        except ApiRefused as refused:
            raise _not_written(refused) from refused
        except (ApiUnclear, MandateLost) as error:
            raise OutcomeUnknown(str(error)) from error
        self._unreadable.pop(name, None)
        return str(made["metadata"]["resourceVersion"])

    async def erase(self) -> None:
        """Delete everything held of the cluster.  Raises ApiRefused, ApiUnclear, MandateLost."""
        for plural in (PartitionTable.plural, StorageNode.plural):
            path = path_of(self._namespace, plural)
            found = [item async for item in self._api.list(path, self._selector)]
            for item in found:
                await self._api.delete(path_of(self._namespace, plural, item["metadata"]["name"]))

    def _forget(self, key: Key, name: str) -> None:
        """Forget what is remembered of an object that is gone, whoever has deleted it.

        The zone's name stays: if another process has deleted only the head, rows are written on.
        """
        self._unreadable.pop(name, None)
        self._later.forget(key)
        if isinstance(key, ShardKey):
            self._damaged.pop(key, None)

    # --- forms ------------------------------------------------------------------------------------

    def _place(self, key: Key) -> tuple[str, str]:
        match key:
            case ShardKey(uid=uid, shard=shard):
                return PartitionTable.plural, f"{uid}-{shard:03d}"
            case ZoneKey(uid=uid):
                return PartitionTable.plural, f"{uid}-head"
            case NodeKey(name=name):
                return StorageNode.plural, f"{self._cluster}.{name}"  # neither has a dot

    def _encode(self, key: Key, value: Value, name: str, expected: Revision | None) -> Json:
        labels: dict[str, str] = {}
        spec: Part
        aside: dict[int, Json] = {}
        if isinstance(value, ZoneRecord):
            labels[names.LABEL_ZONE_UID] = value.uid
            spec = self._table_spec(value.uid, accepted=accepted_zone(value))
        elif isinstance(value, tuple):
            assert isinstance(key, ShardKey)
            labels[names.LABEL_ZONE_UID] = key.uid
            rows = [stored_row(row) for row in value]
            spec = self._table_spec(key.uid, shard=key.shard, rows=rows)
            aside = self._damaged.get(key, {})
        else:
            spec = node_spec(self._cluster, value)
        kind = StorageNode if isinstance(key, NodeKey) else PartitionTable
        body = dump(spec)
        self._later.put_back(key, body)
        if aside:
            written = {row["partition"] for row in body["rows"]}
            body["rows"] += [raw for p, raw in aside.items() if p not in written]
            body["rows"].sort(key=lambda row: row["partition"])
        return self._object(kind, name, body, expected, **labels)

    def _counter(self, term: int, recovering: bool, expected: Revision | None) -> Json:
        spec = MasterTermSpec(cluster_ref=ObjectName(name=self._cluster), term=term)
        body = spec.model_dump(mode="json", by_alias=True)
        counter = self._object(MasterTerm, self._cluster, body, expected)
        if recovering:
            counter["metadata"]["annotations"] = {names.ANNOTATION_RECOVERING: "true"}
        return counter

    def _object(
        self,
        kind: type[Resource],
        name: str,
        spec: Json,
        expected: Revision | None,
        **labels: str,
    ) -> Json:
        metadata: Json = {"name": name, "labels": {names.LABEL_CLUSTER: self._cluster, **labels}}
        if expected is not None:
            metadata["resourceVersion"] = expected
        return {
            "apiVersion": API_VERSION,
            "kind": kind.kind_name(),
            "metadata": metadata,
            "spec": spec,
        }

    def _table_spec(self, uid: str, **fields: Any) -> PartitionTableSpec:
        return PartitionTableSpec(
            cluster_ref=ObjectName(name=self._cluster),
            zone_ref=ZoneRef(name=self._zone_names.get(uid, ""), uid=uid),
            **fields,
        )

    def _decode(self, item: Json, plural: str) -> tuple[Key, Stored] | None:
        """Decode an object; None if it is not the operator's, or is an unreadable head or
        registration: these are written anew.

        Invalid rows are reported, and kept as they are.
        """
        name, revision = str(item["metadata"]["name"]), str(item["metadata"]["resourceVersion"])
        # Items of a list come without their kind.
        kind = StorageNode if plural == StorageNode.plural else PartitionTable
        whole = {**item, "apiVersion": API_VERSION, "kind": kind.kind_name()}
        try:
            found = self._read_whole(whole, plural, revision)
        except WireError as error:
            shard = self._shard_named(name) if plural == PartitionTable.plural else None
            _log.error("%s %s cannot be read: %s", kind.kind_name(), name, error)
            self._unreadable[name] = revision
            if shard is None:
                return None
            return shard, Stored((), revision, all_damaged(name, shard.shard, str(error)))
        self._unreadable.pop(name, None)
        return found

    def _read_whole(self, whole: Json, plural: str, revision: Revision) -> tuple[Key, Stored]:
        if plural == StorageNode.plural:
            parsed, later = StorageNode.parse_known(whole)
            node = node_record(parsed.spec)
            self._later.note(NodeKey(node.name), parsed.spec, later)
            return NodeKey(node.name), Stored(node, revision)
        spec, damaged, later = sift(whole)
        uid = spec.zone_ref.uid
        if spec.accepted is not None:
            self._zone_names[uid] = spec.zone_ref.name
            self._later.note(ZoneKey(uid), spec, later)
            return ZoneKey(uid), Stored(zone_record(spec.zone_ref, spec.accepted), revision)
        assert spec.shard is not None
        key = ShardKey(uid, spec.shard)
        if whole["metadata"]["name"] == self._place(key)[1]:
            self._damaged.pop(key, None)
            if damaged:
                self._damaged[key] = {row.partition: raw for row, raw in damaged}
            self._later.note(key, spec, later)
        rows = tuple(partition_row(row) for row in spec.rows or ())
        return key, Stored(rows, revision, tuple(row for row, _ in damaged))

    def _key_named(self, plural: str, name: str) -> Key | None:
        """Return the key of the operator's object `name`; None if no key has that name."""
        if plural == StorageNode.plural:
            node = name.removeprefix(f"{self._cluster}.")
            return NodeKey(node) if node != name else None
        uid, _, last = name.rpartition("-")
        if last == "head" and uid:
            return ZoneKey(uid)
        return self._shard_named(name)

    def _shard_named(self, name: str) -> ShardKey | None:
        uid, _, last = name.rpartition("-")
        return ShardKey(uid, int(last)) if uid and last.isdecimal() else None


def _is_recovering(counter: Json) -> bool:
    annotations = counter["metadata"].get("annotations") or {}
    return annotations.get(names.ANNOTATION_RECOVERING) == "true"


def _not_written(refused: ApiRefused) -> Conflict | InvariantError | WriteRefused:
    """Translate a refusal of the API server into the metastore's errors."""
    if refused.is_conflict:
        return Conflict(str(refused))
    if refused.is_schema:
        # The schema is made from the same models, so only a row that goes back gets here.
        return InvariantError(str(refused))
    if isinstance(refused, ApiThrottled):
        return WriteRefused("Throttled", str(refused), refused.retry_after_s)
    return WriteRefused(refused.word, str(refused))
