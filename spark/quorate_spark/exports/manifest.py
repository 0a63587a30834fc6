"""The manifest of an export: what was exported, and how each file is checked.

It is written last.  Files without a manifest are no export.

That of an encrypted export tells without the key which export it is, and no digest: of few rows it
would tell the content.  The whole manifest is in it sealed, so that all of it is authenticated.
"""

import re
import secrets
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from quorate.facts.export_place import KEY_FILE_OPTION, KEY_VARIABLE
from quorate.protocol.copies.totals import DIGEST_BYTES, rows_digest
from quorate_spark.exports.encryption import Cipher, sealed, unsealed
from quorate_spark.exports.export_key import SALT_BYTES, ExportKey, KeyRefused
from quorate_spark.exports.target import Target, TargetRefused

MANIFEST = "manifest.json"
FORMAT = 1
ENCRYPTED_FORMAT = 2
"""Format number of an encrypted export: builds that know none refuse it by that."""
_EXPORT_ID = re.compile("[0-9a-f]{1,64}")
_RUN = re.compile("[A-Za-z0-9._-]{0,64}")
"""Ids get into arguments, annotations and statuses."""
_SALT = re.compile(f"[0-9a-f]{{{2 * SALT_BYTES}}}")
_MASK = (1 << 8 * DIGEST_BYTES) - 1


class ZoneTold(msgspec.Struct, frozen=True):
    """The exported zone; `spec` as it was declared."""

    name: str
    uid: str
    cluster: str
    partitions: int
    spec: dict[str, Any]


class PartTold(msgspec.Struct, frozen=True):
    """One partition: its cut, and the file with its rows.

    - `counter`, `term`: the rows are the fold of its updates up to this one
    - `node`: the agent whose copy was read; of a partition that has all its rows from the base,
      nothing was read but perhaps internal rows
    - `copies_agree`: copies with the digest of these rows at that counter
    - `bytes`: of keys and values; `file_bytes`: of the file
    - `digest`: see `Content`
    - `internal`: internal rows of the copy at the cut, which no export has; None: not known
    - `from_base`: the rows are those of the base, and the updates since; if not so although there
      is a base, `read_whole` says why (base_export.Whole)
    """

    partition: int
    file: str
    counter: int
    term: int
    node: str
    copies_agree: int
    rows: int
    bytes: int
    file_bytes: int
    digest: str
    internal: int | None = None
    from_base: bool = False
    read_whole: str = ""


class Encryption(msgspec.Struct, frozen=True, omit_defaults=True):
    """Encryption of an export.

    `key`: the id of the key.  `salt`: random, of this export.  `sealed`: the whole manifest,
    encrypted; empty in that one.
    """

    key: str
    salt: str
    sealed: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """A whole export; times are RFC 3339.

    `digest`: the sum of those of its partitions.  `run`: the name that its maker gave this export,
    to find it again; empty: none.  `series`: the id of the schedule that made it; empty: none.
    `base`: the id of the export from which rows were taken; empty: none was, or could be opened.
    `encryption`: None if the files are in the clear.  If they are not, the manifest that is read
    without the key has neither `digest` nor `partitions`.
    """

    format: int
    export_id: str
    zone: ZoneTold
    started_at: str
    ended_at: str
    rows: int
    bytes: int
    digest: str
    partitions: tuple[PartTold, ...]
    run: str = ""
    series: str = ""
    encryption: Encryption | None = None
    base: str = ""

    @property
    def key_id(self) -> str:
        """The id of the key; empty: it is not encrypted."""
        return self.encryption.key if self.encryption is not None else ""


class _Named(msgspec.Struct, frozen=True):
    """The part of any manifest that tells whose it is."""

    export_id: str


class Content:
    """The rows of an export added up: their number, size and digest.

    The digest is a sum of hashes of (key, value, expiry), modulo 2^128.  It depends neither on the
    order of the rows nor on partitions, counters and terms: it is that of the zone after an import.
    """

    __slots__ = ("bytes", "digest", "rows")

    def __init__(self, rows: int = 0, size: int = 0, digest: int = 0) -> None:
        self.rows = rows
        self.bytes = size
        self.digest = digest

    def add(self, keys: Sequence[bytes], values: Sequence[bytes], expiries: Sequence[int]) -> None:
        """Add rows."""
        zeros = repeat(0)
        self.rows += len(keys)
        self.bytes += sum(map(len, keys)) + sum(map(len, values))
        self.digest += rows_digest(zip(keys, zeros, zeros, expiries, values, strict=False))

    def add_all(self, other: "Content") -> None:
        """Add the rows of another one."""
        self.rows += other.rows
        self.bytes += other.bytes
        self.digest += other.digest

    @property
    def hex(self) -> str:
        """The digest as text."""
        return (self.digest & _MASK).to_bytes(DIGEST_BYTES).hex()


def content_of(parts: tuple[PartTold, ...]) -> Content:
    """Return the sum of partitions."""
    whole = Content()
    for part in parts:
        whole.add_all(Content(part.rows, part.bytes, int(part.digest, 16)))
    return whole


def new_cipher(key: ExportKey, export_id: str) -> Cipher:
    """Return the cipher of an export that begins."""
    return Cipher(key, export_id, secrets.token_bytes(SALT_BYTES))


