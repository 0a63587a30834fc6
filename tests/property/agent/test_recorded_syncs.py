"""A crash anywhere between writing, syncing and recording never makes a whole folder a new store;
a folder that lost what was recorded always becomes one.

Disks are images of the folder: after a power loss a log has what it had when its last sync began.
Of what is behind that, it lacks the end, or stretches are zeros; the engine may have begun a newer
log meanwhile.  Whatever is left, the zone has all its writes up to one, and none behind it.  Zones
are synced as an `Always` zone's (each turn) or as an `Interval` zone's (now and then): which of the
two only decides how often `sync` comes.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quorate.protocol.storage import Row
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.stored_zones import open_stored_zones, open_zone, what_is_synced
from quorate_cluster.waiting import wait_until

UIDS = ("z1", "z2", "z3")

STRETCH = 64
"""Bytes of which the disk has all or none, after a power loss."""

lost = st.one_of(st.none(), st.tuples(st.integers(0, 300), st.integers(0, 255)))
"""The unsynced part as a disk has it: nothing, or all but so many bytes at the end, with zeros
in every stretch whose bit is set."""


class Engine:
    """A zone's engine whose sync something else happens beside."""

    def __init__(self, storage: RocksStorage) -> None:
        self._engine = storage.database._db
        self.before_sync = self.after_sync = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def flush_wal(self, sync: bool) -> None:
        self.before_sync()
        self._engine.flush_wal(sync)
        self.after_sync()


