"""Rows of other clusters than the one that is recovered: they go into the new file.

The old file may be damaged in any way, and is kept as evidence.  So a copy of it is read.
"""

import errno
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from quorate.facts.errors import QuorateError
from quorate.protocol.metastore import OutcomeUnknown
from quorate_operator.metastores.backups import DATABASE
from quorate_operator.metastores.sqlite import facts_of
from quorate_operator.metastores.sqlite_file import FORMAT, EmbeddedStore, StoreRefused

_OF_THE_COPY = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
)
"""SQLite's codes of errors that do not come from what was copied."""


class NotCopied(QuorateError):
    """The old file could not be copied, for another reason than damage."""


class _ClusterRef(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    cluster_ref: _ClusterRef | None = None


class _Declared(msgspec.Struct):
    """A declared object, as far as it says to which cluster it belongs."""

    spec: _Spec


class OtherClusters(NamedTuple):
    """Rows of the tables as they are stored; `names`: the clusters that have any."""

    names: frozenset[str] = frozenset()
    facts: tuple[Any, ...] = ()
    records: tuple[Any, ...] = ()
    objects: tuple[Any, ...] = ()

    def put(self, at: sqlite3.Connection) -> None:
        """Put them into a new file."""
        at.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", self.facts)
        at.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", self.records)
        at.executemany("INSERT INTO objects VALUES (?, ?, ?)", self.objects)


async def other_clusters(folder: Path, cluster: str, scratch: Path) -> OtherClusters:
    """Return what the folder's file holds of other clusters than `cluster`; nothing if it is
    damaged.  `scratch`: a folder for the copy, which does not exist yet.

    Raises NotCopied, for lack of room for example.
    """
    try:
        _copy(folder, scratch)
        store = EmbeddedStore.open(scratch)
    except (OSError, StoreRefused) as error:
        shutil.rmtree(scratch, ignore_errors=True)  # the new file may need the room
        why = error.__cause__ if isinstance(error, StoreRefused) else error
        if _is_damage(why):
            return OtherClusters()
        raise NotCopied(str(why)) from error
    try:
        return await store.run(lambda at: _read(at, cluster))
    except (OutcomeUnknown, msgspec.DecodeError):
        return OtherClusters()
    finally:
        await store.close()


def _is_damage(why: BaseException | None) -> bool:
    """Return whether the old file is damaged, if this was raised when it was copied or read."""
    if isinstance(why, OSError):
        return why.errno == errno.EIO
    code = getattr(why, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF not in _OF_THE_COPY  # the rest says more of it


def _copy(folder: Path, scratch: Path) -> None:
    scratch.mkdir(parents=True)
    for end in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / f"{DATABASE}{end}", scratch / f"{DATABASE}{end}")


def _read(at: sqlite3.Connection, cluster: str) -> OtherClusters:
    records = [row for row in at.execute("SELECT * FROM records") if row[0] != cluster]
    objects = [
        (owner, row)
        for row in at.execute("SELECT kind, name, manifest FROM objects")
        if (owner := _owner(row[1], row[2])) != cluster
    ]
    names = frozenset([*(row[0] for row in records), *(owner for owner, _ in objects)])
    if not names:
        return OtherClusters()
    own = {FORMAT, *facts_of(cluster)}
    facts = [row for row in at.execute("SELECT name, value FROM facts") if row[0] not in own]
    return OtherClusters(names, tuple(facts), tuple(records), tuple(row for _, row in objects))


def _owner(name: str, manifest: bytes) -> str:
    """Return the name of the cluster to which an object belongs; a StorageCluster is its own."""
    ref = msgspec.json.decode(manifest, type=_Declared).spec.cluster_ref
    return ref.name if ref is not None else name
