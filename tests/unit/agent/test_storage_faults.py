"""The engines when there is no room, and when the process is killed."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rocksdict import Rdict

from quorate.protocol.copies.totals import CHANGED_MAX
from quorate.protocol.storage import ROW_OVERHEAD_BYTES, Row, StorageFull
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.storage import StorageBroken, database
from quorate_agent.storage.database import PROBE_SECONDS_MAX
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.storage.rocks_log import SEGMENT_BYTES
from quorate_lone_agent.clock import MovedClock

EVERYTHING = 1 << 30
PRIVATE_MOUNTS = (
    ("unshare", "--mount") if os.getuid() == 0 else ("unshare", "--map-root-user", "--mount")
)


def row(counter: int, value: bytes | None) -> Row:
    return Row(counter=counter, term=1, expires_at=0, value=value)


# --- InMemory: maxMemory


def test_a_batch_that_does_not_fit_into_max_memory_is_undone_as_a_whole() -> None:
    storage = MemoryStorage(max_memory=100_000)
    space = storage.space(0, 1)
    for number in range(50):
        space.put(b"%d" % number, row(number + 1, b"old"))
    storage.log_put(0, 1, 1, b"old")
    storage.log_put(0, 2, 1, b"old")
    storage.record_put(b"record", b"old")
    storage.record_put(b"other", b"old")
    storage.commit()
    before = (space.scan(None, 1000, EVERYTHING), storage.log_read(0, 0, 9, EVERYTHING))
    sizes = (space.row_count(), space.byte_count(), storage.memory_used(), storage.log_bytes(0))
    get = space.get

    space.put(b"1", row(99, b"new"))
    space.drop(b"2")
    space.put_all({b"3": row(99, b"new"), b"4": row(99, None), b"added": row(99, b"new")})
    storage.log_put(0, 1, 1, b"new, longer")
    storage.log_put(0, 3, 1, b"new")
    storage.log_drop(0, 1, 1)
    storage.log_cut(0, 2)
    storage.record_put(b"record", b"new")
    storage.record_drop(b"other")
    storage.record_put(b"added", b"new")
    storage.drop_space(0, 1)
    space.put(b"1", row(100, bytes(100_000)))
    with pytest.raises(StorageFull, match="maxMemory is 100000"):
        storage.commit()

    assert before == (space.scan(None, 1000, EVERYTHING), storage.log_read(0, 0, 9, EVERYTHING))
    assert sizes == (
        space.row_count(), space.byte_count(), storage.memory_used(), storage.log_bytes(0),
    )  # fmt: skip
    assert list(storage.records(b"")) == [(b"other", b"old"), (b"record", b"old")]
    assert get(b"1") == row(2, b"old")


def test_the_digest_of_a_dropped_space_is_right_when_that_is_undone() -> None:
    storage = MemoryStorage(max_memory=10_000_000)
    space = storage.space(0, 1)
    space.put_all({b"%d" % number: row(1, b"old") for number in range(CHANGED_MAX + 100)})
    storage.commit()
    digest = space.digest()

    storage.drop_space(0, 1)
    space.put(b"%d" % CHANGED_MAX, row(2, bytes(10_000_000)))
    with pytest.raises(StorageFull):
        storage.commit()

    assert space.digest() == digest


def test_a_full_zone_still_takes_deletes_and_recovers() -> None:
    storage = MemoryStorage(max_memory=100_000)
    space = storage.space(0, 1)
    number = 0
    while not storage.full_reason:
        space.put(b"%d" % number, row(number + 1, bytes(1000)))
        storage.commit()
        number += 1
    assert "maxMemory 100000" in storage.full_reason
    space.put(b"large", row(1, bytes(10_000)))
    with pytest.raises(StorageFull):
        storage.commit()

    for key in range(number):
        space.put(b"%d" % key, row(number + key, None))
        storage.log_put(0, number + key, 1, b"a delete in the log takes room, too")
        storage.commit()

    assert not storage.full_reason
    space.put(b"again", row(9999, bytes(1000)))
    storage.commit()
    assert storage.room() < 100_000


def test_memory_without_a_bound_is_never_full() -> None:
    storage = MemoryStorage()
    storage.space(0, 0).put(b"key", row(1, bytes(1000)))
    storage.commit()

    assert not storage.full_reason
    assert storage.memory_used() == ROW_OVERHEAD_BYTES + 1003


def test_a_changed_bound_counts_for_what_is_there_already() -> None:
    storage = MemoryStorage()
    space = storage.space(0, 0)
    space.put(b"key", row(1, bytes(1000)))
    storage.log_put(0, 1, 1, bytes(1000))
    storage.commit()
    used = storage.memory_used()

    space.put(b"before the bound", row(2, bytes(100)))
    storage.set_max_memory(used)
    storage.commit()
    assert storage.memory_used() == used + ROW_OVERHEAD_BYTES + 116
    assert storage.full_reason
    space.put(b"beyond", row(3, b""))
    with pytest.raises(StorageFull, match=f"maxMemory is {used}"):
        storage.commit()
    assert space.get(b"beyond") is None

    storage.set_max_memory(1 << 20)
    assert not storage.full_reason
    space.put(b"more", row(4, bytes(10_000)))
    storage.commit()
    storage.set_max_memory(used)
    space.put(b"beyond", row(5, b""))
    with pytest.raises(StorageFull):
        storage.commit()

    space.put(b"while it is removed", row(6, bytes(10_000)))
    storage.set_max_memory(0)
    assert not storage.full_reason
    storage.commit()
    assert space.get(b"while it is removed") is not None
    unbounded = storage.memory_used()
    storage.set_max_memory(unbounded)
    storage.commit()
    assert storage.memory_used() == unbounded
    space.put(b"beyond", row(7, b""))
    with pytest.raises(StorageFull):
        storage.commit()


# --- Persistent: kill -9

WRITER = """
import os, sys
from quorate.protocol.storage import Row
from quorate_agent.storage.rocks import RocksStorage
storage = RocksStorage(sys.argv[1])
space = storage.space(0, 0)
for number in range(1, 100_000):
    space.put(b"%d" % number, Row(number, 1, 0, bytes(200)))
    storage.log_put(0, number, 1, b"update")
    storage.record_put(b"last", b"%d" % number)
    storage.commit()
    if sys.argv[2] == "sync" and number % 10 == 0:
        storage.sync()
    print(number, flush=True)
