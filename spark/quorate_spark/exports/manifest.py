"""The manifest of an export: what was exported, and how each file is checked.

It is written last.  Files without a manifest are no export.
"""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from quorate.protocol.copies.totals import DIGEST_BYTES, rows_digest
from quorate_spark.exports.target import Target, TargetRefused

MANIFEST = "manifest.json"
FORMAT = 1
_EXPORT_ID = re.compile("[0-9a-f]{1,64}")
_RUN = re.compile("[A-Za-z0-9._-]{0,64}")
"""Ids get into arguments, annotations and statuses."""
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

    - `counter`, `term`: the rows are the fold of its updates up to this counter
    - `node`: the agent whose copy was read; `copies_agree`: copies with its digest at that counter
    - `bytes`: of keys and values; `file_bytes`: of the file
    - `digest`: see `Content`
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


class Manifest(msgspec.Struct, frozen=True):
    """A whole export; times are RFC 3339.

    `digest`: the sum of those of its partitions.  `run`: the name that its maker gave this export,
    to find it again; empty: none.  `series`: the id of the schedule that made it; empty: none.
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


class _Named(msgspec.Struct, frozen=True):
    """That part of any manifest that tells whose it is."""

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


def write_manifest(target: Target, manifest: Manifest) -> None:
    """Write it: from now on the export is there.  Raises TargetRefused if one is there already."""
    target.write_last(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def is_manifest_of(target: Target, export_id: str) -> bool:
    """Return whether there is a manifest, and this export has written it."""
    data = target.read(MANIFEST)
    try:
        return data is not None and msgspec.json.decode(data, type=_Named).export_id == export_id
    except msgspec.MsgspecError:
        return False


def read_manifest(target: Target) -> Manifest:
    """Return the manifest, checked in itself.  Raises TargetRefused if there is no export."""
    data = target.read(MANIFEST)
    if data is None:
        raise TargetRefused(
            f"{target.text} is no export: it has no {MANIFEST}, which is written last; was its"
            " export interrupted?"
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        whole = content_of(manifest.partitions)
    except (msgspec.MsgspecError, ValueError) as error:
        raise TargetRefused(f"{target.text}: {MANIFEST} is not as an export has it: {error}") from (
            error
        )
    names = (manifest.run, manifest.series)
    if not _EXPORT_ID.fullmatch(manifest.export_id) or not all(map(_RUN.fullmatch, names)):
        raise TargetRefused(
            f"{target.text}: {MANIFEST} has an export_id, run or series that is none"
        )
    if manifest.format > FORMAT:
        raise TargetRefused(
            f"{target.text} has format {manifest.format}, this version reads {FORMAT}: use the"
            " version that wrote it"
        )
    count = manifest.zone.partitions
    numbers = [part.partition for part in manifest.partitions]
    if numbers != list(range(count)) or whole.hex != manifest.digest:
        raise TargetRefused(
            f"{target.text}: {MANIFEST} contradicts itself: it is not as it was written"
        )
    return manifest
