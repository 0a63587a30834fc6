"""Reads an export back and compares it with its manifest."""

from collections.abc import Callable, Iterator

from quorate.facts.keyspace import is_reserved, key_partition
from quorate_spark.exports.encryption import Cipher
from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.manifest import (
    Manifest,
    PartTold,
    cipher_of,
    open_manifest,
    read_manifest,
)
from quorate_spark.exports.part_file import LiveRow, read_part
from quorate_spark.exports.target import Target, TargetRefused


def verify(
    target: Target, progress: Callable[[int, int], None], key: ExportKey | None = None
) -> Manifest:
    """Return the whole manifest if every row is as it was exported.  `key`: that encrypted it.

    Raises TargetUnreadable if a file cannot be read, or the key is another one; TargetRefused if a
    row is not as it was.
    """
    manifest = open_manifest(target, read_manifest(target), key)
    check_rows(target, manifest, progress, cipher_of(target, manifest, key))
    return manifest


def check_rows(
    target: Target,
    manifest: Manifest,
    progress: Callable[[int, int], None],
    cipher: Cipher | None,
) -> None:
    """Raise TargetRefused unless every row is as it was exported; TargetUnreadable: not known.

    Checked are number, size and digest of each partition's rows, their order, and that each key
    belongs where it is.
    """
    done = 0
    for part in manifest.partitions:
        for _ in _checked(target, manifest, part, cipher):
            done += 1
            if not done % 1000:
                progress(done, manifest.rows)
        progress(done, manifest.rows)


def _checked(
    target: Target, manifest: Manifest, part: PartTold, cipher: Cipher | None
) -> Iterator[LiveRow]:
    last: bytes | None = None
    for number, row in enumerate(read_part(target, part, cipher), start=1):
        if last is not None and row.key <= last:
            raise TargetRefused(f"{target.text}: {part.file}: its keys do not rise")
        if is_reserved(row.key) or (
            key_partition(row.key, manifest.zone.partitions) != part.partition
        ):
            raise TargetRefused(
                f"{target.text}: {part.file}: the key of row {number} belongs elsewhere"
            )
        last = row.key
        yield row
