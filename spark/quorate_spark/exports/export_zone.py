"""Exports a zone: one consistent cut of each partition, then the manifest.

Partitions are read in groups (export_group), in this process or by tasks of Spark.  At any end but
the good one the files that were written are deleted.  What a lost process left is deleted by the
next export into the same target, once its manifest is there: of several that run at once, only the
one that gets the manifest deletes files of others.

With a base (base_export), rows are read of an agent only where the base is of no use.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from quorate.facts.errors import QuorateError
from quorate_spark.copies import CopySeen
from quorate_spark.exports.base_export import Base
from quorate_spark.exports.export_group import (
    ExportHere,
    Group,
    GroupsExport,
    Shared,
    writer_id,
)
from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.manifest import (
    FORMAT,
    MANIFEST,
    Manifest,
    PartTold,
    ZoneTold,
    content_of,
    is_manifest_of,
    new_cipher,
    write_manifest,
)
from quorate_spark.exports.part_file import file_name, is_file_name
from quorate_spark.exports.target import HALF, Target, TargetRefused, TargetUnreadable
from quorate_spark.exports.zone_identity import check_zone
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings

GROUP_PARTITIONS_MAX = 16
GROUP_BYTES_MAX = 64 * 1024 * 1024
"""Partitions are read together until they have so many bytes: digests are then asked for once."""
GROUP_S = 5
"""Under a limit, so long at most: the log of a copy has to reach back to when it was read."""
GROUPS_EACH = 4
"""Groups that each of several readers gets at least, if there are so many partitions."""

LISTED_MAX = 100
"""Attempts at a group whose files are known as this export's where they are listed."""

Progress = Callable[[int, int], None]
"""Called with the rows that are exported, and how many there are in all by the last count."""


def export_zone(
    target: Target,
    copies: ZoneCopies,
    uid: str,
    spec: Mapping[str, Any],
    settings: Settings,
    work_dir: str | None,
    progress: Progress = lambda done, total: None,
    run: str = "",
    series: str = "",
    key: ExportKey | None = None,
    base: Base | None = None,
    export: GroupsExport | None = None,
) -> Manifest:
    """Export the zone into `target`.  Raises Unreadable or TargetRefused: then there is none.

    `run`: a name that the manifest gets, to find out later whether this export is there.
    `series`: the id of the schedule that makes it.  `key`: encrypts it; None: it is in the clear.
    `base`: an earlier export, from which rows are taken; it tells afterwards why some were not.
    `export`: exports the groups; None: this process does.
    """
    export = export or ExportHere()
    exporting = _Export(target, copies, settings, work_dir, progress, key, base, export)
    return exporting.run(uid, spec, run, series)


def _check_free(target: Target) -> None:
    """Raise TargetRefused if there is an export, or anything that no export can have left."""
    found = [each.name for each in target.files()]
    if MANIFEST in found:
        raise TargetRefused(
            f"{target.text} has an export already: name another place, or delete that one first"
        )
    if others := [name for name in found if not may_be_left(name)]:
        raise TargetRefused(
            f"{target.text} has {others[0]}, which is of no export: name an empty or a new place"
        )


def may_be_left(name: str) -> bool:
    """Return whether an export without an end can have left a file of this name."""
    return is_file_name(name) or (name.startswith(f"{MANIFEST}.") and name.endswith(HALF))


