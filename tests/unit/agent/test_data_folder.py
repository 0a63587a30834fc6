"""The data folder: who an agent is, one agent at a time, nothing lost unnoticed."""

import errno
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from quorate.facts.zone import ZoneRecord
from quorate_agent.folder import data_folder, identity
from quorate_agent.folder.data_folder import DataFolder, put_folder_back, set_folder_aside
from quorate_agent.folder.identity import FolderRefused


def open_folder(path: Path, cluster: str = "demo", node: str = "agent-1") -> DataFolder:
    return DataFolder.open(path, cluster=cluster, node=node, cluster_id="id")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_a_new_folder_has_a_store_of_its_own_and_counts_its_starts(path: Path) -> None:
    stores = set()
    for start in (1, 2, 3):
        folder = open_folder(path)
        stores.add(folder.store)
        assert folder.incarnation == start
        folder.close()
    other = open_folder(path.with_name("other"))
    other.close()

    assert len(stores) == 1
    assert other.store not in stores
    assert json.loads((path / "folder.json").read_text())["format"] == 2


def test_a_second_start_is_refused_while_the_first_lives_and_names_its_process(path: Path) -> None:
    folder = open_folder(path)

    with pytest.raises(FolderRefused, match=rf"{path}/lock: process {os.getpid()} is using"):
        open_folder(path)
    folder.close()
    again = open_folder(path)
    assert again.incarnation == 2
    again.close()


def test_a_killed_process_leaves_the_folder_free(path: Path) -> None:
    code = """
import sys
from quorate_agent.folder.data_folder import DataFolder
folder = DataFolder.open(sys.argv[1], cluster="demo", node="agent-1", cluster_id="id")
print(folder.store, flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert holder.stdout is not None
    with holder:
        store = holder.stdout.readline().strip()
        with pytest.raises(FolderRefused, match=f"process {holder.pid} is using"):
            open_folder(path)
        holder.send_signal(signal.SIGKILL)

    folder = open_folder(path)

    assert (folder.store, folder.incarnation) == (store, 2)
    folder.close()


def test_the_master_term_never_goes_back(path: Path) -> None:
    folder = open_folder(path)
    folder.raise_master_term(7, "first")
    folder.raise_master_term(3, "late")
    folder.close()

    folder = open_folder(path)

    assert (folder.master_term, folder.master_word) == (7, "first")
    folder.close()


@pytest.mark.parametrize(
    ("cluster", "node", "message"),
    [
        ("prod", "agent-1", "cluster 'demo' found, 'prod' expected.*--cluster demo"),
        ("demo", "agent-2", "node 'agent-1' found, 'agent-2' expected.*--name agent-1"),
    ],
)
def test_anothers_folder_is_refused(path: Path, cluster: str, node: str, message: str) -> None:
    open_folder(path).close()

    with pytest.raises(FolderRefused, match=message):
        open_folder(path, cluster, node)
    assert open_folder(path).incarnation == 2


def changed(text: str, field: str, value: object) -> str:
    return json.dumps({**json.loads(text), field: value})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "not readable"),
        (lambda text: text[: len(text) // 2], "not readable"),
        (lambda text: "[]", "not readable"),
        (lambda text: "\0" * len(text), "not readable"),
        (lambda text: changed(text, "format", 3), "format 3 found, 2 expected"),
        (lambda text: changed(text, "format", "x"), "format 'x' found, 2 expected"),
        (lambda text: changed(text, "incarnation", 9), "checksum .* found, .* expected"),
        (lambda text: changed(text, "incarnation", "x"), "Expected `int`"),
        (lambda text: '{"format": 1}', "missing required field"),
    ],
)
def test_a_damaged_or_unknown_identity_is_refused_with_the_way_out(path, damage, message) -> None:
    open_folder(path).close()
    file = path / "folder.json"
    file.write_text(damage(file.read_text()))

    with pytest.raises(FolderRefused, match=rf"(?s)folder.json: .*{message}.*Way out: "):
        open_folder(path)


def test_zone_folders_are_made_kept_and_removed(path: Path) -> None:
    folder = open_folder(path)
    for uid in ("b", "a"):
        (folder.zone_path(uid) / "file").write_text("data")
    assert folder.zone_uids() == ["a", "b"]
    folder.close()

    folder = open_folder(path)
    assert (folder.zone_path("a") / "file").read_text() == "data"
    folder.remove_zone("a")
    folder.remove_zone("never there")

    assert folder.zone_uids() == ["b"]
    assert sorted(file.name for file in (path / "zones").iterdir()) == ["b"]
    assert list(folder.zone_path("a").iterdir()) == []
    folder.close()


def test_an_interrupted_removal_is_made_good_at_the_next_start(path: Path, monkeypatch) -> None:
    folder = open_folder(path)
    (folder.zone_path("a") / "file").write_text("data")
    monkeypatch.setattr(data_folder.shutil, "rmtree", lambda *_, **__: None)
    folder.remove_zone("a")
    folder.close()
    assert (path / "zones" / "a").exists()
    monkeypatch.undo()

    folder = open_folder(path)

    assert not (path / "zones" / "a").exists()
    folder.close()


def test_what_a_removal_left_is_not_found_in_a_zone_that_is_told_again(path: Path) -> None:
    """Half a database would be taken for all that it ever had."""
    folder = open_folder(path)
    data = folder.zone_path("a")
    (data / "half").write_text("data")
    folder.forget_zone("a")

    assert folder.zone_path("a") == data

    assert list(data.iterdir()) == []
    folder.close()


def test_a_zone_that_nobody_told_us_to_remove_is_never_removed(path: Path) -> None:
    """An older folder.json beside newer zones: of a zone made since it knows nothing."""
    folder = open_folder(path)
    older = (path / "folder.json").read_bytes()
    (folder.zone_path("a") / "file").write_text("data")
    folder.close()
    (path / "zones" / "begun").mkdir()  # by `zone_path`, which was interrupted
    (path / "folder.json").write_bytes(older)

    folder = open_folder(path)

    assert (path / "zones" / "a" / "file").read_text() == "data"
    assert not (path / "zones" / "begun").exists()
    assert folder.zone_uids() == []
    folder.close()


def test_a_zone_that_is_told_again_is_no_longer_one_to_be_removed(path: Path, monkeypatch) -> None:
    folder = open_folder(path)
    folder.zone_path("a")
    monkeypatch.setattr(data_folder.shutil, "rmtree", lambda *_, **__: None)
    folder.remove_zone("a")
    monkeypatch.undo()
    (folder.zone_path("a") / "file").write_text("data")
    folder.close()

    folder = open_folder(path)

    assert (path / "zones" / "a" / "file").read_text() == "data"
    folder.close()


def test_the_first_cluster_whose_master_is_obeyed_has_the_folder(path: Path) -> None:
    """Before that a wrong secret does no harm; afterwards another cluster of the name is refused,
    also by the folder's next store."""

    def of(cluster_id: str) -> DataFolder:
        return DataFolder.open(path, cluster="demo", node="agent-1", cluster_id=cluster_id)

    of("one").close()
    folder = of("two")
    assert folder.cluster_id == ""
    folder.raise_master_term(1, "word")
    assert folder.cluster_id == "two"
    folder.close()
    with pytest.raises(FolderRefused, match=r"the secret is of 'one': another .*--secret-file"):
        of("one")
    set_folder_aside(path, cluster="demo", node="agent-1", reason="a test")
    with pytest.raises(FolderRefused, match="cluster_id 'two' found, the secret is of 'one'"):
        of("one")

    folder = of("two")

    assert (folder.cluster_id, folder.master_term) == ("two", 1)
    folder.close()


