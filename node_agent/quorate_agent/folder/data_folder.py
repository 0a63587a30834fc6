"""The data folder of an agent: what it must remember, opened by one process at a time.

    folder.json      the identity: cluster, node, store, count of starts, … (`identity.py`)
    lock             locked while an agent runs over the folder; holds its process id
    zones/<uid>/     one database per Persistent zone
    zone-<uid>.json  the zone's declaration, in case the metastore is lost
    agent.json       where its agent listens
    set-aside-<n>/   what an earlier store of this node held, with the reason; never read again

Promises are bound to a store, so the loss of any part of the folder must not go unnoticed under the
same store: if parts do not fit together, the folder is refused or set aside (`stored_zones.py`).

The event loop changes what the folder says; `save` makes it durable, from any thread.
"""

import fcntl
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from quorate.facts.zone import ZoneRecord
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.folder.durable_file import sync_folder, write_durably
from quorate_agent.folder.identity import (
    IDENTITY,
    START_ANEW,
    FolderRefused,
    Identity,
    Synced,
    check_identity,
    check_owner,
    new_identity,
    new_store_id,
    read_identity,
    store_of,
    synced_zones,
    write_identity,
)
from quorate_agent.machine.clock import Clock

_log = logging.getLogger("quorate.agent")

_LOCK: Final = "lock"
_ZONES: Final = "zones"
_MOVING: Final = "set-aside.json"
_ADDRESS: Final = "agent.json"


class _Moving(msgspec.Struct, frozen=True):
    """A set-aside in progress; the next start finishes it if it was interrupted."""

    number: int
    reason: str
    cluster: str
    node: str
    store: str
    master_term: int
    master_word: str = ""
    cluster_id: str = ""


