"""The data folder of an agent: its identity (store, count of starts) and what it must remember.

    folder.json      format, cluster and its id, node, store, incarnation, mastership, zones, what
                     of each zone was synced, checksum
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
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from quorate.facts.errors import QuorateError
from quorate.facts.zone import ZoneRecord
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.folder.durable_file import sync_folder, write_durably
from quorate_agent.machine.clock import Clock

_log = logging.getLogger("quorate.agent")

FORMAT_VERSION: Final = 2
_WITHOUT_SYNCED: Final = 1
"""Format of folders that did not record what was synced; they are read, and rewritten in the
present one."""
START_ANEW: Final = (
    "set the agent's whole data folder aside (not one zone alone: what the node promised would be"
    " forgotten unnoticed) and start it over a new store, which the other owners fill:"
    " `quorate dev start AGENT --set-aside`, or elsewhere `quorate-agent … --set-aside REASON` once"
)
_IDENTITY: Final = "folder.json"
_LOCK: Final = "lock"
_ZONES: Final = "zones"
_MOVING: Final = "set-aside.json"
_ADDRESS: Final = "agent.json"


class FolderRefused(QuorateError):
    """The folder cannot be used: names the file, what was found and expected, the way out."""


class Synced(NamedTuple):
    """A zone's database was synced up to `sequence`, and says that start `incarnation` opened it.

    Never more than is on disk: it is noted after the sync.
    """

    sequence: int
    incarnation: int


class _Identity(msgspec.Struct, frozen=True):
    format: int
    cluster: str
    node: str
    store: str
    incarnation: int
    master_term: int
    zones: tuple[str, ...]
    check: int = 0
    master_word: str = ""
    synced: dict[str, Synced] | msgspec.UnsetType = msgspec.UNSET
    cluster_id: str = ""
    removing: tuple[str, ...] = ()

    def checked(self) -> "_Identity":
        """Return the same identity with its checksum."""
        plain = msgspec.structs.asdict(msgspec.structs.replace(self, check=0))
        if not self.master_word:
            del plain["master_word"]  # earlier versions wrote none
        if self.synced is msgspec.UNSET:
            del plain["synced"]
        for name in ("cluster_id", "removing"):
            if not plain[name]:
                del plain[name]  # earlier versions knew none
        return msgspec.structs.replace(self, check=zlib.crc32(msgspec.json.encode(plain)))


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


def new_store_id() -> str:
    """Return a new, unique store id."""
    return uuid.uuid4().hex


class DataFolder:
    """An open, locked data folder.  `incarnation` already counts this start, durably."""

    def __init__(
        self, path: Path, lock: int, identity: _Identity, proven_id: str, disk: DiskRoom
    ) -> None:
        self.path = path
        self.disk = disk
        self._proven_id = proven_id
        self._lock = lock
        self._identity = identity
        self._saved: _Identity | None = None
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
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(path)
        except OSError as error:
            raise FolderRefused(
                f"{path}: {error.strerror}. Way out: name a folder this user may write to"
            ) from error
        try:
            with _refused_by_system(path):
                _finish_setting_aside(path)
                identity = _read_identity(path / _IDENTITY)
                if identity is None:
                    _check_nothing_left(path)
                    store = make_store_id()
                    identity = _new_identity(cluster, node, store, 0)
                _check_identity(path, identity, cluster, node, cluster_id)
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

    def remove_zone(self, uid: str) -> None:
        """Remove a zone's folder; close its storage first.

        OSError: some of it is left; the next call or the next start removes it."""
        self.forget_zone(uid)
        if uid in self._identity.removing:
            _remove_all(self._zone(uid))
            self._record(uid).unlink(missing_ok=True)

    def synced(self, uid: str) -> Synced | None:
        """Return what is recorded of a zone's database; None if nothing is."""
        return _synced(self._identity).get(uid)

    def note_synced(self, synced: Mapping[str, Synced]) -> bool:
        """Note how far these zones' databases are synced; return whether there is anything to
        `save`."""
        before = _synced(self._identity)
        noted = {**before, **{uid: synced[uid] for uid in synced if uid in self._identity.zones}}
        if noted != before:
            self._identity = msgspec.structs.replace(self._identity, synced=noted)
        return self._identity is not self._saved

    def save(self) -> None:
        """Make durable what the folder says now.  From any thread; nothing once it is closed."""
        with self._saving:
            identity = self._identity
            if identity is not self._saved and self._lock >= 0:
                _write_identity(self.path, identity)
                self._saved = identity

    def set_aside(self, reason: str, make_store_id: Callable[[], str] = new_store_id) -> Path:
        """Keep what is here under set-aside-<n> and start a new, empty store (incarnation 1).

        Close every storage first.  The master term is kept: it belongs to the cluster, not to the
        store.  FolderRefused: the disk has no room for it; the next start finishes what was begun.
        """
        try:
            with _refused_by_system(self.path):
                aside = _move_aside(self.path, self._identity, make_store_id(), reason)
                identity = _read_identity(self.path / _IDENTITY)
                assert identity is not None
                self._identity = identity
                self._write(incarnation=1)
        except FolderRefused as refused:
            raise FolderRefused(f"{reason}; it cannot be set aside: {refused}") from refused
        return aside

    def write_address(self, host: str, peer_port: int, admin_port: int) -> None:
        """Record in the folder where its agent listens now, for tools and people."""
        address = {"host": host, "peer_port": peer_port, "admin_port": admin_port}
        told = {"pid": os.getpid(), "name": self._identity.node, **address}
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
            synced={uid: synced for uid, synced in _synced(old).items() if uid in kept},
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
                _log.warning("%s: not listed in %s; left as it is", path, _IDENTITY)
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


