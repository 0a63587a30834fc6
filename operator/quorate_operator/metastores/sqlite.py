"""The metastore in SQLite: ownership of one cluster, in the embedded operator's one file."""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import (
    Conflict,
    Key,
    MetastoreUnavailable,
    NodeKey,
    OutcomeUnknown,
    Revision,
    ShardKey,
    Stored,
    Value,
    ZoneKey,
)
from quorate_operator.metastores.sqlite_file import EmbeddedStore

_Place = tuple[str, str, int]
T = TypeVar("T")
_MASTER_TERM = "masterTerm "
_RECOVERING = "recovering "
_ZONE_NAMES = "zoneNames "
_rows = msgspec.json.Decoder(tuple[PartitionRow, ...])
_node = msgspec.json.Decoder(NodeRecord)
_zone = msgspec.json.Decoder(ZoneRecord)


class SqliteMetastore:
    """Records of `cluster`.  Revisions are never reused, not even that of a deleted key."""

    def __init__(self, store: EmbeddedStore, cluster: str) -> None:
        self._store = store
        self._cluster = cluster

    async def acquire_master_term(self, above: int = 0) -> int:
        """See Metastore."""
        return await self._reading(lambda at: _count(at, _MASTER_TERM + self._cluster, above))

    async def end_recovery(self) -> None:
        """End the recovery: agents have told everything."""

        def job(at: sqlite3.Connection) -> None:
            at.execute("DELETE FROM facts WHERE name = ?", (_RECOVERING + self._cluster,))
            at.execute("DELETE FROM objects WHERE kind = ?", (kind_of_names(self._cluster),))

        await self._store.run(job)

    async def load(self) -> dict[Key, Stored]:
        """See Metastore."""

        def job(at: sqlite3.Connection) -> dict[Key, Stored]:
            found = at.execute(
                "SELECT kind, name, shard, revision, value FROM records WHERE cluster = ? "
                "ORDER BY kind, name, shard",
                (self._cluster,),
            )
            return {
                _key(kind, name, shard): Stored(_decode(kind, value), str(revision))
                for kind, name, shard, revision, value in found
            }

        return await self._reading(job)

    async def read(self, key: Key) -> Stored | None:
        """See Metastore."""
        place = _place(key)

        def job(at: sqlite3.Connection) -> dict[Key, Stored]:
            found = self._find(at, place)
            return {} if found is None else {key: Stored(_decode(place[0], found[1]), found[0])}

        return (await self._reading(job)).get(key)

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        """See Metastore."""
        place = _place(key)
        encoded = None if value is None else msgspec.json.encode(value)

        def job(at: sqlite3.Connection) -> Revision:
            found = self._find(at, place)
            present = None if found is None else found[0]
            if present != expected:
                raise Conflict(f"{key}: expected revision {expected}, found {present}")
            where = (self._cluster, *place)
            if encoded is None:
                at.execute(
                    "DELETE FROM records WHERE cluster = ? AND kind = ? AND name = ? AND shard = ?",
                    where,
                )
                return ""
            revision = _count(at, "revision")
            at.execute(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)",
                (*where, revision, encoded),
            )
            return str(revision)

        return await self._store.run(job)

    def _find(self, at: sqlite3.Connection, place: _Place) -> tuple[Revision, bytes] | None:
        row = at.execute(
            "SELECT revision, value FROM records "
            "WHERE cluster = ? AND kind = ? AND name = ? AND shard = ?",
            (self._cluster, *place),
        ).fetchone()
        return None if row is None else (str(row[0]), row[1])

    async def _reading(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._store.run(job)
        except OutcomeUnknown as error:
            raise MetastoreUnavailable(str(error)) from error


async def recovering_clusters(store: EmbeddedStore) -> frozenset[str]:
    """Return the clusters whose zones and rows agents are still to tell."""

    def job(at: sqlite3.Connection) -> frozenset[str]:
        found = at.execute(
            "SELECT name FROM facts WHERE substr(name, 1, ?) = ?", (len(_RECOVERING), _RECOVERING)
        )
        return frozenset([str(name).removeprefix(_RECOVERING) for (name,) in found])

    return await store.run(job)


def mark_recovering(at: sqlite3.Connection, cluster: str, master_term: int) -> None:
    """Mark a new file: masterships go on above this one, and agents are to tell zones and rows."""
    facts = zip(facts_of(cluster), (master_term, 1), strict=True)
    at.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)


def note_zone_names(at: sqlite3.Connection, cluster: str, names: Iterable[tuple[str, str]]) -> None:
    """Note, until the recovery ends, by which names the zones of these uids were declared."""
    for uid, name in names:
        made = {"metadata": {"name": name, "uid": uid}, "spec": {"clusterRef": {"name": cluster}}}
        row = (kind_of_names(cluster), uid, msgspec.json.encode(made))
        at.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", row)


async def noted_zone_names(store: EmbeddedStore, cluster: str) -> dict[str, str]:
    """Return by which names zones were declared before the recovery, by uid."""

    def job(at: sqlite3.Connection) -> list[Any]:
        kind = kind_of_names(cluster)
        found = at.execute("SELECT manifest FROM objects WHERE kind = ?", (kind,))
        return [msgspec.json.decode(manifest)["metadata"] for (manifest,) in found]

    return {each["uid"]: each["name"] for each in await store.run(job)}


def kind_of_names(cluster: str) -> str:
    """Return the kind of objects in which a recovery notes the names of the cluster's zones."""
    return _ZONE_NAMES + cluster


def facts_of(cluster: str) -> tuple[str, str]:
    """Return the names of the facts of a cluster: its newest mastership, whether it recovers."""
    return _MASTER_TERM + cluster, _RECOVERING + cluster


def _count(at: sqlite3.Connection, name: str, above: int = 0) -> int:
    """Increase the counter `name` beyond its last value and beyond `above`; return it."""
    row = at.execute(
        "INSERT INTO facts VALUES (?1, ?2 + 1) "
        "ON CONFLICT (name) DO UPDATE SET value = max(value, ?2) + 1 RETURNING value",
        (name, above),
    ).fetchone()
    return int(row[0])


def _place(key: Key) -> _Place:
    match key:
        case ShardKey(uid=uid, shard=shard):
            return ("shard", uid, shard)
        case ZoneKey(uid=uid):
            return ("zone", uid, 0)
        case NodeKey(name=name):
            return ("node", name, 0)


def _key(kind: str, name: str, shard: int) -> Key:
    if kind == "shard":
        return ShardKey(name, shard)
    return ZoneKey(name) if kind == "zone" else NodeKey(name)


def _decode(kind: str, data: bytes) -> Value:
    if kind == "shard":
        return _rows.decode(data)
    return _zone.decode(data) if kind == "zone" else _node.decode(data)
