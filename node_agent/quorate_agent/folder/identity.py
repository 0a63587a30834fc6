"""The identity of a data folder, `folder.json`: whose folder it is, which store, and its starts.

It also holds what the store must remember: its mastership, its zones, and how far each was synced.
A checksum tells a changed or damaged file.  Whether the whole folder is an older image of itself is
judged by the master, by its count of starts (core/quorate/protocol/members/membership.py).
"""

import json
import uuid
import zlib
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from quorate.facts.errors import QuorateError
from quorate_agent.folder.durable_file import write_durably

FORMAT_VERSION: Final = 2
_WITHOUT_SYNCED: Final = 1
"""Format of folders that did not record what was synced; they are read, and rewritten in the
present one."""
START_ANEW: Final = (
    "set the agent's whole data folder aside (not one zone alone: what the node promised would be"
    " forgotten unnoticed) and start it over a new store, which the other owners fill:"
    " `quorate dev start AGENT --set-aside`, or elsewhere `quorate-agent … --set-aside REASON` once"
)
IDENTITY: Final = "folder.json"


class FolderRefused(QuorateError):
    """The folder cannot be used: names the file, what was found and expected, the way out."""


class Synced(NamedTuple):
    """A zone's database was synced up to `sequence`, and says that start `incarnation` opened it.

    Never more than is on disk: it is noted after the sync.
    """

    sequence: int
    incarnation: int


class Identity(msgspec.Struct, frozen=True):
    """The content of the file."""

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

    def checked(self) -> "Identity":
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


def new_store_id() -> str:
    """Return a new, unique store id."""
    return uuid.uuid4().hex


def read_identity(path: Path) -> Identity | None:
    """Return the identity of the folder `path`, None if it has none; FolderRefused: unreadable."""
    file = path / IDENTITY
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
        identity = msgspec.json.decode(data, type=Identity)
    except msgspec.ValidationError as error:
        raise FolderRefused(f"{file}: {error}. {way_out}") from None
    if identity != identity.checked():
        expected = identity.checked().check
        raise FolderRefused(
            f"{file}: checksum {identity.check} found, {expected} expected:"
            f" it was changed or damaged. {way_out}"
        )
    return msgspec.structs.replace(identity, format=FORMAT_VERSION, synced=synced_zones(identity))


def new_identity(cluster: str, node: str, store: str, master_term: int) -> Identity:
    """Return the identity of a store that was never started."""
    return Identity(FORMAT_VERSION, cluster, node, store, 0, master_term, (), synced={})


def synced_zones(identity: Identity) -> dict[str, Synced]:
    """Return how far the database of each zone was synced."""
    return {} if identity.synced is msgspec.UNSET else identity.synced


def write_identity(path: Path, identity: Identity) -> None:
    """Write the identity of the folder `path`; durable on return."""
    write_durably(path / IDENTITY, msgspec.json.encode(identity.checked()).decode() + "\n")


def check_owner(path: Path, identity: Identity, cluster: str, node: str) -> None:
    """FolderRefused: the folder belongs to another agent."""
    file = path / IDENTITY
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


def check_identity(
    path: Path, identity: Identity, cluster: str, node: str, cluster_id: str
) -> None:
    """FolderRefused: the folder belongs to another agent, or to another cluster of that name."""
    check_owner(path, identity, cluster, node)
    file = path / IDENTITY
    if identity.cluster_id not in ("", cluster_id):
        raise FolderRefused(
            f"{file}: cluster_id {identity.cluster_id!r} found, the secret is of {cluster_id!r}:"
            f" another cluster {cluster!r} keeps data here. Way out: start with that cluster's"
            " secret (--secret-file; a lost one is written anew, for operator and agents: that"
            " clusterId and another key), or give this agent a folder of its own"
        )


def store_of(path: Path) -> str:
    """Return the store of the folder `path`; empty if its identity is missing or unreadable."""
    try:
        identity = read_identity(path)
    except FolderRefused:
        return ""
    return identity.store if identity is not None else ""