@pytest.mark.parametrize("uid", ["", "..", "a/b", "a\0b"])
def test_a_zone_uid_cannot_leave_the_folder(path: Path, uid: str) -> None:
    folder = open_folder(path)

    with pytest.raises(FolderRefused, match="cannot name a folder"):
        folder.zone_path(uid)
    folder.close()


def test_a_lost_zone_or_identity_is_refused_under_the_same_store(path: Path) -> None:
    folder = open_folder(path)
    zone = folder.zone_path("a")
    folder.close()
    zone.rename(path / "hidden")
    with pytest.raises(FolderRefused, match=r"zones/a: missing, but .* lists the zone"):
        open_folder(path)

    (path / "hidden").rename(zone)
    (path / "folder.json").unlink()
    with pytest.raises(FolderRefused, match=r"folder\.json: missing, but .*zones holds data"):
        open_folder(path)


def test_setting_aside_keeps_the_old_data_and_starts_a_new_store(path: Path) -> None:
    folder = open_folder(path)
    (folder.zone_path("a") / "file").write_text("data")
    (path / "agent.json").write_text("{}")
    folder.raise_master_term(5, "word")
    old = folder.store

    aside = folder.set_aside("older than registered: incarnation 1, registered 4")

    assert (aside / "zones/a/file").read_text() == "data"
    assert json.loads((aside / "folder.json").read_text())["store"] == old
    assert "incarnation 1, registered 4" in (aside / "reason.txt").read_text()
    assert folder.store != old
    assert (folder.incarnation, folder.master_term, folder.zone_uids()) == (1, 5, [])
    assert (path / "agent.json").exists()
    store = folder.store
    assert folder.set_aside("once more").name == "set-aside-2"
    assert folder.store != store
    folder.close()
    assert open_folder(path).incarnation == 2


