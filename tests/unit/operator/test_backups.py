"""Backups of the operator's file: each is whole, the oldest go, a failed one leaves nothing."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from quorate_operator.metastores import backups
from quorate_operator.metastores.backups import BACKUPS, DATABASE, KEPT_MAX, back_up, newest_backup


class Clock(datetime):
    """Each look at it is an hour later."""

    looks = 0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Clock":
        cls.looks += 1
        moment = datetime(2026, 12, 31, 20, 0, 0, tzinfo=UTC) + timedelta(hours=cls.looks)
        return cls.fromtimestamp(moment.timestamp(), tz)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose file counts the backups that were begun."""
    monkeypatch.setattr(backups, "datetime", Clock)
    monkeypatch.setattr(Clock, "looks", 0)
    _execute(tmp_path / DATABASE, "CREATE TABLE made (number INTEGER)")
    return tmp_path


def _execute(file: Path, statement: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(statement).fetchall()


def _make(folder: Path, count: int) -> list[Path]:
    made = []
    for number in range(count):
        _execute(folder / DATABASE, f"INSERT INTO made VALUES ({number})")
        made.append(back_up(folder))
    return made


def _kept(folder: Path) -> list[Path]:
    return sorted((folder / BACKUPS).iterdir())


def test_each_backup_holds_what_was_there_when_it_was_made(folder: Path) -> None:
    made = _make(folder, 3)

    assert [path.name for path in made] == [
        "metastore-20261231T210000Z.sqlite",
        "metastore-20261231T220000Z.sqlite",
        "metastore-20261231T230000Z.sqlite",
    ]
    counts = [_execute(path, "SELECT count(*) FROM made")[0][0] for path in made]
    assert counts == [1, 2, 3]


def test_the_newest_are_kept_and_the_oldest_go_also_over_the_turn_of_a_year(folder: Path) -> None:
    made = _make(folder, KEPT_MAX)
    assert _kept(folder) == made

    made += _make(folder, 5)

    assert _kept(folder) == made[-KEPT_MAX:]
    assert newest_backup(folder) == made[-1]


def test_what_is_no_backup_is_neither_counted_nor_removed(folder: Path) -> None:
    (folder / BACKUPS).mkdir()
    notes = folder / BACKUPS / "notes.txt"
    notes.write_text("why the oldest one matters")

    made = _make(folder, KEPT_MAX + 2)

    assert _kept(folder) == [*made[-KEPT_MAX:], notes]


def test_a_backup_that_fails_removes_none_and_what_it_left_is_no_backup(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _make(folder, KEPT_MAX)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(backups.os, "fsync", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                back_up(folder)

    assert _kept(folder) == made  # where there is no room, parts of backups must not take any
    assert newest_backup(folder) == made[-1]
    (again,) = _make(folder, 1)
    assert newest_backup(folder) == again
    assert made[0] not in _kept(folder)