class Folder(RuleBasedStateMachine):
    """One data folder, its processes one after the other, and what its disk is sure to have."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="quorate-recorded-"))
        self.path = self.root / "data"
        self.writes = 0
        self.written: dict[str, list[int]] = {}

    def teardown(self) -> None:
        self._close()
        shutil.rmtree(self.root)

    @initialize()
    def begin(self) -> None:
        self._open()
        self.store = self.folder.store
        self.add_zone(UIDS[0])

    def _open(self) -> None:
        self.folder = DataFolder.open(self.path, cluster="demo", node="agent-1", cluster_id="id")
        self.zones = open_stored_zones(self.folder, Descriptors(1 << 16))
        self._begin_process()

    def _begin_process(self) -> None:
        # The engine syncs what a log held before when it opens, so new logs are all there is.
        self.kept: dict[Path, int] = {}
        for uid in self.zones:
            self._note_kept(uid)

    def _close(self) -> None:
        for storage in self.zones.values():
            storage.close()
        self.folder.close()

    def _logs(self, uid: str, folder: Path) -> list[Path]:
        return sorted(folder.glob(f"zones/{uid}/rocksdb/*.log"))

    def _note_kept(self, uid: str) -> None:
        for log in self._logs(uid, self.path):
            self.kept[log.relative_to(self.path)] = log.stat().st_size

    def _image(self, *, power_lost: bool, left: tuple[int, int] | None = None) -> Path:
        """What is on the disk after the machine lost power, or only the process ended."""
        image = self.root / "image"

        def copied() -> bool:
            if not self._is_at_rest():
                return False
            try:
                shutil.copytree(self.path, image)
            except shutil.Error:  # the engine has just removed a file
                shutil.rmtree(image)
                return False
            return True

        wait_until(copied, "a copy of the folder", 30)
        if power_lost:
            for uid in self.zones:
                for log in self._logs(uid, image):
                    self._lose_unsynced(log, self.kept.get(log.relative_to(image), 0), left)
        return image

    def _lose_unsynced(self, log: Path, synced: int, left: tuple[int, int] | None) -> None:
        data = bytearray(log.read_bytes())
        short, zeroed = left or (len(data), 0)
        del data[max(synced, len(data) - short) :]
        for number, at in enumerate(range(synced, len(data), STRETCH)):
            if zeroed >> number % 8 & 1:
                end = min(at + STRETCH, len(data))
                data[at:end] = bytes(end - at)
        log.write_bytes(data)

    def _is_at_rest(self) -> bool:
        names = ("rocksdb.compaction-pending", "rocksdb.num-running-compactions")
        engines = [storage.database._db for storage in self.zones.values()]
        return not any(engine.property_int_value(name) for engine in engines for name in names)

    def _restart_from(self, image: Path) -> None:
        self._close()
        shutil.rmtree(self.path)
        image.rename(self.path)
        self._open()
        assert self.folder.store == self.store
        assert not list(self.path.glob("set-aside-*"))
        for uid, storage in self.zones.items():
            last = int(storage.record_get(b"last") or 0)
            found = sorted(int(key) for key, _ in storage.space(0, 0).scan(None, 1 << 20, 1 << 40))
            self.written[uid] = [n for n in self.written.get(uid, []) if n <= last]
            assert found == self.written[uid]

    # --- what an agent does

    @rule(uid=st.sampled_from(UIDS))
    def add_zone(self, uid: str) -> None:
        if uid not in self.zones:
            self.zones[uid] = open_zone(self.folder, uid)
            self.written[uid] = []

    @precondition(lambda self: len(self.zones) > 1)
    @rule(number=st.integers(0, 2))
    def remove_zone(self, number: int) -> None:
        uid = sorted(self.zones)[number % len(self.zones)]
        self.zones.pop(uid).close()
        self.folder.remove_zone(uid)
        del self.written[uid]

    @rule(number=st.integers(0, 2))
    def write(self, number: int) -> None:
        uid = sorted(self.zones)[number % len(self.zones)]
        self.writes += 1
        storage = self.zones[uid]
        storage.space(0, 0).put(b"%d" % self.writes, Row(self.writes, 1, 0, b"value"))
        storage.record_put(b"last", b"%d" % self.writes)
        storage.commit()
        self.written[uid].append(self.writes)

    @rule(number=st.integers(0, 2), meanwhile=st.integers(0, 3))
    def sync(self, number: int, meanwhile: int) -> None:
        """Also while the loop goes on writing, before the engine begins or before it says so."""
        uid = sorted(self.zones)[number % len(self.zones)]
        database = self.zones[uid].database
        engine = Engine(self.zones[uid])

        def before() -> None:
            self._note_kept(uid)
            if meanwhile & 1:
                self.write(number)

        def after() -> None:
            if meanwhile & 2:
                self.write(number)

        engine.before_sync, engine.after_sync = before, after
        real, database._db = database._db, engine
        self.zones[uid].sync()
        database._db = real

    @rule()
    def record(self) -> None:
        if self.folder.note_synced(what_is_synced(self.zones)):
            self.folder.save()

    @rule()
    def note_and_crash_before_it_is_saved(self) -> None:
        self.folder.note_synced(what_is_synced(self.zones))
        self.crash(power_lost=True)

    @rule(term=st.integers(1, 5))
    def raise_master_term(self, term: int) -> None:
        self.folder.raise_master_term(term, f"word {term}")

    @rule()
    def stop(self) -> None:
        for storage in self.zones.values():
            storage.close()
        self.record()
        self.folder.close()
        self._open()
        assert self.folder.store == self.store

    # --- what happens to it

    @rule(power_lost=st.booleans(), left=lost)
    def crash(self, power_lost: bool, left: tuple[int, int] | None = None) -> None:
        self._restart_from(self._image(power_lost=power_lost, left=left))

    @rule(number=st.integers(0, 2), before=st.integers(0, 3), behind=st.integers(1, 3), left=lost)
    def lose_power_behind_a_new_log(
        self, number: int, before: int, behind: int, left: tuple[int, int] | None
    ) -> None:
        """The disk has the new log whole, but not the table that was to replace the old one."""
        uid = sorted(self.zones)[number % len(self.zones)]
        for _ in range(before):
            self.write(number)
        image = self._image(power_lost=True, left=left)
        self.zones[uid].database._db.flush(True)
        for _ in range(behind):
            self.write(number)
        old = self._logs(uid, image)
        (new,) = [log for log in self._logs(uid, self.path) if log.stat().st_size]
        if new.name not in [log.name for log in old]:
            shutil.copy(new, old[-1].with_name(new.name))
        self._restart_from(image)

    @rule(number=st.integers(0, 2), meanwhile=st.integers(0, 3))
    def lose_power_behind_a_record(self, number: int, meanwhile: int) -> None:
        self.write(number)
        self.sync(number, meanwhile)
        self.record()
        self.crash(power_lost=True)

    @rule(number=st.integers(0, 2), meanwhile=st.integers(0, 3))
    def lose_what_was_recorded(self, number: int, meanwhile: int) -> None:
        """One byte less than what was there when the recorded sync began."""
        uid = sorted(self.zones)[number % len(self.zones)]
        self.write(number)
        self.sync(number, meanwhile)
        self.record()
        image = self._image(power_lost=True)
        log = max(log for log in self._logs(uid, image) if log.stat().st_size)
        log.write_bytes(log.read_bytes()[:-1])
        damaged = DataFolder.open(image, cluster="demo", node="agent-1", cluster_id="id")
        assert open_stored_zones(damaged, Descriptors(1 << 16)) == {}
        assert damaged.store != self.store
        damaged.close()
        shutil.rmtree(image)


@pytest.mark.parametrize("examples", [12, pytest.param(80, marks=pytest.mark.deep)])
def test_only_a_folder_that_lost_what_was_recorded_is_a_new_store(examples: int) -> None:
    small = settings(max_examples=examples, stateful_step_count=14)
    run_state_machine_as_test(Folder, settings=small)
