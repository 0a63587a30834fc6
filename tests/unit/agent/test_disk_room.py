"""How much of a disk is kept free, and when it is said to be nearly full."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate_agent.folder import disk_room
from quorate_agent.folder.disk_room import MIB, DiskRoom, reserve_of

GIB = 1024 * MIB


class Disk:
    """A disk of 10 GiB in blocks of 1 MiB; of the clock only what measures time."""

    def __init__(self) -> None:
        self.free_mib = 10 * 1024
        self.size_mib = 10 * 1024
        self.now_s = 100.0
        self.looks = 0

    def statvfs(self, path: object) -> SimpleNamespace:
        self.looks += 1
        return SimpleNamespace(f_bavail=self.free_mib, f_blocks=self.size_mib, f_frsize=MIB)

    def passed_s(self) -> float:
        return self.now_s

    def later(self, free_mib: int) -> None:
        self.free_mib = free_mib
        self.now_s += disk_room.LOOK_S


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(disk_room.os, "statvfs", disk.statvfs)
    return disk


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        (16 * MIB, 32 * MIB),
        (192 * MIB, 32 * MIB),
        (600 * MIB, 100 * MIB),
        (2 * GIB, 256 * MIB),
        (5 * GIB, 256 * MIB),
        (10 * GIB, 512 * MIB),
        (80 * GIB, 4 * GIB),
        (2000 * GIB, 4 * GIB),
    ],
)
def test_what_is_kept_free_follows_the_size_of_the_disk(size: int, kept: int) -> None:
    assert reserve_of(size) == kept


def test_the_disk_is_looked_at_once_a_second_at_most(disk: Disk) -> None:
    room = DiskRoom(Path("/data"), clock=disk)

    assert not any(room.is_low or room.is_short for _ in range(50))
    disk.free_mib = 0
    assert (disk.looks, room.is_low) == (1, False)

    disk.now_s += disk_room.LOOK_S
    assert (room.is_low, room.is_short, disk.looks) == (True, True, 2)
    disk.free_mib = 9000
    assert room.look_again() == 9000 * MIB


def test_each_bound_is_over_when_there_is_a_quarter_more(disk: Disk) -> None:
    room = DiskRoom(Path("/data"), 400 * MIB, clock=disk)
    seen = []
    for free in (400, 399, 499, 32, 31, 39, 40, 499, 500, 450, 399):
        disk.later(free)
        seen.append((free, room.is_low, room.is_short))

    assert seen == [
        (400, False, False),
        (399, True, False),
        (499, True, False),
        (32, True, False),
        (31, True, True),
        (39, True, True),
        (40, True, False),
        (499, True, False),
        (500, False, False),
        (450, False, False),
        (399, True, False),
    ]


def test_a_disk_that_grows_has_room_and_another_reserve(disk: Disk) -> None:
    room = DiskRoom(Path("/data"), clock=disk)
    disk.later(511)
    assert room.is_low
    assert room.words == "511 MiB left on the disk, 512 MiB are kept free (--disk-reserve)"

    disk.size_mib *= 2
    disk.later(511 + 10 * 1024)

    assert not room.is_low
    assert room.reserve == 1024 * MIB


def test_nothing_is_kept_free_where_that_was_told(disk: Disk) -> None:
    room = DiskRoom(Path("/data"), 0, clock=disk)
    disk.later(0)

    assert not room.is_low
    assert not room.is_short


def test_a_real_disk_can_be_asked(tmp_path: Path) -> None:
    room = DiskRoom(tmp_path)

    assert room.look_again() > 0
    assert room.reserve == reserve_of(os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize)