def set_folder_aside(path: Path, *, cluster: str, node: str, reason: str) -> Path:
    """Set aside the folder of agent `node`, which no process uses and which may be unreadable.

    Returns where it is kept.  FolderRefused: it is in use, belongs to another agent, or holds
    nothing.
    """
    with unused_folder(path):
        try:
            identity = _read_identity(path / _IDENTITY)
        except FolderRefused:
            identity = None  # that is why it is set aside; the master will tell its term again
        if identity is not None:
            _check_owner(path, identity, cluster, node)
        elif not any((path / name).exists() for name in (_IDENTITY, _ZONES)):
            raise FolderRefused(
                f"{path}: holds no data to set aside. Way out: name the agent's data folder"
            )
        whose = identity or _new_identity(cluster, node, "", 0)
        return _move_aside(path, whose, new_store_id(), reason)


def put_folder_back(
    path: Path, *, cluster: str, node: str, number: int, incarnation: int = 0
) -> None:
    """Put set-aside-<number> back in place of what is there, which is set aside in turn.

    The folder has its former store again, counted as started at least `incarnation` times.  Whether
    it lacks data that it had synced is no longer checked: only a person can decide that.  An
    interrupted call is completed by calling again.  FolderRefused: the folder is in use, or there
    is no such set-aside.
    """
    aside = path / f"set-aside-{number}"
    with unused_folder(path):
        old = _read_identity(aside / _IDENTITY)
        if old is None:
            raise FolderRefused(
                f"{aside}: has no {_IDENTITY}, so it is not there or was put back already."
                f" Way out: name another"
            )
        _check_owner(aside, old, cluster, node)
        if _store_of(path) != old.store:
            present = _read_identity(path / _IDENTITY) or _new_identity(cluster, node, "", 0)
            _move_aside(path, present, new_store_id(), f"{aside.name} was put back in its place")
            obeyed = max(present, old, key=lambda identity: identity.master_term)
            old = msgspec.structs.replace(
                old,
                incarnation=max(old.incarnation, incarnation),
                master_term=obeyed.master_term,
                master_word=obeyed.master_word,
                synced={},
            )
            _write_identity(path, old)
        if (aside / _ZONES).exists():
            (aside / _ZONES).rename(path / _ZONES)
        (aside / _IDENTITY).rename(aside / f"{_IDENTITY}.put-back")
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
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _read_identity(file: Path) -> _Identity | None:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    way_out = f"Way out: {START_ANEW}"
    try:
        found = json.loads(data)["format"]
    except (ValueError, KeyError, TypeError):
        raise FolderRefused(f"{file}: not readable: {data[:60]!r}. {way_out}") from None
    if found not in (FORMAT_VERSION, _WITHOUT_SYNCED):
        raise FolderRefused(
            f"{file}: format {found!r} found, {FORMAT_VERSION} expected."
            f" Way out: start the version of the agent that wrote it, or {START_ANEW}"
        )
    try:
        identity = msgspec.json.decode(data, type=_Identity)
    except msgspec.ValidationError as error:
        raise FolderRefused(f"{file}: {error}. {way_out}") from None
    if identity != identity.checked():
        expected = identity.checked().check
        raise FolderRefused(
            f"{file}: checksum {identity.check} found, {expected} expected:"
            f" it was changed or damaged. {way_out}"
        )
    return msgspec.structs.replace(identity, format=FORMAT_VERSION, synced=_synced(identity))