"""


@pytest.mark.parametrize("sync", ["sync", "no sync"])
def test_a_killed_process_loses_no_committed_batch_and_half_of_none(
    tmp_path: Path, sync: str
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "zone"), sync],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert writer.stdout is not None
    with writer, writer.stdout as said:
        for line in said:
            if int(line) == 500:
                writer.send_signal(signal.SIGKILL)
                break
        last = max(500, *(int(line) for line in said if line.endswith("\n")), 0)
    assert writer.returncode == -signal.SIGKILL

    storage = RocksStorage(tmp_path / "zone")

    found = int(storage.record_get(b"last") or b"0")
    assert found in (last, last + 1)
    assert storage.space(0, 0).row_count() == found
    assert len(storage.space(0, 0).scan(None, 1 << 30, EVERYTHING)) == found
    assert len(storage.log_read(0, 0, 1 << 30, EVERYTHING)) == found
    storage.close()


# --- Persistent: no room

FILLER = """
import os, resource, subprocess, sys
from quorate.protocol.storage import ROW_OVERHEAD_BYTES, Row, StorageFull
from quorate.protocol.copies.totals import CHANGED_MAX
from pathlib import Path
from quorate_agent.storage import database
from quorate_agent.folder.disk_room import DiskRoom
from quorate_agent.storage.rocks import RocksStorage

folder, limit = sys.argv[1], sys.argv[2]
database.PROBE_SECONDS = 0.0

def tmpfs(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)

def narrow():
    if limit == "file":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

def widen():
    if limit == "file":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    else:
        tmpfs("remount,size=400m")

if limit == "disk":
    tmpfs("size=40m")
storage = RocksStorage(folder + "/zone", disk=DiskRoom(Path(folder), 0))
space = storage.space(0, 0)
narrow()

def put(number):
    # Not compressible: the same bytes again for the same number.
    space.put(b"%d" % number, Row(number, 1, 0, number.to_bytes(4, "big") + noise))
    storage.record_put(b"last", b"%d" % number)
    storage.log_put(0, number, 1, b"update")
    storage.commit()

noise = os.urandom(10_000)
written = 0
try:
    while True:
        put(written + 1)
        written += 1
except StorageFull as error:
    print("full:", error)

def check(last):
    assert space.row_count() == last, (space.row_count(), last)
    assert storage.record_get(b"last") == b"%d" % last
    assert space.get(b"%d" % (last + 1)) is None
    assert all(space.get(b"%d" % number).counter == number for number in range(1, last + 1))
    assert len(space.scan(None, 1 << 30, 1 << 40)) == last
    assert len(storage.log_read(0, 0, 1 << 30, 1 << 40)) == last

