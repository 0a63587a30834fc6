"""Decides which exports of a schedule are deleted, and what its list of them says.

An export is deleted by the pod of a newer ZoneBackup of the same schedule, after that one has read
its own export back.  The export of that run does not count: it may turn out to be no good, and what
is left is then what is to be kept.

1. Verified exports are ordered by their time in the schedule.  The newest `keepLast` of them stay.
2. Of these, those older than `maxAgeDays` go: never more than remain, and never the newest one.
   Age is measured by the API server's clock, which has told when the run was created.
3. Exports that are not verified are deleted if a newer verified one is there.
4. Exports of other data (`zoneUid`), in another place, or from the future are neither counted nor
   deleted: a Zone that was created anew has no claim on those of the one before.  The same holds
   for those whose end was not seen.
5. A place that is read, as by a ZoneRestore, counts, and is not deleted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from quorate.wire.exports.export_result import DELETED_MAX, RunOutcome
from quorate.wire.exports.scheduled_zone_backup import LISTED_MAX, ListedBackup, Retention
from quorate_operator.declared.runs.schedules.schedules import CLOCKS_DIFFER

VERIFIED = RunOutcome.COMPLETE.value
REMOVED = "Removed"
"""The outcome of an export whose ZoneBackup was deleted before it ended, or whose manifest is
deleted and not all of its files."""
UNSEEN = "Unseen"
"""The outcome of an export whose ZoneBackup was deleted when it may have been verified."""


def folder_name(schedule: str, due: datetime) -> str:
    """Return the name of the folder of the run of this time (UTC)."""
    return f"{schedule}-{due:%Y%m%dT%H%M%SZ}"


def folder_of(backup: ListedBackup) -> str:
    """Return the folder of an export within the place of its schedule."""
    return backup.place.partition("?")[0].rpartition("/")[2]


def place_without_options(place: str) -> str:
    """Return a place as two that name the same folder have it in common."""
    return place.partition("?")[0]


def to_delete(
    listed: Sequence[ListedBackup],
    new: ListedBackup,
    retention: Retention | None,
    created: datetime | None,
    in_use: Collection[str] = (),
) -> list[ListedBackup]:
    """Return the exports to be deleted once `new` is verified, which does not count; at most
    DELETED_MAX: the oldest first, after them those that a run before could not delete.

    `listed`: those of finished runs of the schedule.  `created`: when the run of `new` was, by the
    API server.  `in_use`: places without options that are read.
    """
    if retention is None or created is None:
        return []
    others = _others(listed, new, created)
    ranked = _verified(others)
    if not ranked:
        return []
    kept = ranked[: retention.keep_last]
    if retention.max_age_days is not None:
        oldest = created - timedelta(days=retention.max_age_days)
        aged = [each for each in reversed(kept) if _time(each) < oldest]
        at_most = len(kept) // 2
        kept = kept[: len(kept) - min(len(aged), at_most)]
    stay, newest = {each.run for each in kept}, _time(ranked[0])
    found = [
        each
        for each in others
        if each.run not in stay
        and place_without_options(each.place) not in in_use
        and (each.outcome == VERIFIED or (each.outcome != UNSEEN and _time(each) < newest))
    ]
    found.sort(key=lambda each: (bool(each.undeleted_by), _time(each)))
    return found[:DELETED_MAX]


def newest_verified(
    listed: Sequence[ListedBackup], new: ListedBackup, created: datetime
) -> ListedBackup | None:
    """Return the newest verified export beside `new`, of the same data, which `to_delete` keeps.

    None: there is none.  The arguments are those of `to_delete`.
    """
    return next(iter(_verified(_others(listed, new, created))), None)


class Deletions(NamedTuple):
    """Folders that the pods of runs have told of, each with its run.

    `undeleted`: those that could not be deleted.  `halves`: of these, those without a manifest.
    """

    deleted: Mapping[str, str] = {}
    undeleted: Mapping[str, str] = {}
    halves: Collection[str] = ()


def listed_anew(
    listed: Sequence[ListedBackup], finished: Iterable[ListedBackup], told: Deletions
) -> list[ListedBackup]:
    """Return the list with more finished runs, the oldest first.

    `finished`: runs whose objects are there.  An export that was deleted is listed while the object
    of its run is there.  Of several entries of one run a verified one counts: the export is there,
    whatever another object of that name has told since.  Where there are too many, those that are
    not verified or are deleted go first: what is kept, and the base of the next export, are taken
    from this list.
    """
    seen = {each.run: each for each in finished}
    known: dict[str, ListedBackup] = {}
    for each in listed:
        known[each.run] = _counting(known.get(each.run), each)
    made = []
    for run in sorted({*known, *seen}):
        before = known.get(run)
        entry = _counting(before, seen.get(run) or known[run])
        folder = folder_of(entry)
        by = told.deleted.get(folder, "") or (before.deleted_by if before is not None else "")
        tried = told.undeleted.get(folder, "") or (
            before.undeleted_by if before is not None else ""
        )
        is_half = folder in told.halves or (before is not None and before.outcome == REMOVED)
        if not by or run in seen:
            update = {"deleted_by": by, "undeleted_by": "" if by else tried}
            more = {"outcome": REMOVED} if is_half else {}
            made.append(entry.model_copy(update={**update, **more}))
    made.sort(key=lambda each: (each.outcome == VERIFIED and not each.deleted_by, _time(each)))
    return sorted(made[-LISTED_MAX:], key=_time)


def _counting(before: ListedBackup | None, entry: ListedBackup) -> ListedBackup:
    """Return which entry of one run counts."""
    if before is not None and before.outcome == VERIFIED and entry.outcome != VERIFIED:
        return before
    return entry


def _others(
    listed: Sequence[ListedBackup], new: ListedBackup, created: datetime
) -> list[ListedBackup]:
    """Return the exports that are there beside `new`, of the same data, and not of the future."""
    latest = created + CLOCKS_DIFFER
    return [
        each
        for each in listed
        if _is_of(each, new) and each.run != new.run and _time(each) <= latest
    ]


def _verified(listed: Iterable[ListedBackup]) -> list[ListedBackup]:
    """Return those that are verified, the newest first."""
    found = (each for each in listed if each.outcome == VERIFIED)
    return sorted(found, key=_time, reverse=True)


def _is_of(listed: ListedBackup, new: ListedBackup) -> bool:
    """Return whether an export is of the data and in the place of another one, and there."""
    is_same = listed.zone_uid == new.zone_uid or (
        not listed.zone_uid and listed.outcome != VERIFIED
    )
    return is_same and _parent(listed) == _parent(new) and not listed.deleted_by


def _parent(backup: ListedBackup) -> tuple[str, str]:
    path, _, options = backup.place.partition("?")
    return path.rpartition("/")[0], options


def _time(backup: ListedBackup) -> datetime:
    return datetime.fromisoformat(backup.time)
