"""The base of an incremental export: an earlier export, whose rows are not read of agents again.

The new export is whole and needs no other one.  Only reading is incremental: of a partition the
rows of the base are folded with the updates after the base's cut, from the log of a copy.  The
result must have the digest that a majority of the copies tells, as any cut.  So a base that is
damaged, or of another history, gets into no export: the partition is read whole.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from quorate.facts.export_place import BASE_OPTION
from quorate.protocol.messages.tools import AskUpdates, UpdatesTold
from quorate.wire.exports.export_result import made_of_base
from quorate_spark.copies import CopySeen
from quorate_spark.exports.encryption import Cipher
from quorate_spark.exports.export_key import ExportKey, KeyRefused
from quorate_spark.exports.manifest import (
    Manifest,
    PartTold,
    ZoneTold,
    cipher_of,
    open_manifest,
    read_manifest,
)
from quorate_spark.exports.part_file import part_columns
from quorate_spark.exports.target import Target, TargetRefused, first_line
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.agent_links import AgentLinks

if TYPE_CHECKING:
    from quorate_spark.row_columns import RowColumns


UPDATES_BYTES_MAX = 256 * 1024 * 1024
"""Memory for the updates of one partition since the base."""


class Whole(enum.StrEnum):
    """The reason for which a partition was read whole although there is a base."""

    BASE_UNUSABLE = "BaseUnusable"
    OTHER_KEY = "OtherKey"
    OTHER_ZONE = "OtherZone"
    OTHER_HISTORY = "OtherHistory"
    LOG_TOO_SHORT = "LogTooShort"
    LOG_UNREADABLE = "LogUnreadable"
    TOO_MANY_UPDATES = "TooManyUpdates"
    DIGEST_DIFFERS = "DigestDiffers"


_SENTENCES = {
    Whole.BASE_UNUSABLE: (
        "{base} could not be read, or is not as it was written: `quorate verify` of it tells"
    ),
    Whole.OTHER_KEY: "{base} has not the key of the new export",
    Whole.OTHER_ZONE: "{base} is of another zone, cluster or number of partitions",
    Whole.OTHER_HISTORY: "the cut of the base is not in the history of the copies",
    Whole.LOG_TOO_SHORT: "the update log no longer reaches back to the base",
    Whole.LOG_UNREADABLE: "the update log could not be read",
    Whole.TOO_MANY_UPDATES: "the updates since the base take more memory than they may",
    Whole.DIGEST_DIFFERS: (
        "base, update log and internal rows of a copy did not make up the rows that the copies have"
    ),
}


class BaseRefused(Unreadable):
    """The rows of a partition cannot be those of the base; it is read whole instead."""

    def __init__(self, why: Whole, message: str) -> None:
        super().__init__(message)
        self.why = why


class BaseShare(NamedTuple):
    """A base for another process, without keys: its place, what it has of some partitions, and
    which of these are to be read whole."""

    place: str
    manifest: Manifest
    whole: dict[int, Whole]


class Base:
    """A base, and the partitions for which it is of no use.

    `name`: of its folder; `place`: it, as a shell takes it.  `details`: the first message for each
    reason.
    """

    def __init__(self, target: Target, manifest: Manifest, cipher: Cipher | None) -> None:
        self.export_id = manifest.export_id
        self.name = target.name
        self.place = quote(target.text)
        self.details: dict[Whole, str] = {}
        self._target = target
        self._cipher = cipher
        self._manifest = manifest
        self._zone = manifest.zone
        self._parts = {part.partition: part for part in manifest.partitions}
        self._refused: dict[int, Whole] = {}
        self._all_refused: Whole | None = None

    @classmethod
    def unusable(cls, target: Target, folder: str, why: Whole, message: str) -> "Base":
        """Return a base that cannot be opened: all partitions are read whole.

        `folder`: its name; the new export is at `target`.
        """
        nothing = Manifest(0, "", ZoneTold("", "", "", 0, {}), "", "", 0, 0, "", ())
        base = cls(target, nothing, None)
        base.name = folder
        base._refuse_all(why, message)
        return base

    def share(self, partitions: Sequence[int]) -> BaseShare:
        """Return what another process needs to take rows of these partitions from it."""
        whole = {each: why for each in partitions if (why := self.why_whole(each)) is not None}
        parts = tuple(self._parts[each] for each in partitions if each not in whole)
        manifest = msgspec.structs.replace(self._manifest, partitions=parts)
        return BaseShare(self._target.text, manifest, whole)

    @classmethod
    def of_share(cls, share: BaseShare, key: ExportKey | None) -> "Base":
        """Return the base, for the partitions of the share.  `key`: as for `open_base`."""
        target, manifest = Target(share.place), share.manifest
        cipher = cipher_of(target, manifest, key) if manifest.partitions else None
        base = cls(target, manifest, cipher)
        base._refused = dict(share.whole)
        return base

    @property
    def refused(self) -> dict[int, Whole]:
        """The partitions that were refused one by one."""
        return dict(self._refused)

    def take_refused(self, refused: Mapping[int, Whole], details: Mapping[Whole, str]) -> None:
        """Take over what a process with a share has refused, and its messages."""
        self._refused.update(refused)
        self.details = {**details, **self.details}

    def check_zone(self, zone: ZoneTold) -> None:
        """Refuse all partitions if the base is not of this zone."""
        if self._all_refused is not None:
            return
        mine = self._zone
        for what, of_base, now in (
            ("cluster", mine.cluster, zone.cluster),
            ("zone", mine.name, zone.name),
            ("uid", mine.uid, zone.uid),
            ("number of partitions", str(mine.partitions), str(zone.partitions)),
        ):
            if of_base != now:
                self._refuse_all(
                    Whole.OTHER_ZONE, f"{self._target.text} has the {what} {of_base}, not {now}"
                )
                return

    def part(self, partition: int) -> PartTold | None:
        """Return what the base has of a partition; None: it is to be read whole."""
        return None if self.why_whole(partition) is not None else self._parts[partition]

    def why_whole(self, partition: int) -> Whole | None:
        """Return why a partition is to be read whole; None: the base has not been refused."""
        return self._all_refused or self._refused.get(partition)

    def refuse(self, partition: int, error: BaseRefused) -> None:
        """Note that a partition is to be read whole."""
        self._refused[partition] = error.why
        self.details.setdefault(error.why, str(error))

    def _refuse_all(self, why: Whole, message: str) -> None:
        self._all_refused = why
        self.details[why] = message

    def chunks(self, part: PartTold) -> Iterator["RowColumns"]:
        """Yield the rows of a partition, whose keys rise, and none of which is above its cut.

        Raises BaseRefused.
        """
        last: bytes | None = None
        try:
            for rows in part_columns(self._target, part, self._cipher):
                if not rows.keys_rise or (last is not None and rows.key(0) <= last):
                    raise self._damaged(f"{self._target.text}: {part.file}: its keys do not rise")
                if rows.terms.max() > part.term or rows.counters.max() > part.counter:
                    why = "a row has a term or counter above the cut"
                    raise self._damaged(f"{self._target.text}: {part.file}: {why}")
                last = rows.key(-1)
                yield rows
        except TargetRefused as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, message: str) -> BaseRefused:
        return BaseRefused(
            Whole.BASE_UNUSABLE,
            f"{message}: `quorate verify {self.place}` tells whether it is damaged",
        )

    def folded(self, part: PartTold, rows: Iterable["RowColumns"]) -> Iterator["RowColumns"]:
        """Yield rows that are made of those of the base.

        Raises BaseRefused if that fails, as when rows are larger than Arrow can put together.
        """
        import pyarrow as pa

        try:
            yield from rows
        except (pa.ArrowException, ValueError) as error:
            raise self._damaged(
                f"{self._target.text}: the rows of {part.file} cannot be folded with the updates:"
                f" {first_line(error)}"
            ) from error


def open_base(target: Target, key: ExportKey | None) -> Base:
    """Return an export as a base.  `key`: that of the new export, or None.

    Raises TargetRefused if there is no export, KeyRefused if it has another key than the new one,
    or only one of the two is encrypted.
    """
    told = read_manifest(target)
    if told.key_id != (key.id if key is not None else ""):
        raise KeyRefused(
            f"base and export must have one key: {target.text} {_keyed(told.key_id)}, and the new"
            f" export {_keyed(key.id if key is not None else '')}"
        )
    manifest = open_manifest(target, told, key)
    return Base(target, manifest, cipher_of(target, manifest, key))


def _keyed(key_id: str) -> str:
    return f"is encrypted with key {key_id}" if key_id else "is not encrypted"


def named_base(place: str, folder: str, target: Target, key: ExportKey | None) -> Base | None:
    """Return the base of the new export at `target`; None: none is named.

    `place`: the base, which must be there; `folder`: the name of a folder beside the target, which
    may have no export.  Raises TargetRefused.
    """
    if place:
        try:
            return open_base(Target(place), key)
        except TargetRefused as error:
            raise TargetRefused(
                f"{BASE_OPTION} {place}: {error}.  Name another export, or leave the option out:"
                " then all rows are read of the agents"
            ) from error
    if folder:
        try:
            return open_base(target.beside(folder), key)
        except KeyRefused as error:
            return Base.unusable(target, folder, Whole.OTHER_KEY, str(error))
        except TargetRefused as error:  # as when it was deleted meanwhile
            return Base.unusable(target, folder, Whole.BASE_UNUSABLE, str(error))
    return None


def base_copy(
    part: PartTold, copies: tuple[CopySeen, ...], zone: str, links: AgentLinks
) -> CopySeen:
    """Return the first of the copies whose history has the cut of the base, and whose log the rest.

    Raises BaseRefused if there is none: LOG_UNREADABLE if one that was not read may be; Unreadable
    if no copy can be read now.
    """
    readable = [copy for copy in copies if copy.state.adopted]
    if not readable:
        raise Unreadable(f"partition {part.partition}: no copy may be read now")
    state = readable[0].state
    unreadable: BaseRefused | None = None
    problem = BaseRefused(
        Whole.OTHER_HISTORY,
        f"partition {part.partition}: update {part.counter} of term {part.term} is in the history"
        f" of no copy ({readable[0].node} has LWM {state.lwm} in term {state.term})",
    )
    for copy in readable:
        if not _has(copy, part):
            continue
        if copy.state.lwm == part.counter:
            return copy
        try:
            link = links.to(copy.address)
            question = AskUpdates(zone, part.partition, part.counter, part.counter)
            told = link.ask(question, UpdatesTold)
        except Unreadable as error:
            links.drop(copy.address)
            unreadable = BaseRefused(Whole.LOG_UNREADABLE, str(error))
            continue
        if told.problem:
            unreadable = BaseRefused(
                Whole.LOG_UNREADABLE, f"partition {part.partition}: {copy.node}: {told.problem}"
            )
            continue
        if told.reaches_from <= part.counter:
            return copy
        problem = BaseRefused(
            Whole.LOG_TOO_SHORT,
            f"partition {part.partition}: the log of {copy.node} begins with update"
            f" {told.reaches_from + 1}, and the base ends with {part.counter}",
        )
    raise unreadable or problem


def _has(copy: CopySeen, part: PartTold) -> bool:
    """Return whether the cut of the base is in the copy's history."""
    state = copy.state
    return part.counter <= state.lwm and not state.lineage.is_divergent(part.term, part.counter)


