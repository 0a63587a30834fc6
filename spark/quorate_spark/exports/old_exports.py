"""Deletes older exports of a schedule, beside a new one that was read back.

The operator names the folders.  One is deleted only if it is surely an export of this schedule:

1. its name is that of a folder which a schedule makes, beside the new export, and another one
2. its manifest has the schedule's id (`series`) and is of the same data (`zone.uid`); or it has no
   manifest, and no file but those that an export without an end leaves

The manifest goes first: what is left after an interruption is no export, and is deleted next time.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from quorate_spark.exports.export_zone import may_be_left
from quorate_spark.exports.manifest import MANIFEST, Manifest, read_manifest
from quorate_spark.exports.target import Target, TargetRefused

_FOLDER = re.compile(r"[a-z0-9][a-z0-9-]*-[0-9]{8}T[0-9]{6}Z")


class Deleted(NamedTuple):
    """The folders that are not there any more, and why others are; empty: none is."""

    folders: tuple[str, ...]
    problem: str


def delete_old(new: Target, manifest: Manifest, folders: Sequence[str]) -> Deleted:
    """Delete these folders beside the export `new`, whose manifest this is."""
    gone, problems = [], []
    for folder in folders:
        try:
            _delete(new, manifest, folder)
        except TargetRefused as error:
            problems.append(str(error))
        else:
            gone.append(folder)
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return Deleted(tuple(gone), f"{problems[0]}{more}" if problems else "")


def _delete(new: Target, manifest: Manifest, folder: str) -> None:
    """Delete one folder, if it is there.  Raises TargetRefused."""
    if not _FOLDER.fullmatch(folder):
        raise TargetRefused(f"{folder} is not deleted: it is no folder of a schedule")
    old = new.beside(folder)
    if old.text == new.text:
        raise TargetRefused(f"{folder} is not deleted: it has the new export")
    names = [each.name for each in old.files()]
    others = [name for name in names if name != MANIFEST and not may_be_left(name)]
    if others:
        raise TargetRefused(f"{old.text} is not deleted: it has {others[0]}, which is of no export")
    if MANIFEST in names:
        theirs = read_manifest(old)
        if not manifest.series or theirs.series != manifest.series:
            raise TargetRefused(f"{old.text} is not deleted: it is no export of this schedule")
        if theirs.zone.uid != manifest.zone.uid:
            raise TargetRefused(f"{old.text} is not deleted: it is an export of another zone")
        old.delete([MANIFEST])
    old.delete(names)
    old.remove()