def write_manifest(target: Target, manifest: Manifest, cipher: Cipher | None = None) -> Manifest:
    """Write it: from now on the export is there.  Raises TargetRefused if one is there already.

    Returns the whole manifest, which names the key of `cipher`, if there is one.
    """
    told = manifest
    if cipher is not None:
        encryption = Encryption(cipher.key_id, cipher.salt.hex())
        manifest = msgspec.structs.replace(manifest, format=ENCRYPTED_FORMAT, encryption=encryption)
        told = _public(manifest, sealed(msgspec.json.encode(manifest), cipher))
    target.write_last(MANIFEST, msgspec.json.format(msgspec.json.encode(told), indent=2))
    return manifest


def _public(manifest: Manifest, text: str) -> Manifest:
    """Return what is told without the key of an encrypted export; `text`: the sealed manifest."""
    assert manifest.encryption is not None
    encryption = msgspec.structs.replace(manifest.encryption, sealed=text)
    return msgspec.structs.replace(manifest, digest="", partitions=(), encryption=encryption)


def is_manifest_of(target: Target, export_id: str) -> bool:
    """Return whether there is a manifest, and this export has written it."""
    data = target.read(MANIFEST)
    try:
        return data is not None and msgspec.json.decode(data, type=_Named).export_id == export_id
    except msgspec.MsgspecError:
        return False


def read_manifest(target: Target) -> Manifest:
    """Return the manifest, checked in itself; of an encrypted export what is told without its key.

    Raises TargetRefused if there is no export.
    """
    data = target.read(MANIFEST)
    if data is None:
        raise TargetRefused(
            f"{target.text} is no export: it has no {MANIFEST}, which is written last; was its"
            " export interrupted?"
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise TargetRefused(f"{target.text}: {MANIFEST} is not as an export has it: {error}") from (
            error
        )
    names = (manifest.run, manifest.series, manifest.base)
    if not _EXPORT_ID.fullmatch(manifest.export_id) or not all(map(_RUN.fullmatch, names)):
        raise TargetRefused(
            f"{target.text}: {MANIFEST} has an export_id, run, series or base that is none"
        )
    if manifest.format > ENCRYPTED_FORMAT:
        raise TargetRefused(
            f"{target.text} has format {manifest.format}, this version reads up to"
            f" {ENCRYPTED_FORMAT}: use the version that wrote it"
        )
    if not (
        _is_public_part_valid(manifest) if manifest.encryption is not None else _is_whole(manifest)
    ):
        raise TargetRefused(
            f"{target.text}: {MANIFEST} contradicts itself: it is not as it was written"
        )
    return manifest


def manifest_of_run(target: Target, run: str) -> Manifest | None:
    """Return the manifest of the export of this name, as it is told without a key.

    None: there is none.  Raises as `read_manifest`.
    """
    if target.read(MANIFEST) is None:
        return None
    manifest = read_manifest(target)
    return manifest if manifest.run == run else None


def open_manifest(target: Target, told: Manifest, key: ExportKey | None) -> Manifest:
    """Return the whole manifest; `told`: as it was read.

    Raises KeyRefused if the key is not that of the export, or there is one too many; TargetRefused
    if the manifest was changed.
    """
    cipher = cipher_of(target, told, key)
    if cipher is None or told.encryption is None:
        return told
    why = "it does not decrypt by its key"
    try:
        whole = msgspec.json.decode(unsealed(told.encryption.sealed, cipher), type=Manifest)
    except (TargetRefused, msgspec.MsgspecError) as error:
        raise TargetRefused(f"{target.text}: {MANIFEST} was changed: {why}: {error}") from error
    if _public(whole, told.encryption.sealed) != told or not _is_whole(whole):
        raise TargetRefused(f"{target.text}: {MANIFEST} was changed: it is not as it was sealed")
    return whole


def cipher_of(target: Target, manifest: Manifest, key: ExportKey | None) -> Cipher | None:
    """Return what decrypts the files of an export; None: they are in the clear.

    Raises KeyRefused if the key is not that of the export, or there is one too many.
    """
    encryption = manifest.encryption
    if encryption is None:
        if key is not None:
            raise KeyRefused(
                f"{target.text} is not encrypted, and the key {key.id} is given: if that is as it"
                " should be, give no key; else this is not the export that was made with it"
            )
        return None
    if key is None:
        raise KeyRefused(
            f"{target.text} is encrypted with key {encryption.key}, and no key is given: name its"
            f" file by {KEY_FILE_OPTION}, or set {KEY_VARIABLE}"
        )
    if key.id != encryption.key:
        raise KeyRefused(
            f"{target.text} is encrypted with key {encryption.key}, and the key {key.id} is given:"
            " give that one"
        )
    return Cipher(key, manifest.export_id, bytes.fromhex(encryption.salt))


def _is_public_part_valid(manifest: Manifest) -> bool:
    """Return whether the open part of an encrypted export's manifest is as one has it."""
    encryption = manifest.encryption
    return (
        encryption is not None
        and manifest.format == ENCRYPTED_FORMAT
        and _SALT.fullmatch(encryption.salt) is not None
        and not manifest.partitions
    )


def _is_whole(manifest: Manifest) -> bool:
    """Return whether all partitions are there, and rows, bytes and digest are their sums."""
    numbers = [part.partition for part in manifest.partitions]
    try:
        whole = content_of(manifest.partitions)
    except ValueError:  # a digest that is no number
        return False
    return (
        (manifest.format == ENCRYPTED_FORMAT) == (manifest.encryption is not None)
        and numbers == list(range(manifest.zone.partitions))
        and (whole.rows, whole.bytes, whole.hex) == (manifest.rows, manifest.bytes, manifest.digest)
    )