class Crashed(Exception):
    """The process ended here."""


def test_setting_aside_can_be_interrupted_at_any_write(path: Path, monkeypatch) -> None:
    steps = 0
    for crash_at in range(1, 100):
        here = path / str(crash_at)
        folder = open_folder(here)
        (folder.zone_path("a") / "file").write_text("data")
        old = folder.store
        left = iter(range(crash_at))
        interrupt_at_writes(monkeypatch, left)
        try:
            folder.set_aside("reason")
        except Crashed:
            steps += 1
            finished = False
        else:
            finished = True
        monkeypatch.undo()
        folder.close()

        folder = open_folder(here)

        moved = (here / "set-aside-1/zones/a/file").exists()
        kept = (here / "zones/a/file").exists()
        assert moved != kept
        assert (folder.store == old) == kept
        assert folder.zone_uids() == (["a"] if kept else [])
        assert (here / "set-aside.json").exists() is False
        folder.close()
        if finished:
            break
    assert steps >= 6


def interrupt_at_writes(monkeypatch, left: Iterator[int]) -> None:
    for module, name in (
        (data_folder, "write_durably"),
        (data_folder, "sync_folder"),
        (identity, "write_durably"),
        (Path, "rename"),
    ):
        monkeypatch.setattr(module, name, crashing(getattr(module, name), left))


def crashing(real, left: Iterator[int]):
    def call(*arguments, **named):
        if next(left, None) is None:
            raise Crashed
        return real(*arguments, **named)

    return call


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FolderRefused, match=r"file.*Way out"):
        open_folder(tmp_path / "file")
    with pytest.raises(FolderRefused, match="Not a directory"):
        open_folder(tmp_path / "file" / "below")


# --- set aside by hand


def by_hand(path: Path, reason: str = "damaged", node: str = "agent-1") -> Path:
    return set_folder_aside(path, cluster="demo", node=node, reason=reason)


def test_a_folder_is_set_aside_by_hand_and_the_next_start_is_over_a_new_store(path: Path) -> None:
    folder = open_folder(path)
    (folder.zone_path("a") / "file").write_text("data")
    folder.raise_master_term(5, "w")
    folder.close()

    aside = by_hand(path, "its tables are damaged")

    assert (aside / "zones/a/file").read_text() == "data"
    assert (aside / "reason.txt").read_text() == "its tables are damaged\n"
    now = open_folder(path)
    assert now.store != folder.store
    assert (now.incarnation, now.master_term, now.zone_uids()) == (1, 5, [])
    now.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "folder.json").write_text("garbage"),
        lambda path: (path / "folder.json").unlink(),
        lambda path: (path / "zones/a").rename(path / "hidden"),
    ],
)
def test_a_folder_that_cannot_be_opened_is_set_aside_all_the_same(path: Path, damage) -> None:
    folder = open_folder(path)
    (folder.zone_path("a") / "file").write_text("data")
    folder.close()
    damage(path)
    with pytest.raises(FolderRefused, match="quorate dev start AGENT --set-aside"):
        open_folder(path)

    aside = by_hand(path)

    assert aside == path / "set-aside-1"
    now = open_folder(path)
    assert (now.store != folder.store, now.incarnation, now.zone_uids()) == (True, 1, [])
    now.close()


def test_a_folder_is_not_set_aside_while_it_is_used_is_anothers_or_empty(path: Path) -> None:
    folder = open_folder(path)
    with pytest.raises(FolderRefused, match=f"process {os.getpid()} is using this folder"):
        by_hand(path)
    folder.close()
    with pytest.raises(FolderRefused, match="node 'agent-1' found, 'agent-2' expected"):
        by_hand(path, node="agent-2")
    (path.parent / "empty").mkdir()
    with pytest.raises(FolderRefused, match=r"empty: holds no data to set aside\. Way out"):
        by_hand(path.parent / "empty")
    with pytest.raises(FolderRefused, match=r"nowhere.*No such file.*Way out"):
        by_hand(path.parent / "nowhere")

    assert open_folder(path).store == folder.store


# --- put back


def put_back(
    path: Path,
    number: int = 1,
    node: str = "agent-1",
    last_start: Callable[[Path], int] = lambda _: 7,
) -> None:
    put_folder_back(path, cluster="demo", node=node, number=number, last_start=last_start)