def _new_identity(cluster: str, node: str, store: str, master_term: int) -> _Identity:
    """Return the identity of a store that was never started."""
    return _Identity(FORMAT_VERSION, cluster, node, store, 0, master_term, (), synced={})


def _synced(identity: _Identity) -> dict[str, Synced]:
    return {} if identity.synced is msgspec.UNSET else identity.synced


def _write_identity(path: Path, identity: _Identity) -> None:
    write_durably(path / _IDENTITY, msgspec.json.encode(identity.checked()).decode() + "\n")


def _check_nothing_left(path: Path) -> None:
    zones = path / _ZONES
    if zones.exists() and any(zones.iterdir()):
        raise FolderRefused(
            f"{path / _IDENTITY}: missing, but {zones} holds data."
            f" Way out: put the file back from where the folder was copied, or {START_ANEW}"
        )


def _check_owner(path: Path, identity: _Identity, cluster: str, node: str) -> None:
    file = path / _IDENTITY
    for field, found, wanted in (
        ("cluster", identity.cluster, cluster),
        ("node", identity.node, node),
    ):
        if found != wanted:
            raise FolderRefused(
                f"{file}: {field} {found!r} found, {wanted!r} expected: this is another's folder."
                f" Way out: start with --{'name' if field == 'node' else field} {found},"
                f" or give this agent a folder of its own"
            )


def _check_identity(
    path: Path, identity: _Identity, cluster: str, node: str, cluster_id: str
) -> None:
    _check_owner(path, identity, cluster, node)
    file = path / _IDENTITY
    if identity.cluster_id not in ("", cluster_id):
        raise FolderRefused(
            f"{file}: cluster_id {identity.cluster_id!r} found, the secret is of {cluster_id!r}:"
            f" another cluster {cluster!r} keeps data here. Way out: start with that cluster's"
            " secret (--secret-file; a lost one is written anew, for operator and agents: that"
            " clusterId and another key), or give this agent a folder of its own"
        )
    for uid in identity.zones:
        if not (path / _ZONES / _safe(uid)).is_dir():
            raise FolderRefused(
                f"{path / _ZONES / _safe(uid)}: missing, but {file} lists the zone."
                f" Way out: put the zone's folder back, or {START_ANEW}"
            )


def _move_aside(path: Path, old: _Identity, store: str, reason: str) -> Path:
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
    if _store_of(path) != moving.store:
        for name in (_ZONES, _IDENTITY):
            if (path / name).exists():
                (path / name).rename(aside / name)
        write_durably(aside / "reason.txt", moving.reason + "\n")
        sync_folder(path)
        identity = msgspec.structs.replace(
            _new_identity(moving.cluster, moving.node, moving.store, moving.master_term),
            master_word=moving.master_word,
            cluster_id=moving.cluster_id,
        )
        _write_identity(path, identity)
    file.unlink()
    sync_folder(path)


def _store_of(path: Path) -> str:
    try:
        identity = _read_identity(path / _IDENTITY)
    except FolderRefused:
        return ""
    return identity.store if identity is not None else ""


def _safe(uid: str) -> str:
    """Return the folder name of a zone; refuse uids that would leave the folder."""
    if not uid or uid in (".", "..") or "/" in uid or "\0" in uid:
        raise FolderRefused(f"zone uid {uid!r} cannot name a folder")
    return uid