def from_base(manifest: Manifest) -> tuple[int, int]:
    """Return how many partitions have their rows from the base, and how many were read whole
    although there was one; both 0: there was none."""
    parts = manifest.partitions
    return sum(each.from_base for each in parts), sum(bool(each.read_whole) for each in parts)


def told_of_base(manifest: Manifest) -> str:
    """Return what an export has of its base, in words; empty: there was none."""
    taken, whole = from_base(manifest)
    if not taken and not whole:
        return ""
    base = f"the base {manifest.base}" if manifest.base else "the base"
    return made_of_base(base, taken, whole, reasons(manifest))


def reasons(manifest: Manifest, base: Base | None = None, length_max: int = 0) -> str:
    """Return why partitions were read whole, in words; empty: none was.

    `base`: what it says of the first partition stands for a reason, unless the whole then has more
    than `length_max` characters.
    """
    found = Counter(each.read_whole for each in manifest.partitions if each.read_whole)
    sentences = {each.value: sentence for each, sentence in _SENTENCES.items()}
    name = "the base" if base is None else f"the base {base.name}"
    words = {why: sentences.get(why, "another reason").format(base=name) for why in sorted(found)}
    details = {} if base is None else {why.value: text for why, text in base.details.items()}
    for why in words:
        longer = {**words, why: details.get(why, words[why])}
        if len(_counted(longer, found)) <= length_max:
            words = longer
    return _counted(words, found)


def _counted(words: dict[str, str], found: Counter[str]) -> str:
    return "; ".join(f"{text} ({found[why]})" for why, text in words.items())