def set_aside_and_started_anew(path: Path) -> tuple[str, str]:
    """A folder with a set-aside, in which the new store has data as well; both stores."""
    folder = open_folder(path)
    (folder.zone_path("a") / "file").write_text("old")
    old = folder.store
    folder.set_aside("reason")
    (folder.zone_path("b") / "file").write_text("new")
    folder.raise_master_term(9, "w")
    folder.close()
    return old, folder.store


def test_what_was_set_aside_is_put_back_and_what_was_there_is_set_aside(path: Path) -> None:
    old, new = set_aside_and_started_anew(path)

    put_back(path)

    folder = open_folder(path)
    assert folder.store == old
    assert folder.zone_uids() == ["a"]
    assert (folder.zone_path("a") / "file").read_text() == "old"
    assert (folder.incarnation, folder.master_term) == (8, 9)
    assert (path / "set-aside-2/zones/b/file").read_text() == "new"
    assert "set-aside-1 was put back" in (path / "set-aside-2/reason.txt").read_text()
    folder.close()
    with pytest.raises(FolderRefused, match=r"set-aside-1: has no folder\.json.*Way out"):
        put_back(path)
    put_back(path, 2)
    assert open_folder(path).store == new


def _is_damaged(aside: Path) -> int:
    raise FolderRefused(f"{aside}: damaged")


def test_putting_back_is_refused_while_the_folder_is_used_or_anothers(path: Path) -> None:
    """However damaged it is: that is looked at only in a folder of this agent, in no use."""
    set_aside_and_started_anew(path)
    folder = open_folder(path)
    with pytest.raises(FolderRefused, match="is using this folder"):
        put_back(path, last_start=_is_damaged)
    folder.close()
    with pytest.raises(FolderRefused, match="this is another's folder"):
        put_back(path, node="agent-2", last_start=_is_damaged)
    with pytest.raises(FolderRefused, match="set-aside-3: has no folder"):
        put_back(path, 3, last_start=_is_damaged)


def test_nothing_is_moved_if_what_was_set_aside_is_damaged(path: Path) -> None:
    _, new = set_aside_and_started_anew(path)

    with pytest.raises(FolderRefused, match="set-aside-1: damaged"):
        put_back(path, last_start=_is_damaged)

    folder = open_folder(path)
    assert (folder.store, folder.zone_uids()) == (new, ["b"])
    folder.close()


def test_putting_back_can_be_interrupted_at_any_write(path: Path, monkeypatch) -> None:
    """No data is lost on the way; asked for again, it is finished."""
    steps = 0
    for crash_at in range(1, 100):
        here = path / str(crash_at)
        old, _ = set_aside_and_started_anew(here)
        left = iter(range(crash_at))
        interrupt_at_writes(monkeypatch, left)
        try:
            put_back(here)
        except Crashed:
            steps += 1
            finished = False
        else:
            finished = True
        monkeypatch.undo()

        if not finished and (here / "set-aside-1/folder.json").exists():
            put_back(here)
        folder = open_folder(here)
        assert folder.store == old
        assert (folder.zone_path("a") / "file").read_text() == "old"
        assert [f.read_text() for f in here.glob("set-aside-*/zones/b/file")] == ["new"]
        folder.close()
        if finished:
            break
    assert steps >= 10


def test_a_folder_of_an_agent_that_knew_no_words_is_taken(path: Path) -> None:
    open_folder(path).close()
    text = (path / "folder.json").read_text()
    later = ("master_word", "cluster_id", "removing")
    before = {k: v for k, v in json.loads(text).items() if k not in later}
    check = zlib.crc32(msgspec.json.encode({**before, "check": 0}))
    (path / "folder.json").write_text(json.dumps({**before, "check": check}))

    folder = open_folder(path)

    assert (folder.incarnation, folder.master_word) == (2, "")
    folder.close()


def test_zones_are_kept_until_they_are_removed(path: Path) -> None:
    folder = open_folder(path)
    record = ZoneRecord("uid-1", "books", 16, 3, ports={"agent-1": 7001})
    folder.zone_path(record.uid)
    folder.keep_zone(record)
    folder.keep_zone(ZoneRecord("uid-2", "in memory", 16, 3))  # has no folder here
    folder.close()

    folder = open_folder(path)
    kept = folder.kept_zones()
    folder.remove_zone(record.uid)

    assert kept == [record]
    assert folder.kept_zones() == []
    assert not list(path.glob("zone-*"))
    folder.close()


def test_a_full_disk_is_named_with_its_way_out_wherever_a_start_meets_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as of a descriptor: no file name

    words = r": No space left on device\. Way out: free some space, or correct the permissions"
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(FolderRefused, match=str(path) + words):
            open_folder(path)
    folder = open_folder(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FolderRefused, match=str(path / "agent.json") + words):
            folder.write_address("127.0.0.1", 1, 2)
    folder.close()