class DataFolder:
    """An open, locked data folder.  `incarnation` already counts this start, durably.

    `opened_here`: uids of the zones whose database this start has opened."""

    def __init__(
        self, path: Path, lock: int, identity: Identity, proven_id: str, disk: DiskRoom
    ) -> None:
        self.path = path
        self.disk = disk
        self.opened_here: set[str] = set()
        self._proven_id = proven_id
        self._lock = lock
        self._identity = identity
        self._saved: Identity | None = None
        self._saving = threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        cluster: str,
        node: str,
        cluster_id: str,
        make_store_id: Callable[[], str] = new_store_id,
        disk_reserve: int | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Open or create the folder of agent `node` of `cluster`; raises FolderRefused.

        `cluster_id` is the id in the cluster's secret.  It is kept once a master that has proven it
        is obeyed."""
        path = Path(path)
        with _refused_by_system(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(path)
        try:
            with _refused_by_system(path):
                _finish_setting_aside(path)
                identity = read_identity(path)
                if identity is None:
                    _check_nothing_left(path)
                    store = make_store_id()
                    identity = new_identity(cluster, node, store, 0)
                check_identity(path, identity, cluster, node, cluster_id)
                _check_zones(path, identity)
                folder = cls(path, lock, identity, cluster_id, DiskRoom(path, disk_reserve, clock))
                folder._remove_unlisted_zones()
                folder._write(incarnation=identity.incarnation + 1, removing=())
        except BaseException:
            os.close(lock)
            raise
        return folder

    @property
    def store(self) -> str:
        """The store id, made with the folder."""
        return self._identity.store

    @property
    def incarnation(self) -> int:
        """Starts of an agent over this store, including the present one."""
        return self._identity.incarnation

    @property
    def master_term(self) -> int:
        """The highest master term seen; lower ones are refused."""
        return self._identity.master_term

    @property
    def cluster_id(self) -> str:
        """The id of the cluster whose master was first obeyed here; empty before that."""
        return self._identity.cluster_id

    @property
    def master_word(self) -> str:
        """The word of that mastership; empty if unknown."""
        return self._identity.master_word

    def raise_master_term(self, term: int, word: str) -> None:
        """Remember the mastership and its cluster, unless its term is lower; durable on return."""
        if term >= self._identity.master_term:
            self._write(master_term=term, master_word=word, cluster_id=self._proven_id)

    def zone_path(self, uid: str) -> Path:
        """Return the folder of a zone; create it if it is missing."""
        zones = self.path / _ZONES
        path = zones / _safe(uid)
        if uid not in self._identity.zones:
            if uid in self._identity.removing:
                _remove_all(path)  # a partly removed database would be taken for a complete one
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(zones)
            sync_folder(self.path)
            left = tuple(zone for zone in self._identity.removing if zone != uid)
            self._write(zones=tuple(sorted({*self._identity.zones, uid})), removing=left)
        return path

    def keep_zone(self, record: ZoneRecord) -> None:
        """Remember the declaration of a zone that has a folder; durable on return."""
        if record.uid in self._identity.zones:
            write_durably(self._record(record.uid), msgspec.json.encode(record).decode() + "\n")

    def kept_zones(self) -> list[ZoneRecord]:
        """Return the declarations of the zones that have a folder, as far as they were kept."""
        kept: list[ZoneRecord] = []
        for uid in self._identity.zones:
            with suppress(FileNotFoundError, msgspec.DecodeError):
                kept.append(msgspec.json.decode(self._record(uid).read_bytes(), type=ZoneRecord))
        return kept

    def _zone(self, uid: str) -> Path:
        return self.path / _ZONES / _safe(uid)

    def _record(self, uid: str) -> Path:
        return self.path / f"zone-{_safe(uid)}.json"

    def zone_uids(self) -> list[str]:
        """Return the uids of the zones that have a folder, in order."""
        return list(self._identity.zones)

    def forget_zone(self, uid: str) -> None:
        """Note that a zone is to be removed; an interrupted removal is completed later."""
        if uid in self._identity.zones:
            left = [zone for zone in self._identity.removing if self._zone(zone).exists()]
            kept = tuple(zone for zone in self._identity.zones if zone != uid)
            self._write(zones=kept, removing=(*left, uid))

    def has_zone(self, uid: str) -> bool:
        """Return whether there is anything of the zone to be removed."""
        if uid in self._identity.removing:
            return self._zone(uid).exists()
        return uid in self._identity.zones

    def remove_zone(self, uid: str) -> None:
        """Remove a zone's folder; close its storage first.  From any thread if it is forgotten.

        OSError: some of it is left; the next call or the next start removes it."""
        self.forget_zone(uid)
        if uid in self._identity.removing:
            # `forget_zone` of another zone may drop it from the list once its folder is gone.
            self._record(uid).unlink(missing_ok=True)
            _remove_all(self._zone(uid))

    def synced(self, uid: str) -> Synced | None:
        """Return what is recorded of a zone's database; None if nothing is."""
        return synced_zones(self._identity).get(uid)

    def note_synced(self, synced: Mapping[str, Synced]) -> bool:
        """Note how far these zones' databases are synced; return whether there is anything to
        `save`."""
        before = synced_zones(self._identity)
        noted = {**before, **{uid: synced[uid] for uid in synced if uid in self._identity.zones}}
        if noted != before:
            self._identity = msgspec.structs.replace(self._identity, synced=noted)
        return self._identity is not self._saved

    def save(self) -> None:
        """Make durable what the folder says now.  From any thread; nothing once it is closed."""
        with self._saving:
            identity = self._identity
            if identity is not self._saved and self._lock >= 0:
                write_identity(self.path, identity)
                self._saved = identity

    def set_aside(self, reason: str, make_store_id: Callable[[], str] = new_store_id) -> Path:
        """Keep what is here under set-aside-<n> and start a new, empty store (incarnation 1).

        Close every storage first.  The master term is kept: it belongs to the cluster, not to the
        store.  FolderRefused: the disk has no room for it; the next start finishes what was begun.
        """
        try:
            with _refused_by_system(self.path):
                aside = _move_aside(self.path, self._identity, make_store_id(), reason)
                identity = read_identity(self.path)
                assert identity is not None
                self._identity = identity
                self.opened_here.clear()
                self._write(incarnation=1)
        except FolderRefused as refused:
            raise FolderRefused(f"{reason}; it cannot be set aside: {refused}") from refused
        return aside

    def write_address(self, host: str, peer_port: int, admin_port: int) -> None:
        """Record in the folder where its agent listens now, for tools and people; FolderRefused:
        the disk has no room."""
        address = {"host": host, "peer_port": peer_port, "admin_port": admin_port}
        told = {"pid": os.getpid(), "name": self._identity.node, **address}
        with _refused_by_system(self.path / _ADDRESS):
            write_durably(self.path / _ADDRESS, json.dumps(told))

    def close(self) -> None:
        """Release the folder to other agents."""
        with self._saving:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _write(
        self,
        *,
        incarnation: int | None = None,
        master_term: int | None = None,
        master_word: str | None = None,
        zones: tuple[str, ...] | None = None,
        cluster_id: str = "",
        removing: tuple[str, ...] | None = None,
    ) -> None:
        old = self._identity
        kept = old.zones if zones is None else zones
        self._identity = msgspec.structs.replace(
            old,
            incarnation=old.incarnation if incarnation is None else incarnation,
            master_term=old.master_term if master_term is None else master_term,
            master_word=old.master_word if master_word is None else master_word,
            zones=kept,
            cluster_id=cluster_id or old.cluster_id,
            removing=old.removing if removing is None else removing,
            synced={uid: synced for uid, synced in synced_zones(old).items() if uid in kept},
        )
        try:
            self.save()
        except BaseException:
            self._identity = old
            raise

    def _remove_unlisted_zones(self) -> None:
        """Finish interrupted calls of `remove_zone` and `zone_path`.

        Removes zones that a master had ordered to be removed, and folders in which nothing was
        written yet.  Other folders stay: if this file is older than the zones beside it, the master
        has everything set aside, and no zone was ordered to be removed."""
        zones = self.path / _ZONES
        known = {_safe(uid) for uid in self._identity.zones}
        told = {_safe(uid) for uid in self._identity.removing}
        for path in sorted(zones.iterdir()) if zones.exists() else []:
            if path.name in known:
                continue
            if path.name in told or not any(path.iterdir()):
                shutil.rmtree(path)
            else:
                _log.warning("%s: not listed in %s; left as it is", path, IDENTITY)
        for uid in {*self._identity.removing} - {*self._identity.zones}:
            self._record(uid).unlink(missing_ok=True)