class _Export:
    """One run."""

    def __init__(
        self,
        target: Target,
        copies: ZoneCopies,
        settings: Settings,
        work_dir: str | None,
        progress: Progress,
        key: ExportKey | None,
        base: Base | None,
        export: GroupsExport,
    ) -> None:
        self._target = target
        self._copies = copies
        self._settings = settings
        self._work_dir = work_dir
        self._progress = progress
        self._id = token_hex(4)
        self._cipher = None if key is None else new_cipher(key, self._id)
        self._base = base
        self._export = export
        self._parts: Mapping[int, PartTold] = {}

    def run(self, uid: str, spec: Mapping[str, Any], run: str, series: str) -> Manifest:
        started_at = _now()
        _check_free(self._target)
        reading = self._copies.read_answering(self._settings)
        check_zone(reading, self._copies.zone, uid)
        count = self._copies.partitions
        missing = [each for each in range(count) if each not in reading.owned]
        if missing:
            raise Unreadable(
                f"{len(missing)} partitions have no copy on an agent that answers (the first is"
                f" {missing[0]}): wait until the zone is available"
            )
        zone = ZoneTold(self._copies.zone, uid, self._copies.cluster.name, count, dict(spec))
        if self._base is not None:
            self._base.check_zone(zone)
        groups = [*_groups(reading.owned, self._settings.bytes_per_s, self._export.at_once)]
        total = sum(group.rows for group in groups)
        shared = Shared(
            self._target,
            self._copies,
            self._settings,
            self._work_dir,
            self._id,
            self._cipher,
            self._base,
        )
        self._target.make()
        has_begun = False
        try:
            self._parts = self._export(shared, groups, lambda rows: self._progress(rows, total))
            self._check_files()
            # Rows are read by the zone's name: of another zone, if it was replaced meanwhile.
            check_zone(self._copies.read_answering(self._settings), self._copies.zone, uid)
            whole = content_of(tuple(self._parts.values()))
            manifest = Manifest(
                FORMAT,
                self._id,
                zone,
                started_at,
                _now(),
                whole.rows,
                whole.bytes,
                whole.hex,
                tuple(part for _, part in sorted(self._parts.items())),
                run,
                series,
                base=self._base.export_id if self._base is not None else "",
            )
            has_begun = True
            manifest = write_manifest(self._target, manifest, self._cipher)
            self._check_export()
        except BaseException as error:
            try:
                self._delete_ours(count)
            except TargetRefused:  # the next export deletes what is left
                if has_begun and isinstance(error, QuorateError):
                    raise TargetUnreadable(
                        f"{error}; it may be there all the same: `quorate verify"
                        f" {self._target.text}` tells"
                    ) from error
            raise
        self._delete_left()
        return manifest

    def _delete_ours(self, count: int) -> None:
        """Delete what this export has written of `count` partitions."""
        ours = [MANIFEST] if is_manifest_of(self._target, self._id) else []
        writers = self._export.writers
        for attempt in range(writers):
            writer = writer_id(self._id, attempt)
            ours += [file_name(each, writer) for each in range(count)]
        self._target.delete(ours)
        later = {writer_id(self._id, attempt) for attempt in range(writers, LISTED_MAX)}
        listed = [each.name for each in self._target.files() if is_file_name(each.name)]
        self._target.delete([name for name in listed if any(each in name for each in later)])

    def _delete_left(self) -> None:
        """Delete the files of exports without an end, now that this one has the place.

        Another one that runs finds its files gone, and the manifest there.
        """
        mine = {part.file for part in self._parts.values()}
        with suppress(TargetRefused):  # they are in nobody's way
            found = [each.name for each in self._target.files()]
            if is_manifest_of(self._target, self._id):
                self._target.delete(
                    [name for name in found if name not in mine and may_be_left(name)]
                )

    def _check_export(self) -> None:
        """Raise TargetRefused unless files and manifest are there, in spite of other exports."""
        self._check_files()
        if not is_manifest_of(self._target, self._id):
            raise TargetRefused(f"{self._target.text}: another export has written its manifest")

    def _check_files(self) -> None:
        """Raise TargetRefused unless every file is there: another export may run into it."""
        there = self._target.sizes(part.file for part in self._parts.values())
        for part in self._parts.values():
            if there.get(part.file) != part.file_bytes:
                raise TargetRefused(
                    f"{self._target.text}: {part.file} is not as it was written: does another"
                    " export write there?"
                )


def _groups(
    owned: Mapping[int, tuple[CopySeen, ...]], bytes_per_s: int | None, at_once: int = 1
) -> Iterator[Group]:
    """Yield the partitions in groups; `at_once`: how many groups are read together."""
    bytes_max, partitions_max = GROUP_BYTES_MAX, GROUP_PARTITIONS_MAX
    if bytes_per_s is not None:
        bytes_max = min(bytes_max, GROUP_S * bytes_per_s // at_once)
    if at_once > 1:  # else some would have no group while others have several left
        partitions_max = max(min(partitions_max, len(owned) // (GROUPS_EACH * at_once)), 1)
    partitions: list[int] = []
    size = rows = 0
    for partition, copies in owned.items():
        more = copies[0].state.bytes
        if partitions and (len(partitions) == partitions_max or size + more > bytes_max):
            yield Group(tuple(partitions), rows)
            partitions, size, rows = [], 0, 0
        partitions.append(partition)
        size += more
        rows += copies[0].state.rows
    yield Group(tuple(partitions), rows)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
