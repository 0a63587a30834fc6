"""Imports an export into a zone, of any number of partitions: through its primaries.

1. Refuse a zone that has keys, unless told otherwise, or unless an interrupted import is continued.
2. Read the export, and refuse it if a row is not as it was exported.
3. Write the rows, batch by batch, each as one update of the primary.  A key that has a row is left
   alone, so rows that are there already are not written twice, and a client's are not overwritten.
   Rows that have expired since the export are left out.
4. Read the zone back and compare it with the export, row by row.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from quorate.facts.errors import QuorateError
from quorate.facts.keyspace import is_reserved, key_partition, printable
from quorate_spark.copies import CopySeen
from quorate_spark.exports.encryption import Cipher
from quorate_spark.exports.manifest import Content, Manifest, PartTold
from quorate_spark.exports.part_file import LiveRow, read_part
from quorate_spark.exports.target import Target
from quorate_spark.exports.verify import check_rows
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_copies import StoredRow, read_rows
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings
from quorate_spark.writing.batches import BATCH_ROWS_MAX, RowBatches
from quorate_spark.writing.primaries import Primaries, RowsRefused

KEPT_HASHES_MAX = 500_000
COMPARE_ATTEMPTS = 6
"""Readings of one part, whose primaries may change meanwhile."""
KEYS_TOLD_MAX = 20
CLOCKS_APART_MS = 10_000
"""A primary leaves out rows that have expired by its own clock, which may be so much ahead."""

OPEN_FILES_MAX = 256
OPEN_BYTES_MAX = 512 * 1024 * 1024
"""Files of an export that are compared at once.  If a partition of the zone has the rows of more of
them, its copy is read once for each such group."""
FILE_BYTES = 64 * 1024 * 1024
"""An open file takes about so much memory at most, whatever its size."""

Progress = Callable[[str, int, int], None]
"""Called with what is done (check, write, compare), the rows so far and the rows in all."""
ReadPart = Callable[[PartTold], Iterator[LiveRow]]
"""Yields the rows of a partition of the export."""


class NotEmpty(Unreadable):
    """The zone has keys, and nothing was written."""


class NotCompared(Unreadable):
    """All rows are written, and could not be compared; the message says why."""


class Imported(msgspec.Struct, frozen=True):
    """The result of an import.

    - `rows`, `digest`: of the rows that are in the zone as they were exported
    - `expired`: rows whose time was over; `kept`: keys that had another row, which was left alone
    - `missing`, `differing`: rows that were written, and are not in the zone any more as exported
    - `others`: keys of the zone that are not in the export
    - `keys`: some of the keys that are missing or differ, escaped
    - `into_non_empty`: the zone may have had keys, so `kept` is as it was wanted
    - `told_apart`: false if so many were kept that `kept` and `differing` are right in sum only
    """

    export_id: str
    zone: str
    rows: int
    bytes: int
    digest: str
    expired: int
    kept: int
    missing: int
    differing: int
    others: int
    keys: tuple[str, ...]
    exported_rows: int
    exported_digest: str
    into_non_empty: bool
    told_apart: bool

    @property
    def is_whole(self) -> bool:
        """Whether each row of the export is in the zone, has expired, or may have been kept out."""
        kept_wrongly = self.kept and not self.into_non_empty
        return not self.missing and not self.differing and not kept_wrongly

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if it is whole."""
        return 0 if self.is_whole else 1


def import_zone(
    target: Target,
    manifest: Manifest,
    copies: ZoneCopies,
    settings: Settings,
    *,
    continues: bool,
    into_non_empty: bool,
    wait_s: float,
    progress: Progress = lambda what, done, total: None,
    cipher: Cipher | None = None,
    names_keys: bool = True,
) -> Imported:
    """Import the export into the zone, of which it may have a part (`continues`) or other keys.

    `cipher`: what decrypts the export, if it is encrypted; `manifest`: the whole one.
    `names_keys`: whether a message may name a key of a row.

    Raises NotEmpty, NotCompared, or Unreadable or TargetRefused if it cannot go on: it is continued
    by running it again.  Nothing is written before `progress` is called with "write".
    """
    if not continues and not into_non_empty:
        check_empty(copies, settings, names_keys)
    check_rows(target, manifest, partial(progress, "check"), cipher)
    read = partial(read_part, target, cipher=cipher)
    with AgentLinks(copies.cluster, settings) as links:
        primaries = Primaries(copies, links, wait_s)
        try:
            kept = _write(read, manifest, copies, primaries, progress)
        except RowsRefused as error:
            if names_keys:
                raise
            raise Unreadable(
                f"partition {error.partition}: its primary refuses rows; `quorate import`, run by"
                " someone who has the key of the export, says why"
            ) from None  # the cause may name a key
        try:
            imported = _compare(read, manifest, copies, primaries, settings, kept, progress)
        except QuorateError as error:
            raise NotCompared(str(error)) from error
    return msgspec.structs.replace(imported, into_non_empty=into_non_empty)