storage.sync()
if limit == "disk":
    assert storage.full_reason
storage.sync()
check(written)
for _ in range(3):
    try:
        put(written + 1)
    except StorageFull:
        pass
    else:
        written += 1  # a small rest of room was found
check(written)
widen()
assert not storage.full_reason, storage.full_reason
before = written
while written < 2 * before:
    put(written + 1)
    written += 1
storage.sync()
check(written)
storage.close()
storage = RocksStorage(folder + "/zone", disk=DiskRoom(Path(folder), 0))
space = storage.space(0, 0)
check(written)
storage.close()
print("good")
"""


def fill(folder: Path, limit: str, *before: str) -> str:
    folder.mkdir()
    done = subprocess.run(
        [*before, sys.executable, "-c", FILLER, str(folder), limit],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_write_past_a_file_size_limit_leaves_nothing_behind_and_later_ones_pass(
    tmp_path: Path,
) -> None:
    said = fill(tmp_path / "disk", "file")

    assert "File too large" in said
    assert said.endswith("good\n")


@pytest.mark.needs("small-disk")
def test_a_write_to_a_full_disk_leaves_nothing_behind_and_later_ones_pass(tmp_path: Path) -> None:
    said = fill(tmp_path / "disk", "disk", *PRIVATE_MOUNTS)

    assert "No space left" in said
    assert said.endswith("good\n")


def test_a_disk_near_its_end_is_full_before_the_engine_meets_it(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "zone", disk=DiskRoom(tmp_path, 1 << 62))

    assert storage.full_reason
    assert storage.room() == 0
    assert "kept free" in storage.full_reason
    storage.space(0, 0).put(b"deletes and replication still pass", row(1, None))
    storage.commit()
    storage.close()


@pytest.mark.parametrize("first", ["Corruption: bad record", "No space left on device"])
def test_a_database_that_cannot_be_opened_anew_is_broken_and_can_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    storage = RocksStorage(tmp_path / "zone")
    errors = iter([first, "Corruption: bad record"])

    def fails(*args: object, **options: object) -> None:
        raise RuntimeError(next(errors))

    storage.database._no_room.set()
    with monkeypatch.context() as patch:
        patch.setattr(database, "Rdict", fails)
        with pytest.raises(StorageBroken, match=r"rocksdb: cannot open: Corruption.*Way out"):
            assert storage.full_reason
    with pytest.raises(StorageBroken, match="cannot open"):
        storage.sync()
    storage.close()

    RocksStorage(tmp_path / "zone").close()


class _ToldClock(MovedClock):
    """Time is measured only as far as a test says that it passes."""

    __slots__ = ()

    def passed_s(self) -> float:
        return self.passed_ahead_s


class _Openings:
    """The openings of a database's engine for writing: each takes two seconds and finds no room."""

    def __init__(self, clock: MovedClock) -> None:
        self._clock = clock
        self.count = 0

    def open(self, *arguments: Any, **options: Any) -> Rdict:
        if options:  # for reading
            return Rdict(*arguments, **options)
        self.count += 1
        self._clock.passed_ahead_s += 2.0
        raise RuntimeError("IO error: No space left on device")


def _over_its_quota(folder: Path, clock: _ToldClock) -> RocksStorage:
    storage = RocksStorage(folder / "zone", disk=DiskRoom(folder, 0, clock))
    storage.database._no_room.set()
    storage.database._no_room_text = "quota"
    return storage


def test_room_that_does_not_show_is_looked_for_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _ToldClock()
    openings = _Openings(clock)
    storage = _over_its_quota(tmp_path, clock)
    with monkeypatch.context() as patch:
        patch.setattr(database, "Rdict", openings.open)
        pauses_s = []
        for count in range(1, 9):
            began_s = clock.passed_ahead_s
            while openings.count < count:
                assert storage.full_reason == "quota"
                clock.passed_ahead_s += 0.25
            pauses_s.append(clock.passed_ahead_s - began_s - 2.25)

    assert pauses_s[:3] == [0.0, 0.75, 1.75]  # until the first look behind the pause
    assert max(pauses_s[1:]) == pauses_s[-1] == database.PROBE_SECONDS_MAX - 0.25
    clock.passed_ahead_s += database.PROBE_SECONDS_MAX
    assert not storage.full_reason
    storage.close()


def _exceeds_the_quota(*file: object) -> None:
    raise OSError(errno.EDQUOT, "Disk quota exceeded")


