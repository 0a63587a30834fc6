"""Decides which exports of a schedule are deleted, and what its list of them says.

An export is deleted by the pod of a newer ZoneBackup of the same schedule, after that one has read
its own export back.  So the decision supposes that the new export is verified:

1. Verified exports are ordered by their time in the schedule.  The newest `keepLast` of them stay,
   except those older than `maxAgeDays`.  The newest one always stays.
2. Exports that are not verified are deleted if a newer verified one is there.
3. Exports of other data (`zoneUid`) or in another place are neither counted nor deleted: a Zone
   that was created anew has no claim on those of the one before.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from quorate.wire.jobs.export_result import DELETED_MAX, RunOutcome
from quorate.wire.jobs.scheduled_zone_backup import LISTED_MAX, ListedBackup, Retention

VERIFIED = RunOutcome.COMPLETE.value


def folder_name(schedule: str, due: datetime) -> str:
    """Return the name of the folder of the run of this time (UTC)."""
    return f"{schedule}-{due:%Y%m%dT%H%M%SZ}"


def folder_of(backup: ListedBackup) -> str:
    """Return the folder of an export within the place of its schedule."""
    return backup.place.partition("?")[0].rpartition("/")[2]


def to_delete(
    listed: Sequence[ListedBackup], new: ListedBackup, retention: Retention | None, now: datetime
) -> list[ListedBackup]:
    """Return the exports to be deleted once `new` is verified, the oldest first; at most
    DELETED_MAX.

    `listed`: those of finished runs of the schedule.
    """
    if retention is None:
        return []
    others = [each for each in listed if _is_of(each, new) and each.run != new.run]
    verified = [each for each in others if each.outcome == VERIFIED]
    ranked = sorted([*verified, new], key=_time, reverse=True)
    oldest = now - timedelta(days=retention.max_age_days or 0)
    kept = {
        each.run
        for at, each in enumerate(ranked)
        if at == 0
        or (at < retention.keep_last and (retention.max_age_days is None or _time(each) >= oldest))
    }
    newest = _time(ranked[0])
    found = [
        each
        for each in others
        if each.run not in kept and (each.outcome == VERIFIED or _time(each) < newest)
    ]
    return sorted(found, key=_time)[:DELETED_MAX]


def listed_anew(
    listed: Sequence[ListedBackup], finished: Iterable[ListedBackup], deleted: dict[str, str]
) -> list[ListedBackup]:
    """Return the list with more finished runs, the oldest first.

    `finished`: runs whose objects are there.  `deleted`: folder -> the run that has deleted it.
    An export that was deleted is listed while the object of its run is there.
    """
    seen = {each.run: each for each in finished}
    known = {each.run: each for each in listed}
    made = []
    for run in sorted({*known, *seen}):
        entry = seen.get(run) or known[run]
        by = deleted.get(folder_of(entry), "") or (known[run].deleted_by if run in known else "")
        if not by or run in seen:
            made.append(entry.model_copy(update={"deleted_by": by}))
    return sorted(made, key=_time)[-LISTED_MAX:]


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