def check_empty(copies: ZoneCopies, settings: Settings, names_keys: bool = True) -> None:
    """Raise NotEmpty if clients see a key of the zone, or Unreadable if that cannot be told.

    `names_keys`: whether the message names it.
    """
    now_ms = time.time() * 1000
    for copy in _read_primaries(copies, settings).values():
        if not copy.state.rows:
            continue
        for key, _, _, expires_at, value in _rows(copy, copies, settings):
            if value is None or is_reserved(key) or 0 < expires_at <= now_ms:
                continue
            which = f"the key {printable(key)}" if names_keys else "keys"
            raise NotEmpty(
                f"zone {copies.zone} is not empty, it has {which}: name"
                " another zone, or write --into-non-empty: keys that the zone has already then stay"
                " as they are"
            )


def _read_primaries(copies: ZoneCopies, settings: Settings) -> dict[int, CopySeen]:
    """Return the primary's copy of each partition.  Raises Unreadable if one does not answer."""
    owned = copies.read_answering(settings).owned
    found: dict[int, CopySeen] = {}
    for partition in range(copies.partitions):
        first = owned[partition][0] if partition in owned else None
        if first is None or first.state.replica_index or not first.state.adopted:
            raise Unreadable(
                f"partition {partition} has no primary that answers: wait until zone"
                f" {copies.zone} is available"
            )
        found[partition] = first
    return found


