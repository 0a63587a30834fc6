"""The key that encrypts an export, as a person keeps it: in a file, or in an environment variable.

It is never in an argument, as others can read those, nor in any message.  It is told by its id,
from which nothing follows about it.  Each file of an export is encrypted with a key of its own,
which is derived from it by HMAC-SHA256, as HKDF-Expand (RFC 5869, 2.3) does with one block.
"""

import binascii
import hmac
import os
import stat
from base64 import b64decode
from pathlib import Path
from shlex import quote

from quorate.facts.export_place import KEY_FILE_OPTION, KEY_VARIABLE
from quorate_spark.exports.target import TargetUnreadable

LENGTHS = (16, 24, 32)
"""Bytes of a key: those of AES-128, AES-192 and AES-256."""
_HEX, _HEX_LENGTHS = b"0123456789abcdefABCDEF", tuple(2 * length for length in LENGTHS)
SALT_BYTES = 16
ID_BYTES = 8
TEXT_MAX = 1024
"""Bytes of a key file that are read; any key is shorter."""
_ID, _FILE = b"quorate export key id", b"quorate export file"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyRefused(TargetUnreadable):
    """The key is none, or is not that of the export: what is in the export is not known."""


class ExportKey:
    """A key.  `id`: a fingerprint, which manifests, statuses and messages tell."""

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes) -> None:
        assert len(secret) in LENGTHS
        self._secret = secret
        self.id = _expanded(secret, _ID)[:ID_BYTES].hex()

    def __repr__(self) -> str:
        return f"ExportKey({self.id})"

    def for_file(self, salt: bytes, name: str) -> bytes:
        """Return the key of one file; `salt`: random bytes of its export."""
        assert len(salt) == SALT_BYTES
        return _expanded(self._secret, _FILE + salt + name.encode())[: len(self._secret)]


def read_key(file: Path | None, is_required: bool = False) -> ExportKey | None:
    """Return the key in `file`, or without one in the environment; None: there is none.

    `is_required`: that there is none is refused.  Raises KeyRefused.
    """
    if file is not None:
        return _parse(_read(file), f"{KEY_FILE_OPTION} {file}")
    text = os.environ.get(KEY_VARIABLE)
    if text is not None:
        # An empty variable is refused, too: else a Secret without a key would mean no encryption.
        return _parse(text.encode(errors="replace"), KEY_VARIABLE)
    if is_required:
        raise KeyRefused(f"{KEY_VARIABLE} is not set: it has the key that encrypts the export")
    return None


def _read(path: Path) -> bytes:
    """Return what is in a key file.  One of ours that others can read is refused, as by ssh."""
    what = f"{KEY_FILE_OPTION} {path}"
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
                raise KeyRefused(
                    f"{what}: others can read or write it (mode"
                    f" {stat.S_IMODE(found.st_mode):04o}): chmod 600 {quote(str(path))}, and"
                    " use another key if others may have read it"
                )
            return file.read(TEXT_MAX)
    except FileNotFoundError as error:
        raise KeyRefused(f"{what}: there is no such file: name the file that has the key") from (
            error
        )
    except OSError as error:
        raise KeyRefused(f"{what} cannot be read: {error.strerror}") from error


def _parse(text: bytes, what: str) -> ExportKey:
    wanted = "a key is 16, 24 or 32 random bytes in base64, as of `openssl rand -base64 32`"
    stripped = text.strip()
    if not stripped:
        raise KeyRefused(f"{what} is empty: {wanted}")
    if len(stripped) in _HEX_LENGTHS and not stripped.strip(_HEX):
        # 32 of them are base64 of 24 bytes as well, and have no more than 16 random ones.
        raise KeyRefused(f"{what} has hexadecimal digits: {wanted}")
    try:
        secret = b64decode(stripped, validate=True)
    except binascii.Error:
        # Without the cause: nothing of the text is told.
        raise KeyRefused(f"{what} is not base64: {wanted}") from None
    if len(secret) not in LENGTHS:
        raise KeyRefused(f"{what} has {len(secret)} bytes: {wanted}")
    return ExportKey(secret)


def _expanded(secret: bytes, info: bytes) -> bytes:
    """Return HKDF-Expand's first block, 32 bytes."""
    return hmac.digest(secret, info + b"\x01", "sha256")
