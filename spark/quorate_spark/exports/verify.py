"""Reads an export back and compares it with its manifest."""

from collections.abc import Callable

from quorate.facts.keyspace import is_reserved, key_partition
from quorate_spark.exports.manifest import Manifest, read_manifest
from quorate_spark.exports.part_file import read_part
from quorate_spark.exports.target import Target, TargetRefused


def verify(target: Target, progress: Callable[[int, int], None]) -> Manifest:
    """Return the manifest if every row is as it was exported.  Raises TargetRefused otherwise.

    Checked are number, size and digest of each partition's rows, their order, and that each key
    belongs where it is.
    """
    manifest = read_manifest(target)
    done = 0
    for part in manifest.partitions:
        last = b""
        first = True
        for row in read_part(target, part):
            if not first and row.key <= last:
                raise TargetRefused(f"{target.text}: {part.file}: its keys do not rise")
            if is_reserved(row.key) or (
                key_partition(row.key, manifest.zone.partitions) != part.partition
            ):
                raise TargetRefused(f"{target.text}: {part.file} has {row.key!r}, of elsewhere")
            last, first = row.key, False
            done += 1
            if not done % 1000:
                progress(done, manifest.rows)
        progress(done, manifest.rows)
    return manifest
