"""Backups of the embedded operator's file, made by the operator; the oldest are removed.

    backups/metastore-20260131T235959Z.sqlite    the newest 24; the time is UTC

One is made a minute after each start, then one an hour, and one at an orderly end.

To put a backup back, stop the operator and copy the backup over `metastore.sqlite` (and remove
`metastore.sqlite-wal` and `-shm`).  If a backup lacks rows that agents have by then, that is
noticed and does no harm.  The newest backup can lead even after an older one was started from,
because masterships count on above what agents know (docs/protocol.md, section 7).  `quorate dev
recover` needs no backup.
"""

import os
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

DATABASE = "metastore.sqlite"
BACKUPS = "backups"
_ENDS = ("", "-wal", "-shm")
KEPT_MAX = 24
FIRST_S = 60.0
EVERY_S = 3600.0


def back_up(folder: Path) -> Path:
    """Copy the file as it is now, durably; remove the oldest copies.  Blocks: use a thread."""
    backups = folder / BACKUPS
    backups.mkdir(exist_ok=True)
    made = backups / f"metastore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.sqlite"
    fresh = made.with_suffix(".new")
    try:
        _copy(folder / DATABASE, fresh)
        fresh.replace(made)
    finally:
        for part in backups.glob("metastore-*.new*"):  # includes leftovers of a killed process
            part.unlink(missing_ok=True)
    for old in _copies(folder)[:-KEPT_MAX]:
        old.unlink(missing_ok=True)
    return made


def _copy(file: Path, fresh: Path) -> None:
    with (
        closing(sqlite3.connect(file)) as source,
        closing(sqlite3.connect(fresh)) as target,
    ):
        source.backup(target)
    descriptor = os.open(fresh, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_backup(folder: Path) -> Path | None:
    """Return the newest copy; None if there is none."""
    copies = _copies(folder)
    return copies[-1] if copies else None


def way_out(folder: Path) -> str:
    """Return what a user can do about a file that is lost, damaged or too old."""
    backup = newest_backup(folder)
    back = f"restore its newest backup ({backup}), or " if backup else "there is no backup of it: "
    return (
        f"{back}rebuild it from the agents' data: `quorate dev recover` (for another "
        f"folder than a development cluster's: `quorate-operator recover --data {folder} --cluster "
        "NAME --agents HOST:PORT,…`)"
    )


def set_aside(folder: Path) -> Path | None:
    """Move the present file away, whatever is in it; return where to, None if there was none."""
    files = [folder / f"{DATABASE}{end}" for end in _ENDS]
    if not any(file.exists() for file in files):
        return None
    number = 1
    while (folder / f"set-aside-{number}").exists():
        number += 1
    aside = folder / f"set-aside-{number}"
    aside.mkdir()
    for file in files:
        with suppress(FileNotFoundError):
            file.rename(aside / file.name)
    return aside


def put_in_place(made: Path, folder: Path) -> None:
    """Move the closed file in the folder `made` into `folder`, which has none; durably."""
    for end in reversed(_ENDS):  # the file itself comes last
        with suppress(FileNotFoundError):
            (made / f"{DATABASE}{end}").rename(folder / f"{DATABASE}{end}")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copies(folder: Path) -> list[Path]:
    return sorted((folder / BACKUPS).glob("metastore-*.sqlite"))
