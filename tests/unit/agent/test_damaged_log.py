"""A crash at every byte of the log, and a bit flipped anywhere in it: a copy comes back as it was
after some batch, or its folder is refused with a reason.  Never is it silently anything else."""

import shutil
from pathlib import Path

import msgspec
import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copy import Copy
from quorate.protocol.messages import Update
from quorate.protocol.totals import row_digest
from quorate_agent.storage.database import DatabaseRefused
from quorate_agent.storage.rocks import RocksStorage

STEP_BYTES = 11
"""Each damage opens a database: not every byte is tried, but some of every record's every part."""
TERM = 3
UPDATES = 10
LATE = 6
"""This update comes last: those behind it are held above a gap for a while."""

State = tuple[object, ...]


def _state(copy: Copy) -> State:
    return copy.promise_term, copy.last_term, copy.lwm, copy.space.digest(), copy.held()


def _opened(folder: Path) -> tuple[RocksStorage, Copy]:
    storage = RocksStorage(folder)
    copy = Copy(0, storage)
    copy.recover()
    return storage, copy


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[State]]:
    """An image of a folder whose process was killed, its log, and the state after each batch."""
    folder = tmp_path_factory.mktemp("written")
    storage = RocksStorage(folder / "live")
    copy = Copy(0, storage)
    states = [_state(copy)]

    def end_turn() -> None:
        storage.commit()
        storage.sync()
        states.append(_state(copy))

    copy.promise(TERM, Holder("a1", "s1", 1))
    end_turn()
    copy.adopt(Lineage(0, 0, (Entry(TERM, 1),)), 0, {})
    end_turn()
    order = [n for n in range(1, UPDATES + 1) if n != LATE]
    for counter in [*order, LATE]:
        key = b"key-%d" % (counter % 5)
        value = None if counter % 7 == 0 else b"value-%d" % counter * 3
        update = Update(counter, TERM, ((key, value, counter % 2 * 10**12),))
        copy.keep(update, msgspec.msgpack.encode(update))
        end_turn()
    shutil.copytree(folder / "live", folder / "image")
    storage.close()
    logs = [log for log in sorted((folder / "image").rglob("*.log")) if log.stat().st_size]
    assert len(logs) == 1
    return folder / "image", logs[0].relative_to(folder / "image"), states


def _check(folder: Path, states: list[State]) -> int | None:
    """The batch after which the folder is as it is; None when it was refused."""
    try:
        storage, copy = _opened(folder)
    except DatabaseRefused as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert str(folder) in refused
        return None
    try:
        state = _state(copy)
        rows = copy.space.scan(None, 1 << 20, 1 << 40)
        assert copy.space.digest() == sum(row_digest(*row) for row in rows) % (1 << 128)
        told = [counter for counter, _, _ in storage.log_read(0, 1, 1 << 60, 1 << 40)]
        held = [
            n for _, ranges in copy.held() for low, high in ranges for n in range(low, high + 1)
        ]
        assert told == [*range(1, copy.lwm + 1), *held]
        copy.check()
        return states.index(state)
    finally:
        storage.close()


def _damaged(written: tuple[Path, Path, list[State]], to: Path, data: bytes) -> Path:
    image, log, _ = written
    folder = to / "damaged"
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(image, folder)
    (folder / log).write_bytes(data)
    return folder


def test_a_log_cut_off_at_any_byte_is_some_batches_whole(
    written: tuple[Path, Path, list[State]], tmp_path: Path
) -> None:
    image, log, states = written
    whole = (image / log).read_bytes()
    seen = []
    for size in [*range(0, len(whole), STEP_BYTES), len(whole)]:
        found = _check(_damaged(written, tmp_path, whole[:size]), states)
        assert found is not None, f"cut at {size} of {len(whole)}"
        seen.append(found)

    assert seen == sorted(seen)
    assert set(seen) == set(range(len(states)))


def test_a_bit_flipped_anywhere_is_refused_or_leaves_batches_whole(
    written: tuple[Path, Path, list[State]], tmp_path: Path
) -> None:
    image, log, states = written
    whole = (image / log).read_bytes()
    refused = 0
    tried = range(0, len(whole), STEP_BYTES)
    for at in tried:
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        refused += _check(_damaged(written, tmp_path, bytes(data)), states) is None

    assert refused > len(tried) * 0.8
