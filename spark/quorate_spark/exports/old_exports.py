"""Deletes older exports of a schedule, beside a new one that was read back.

The operator names the folders.  One is deleted only if it is surely an export of this schedule:

1. its name is that of a folder which a schedule makes, beside the new export, and another one
2. its manifest has the schedule's id (`series`) and is of the same data (`zone.uid`); or it has no
   manifest, and no file but those that an export without an end leaves

The manifest goes first: what is left after an interruption is no export, and is deleted next time.

Deletion cannot spoil the new export: it has a time of its own, and no error leaves it.
"""

import re
import threading
from collections.abc import Sequence
from typing import NamedTuple

from quorate_spark.exports.export_zone import may_be_left
from quorate_spark.exports.manifest import MANIFEST, Manifest, read_manifest
from quorate_spark.exports.target import Target, TargetRefused

DELETE_S_MAX = 300.0
_FOLDER = re.compile(r"[a-z0-9][a-z0-9-]*-[0-9]{8}T[0-9]{6}Z")
_LATE = "the time for it was over; the next run goes on"


class Deleted(NamedTuple):
    """The folders that are not there any more, those that are, and why; empty: none is.

    `halves`: of those that are there, those whose manifest is deleted.
    """

    folders: tuple[str, ...] = ()
    problem: str = ""
    kept: tuple[str, ...] = ()
    halves: tuple[str, ...] = ()


def time_to_delete(left_s: float) -> float:
    """Return how many seconds deletion may take when so many are left of the run's time."""
    return min(max(left_s / 4, 0.0), DELETE_S_MAX)


def delete_old(
    new: Target, manifest: Manifest, folders: Sequence[str], allowed_s: float = DELETE_S_MAX
) -> Deleted:
    """Delete these folders beside the export `new`, whose manifest this is; never raises."""
    deletion = _Deletion(new, manifest)
    if allowed_s > 0:
        # A store that does not answer keeps a thread for minutes.
        thread = threading.Thread(target=deletion.run, args=(folders,), daemon=True)
        thread.start()
        thread.join(allowed_s)
    return deletion.end(folders)


class _Deletion:
    """One run through the folders, which may be told to stop between two steps."""

    def __init__(self, new: Target, manifest: Manifest) -> None:
        self._new = new
        self._manifest = manifest
        self._lock = threading.Lock()
        self._is_over = False
        self._gone: list[str] = []
        self._problems: list[str] = []
        self._tried: set[str] = set()
        self._halves: set[str] = set()

    def run(self, folders: Sequence[str]) -> None:
        """Delete one after the other; the reasons why some stay are kept."""
        for folder in folders:
            try:
                self._delete(folder)
                with self._lock:
                    self._gone.append(folder)
            except _Late:
                return
            except TargetRefused as error:
                self._failed(folder, str(error))
            except Exception as error:  # the new export is good, whatever this is
                why = f"{type(error).__name__}: {error}"
                self._failed(folder, f"{folder} is not deleted: {why}")

    def end(self, folders: Sequence[str]) -> Deleted:
        """Stop, and return what has become of the folders."""
        with self._lock:
            self._is_over = True
            gone, problems, tried = [*self._gone], [*self._problems], {*self._tried}
            halves = tuple(each for each in folders if each in self._halves and each not in gone)
        late = [each for each in folders if each not in gone and each not in tried]
        if late:
            problems.append(f"{late[0]} is not deleted: {_LATE}")
        more = len(problems) - 1 + max(len(late) - 1, 0)
        told = f"{problems[0]}{f'; and {more} more' if more else ''}" if problems else ""
        # Folders that were not reached are no failures: they are tried first next time.
        kept = tuple(each for each in folders if each in tried and each not in gone)
        return Deleted(tuple(gone), told, tuple(dict.fromkeys((*kept, *halves))), halves)

    def _failed(self, folder: str, problem: str) -> None:
        with self._lock:
            self._problems.append(problem)
            self._tried.add(folder)

    def _go_on(self, half: str = "") -> None:
        """Raise _Late if the time is over.  `half`: a folder that is no export from now on."""
        with self._lock:
            if self._is_over:
                raise _Late
            if half:
                self._halves.add(half)

    def _delete(self, folder: str) -> None:
        """Delete one folder, if it is there.  Raises TargetRefused."""
        self._go_on()
        if not _FOLDER.fullmatch(folder):
            raise TargetRefused(f"{folder} is not deleted: it is no folder of a schedule")
        old = self._new.beside(folder)
        if old.text == self._new.text:
            raise TargetRefused(f"{folder} is not deleted: it has the new export")
        names = [each.name for each in old.files()]
        if names and MANIFEST not in names:
            self._go_on(half=folder)
        others = [name for name in names if name != MANIFEST and not may_be_left(name)]
        if others:
            raise TargetRefused(
                f"{old.text} is not deleted: it has {others[0]}, which is of no export"
            )
        if MANIFEST in names:
            theirs = read_manifest(old)
            if not self._manifest.series or theirs.series != self._manifest.series:
                raise TargetRefused(f"{old.text} is not deleted: it is no export of this schedule")
            if theirs.zone.uid != self._manifest.zone.uid:
                raise TargetRefused(f"{old.text} is not deleted: it is an export of another zone")
            self._go_on(half=folder)
            old.delete([MANIFEST])
        old.delete(names)
        old.remove()


class _Late(Exception):
    """The time is over."""
