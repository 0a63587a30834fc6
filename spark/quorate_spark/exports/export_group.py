"""Exports groups of partitions: the rows of each at one cut, in a file.

The partitions of a group are read together, each from one copy, backups first.  A partition whose
copy cannot be read, or is not what most copies say, is read from another copy.

Several processes may export groups of one zone at once, as Spark's tasks do (export_tasks).
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from quorate_spark.comparing.compare_digests import DigestsTold, Majority
from quorate_spark.copies import CopySeen
from quorate_spark.exports import base_export
from quorate_spark.exports.base_export import Base, BaseRefused, Whole, base_copy
from quorate_spark.exports.encryption import Cipher
from quorate_spark.exports.manifest import Content, PartTold
from quorate_spark.exports.part_file import PartWriter, file_name
from quorate_spark.exports.target import Target
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_updates import LogTooShort
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.reading.watch_digests import watch_digests
from quorate_spark.settings import Settings

if TYPE_CHECKING:
    from quorate_spark.exports.cut import DigestWatched, Scan
    from quorate_spark.reading.read_copies import StoredRow
    from quorate_spark.row_columns import RowColumns

COPIES_AT_ONCE = 2
"""Copies that are read at once, most often from different agents."""
ATTEMPTS_MAX = 6
"""So often a partition is read at most, from one copy after the other."""
LOG_ATTEMPTS_MAX = 3
"""Of these, how often a log is asked that cannot be read now, before the base is of no use."""
WRITERS_MAX = 8
"""Attempts at a group whose files an export that fails deletes by name; others if they are listed,
or the next export does."""

Tell = Callable[[int], None]
"""Called with the rows that are exported."""


@dataclass(slots=True)
class Group:
    """Partitions that are exported together.

    `rows`: of them, by the last count.  `problems`: why the last attempt failed.
    """

    partitions: tuple[int, ...]
    rows: int = 0
    problems: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FromBase:
    """The rows that a base has of a partition; the updates since are read of `copy`.

    `internal`: the internal rows of the copy, which the base does not have.
    """

    copy: CopySeen
    part: PartTold
    internal: "Sequence[StoredRow]"


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows of one partition at the counter of the export.

    `chunks`: they, once; `watched` then has their digest.  `differs`: the error if that is not the
    digest of the copies.
    """

    watched: "DigestWatched"
    chunks: "Iterable[RowColumns]"
    differs: Unreadable
    is_from_base: bool


@dataclass(frozen=True, slots=True)
class Shared:
    """An export, as all its groups have it."""

    target: Target
    copies: ZoneCopies
    settings: Settings
    work_dir: str | None
    export_id: str
    cipher: Cipher | None
    base: Base | None


class GroupsExport(Protocol):
    """Exports groups, in this process or elsewhere.

    `at_once`: how many are read together.  `writers`: how many attempts at a group have
    their files deleted by name if the export fails.
    """

    at_once: int
    writers: int

    def __call__(
        self, shared: Shared, groups: Sequence[Group], tell: Tell
    ) -> Mapping[int, PartTold]:
        """Return the files by partition.  Raises Unreadable, TargetRefused."""


class ExportHere:
    """Exports groups in this process, one after the other."""

    at_once = writers = 1

    def __call__(
        self, shared: Shared, groups: Sequence[Group], tell: Tell
    ) -> Mapping[int, PartTold]:
        """Return the files by partition.  Raises Unreadable, TargetRefused."""
        exporting = GroupExport(shared, shared.export_id, tell)
        for group in groups:
            exporting.run(group)
        return exporting.parts


def writer_id(export_id: str, attempt: int) -> str:
    """Return the end of the names of files that the process of this attempt writes.

    A process that was given up may still write, so each attempt has names of its own.
    """
    if not attempt:
        return export_id
    return hashlib.sha256(f"{export_id}/{attempt}".encode()).hexdigest()[: len(export_id)]


