"""Exports a zone: one consistent cut of each partition, then the manifest.

Partitions are read in groups, each from one copy, backups first.  A partition whose copy cannot be
read, or is not what most copies say, is read from another copy.  At any end but the good one the
files that were written are deleted.  What a lost process left is deleted by the next export into
the same target, once its manifest is there: of several that run at once, only the one that gets the
manifest deletes files of others.

With a base (base_export), rows are read of an agent only where the base is of no use.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from quorate_spark.comparing.compare_digests import DigestsTold
from quorate_spark.copies import CopySeen
from quorate_spark.exports import base_export
from quorate_spark.exports.base_export import Base, BaseRefused, Whole, base_copy
from quorate_spark.exports.export_key import ExportKey
from quorate_spark.exports.manifest import (
    FORMAT,
    MANIFEST,
    Content,
    Manifest,
    PartTold,
    ZoneTold,
    content_of,
    is_manifest_of,
    new_cipher,
    write_manifest,
)
from quorate_spark.exports.part_file import PartWriter, file_name, is_file_name
from quorate_spark.exports.target import HALF, Target, TargetRefused
from quorate_spark.exports.zone_identity import check_zone
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_updates import LogTooShort
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.reading.watch_digests import watch_digests
from quorate_spark.settings import Settings

if TYPE_CHECKING:
    from quorate_spark.exports.cut import Scan
    from quorate_spark.reading.read_copies import StoredRow
    from quorate_spark.row_columns import RowColumns

GROUP_PARTITIONS_MAX = 16
GROUP_BYTES_MAX = 64 * 1024 * 1024
"""Partitions are read together until they have so many bytes: digests are then asked for once."""
GROUP_S = 5
"""Under a limit, so long at most: the log of a copy has to reach back to when it was read."""
COPIES_AT_ONCE = 2
"""Copies that are read at once, most often from different agents."""
ATTEMPTS_MAX = 6
"""How often a partition is read, from one copy after the other."""
LOG_ATTEMPTS_MAX = 3
"""Of these, how often a log is asked that cannot be read now, before the base is of no use."""

Progress = Callable[[int, int], None]
"""Called with the rows that are exported, and how many there are in all by the last count."""


@dataclass(slots=True)
class Group:
    """Partitions that are exported together; `problems`: why the last attempt failed."""

    partitions: tuple[int, ...]
    problems: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FromBase:
    """What a base has of a partition; the updates since are read of `copy`.

    `internal`: the internal rows of the copy, which the base does not have.
    """

    copy: CopySeen
    part: PartTold
    internal: "Sequence[StoredRow]"


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
) -> Manifest:
    """Export the zone into `target`.  Raises Unreadable or TargetRefused: then there is none.

    `run`: a name that the manifest gets, to find out later whether this export is there.
    `series`: the id of the schedule that makes it.  `key`: encrypts it; None: it is in the clear.
    `base`: an earlier export, from which rows are taken; it tells afterwards why some were not.
    """
    exporting = _Export(target, copies, settings, work_dir, progress, key, base)
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
    ) -> None:
        self._target = target
        self._copies = copies
        self._settings = settings
        self._work_dir = work_dir
        self._progress = progress
        self._id = token_hex(4)
        self._cipher = None if key is None else new_cipher(key, self._id)
        self._base = base
        self._parts: dict[int, PartTold] = {}
        self._rows_done = self._rows_total = 0

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
        self._rows_total = sum(owned[0].state.rows for owned in reading.owned.values())
        self._target.make()
        try:
            for group in _groups(reading.owned, self._settings.bytes_per_s):
                self._export_group(group)
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
            manifest = write_manifest(self._target, manifest, self._cipher)
            self._check_export()
        except BaseException:
            with suppress(TargetRefused):  # the next export deletes what is left
                files = [file_name(each, self._id) for each in range(count)]
                ours = [MANIFEST] if is_manifest_of(self._target, self._id) else []
                self._target.delete([*ours, *files])
            raise
        self._delete_left()
        return manifest

    def _export_group(self, group: Group) -> None:
        left: Sequence[int] = group.partitions
        attempt = 0
        while attempt < ATTEMPTS_MAX:
            known = sum(self._is_whole(partition) for partition in left)
            left, before = self._try(left, attempt, group.problems), left
            if not left:
                return
            if sum(self._is_whole(partition) for partition in before) == known:
                attempt += 1  # else the base was of no use, once for each partition
        raise Unreadable(
            "; ".join(group.problems[partition] for partition in left[:3])
            + (f"; and {len(left) - 3} more partitions" if len(left) > 3 else "")
        )

    def _try(
        self, partitions: Sequence[int], attempt: int, problems: dict[int, str]
    ) -> Sequence[int]:
        """Export these partitions; return those that it failed for."""
        try:
            owned = self._copies.read_answering(self._settings).owned
        except Unreadable as error:
            problems.update(dict.fromkeys(partitions, str(error)))
            return partitions
        failed: list[int] = []
        found: dict[int, Scan | FromBase] = {}
        zone, cluster = self._copies.zone, self._copies.cluster
        with ExitStack() as stack:
            chosen: dict[int, CopySeen] = {}
            links = stack.enter_context(AgentLinks(cluster, self._settings))
            for partition in partitions:
                try:
                    order = _order(partition, owned.get(partition, ()), attempt)
                    kept = self._from_base(partition, order, links, attempt)
                    if kept is not None:
                        found[partition] = kept
                    else:
                        chosen[partition] = order[0]
                except Unreadable as error:
                    problems[partition] = str(error)
                    failed.append(partition)
            for partition, scan in zip(chosen, self._scan_all(chosen.values(), stack), strict=True):
                if isinstance(scan, Unreadable):
                    problems[partition] = str(scan)
                    failed.append(partition)
                else:
                    found[partition] = scan
            watched = {partition: owned[partition] for partition in found}
            told = watch_digests(watched, zone, cluster, self._settings)
            for partition, rows in found.items():
                try:
                    self._write(rows, watched[partition], told[partition])
                except Unreadable as error:
                    if not self._is_refused(partition, error, attempt):
                        problems[partition] = str(error)
                    failed.append(partition)
        return sorted(failed)

    def _is_whole(self, partition: int) -> bool:
        """Return whether a partition is read whole although there is a base."""
        return self._base is not None and self._base.why_whole(partition) is not None

    def _is_refused(self, partition: int, error: Unreadable, attempt: int) -> bool:
        """Note, and return, whether a partition is to be read whole after this error.

        A log that cannot be read may be told by another copy, or later.
        """
        if self._base is None or not isinstance(error, BaseRefused):
            return False
        if error.why is Whole.LOG_UNREADABLE and attempt + 1 < LOG_ATTEMPTS_MAX:
            return False
        self._base.refuse(partition, error)
        return True

    def _from_base(
        self, partition: int, copies: tuple[CopySeen, ...], links: AgentLinks, attempt: int
    ) -> FromBase | None:
        """Return what the base has of a partition; None: it is to be read whole.

        Raises Unreadable if no copy, or no log of one, can be read now.
        """
        from quorate_spark.exports.cut import internal_rows

        part = self._base.part(partition) if self._base is not None else None
        if part is None:
            return None
        zone, cluster = self._copies.zone, self._copies.cluster
        try:
            copy = base_copy(part, copies, zone, links)
            # Those that are written from the cut of the base on are in the log.
            internal = (
                internal_rows(copy, zone, cluster, self._settings) if part.internal != 0 else ()
            )
        except BaseRefused as error:
            if self._is_refused(partition, error, attempt):
                return None
            raise
        return FromBase(copy, part, internal)

    def _scan_all(self, copies: Iterable[CopySeen], stack: ExitStack) -> "list[Scan | Unreadable]":
        """Read all rows of these copies, some copies at once; `stack` closes what was read."""
        from quorate_spark.exports.cut import scan_copy

        ended = threading.Event()
        zone, cluster = self._copies.zone, self._copies.cluster

        def scan(copy: CopySeen) -> "Scan | Unreadable":
            try:
                found = scan_copy(copy, zone, cluster, self._settings, self._work_dir, ended)
            except Unreadable as error:
                return error
            return stack.enter_context(found)

        with ThreadPoolExecutor(COPIES_AT_ONCE, "scan") as threads:
            try:
                return list(threads.map(scan, copies))
            except BaseException:
                ended.set()
                raise

    def _write(
        self, found: "Scan | FromBase", copies: tuple[CopySeen, ...], told: DigestsTold | str
    ) -> None:
        """Write the file of one partition.  Raises Unreadable if its rows are not proven.

        Raises BaseRefused if the base is why.
        """
        from quorate_spark.exports.cut import DigestWatched

        if isinstance(told, str):
            raise Unreadable(told)
        copy, is_from_base = found.copy, isinstance(found, FromBase)
        partition, node = copy.state.partition, copy.node
        digest, agree = Counter(told.digests).most_common(1)[0]
        if agree * 2 <= max(self._copies.replicas, len(copies)):
            raise Unreadable(
                f"partition {partition}: {agree} of {max(self._copies.replicas, len(copies))}"
                f" copies agree at counter {told.counter}, which is no majority: see `quorate"
                f" validate {self._copies.zone} --level digest`"
            )
        if isinstance(found, FromBase) and told.counter < found.part.counter:
            raise BaseRefused(
                Whole.OTHER_HISTORY,
                f"partition {partition}: the copies are at update {told.counter}, before the"
                f" {found.part.counter} of the base",
            )
        rows = DigestWatched(self._rows_at(found, told.counter))
        chunks: Iterable[RowColumns] = rows
        if isinstance(found, FromBase):
            assert self._base is not None
            chunks = self._base.folded(found.part, rows)
        name = file_name(partition, self._id)
        before = self._rows_done
        try:
            content, size = self._write_rows(name, partition, chunks)
        except BaseRefused:
            self._rows_done = before
            raise
        if rows.digest != int.from_bytes(digest):
            self._rows_done = before
            counted = f"the rows that {agree} copies have at counter {told.counter}"
            if self._base is not None and is_from_base:
                raise BaseRefused(
                    Whole.DIGEST_DIFFERS,
                    f"partition {partition}: the rows of the base, with the updates and internal"
                    f" rows of {node}, are not {counted}: see `quorate verify {self._base.place}`"
                    f" and `quorate validate {self._copies.zone} --level rows`",
                )
            raise Unreadable(
                f"partition {partition}: the copy on {node} has not {counted}: see `quorate"
                f" validate {self._copies.zone} --level rows`"
            )
        self._progress(self._rows_done, self._rows_total)
        why = self._base.why_whole(partition) if self._base is not None else None
        self._parts[partition] = PartTold(
            partition,
            name,
            told.counter,
            _term_at(copy, told.counter),
            node,
            agree,
            content.rows,
            content.bytes,
            size,
            content.hex,
            rows.internal,
            is_from_base,
            why or "",
        )

    def _rows_at(self, found: "Scan | FromBase", counter: int) -> "Iterator[RowColumns]":
        """Return the rows at the counter of the cut.

        Raises Unreadable if the log does not tell the updates; BaseRefused: those since the base.
        """
        from quorate_spark.exports.cut import Changes, TooManyUpdates, read_changes

        copy, zone = found.copy, self._copies.zone
        access = counter, zone, self._copies.cluster, self._settings
        if isinstance(found, FromBase):
            assert self._base is not None
            changes = Changes(found.internal, base_export.UPDATES_BYTES_MAX)
            try:
                read_changes(changes, copy, found.part.counter, *access)
            except LogTooShort as error:
                raise BaseRefused(Whole.LOG_TOO_SHORT, str(error)) from error
            except TooManyUpdates as error:
                why = f"partition {found.part.partition}: {error}"
                raise BaseRefused(Whole.TOO_MANY_UPDATES, why) from error
            except Unreadable as error:
                raise BaseRefused(Whole.LOG_UNREADABLE, str(error)) from error
            return changes.applied_to(self._base.chunks(found.part))
        changes = Changes()
        try:
            read_changes(changes, copy, copy.state.lwm, *access)
        except LogTooShort as error:
            raise Unreadable(f"{error}: too much was written while its rows were read") from error
        return changes.applied_to(found.chunks())

    def _write_rows(
        self, name: str, partition: int, rows: "Iterable[RowColumns]"
    ) -> tuple[Content, int]:
        """Write a file; return what is in it, and its size."""
        encryption = None if self._cipher is None else self._cipher.properties_to_write(name)
        with self._target.writing(name) as file:
            with PartWriter(file, partition, encryption) as writer:
                for chunk in rows:
                    writer.add(chunk)
                    self._rows_done += len(chunk)
                    self._progress(self._rows_done, self._rows_total)
            return writer.content, file.tell()

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
        there = {each.name: each.bytes for each in self._target.files()}
        for part in self._parts.values():
            if there.get(part.file) != part.file_bytes:
                raise TargetRefused(
                    f"{self._target.text}: {part.file} is not as it was written: does another"
                    " export write there?"
                )


def _order(partition: int, copies: tuple[CopySeen, ...], attempt: int) -> tuple[CopySeen, ...]:
    """Return the copies in the order in which they are read: backups in turn, so that each agent
    has its share.  Raises Unreadable if there is none."""
    if not copies:
        raise Unreadable(f"partition {partition}: no agent owns a copy")
    backups = copies[1:]
    start = partition % len(backups) if backups else 0
    order = (*backups[start:], *backups[:start], copies[0])
    first = attempt % len(order)
    return (*order[first:], *order[:first])


def _term_at(copy: CopySeen, counter: int) -> int:
    """Return the term of an update in the history of a copy."""
    lineage = copy.state.lineage
    term = lineage.term_at(counter)
    return lineage.base_term if term is None else term


def _groups(owned: Mapping[int, tuple[CopySeen, ...]], bytes_per_s: int | None) -> Iterator[Group]:
    bytes_max = GROUP_BYTES_MAX
    if bytes_per_s is not None:
        bytes_max = min(bytes_max, GROUP_S * bytes_per_s)
    partitions: list[int] = []
    size = 0
    for partition, copies in owned.items():
        more = copies[0].state.bytes
        if partitions and (len(partitions) == GROUP_PARTITIONS_MAX or size + more > bytes_max):
            yield Group(tuple(partitions))
            partitions, size = [], 0
        partitions.append(partition)
        size += more
    yield Group(tuple(partitions))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
