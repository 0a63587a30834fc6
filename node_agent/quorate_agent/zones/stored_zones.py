"""Opens the databases of a data folder, and detects a database that holds less than it did.

What a copy has synced counts in quorums.  A database that lost some of it, because a log was
deleted or cut off or an older copy was put in its place, must not vote as if it had it.  So its
last synced sequence number is recorded a second time, in `folder.json`, at least once a second and
when the agent stops; and the database itself names the store and the start that opened it last.
Source: docs/protocol.md, section 7.

    recorded <= synced <= found     at every moment, whatever crashes: numbers are noted after the
                                    sync, and what is synced is still there afterwards
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from quorate.facts.errors import QuorateError
from quorate.protocol.storage import Storage, StorageFull, ZoneRefused
from quorate_agent.folder.data_folder import DataFolder, kept_zones
from quorate_agent.folder.identity import (
    START_ANEW,
    FolderRefused,
    Synced,
    read_identity,
    synced_zones,
)
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.database import TABLES_OPEN, Database, OpenedBy
from quorate_agent.storage.rocks import RocksStorage

_log = logging.getLogger("quorate.agent")

_OTHER_DATA = (
    "put another set-aside back, or restore the zone from a backup; `quorate recover reopen` has"
    " lost partitions begin again without data"
)


class LessThanSynced(QuorateError):
    """A zone's database is not the one that was synced: the folder must be set aside."""


def open_stored_zones(
    folder: DataFolder,
    descriptors: Descriptors,
    opening: Callable[[str, int, int], None] = lambda uid, number, count: None,
) -> dict[str, RocksStorage]:
    """Open the storage of every zone of the folder for which there are descriptors; return them by
    uid.

    `opening(uid, number, count)` is called before each.  If one holds less than was synced, the
    folder is set aside, the reason is logged, and the result is empty.  DatabaseRefused,
    StorageBroken: one cannot be read; none stays open.
    """
    opened: dict[str, RocksStorage] = {}
    try:
        uids = folder.zone_uids()
        for number, uid in enumerate(uids, 1):
            opening(uid, number, len(uids))
            try:
                descriptors.take_zone(uid, persistent=True)
            except ZoneRefused as refused:
                _log.warning("zone %s stays closed: %s", uid, refused)
                continue
            opened[uid] = open_zone(folder, uid, descriptors.tables)
    except LessThanSynced as error:
        _close(opened)
        for uid in folder.zone_uids():
            descriptors.give_back(uid)
        aside = folder.set_aside(str(error))
        _log.error("%s; it was set aside as %s: other agents fill a new store", error, aside)
        return {}
    except BaseException:
        _close(opened)
        raise
    return opened


def open_zone(folder: DataFolder, uid: str, tables: int = TABLES_OPEN) -> RocksStorage:
    """Open the storage of one zone, new or stored.

    LessThanSynced: it is not what it was.  DatabaseRefused, StorageBroken: it cannot be read, or
    made."""
    with _system_errors_named(folder.path):
        path, synced = folder.zone_path(uid), _sequence(folder.synced(uid))
        storage = RocksStorage(path, disk=folder.disk, tables=tables, synced=synced)
    try:
        storage.check_readable()
        _check_holds_all(folder, uid, storage.database)
        storage.measure_logs()  # the event loop would be blocked by it
        folder.opened_here.add(uid)
        with suppress(StorageFull):  # then an earlier start stays recorded
            storage.database.set_opened_by(OpenedBy(folder.store, folder.incarnation))
    except BaseException:
        storage.close()
        raise
    return storage


@contextmanager
def _system_errors_named(path: Path) -> Iterator[None]:
    """Turn any OSError below `path` into DatabaseRefused."""
    try:
        yield
    except OSError as error:
        raise DatabaseRefused(
            f"{error.filename or path}: {error.strerror or error}."
            f" Way out: free some space, or correct the permissions"
        ) from error


def last_start(folder: Path) -> int:
    """Return the last start of an agent that opened a zone of a set-aside folder; 0 if none did.

    Zones that were being removed do not count: their files may be half gone. One that folder.json
    neither lists nor names as such does count: folder.json is older than it.

    FolderRefused: a zone cannot be read.
    """
    starts = [0]
    identity = read_identity(folder)
    synced = synced_zones(identity) if identity is not None else {}
    for path in kept_zones(folder):
        try:
            starts.append(_opened_last(path, _sequence(synced.get(path.name))))
        except (DatabaseRefused, StorageBroken) as error:
            why = str(error).replace(START_ANEW, _OTHER_DATA)
            text = f"{folder} is not put back, zone {path.name} cannot be read: {why}"
            raise FolderRefused(text) from error
    return max(starts)


def _sequence(recorded: Synced | None) -> int:
    """Return the number up to which a zone's database is recorded as synced; 0: none is."""
    return recorded.sequence if recorded is not None else 0


def _opened_last(path: Path, synced: int) -> int:
    """Return which start opened the database of a zone last; 0 if none is recorded."""
    with _system_errors_named(path):
        storage = RocksStorage(path, synced=synced)
    try:
        opened_by = storage.database.read_opened_by()
        return opened_by.incarnation if opened_by is not None else 0
    finally:
        storage.close()


def what_is_synced(engines: Mapping[str, Storage]) -> dict[str, Synced]:
    """Return how far these zones' storages are synced; only those on disk that were."""
    synced = {}
    for uid, engine in engines.items():
        if isinstance(engine, RocksStorage) and engine.database.synced_sequence:
            opened_by = engine.database.opened_by
            incarnation = opened_by.incarnation if opened_by is not None else 0
            synced[uid] = Synced(engine.database.synced_sequence, incarnation)
    return synced


def _check_holds_all(folder: DataFolder, uid: str, database: Database) -> None:
    """Raise LessThanSynced unless it can be the database that this store synced."""
    recorded = folder.synced(uid)
    opened_by = database.read_opened_by()
    why = _what_is_missing(folder, uid, recorded, database.sequence, opened_by)
    if why:
        raise LessThanSynced(f"data folder {folder.path}, zone {uid}: {why}")


def _what_is_missing(
    folder: DataFolder,
    uid: str,
    recorded: Synced | None,
    sequence: int,
    opened_by: OpenedBy | None,
) -> str:
    """Return what shows that it cannot be; empty if it can."""
    if opened_by is not None and opened_by.store != folder.store:
        return f"store {folder.store} is recorded, a database of store {opened_by.store} was found"
    opened = opened_by.incarnation if opened_by is not None else 0
    # A zone whose removal could not be recorded is closed, and may be opened again.
    latest = folder.incarnation - (uid not in folder.opened_here)
    if opened > latest:
        return (
            f"{folder.incarnation - 1} starts are recorded, a database that start {opened} has"
            " opened was found, so folder.json is an older copy"
        )
    if recorded is None:
        return ""
    if sequence < recorded.sequence:
        return (
            f"sequence number {recorded.sequence} is recorded as synced, {sequence} was found, so"
            " data that was synced is lost"
        )
    if opened < recorded.incarnation:
        return (
            f"a sync by start {recorded.incarnation} of the agent is recorded, a database that"
            f" start {opened} opened last was found, so it is an older copy"
        )
    return ""


def _close(opened: dict[str, RocksStorage]) -> None:
    for storage in opened.values():
        storage.close()