def _without_inodes(folder: object) -> SimpleNamespace:
    return SimpleNamespace(
        f_blocks=1 << 20, f_bavail=1 << 20, f_frsize=4096, f_files=1000, f_favail=3
    )


@pytest.mark.parametrize(
    ("call", "fails"), [("posix_fallocate", _exceeds_the_quota), ("statvfs", _without_inodes)]
)
def test_the_engine_is_not_opened_anew_for_room_that_a_file_would_not_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    fails: Callable[..., SimpleNamespace | None],
) -> None:
    clock = _ToldClock()
    openings = _Openings(clock)
    storage = _over_its_quota(tmp_path, clock)
    with monkeypatch.context() as patch:
        patch.setattr(database, "Rdict", openings.open)
        patch.setattr(os, call, fails)

        assert storage.full_reason == "quota"

    assert openings.count == 0
    clock.passed_ahead_s += 1.0
    assert not storage.full_reason
    assert sorted(each.name for each in (tmp_path / "zone").iterdir()) == ["format.json", "rocksdb"]
    storage.close()


def test_a_storage_is_short_of_room_while_a_batch_finds_none_that_does_not_show(
    tmp_path: Path,
) -> None:
    clock = _ToldClock()
    storage = RocksStorage(tmp_path / "zone", disk=DiskRoom(tmp_path, 0, clock))
    assert not storage.is_short

    storage.database._no_room.set()
    assert storage.is_short

    assert not storage.full_reason, "it is opened anew"
    assert not storage.is_short
    storage.close()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_storage_is_short_of_room_while_a_value_finds_no_file_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    def open_file(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_CREAT | os.O_TMPFILE):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return opened(path, flags, *rest, **named)

    clock, opened = _ToldClock(), os.open
    storage = RocksStorage(tmp_path / "zone", disk=DiskRoom(tmp_path, 0, clock))
    if not is_first:
        storage.database.use_value_files()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_file)
        storage.log_put(0, 1, 1, bytes(LONG_BYTES + 1))
        with pytest.raises(StorageFull, match="No space left"):
            storage.commit()
        assert "No space left" in storage.full_reason
        assert storage.is_short

    clock.passed_ahead_s += PROBE_SECONDS_MAX
    assert not storage.full_reason
    assert not storage.is_short
    storage.log_put(0, 1, 1, bytes(LONG_BYTES + 1))
    storage.commit()
    storage.close()


@pytest.mark.parametrize("cut", [0, 30])
def test_sizes_of_a_log_are_as_before_after_a_batch_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    clock = _ToldClock()
    storage = _over_its_quota(tmp_path, clock)
    storage.database._no_room.clear()
    for counter in range(1, 31):
        storage.log_put(0, counter, 1, bytes(SEGMENT_BYTES // 10 + 1))
    storage.commit()
    parts = [(1, 5), (1, 30), (11, 30), (30, 99)]
    before = [storage.log_bytes(0, *part) for part in parts]

    storage.log_put(0, 31, 1, b"u" * 1000)
    storage.log_cut(0, cut)
    storage.log_put(0, 32, 1, b"u" * SEGMENT_BYTES)
    storage.log_put(0, 33, 1, b"u" * 1000)
    storage.log_put(0, 20, 2, b"undone later")
    storage.database._no_room.set()
    with monkeypatch.context() as patch:
        patch.setattr(database, "Rdict", _Openings(clock).open)
        if not cut:
            patch.setattr(storage.database, "items", None)  # the log is not read for that
        with pytest.raises(StorageFull):
            storage.commit()

    assert [storage.log_bytes(0, *part) for part in parts] == before
    assert storage.log_total == before[1]
    assert len(storage.log_read(0, 1, 99, EVERYTHING)) == 30
    storage.close()


def test_a_database_that_lost_something_when_it_was_opened_anew_syncs_nothing_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lower number would be recorded, and the loss be seen by nobody at the next start."""
    storage = RocksStorage(tmp_path / "zone")
    storage.record_put(b"promise", b"of a copy")
    storage.commit()
    storage.sync()
    before = storage.database.synced_sequence
    storage.database._no_room.set()
    empty = Rdict(str(tmp_path / "empty"))
    with monkeypatch.context() as patch:
        patch.setattr(database, "Rdict", lambda *args: empty)
        with pytest.raises(StorageBroken, match=rf"at sequence 0 .* was at {before}"):
            assert storage.full_reason

    storage.close()

    assert storage.database.synced_sequence == before