def _remove_all(path: Path) -> None:
    """Remove as much of a folder as possible; OSError of the first thing that is left."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def unused_folder(path: Path) -> Iterator[None]:
    """Hold the lock of a folder that no agent uses; an interrupted set-aside is finished first.

    FolderRefused: an agent uses it, or it cannot be written.
    """
    with _refused_by_system(path):
        lock = _take_lock(path)
        try:
            _finish_setting_aside(path)
            yield
        finally:
            os.close(lock)


@contextmanager
def _refused_by_system(path: Path) -> Iterator[None]:
    """Turn any OSError below `path` into FolderRefused."""
    try:
        yield
    except OSError as error:
        raise FolderRefused(
            f"{error.filename or path}: {error.strerror}. Way out: free some space, or correct the"
            " permissions"
        ) from error


def kept_zones(path: Path) -> list[Path]:
    """Return the zones' folders in the folder `path`, except empty ones and those that were being
    removed.

    FolderRefused: its identity cannot be read.
    """
    identity = read_identity(path)
    removing = {_safe(uid) for uid in identity.removing} if identity is not None else set()
    zones = path / _ZONES
    found = sorted(zones.iterdir()) if zones.exists() else []
    return [each for each in found if each.name not in removing and any(each.iterdir())]


def set_folder_aside(path: Path, *, cluster: str, node: str, reason: str) -> Path:
    """Set aside the folder of agent `node`, which no process uses and which may be unreadable.

    Returns where it is kept.  FolderRefused: it is in use, belongs to another agent, or holds
    nothing.
    """
    with unused_folder(path):
        try:
            identity = read_identity(path)
        except FolderRefused:
            identity = None  # that is why it is set aside; the master will tell its term again
        if identity is not None:
            check_owner(path, identity, cluster, node)
        elif not any((path / name).exists() for name in (IDENTITY, _ZONES)):
            raise FolderRefused(
                f"{path}: holds no data to set aside. Way out: name the agent's data folder"
            )
        whose = identity or new_identity(cluster, node, "", 0)
        return _move_aside(path, whose, new_store_id(), reason)


def put_folder_back(
    path: Path, *, cluster: str, node: str, number: int, last_start: Callable[[Path], int]
) -> None:
    """Put set-aside-<number> back in place of what is there, which is set aside in turn.

    The folder has its former store again, counted as started at least as often as `last_start`
    finds; that may raise FolderRefused, and is asked before anything is moved.  Whether it lacks
    data that it had synced is no longer checked: only a person can decide that.  An
    interrupted call is completed by calling again.  FolderRefused: the folder is in use, or there
    is no such set-aside.
    """
    aside = path / f"set-aside-{number}"
    with unused_folder(path):
        old = read_identity(aside)
        if old is None:
            raise FolderRefused(
                f"{aside}: has no {IDENTITY}, so it is not there or was put back already."
                f" Way out: name another"
            )
        check_owner(aside, old, cluster, node)
        if store_of(path) != old.store:
            incarnation = last_start(aside)
            present = read_identity(path) or new_identity(cluster, node, "", 0)
            _move_aside(path, present, new_store_id(), f"{aside.name} was put back in its place")
            obeyed = max(present, old, key=lambda identity: identity.master_term)
            old = msgspec.structs.replace(
                old,
                incarnation=max(old.incarnation, incarnation),
                master_term=obeyed.master_term,
                master_word=obeyed.master_word,
                synced={},
            )
            write_identity(path, old)
        if (aside / _ZONES).exists():
            (aside / _ZONES).rename(path / _ZONES)
        (aside / IDENTITY).rename(aside / f"{IDENTITY}.put-back")
        sync_folder(aside)
        sync_folder(path)


def _take_lock(path: Path) -> int:
    file = path / _LOCK
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise FolderRefused(
            f"{file}: process {holder} is using this folder."
            f" Way out: stop that process, or give this agent a folder of its own"
        ) from None
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        os.close(lock)
        raise
    return lock


def _check_nothing_left(path: Path) -> None:
    zones = path / _ZONES
    if zones.exists() and any(zones.iterdir()):
        raise FolderRefused(
            f"{path / IDENTITY}: missing, but {zones} holds data."
            f" Way out: put the file back from where the folder was copied, or {START_ANEW}"
        )


def _check_zones(path: Path, identity: Identity) -> None:
    for uid in identity.zones:
        if not (path / _ZONES / _safe(uid)).is_dir():
            raise FolderRefused(
                f"{path / _ZONES / _safe(uid)}: missing, but {path / IDENTITY} lists the zone."
                f" Way out: put the zone's folder back, or {START_ANEW}"
            )


def _move_aside(path: Path, old: Identity, store: str, reason: str) -> Path:
    """Set aside what the folder with identity `old` holds, and make it the empty `store`."""
    number = 1
    while (path / f"set-aside-{number}").exists():
        number += 1
    kept = (old.cluster, old.node, store, old.master_term, old.master_word, old.cluster_id)
    moving = _Moving(number, reason, *kept)
    write_durably(path / _MOVING, msgspec.json.encode(moving).decode() + "\n")
    _finish_setting_aside(path)
    return path / f"set-aside-{number}"


def _finish_setting_aside(path: Path) -> None:
    """Do, or finish, what set-aside.json says; nothing if there is none."""
    file = path / _MOVING
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return
    try:
        moving = msgspec.json.decode(data, type=_Moving)
    except msgspec.DecodeError as error:
        raise FolderRefused(
            f"{file}: not readable ({error}). Way out: move the whole data folder away"
        ) from None
    aside = path / f"set-aside-{moving.number}"
    aside.mkdir(exist_ok=True)
    if store_of(path) != moving.store:
        for name in (_ZONES, IDENTITY):
            if (path / name).exists():
                (path / name).rename(aside / name)
        write_durably(aside / "reason.txt", moving.reason + "\n")
        sync_folder(path)
        identity = msgspec.structs.replace(
            new_identity(moving.cluster, moving.node, moving.store, moving.master_term),
            master_word=moving.master_word,
            cluster_id=moving.cluster_id,
        )
        write_identity(path, identity)
    file.unlink()
    sync_folder(path)


def _safe(uid: str) -> str:
    """Return the folder name of a zone; refuse uids that would leave the folder."""
    if not uid or uid in (".", "..") or "/" in uid or "\0" in uid:
        raise FolderRefused(f"zone uid {uid!r} cannot name a folder")
    return uid