class _Kept:
    """The keys that had another row: hashes of the first ones, and how many more there are."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self.more = 0

    def __contains__(self, key: bytes) -> bool:
        return xxh3_64_intdigest(key) in self._hashes

    def add(self, key: bytes) -> None:
        if len(self._hashes) < KEPT_HASHES_MAX:
            self._hashes.add(xxh3_64_intdigest(key))
        else:
            self.more += 1

    def add_all(self, keys: tuple[bytes, ...]) -> None:
        for key in keys:
            self.add(key)


def _write(
    read: ReadPart,
    manifest: Manifest,
    copies: ZoneCopies,
    primaries: Primaries,
    progress: Progress,
) -> _Kept:
    """Write all rows that have not expired; return the keys that had another row."""
    kept = _Kept()
    batches = RowBatches(
        primaries, copies.zone, copies.partitions, replaces=False, take_kept=kept.add_all
    )
    done = 0
    progress("write", 0, manifest.rows)
    for part in manifest.partitions:
        for row in read(part):
            done += 1
            if not done % 1000:
                progress("write", done, manifest.rows)
            if not _is_over(row):
                batches.add(row.key, row.value, row.expires_at)
        batches.send()
        progress("write", done, manifest.rows)
    batches.finish()
    return kept


class _Compared(NamedTuple):
    """One key: its row in the export and in the zone; None where there is none."""

    exported: LiveRow | None
    present: StoredRow | None


class _Found:
    """The result of comparing a part, or the sum of parts."""

    def __init__(self) -> None:
        self.equal = Content()
        self.exported = self.expired = self.kept = 0
        self.missing = self.differing = self.others = 0
        self.keys: list[str] = []

    def add_all(self, part: "_Found") -> None:
        self.equal.add_all(part.equal)
        self.exported += part.exported
        self.expired += part.expired
        self.kept += part.kept
        self.missing += part.missing
        self.differing += part.differing
        self.others += part.others
        self.keys += part.keys[: KEYS_TOLD_MAX - len(self.keys)]


def _compare(
    read: ReadPart,
    manifest: Manifest,
    copies: ZoneCopies,
    primaries: Primaries,
    settings: Settings,
    kept: _Kept,
    progress: Progress,
) -> Imported:
    """Compare part by part; a part is as many slots as one partition of the coarser side has."""
    found = _Found()
    progress("compare", 0, manifest.rows)
    theirs, ours = manifest.zone.partitions, copies.partitions
    parts = min(theirs, ours)
    for number in range(parts):
        owned = range(ours)[_span(number, ours, parts)]
        for files in _groups(manifest.partitions[_span(number, theirs, parts)]):
            for attempt in range(1, COMPARE_ATTEMPTS + 1):
                told = partial(_tell, progress, found.exported, manifest.rows)
                try:
                    pairs = _pairs(read, files, theirs, owned, copies, primaries, settings)
                    part = _compare_part(pairs, kept, told)
                    break
                except Unreadable:
                    if attempt == COMPARE_ATTEMPTS:
                        raise
            found.add_all(part)
            progress("compare", found.exported, manifest.rows)
    # Which of them were kept is not known: as many as the primaries told.
    kept_too = min(found.differing, kept.more)
    return Imported(
        manifest.export_id,
        copies.zone,
        found.equal.rows,
        found.equal.bytes,
        found.equal.hex,
        found.expired,
        found.kept + kept_too,
        found.missing,
        found.differing - kept_too,
        found.others,
        tuple(found.keys),
        manifest.rows,
        manifest.digest,
        into_non_empty=False,
        told_apart=not kept.more,
    )


def _tell(progress: Progress, before: int, total: int, done: int) -> None:
    progress("compare", before + done, total)


def _compare_part(
    pairs: Iterator[_Compared], kept: _Kept, progress: Callable[[int], None]
) -> _Found:
    found = _Found()
    batch: list[LiveRow] = []
    for exported, present in pairs:
        if exported is None:
            found.others += 1
            continue
        found.exported += 1
        if not found.exported % 1000:
            progress(found.exported)
        if present is not None and (present[4], present[3]) == (
            exported.value,
            exported.expires_at,
        ):
            batch.append(exported)
            if len(batch) == BATCH_ROWS_MAX:
                found.equal.add(*_columns(batch))
                batch.clear()
        elif _is_over(exported, CLOCKS_APART_MS):
            found.expired += 1
        elif present is not None and exported.key in kept:
            found.kept += 1
        else:
            found.missing += present is None
            found.differing += present is not None
            if len(found.keys) < KEYS_TOLD_MAX:
                found.keys.append(printable(exported.key))
    found.equal.add(*_columns(batch))
    return found


def _pairs(
    read: ReadPart,
    files: Sequence[PartTold],
    theirs: int,
    owned: Sequence[int],
    copies: ZoneCopies,
    primaries: Primaries,
    settings: Settings,
) -> Iterator[_Compared]:
    """Yield all keys of the export and of the zone in these files, of an export of `theirs`
    partitions, as far as these partitions of the zone may have them."""
    exported = merge(*(read(part) for part in files), key=itemgetter(0))
    found = [primaries.find(partition) for partition in owned]
    streams = [_live(_rows(each, copies, settings)) for each in found]
    present = merge(*streams, key=itemgetter(0))
    asked = {part.partition for part in files}
    return _side_by_side(
        exported, (row for row in present if key_partition(row[0], theirs) in asked)
    )


def _groups(files: Sequence[PartTold]) -> Iterator[Sequence[PartTold]]:
    """Yield the files in groups that fit into memory; each has one at least."""
    group: list[PartTold] = []
    size = 0
    for part in files:
        more = min(part.bytes, FILE_BYTES)
        if group and (len(group) == OPEN_FILES_MAX or size + more > OPEN_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(part)
        size += more
    yield group


def _span(number: int, partitions: int, parts: int) -> slice:
    each = partitions // parts
    return slice(number * each, (number + 1) * each)


def _side_by_side(exported: Iterator[LiveRow], present: Iterator[StoredRow]) -> Iterator[_Compared]:
    mine, other = next(exported, None), next(present, None)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine.key < other[0]):
            yield _Compared(mine, None)
            mine = next(exported, None)
        elif mine is None or other[0] < mine.key:
            yield _Compared(None, other)
            other = next(present, None)
        else:
            yield _Compared(mine, other)
            mine, other = next(exported, None), next(present, None)


def _live(rows: Iterator[StoredRow]) -> Iterator[StoredRow]:
    return (row for row in rows if row[4] is not None and not is_reserved(row[0]))


def _rows(copy: CopySeen, copies: ZoneCopies, settings: Settings) -> Iterator[StoredRow]:
    for chunk in read_rows(copy, copies.zone, copies.cluster, settings):
        yield from chunk


def _columns(rows: list[LiveRow]) -> tuple[list[bytes], list[bytes], list[int]]:
    return [r.key for r in rows], [r.value for r in rows], [r.expires_at for r in rows]


def _is_over(row: LiveRow, ahead_ms: int = 0) -> bool:
    return 0 < row.expires_at <= time.time() * 1000 + ahead_ms
