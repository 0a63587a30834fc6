"""A crash at every byte of the log, and a bit flipped in every byte of it: a copy comes back as it
was after some batch, or its folder is refused with a reason if it would lack what was synced.
Never is it silently anything else.

Every byte is tried.  The bytes are dealt out to `SHARES` tests, one after the other: the
first, which tries some of every record's every part, runs always, the others are deep.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from deep_tests import most_are_deep
from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.totals import row_digest
from quorate.protocol.messages.replication import Update
from quorate_agent.storage.database import DatabaseRefused
from quorate_agent.storage.rocks import RocksStorage

SHARES = 11
TERM = 3
UPDATES = 10
LATE = 6
"""This update comes last: those behind it are held above a gap for a while."""

MEMORY_DISK = Path("/dev/shm")

State = tuple[object, ...]


def _state(copy: Copy) -> State:
    return copy.promise_term, copy.last_term, copy.lwm, copy.space.digest(), copy.held()


def _opened(folder: Path, synced: int) -> tuple[RocksStorage, Copy]:
    storage = RocksStorage(folder, synced=synced)
    copy = Copy(0, storage)
    copy.recover()
    return storage, copy


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: no power is lost here, and syncs take most of the
    time."""
    if not MEMORY_DISK.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="quorate-", dir=MEMORY_DISK) as folder:
        yield Path(folder)


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


def _check(folder: Path, states: list[State], synced: int = 0) -> int | None:
    """The batch after which the folder is as it is; None when it was refused."""
    try:
        storage, copy = _opened(folder, synced)
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


def _bytes_of(share: int, size: int) -> range:
    return range(share, size, SHARES)


def test_the_shares_are_every_byte_once() -> None:
    dealt = sorted(at for share in range(SHARES) for at in _bytes_of(share, 1000))

    assert dealt == list(range(1000))


@pytest.mark.parametrize("share", [*most_are_deep(range(SHARES), SHARES)])
def test_a_log_cut_off_at_any_byte_is_some_batches_whole(
    written: tuple[Path, Path, list[State]], quick_path: Path, share: int
) -> None:
    image, log, states = written
    whole = (image / log).read_bytes()
    seen = []
    for size in [*_bytes_of(share, len(whole)), len(whole)]:
        found = _check(_damaged(written, quick_path, whole[:size]), states)
        assert found is not None, f"cut at {size} of {len(whole)}"
        seen.append(found)

    assert seen == sorted(seen)
    assert set(seen) == set(range(len(states)))


@pytest.mark.parametrize("share", [*most_are_deep(range(SHARES), SHARES)])
def test_a_bit_flipped_in_any_byte_is_refused_or_leaves_batches_whole(
    written: tuple[Path, Path, list[State]], quick_path: Path, share: int
) -> None:
    image, log, states = written
    whole = (image / log).read_bytes()
    synced = _sequence(_damaged(written, quick_path, whole))
    refused = 0
    tried = _bytes_of(share, len(whole))
    for at in tried:
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        refused += _check(_damaged(written, quick_path, bytes(data)), states, synced) is None
        found = _check(_damaged(written, quick_path, bytes(data)), states)
        assert found is not None, f"not recorded as synced, bit of byte {at}"
        assert found < len(states) - 1

    assert refused > len(tried) * 0.8


def _sequence(folder: Path) -> int:
    storage = RocksStorage(folder)
    sequence = storage.database.sequence
    storage.close()
    return sequence
