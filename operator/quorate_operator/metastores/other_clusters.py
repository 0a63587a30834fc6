"""Rows of other clusters than the one that is recovered: they go into the new file.

Of the recovered cluster only the names of its zones go there: agents may have data of several zones
of one name, and the one that was declared by it keeps it.

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
from quorate.wire.zone import Zone
from quorate_operator.metastores.backups import DATABASE
from quorate_operator.metastores.sqlite import facts_of, kind_of_names
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


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Declared(msgspec.Struct):
    """A declared object, as far as it says to which cluster it belongs."""

    spec: _Spec
    metadata: _Metadata = _Metadata()


class OtherClusters(NamedTuple):
    """Rows of the tables as they are stored; `names`: the clusters that have any.

    `zone_names`: names of the recovered cluster's zones by uid, as they were declared last.
    """

    names: frozenset[str] = frozenset()
    facts: tuple[Any, ...] = ()
    records: tuple[Any, ...] = ()
    objects: tuple[Any, ...] = ()
    zone_names: tuple[tuple[str, str], ...] = ()

    def put(self, at: sqlite3.Connection) -> None:
        """Put them into a new file."""
        at.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", self.facts)
        at.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", self.records)
        at.executemany("INSERT INTO objects VALUES (?, ?, ?)", self.objects)


async def other_clusters(folder: Path, cluster: str, scratch: Path) -> OtherClusters:
    """Return what the folder's file holds of other clusters than `cluster`, and the names of its
    zones; nothing if it is damaged.  `scratch`: a folder for the copy, which does not exist yet.

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
    objects, noted, declared = [], {}, {}
    for row in at.execute("SELECT kind, name, manifest FROM objects"):
        made = msgspec.json.decode(row[2], type=_Declared)
        # A StorageCluster is its own.
        owner = made.spec.cluster_ref.name if made.spec.cluster_ref is not None else row[1]
        if owner != cluster:
            objects.append((owner, row))
        elif row[0] == Zone.plural:
            declared[made.metadata.uid] = made.metadata.name
        elif row[0] == kind_of_names(cluster):  # an earlier recovery has not ended
            noted[made.metadata.uid] = made.metadata.name
    free = {uid: name for uid, name in noted.items() if name not in declared.values()}
    zone_names = tuple(sorted({**free, **declared}.items()))
    names = frozenset([*(row[0] for row in records), *(owner for owner, _ in objects)])
    if not names:
        return OtherClusters(zone_names=zone_names)
    own = {FORMAT, *facts_of(cluster)}
    facts = [row for row in at.execute("SELECT name, value FROM facts") if row[0] not in own]
    kept = tuple(row for _, row in objects)
    return OtherClusters(names, tuple(facts), tuple(records), kept, zone_names)