class GroupExport:
    """Exports groups.  `parts`: the files so far, by partition."""

    def __init__(self, shared: Shared, writer: str, tell: Tell) -> None:
        """`writer`: see `writer_id`."""
        self.parts: dict[int, PartTold] = {}
        self._target = shared.target
        self._copies = shared.copies
        self._settings = shared.settings
        self._work_dir = shared.work_dir
        self._cipher = shared.cipher
        self._base = shared.base
        self._id = writer
        self._tell = tell
        self._rows_done = 0

    def run(self, group: Group) -> None:
        """Write the files of a group's partitions.  Raises Unreadable, TargetRefused."""
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
            enough = {
                partition: Majority(self._copies_expected(watched[partition]), rows.copy.node)
                for partition, rows in found.items()
            }
            told = watch_digests(watched, zone, cluster, self._settings, enough=enough)
            for partition, rows in found.items():
                try:
                    self._write(rows, watched[partition], told[partition])
                except Unreadable as error:
                    if not self._is_refused(partition, error, attempt):
                        problems[partition] = str(error)
                    failed.append(partition)
        return sorted(failed)

    def _copies_expected(self, copies: tuple[CopySeen, ...]) -> int:
        """Return of how many copies a majority must agree, with those that do not answer."""
        return max(self._copies.replicas, len(copies))

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
        if isinstance(told, str):
            raise Unreadable(told)
        copy, partition = found.copy, found.copy.state.partition
        digest, agree = Counter(told.digests).most_common(1)[0]
        expected = self._copies_expected(copies)
        if len(copies) * 2 <= expected:
            raise Unreadable(
                f"partition {partition}: only {len(copies)} of {expected} copies answered, which"
                " is no majority: wait until their agents answer, and name every agent"
            )
        if agree * 2 <= expected:
            raise Unreadable(
                f"partition {partition}: {agree} of {expected}"
                f" copies agree at counter {told.counter}, which is no majority: see `quorate"
                f" validate {self._copies.zone} --level digest`"
            )
        counted = f"the rows that {agree} copies have at counter {told.counter}"
        cut = (
            self._cut_of_base(found, told.counter, counted)
            if isinstance(found, FromBase)
            else self._cut_of_copy(found, told.counter, counted)
        )
        name = file_name(partition, self._id)
        before = self._rows_done
        try:
            content, size = self._write_rows(name, partition, cut.chunks)
            if cut.watched.digest != int.from_bytes(digest):
                raise cut.differs
        except Unreadable:
            self._rows_done = before
            raise
        self._tell(self._rows_done)
        why = self._base.why_whole(partition) if self._base is not None else None
        self.parts[partition] = PartTold(
            partition,
            name,
            told.counter,
            _term_at(copy, told.counter),
            copy.node,
            agree,
            content.rows,
            content.bytes,
            size,
            content.hex,
            cut.watched.internal,
            cut.is_from_base,
            why or "",
        )

    def _cut_of_copy(self, scan: "Scan", counter: int, counted: str) -> Cut:
        """Return the rows of a copy at this counter.

        `counted`: the rows that are wanted, in words.  Raises Unreadable if its log does not tell
        the updates.
        """
        from quorate_spark.exports.cut import Changes, DigestWatched, read_changes

        copy, zone = scan.copy, self._copies.zone
        changes = Changes()
        try:
            read_changes(
                changes,
                copy,
                copy.state.lwm,
                counter,
                zone,
                self._copies.cluster,
                self._settings,
            )
        except LogTooShort as error:
            raise Unreadable(f"{error}: too much was written while its rows were read") from error
        rows = DigestWatched(changes.applied_to(scan.chunks()))
        differs = Unreadable(
            f"partition {copy.state.partition}: the copy on {copy.node} has not {counted}: see"
            f" `quorate validate {zone} --level rows`"
        )
        return Cut(rows, rows, differs, False)

    def _cut_of_base(self, found: FromBase, counter: int, counted: str) -> Cut:
        """Return the rows of the base with the updates up to this counter.

        `counted`: as above.  Raises BaseRefused.
        """
        from quorate_spark.exports.cut import (
            Changes,
            DigestWatched,
            TooManyUpdates,
            read_changes,
        )

        assert self._base is not None
        base, part, zone = self._base, found.part, self._copies.zone
        if counter < part.counter:
            raise BaseRefused(
                Whole.OTHER_HISTORY,
                f"partition {part.partition}: the copies are at update {counter}, before the"
                f" {part.counter} of the base",
            )
        changes = Changes(found.internal, base_export.UPDATES_BYTES_MAX)
        access = zone, self._copies.cluster, self._settings
        try:
            read_changes(changes, found.copy, part.counter, counter, *access)
        except LogTooShort as error:
            raise BaseRefused(Whole.LOG_TOO_SHORT, str(error)) from error
        except TooManyUpdates as error:
            why = f"partition {part.partition}: {error}"
            raise BaseRefused(Whole.TOO_MANY_UPDATES, why) from error
        except Unreadable as error:
            raise BaseRefused(Whole.LOG_UNREADABLE, str(error)) from error
        rows = DigestWatched(changes.applied_to(base.chunks(part)))
        differs = BaseRefused(
            Whole.DIGEST_DIFFERS,
            f"partition {part.partition}: the rows of the base, with the updates and internal rows"
            f" of {found.copy.node}, are not {counted}: see `quorate verify {base.place}` and"
            f" `quorate validate {zone} --level rows`",
        )
        return Cut(rows, base.folded(part, rows), differs, True)

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
                    self._tell(self._rows_done)
            return writer.content, file.tell()


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
