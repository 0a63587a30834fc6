"""A cluster's secret: its identity, the key that all its members know, and how these are kept.

Each role gets a key of its own, derived from the one key (HKDF-SHA256, RFC 5869). A process holds
the keys of the roles that it takes or answers. The key of one role reveals nothing of the others.

As a file: a JSON object with `clusterId` and `key`, readable by its owner alone. As a folder, which
is how Kubernetes mounts a Secret: a file `clusterId` and a file `key`.
"""

import hmac
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from quorate.facts.errors import QuorateError
from quorate.protocol.messages.message import ROLES

CLUSTER_ID = "clusterId"
KEY = "key"
KEY_BYTES = 32
FILE_BYTES_MAX = 64 * 1024
_KEY_TEXT = re.compile(r"[0-9a-f]{64}")
_ID_TEXT = re.compile(r"[0-9A-Za-z][-._0-9A-Za-z]{0,127}")


class SecretRefused(QuorateError):
    """No valid secret is there. The message names the place, what is wrong, and the way out."""


@dataclass(frozen=True, slots=True)
class RoleKeys:
    """The cluster's identity, and the keys by which a process proves and checks roles."""

    cluster_id: str
    by_role: dict[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """The whole secret. A process that has it counts as a member."""

    cluster_id: str
    key: bytes = field(repr=False)

    def keys(self, *roles: str) -> RoleKeys:
        """Return the keys of `roles`, or of all roles if none is named, as agents need them."""
        return RoleKeys(self.cluster_id, {each: self._derive(each) for each in roles or ROLES})

    def spark(self, application: str) -> str:
        """Return the secret by which the pods of one Spark application know each other."""
        return self._derive(f"spark {application}").hex()

    def texts(self) -> dict[str, str]:
        """Return the two values as they are written."""
        return {CLUSTER_ID: self.cluster_id, KEY: self.key.hex()}

    def _derive(self, use: str) -> bytes:
        extracted = hmac.digest(self.cluster_id.encode(), self.key, "sha256")
        return hmac.digest(extracted, b"quorate " + use.encode() + b"\x01", "sha256")


def draw_secret() -> ClusterSecret:
    """Draw the secret of a new cluster."""
    return ClusterSecret(secrets.token_hex(16), secrets.token_bytes(KEY_BYTES))


def parse_secret(where: str, cluster_id: object, key: object) -> ClusterSecret:
    """Return the secret from its two written values. Raises SecretRefused.

    `where`: the place that they come from, for the message.
    """
    for name, value, form, wanted in (
        (CLUSTER_ID, cluster_id, _ID_TEXT, "letters, digits, '-', '_' and '.', up to 128"),
        (KEY, key, _KEY_TEXT, f"{2 * KEY_BYTES} digits of a hexadecimal number in lower case"),
    ):
        if not isinstance(value, str) or not form.fullmatch(value):
            found = "is missing" if value is None else "is not well-formed"
            raise SecretRefused(
                f"{where}: {name} {found}, {wanted} are expected. Way out: put back the secret that"
                " the cluster was made with"
            )
    return ClusterSecret(str(cluster_id), bytes.fromhex(str(key)))


def read_secret(path: Path) -> ClusterSecret:
    """Return the secret in a file, or in a folder that is a mounted Secret. SecretRefused."""
    way_out = "name the file of the cluster's secret that the operator has (docs/protocol.md, 3)"
    try:
        if path.is_dir():  # its permissions are those of the mount
            texts: dict[str, object] = {
                name: _text(path / name).strip() for name in (CLUSTER_ID, KEY)
            }
            return parse_secret(str(path), texts[CLUSTER_ID], texts[KEY])
        mode = stat.S_IMODE(path.stat().st_mode)
        data = _text(path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SecretRefused(f"{path} cannot be read: {why}. Way out: {way_out}") from error
    if mode & 0o077:
        raise SecretRefused(
            f"{path}: mode {mode:04o} lets others read the cluster's secret."
            f" Way out: chmod 600 {path}; where others may have read it, make another one"
        )
    try:
        found = msgspec.json.decode(data, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise SecretRefused(f"{path}: not a secret's file ({error}). Way out: {way_out}") from error
    return parse_secret(str(path), found.get(CLUSTER_ID), found.get(KEY))


def make_secret(path: Path) -> ClusterSecret:
    """Return the secret in `path`; draw and write it if there is none. Raises SecretRefused.

    Processes that do this at once all get the same one. It is durable when this returns.
    """
    if not path.exists():
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(fresh, msgspec.json.format(msgspec.json.encode(draw_secret().texts())) + b"\n")
            with suppress(FileExistsError):
                path.hardlink_to(fresh)
            fresh.unlink()
            _sync(path.parent)
        except OSError as error:
            raise SecretRefused(
                f"{path} cannot be written: {error.strerror}. Way out: make room or mend"
                " permissions"
            ) from error
    return read_secret(path)


def write_private(path: Path, text: str) -> None:
    """Replace the contents of a file, readable by its owner alone, in one step."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    _write(fresh, text.encode())
    fresh.replace(path)
    _sync(path.parent)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX).decode()


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
