"""The storage contract, continued: the log of updates."""

from random import Random

import pytest

from quorate_agent.storage.memory import LOG_OVERHEAD_BYTES, MemoryStorage
from quorate_lone_agent.storage_engine import Engine

EVERYTHING = 1 << 30


def test_updates_are_read_in_order_of_counter_and_term_however_they_came(engine: Engine) -> None:
    storage = engine.open()
    for counter, term in ((3, 1), (1, 1), (2, 2), (2, 1)):
        storage.log_put(9, counter, term, b"%d/%d" % (counter, term))
    storage.log_put(8, 1, 1, b"another partition's")
    storage.commit()
    storage.log_put(9, 5, 2, b"5/2")
    storage.log_put(9, 2, 1, b"2/1 again")

    expected = [
        (1, 1, b"1/1"),
        (2, 1, b"2/1 again"),
        (2, 2, b"2/2"),
        (3, 1, b"3/1"),
        (5, 2, b"5/2"),
    ]
    assert storage.log_read(9, 0, 1 << 60, EVERYTHING) == expected
    storage.commit()
    storage = engine.reopened(storage)
    assert storage.log_read(9, 0, 1 << 60, EVERYTHING) == expected
    assert storage.log_read(9, 2, 3, EVERYTHING) == expected[1:4]
    assert storage.log_read(9, 6, 9, EVERYTHING) == []
    assert storage.log_read(9, 1, 9, 3) == expected[:1]
    assert storage.log_read(9, 1, 9, 4) == expected[:3], "updates of one counter are not divided"
    assert storage.log_read(9, 1, 9, 0) == []
    assert storage.log_read(7, 0, 9, EVERYTHING) == []


def test_an_undone_update_is_gone_and_its_twin_of_another_term_stays(engine: Engine) -> None:
    storage = engine.open()
    storage.log_put(0, 1, 1, b"old")
    storage.log_put(0, 1, 2, b"new")
    storage.commit()
    storage.log_drop(0, 1, 1)
    storage.log_drop(0, 77, 1)

    assert storage.log_read(0, 0, 9, EVERYTHING) == [(1, 2, b"new")]
    storage.commit()
    assert engine.reopened(storage).log_read(0, 0, 9, EVERYTHING) == [(1, 2, b"new")]


def test_a_cut_log_starts_above_the_cut(engine: Engine) -> None:
    storage = engine.open()
    for counter in range(1, 11):
        storage.log_put(0, counter, 1, b"u")
    storage.commit()
    storage.log_put(0, 11, 1, b"u")
    storage.log_cut(0, 4)

    assert [counter for counter, _, _ in storage.log_read(0, 0, 99, EVERYTHING)] == [*range(5, 12)]
    storage.commit()
    assert [counter for counter, _, _ in storage.log_read(0, 0, 99, EVERYTHING)] == [*range(5, 12)]
    storage.log_cut(0, 99)
    storage.commit()
    assert storage.log_read(0, 0, 99, EVERYTHING) == []
    assert engine.reopened(storage).log_read(0, 0, 99, EVERYTHING) == []


@pytest.mark.parametrize("share", [16 << 10, 64 << 10, 256 << 10, 1 << 20])
def test_a_log_that_is_cut_to_its_share_keeps_most_of_it(engine: Engine, share: int) -> None:
    """As an agent cuts it each second, while one update is in flight."""
    storage, update = engine.open(), bytes(1000)
    last, floor = 0, 0
    kept: list[int] = []
    while last * len(update) < 3 * share + (1 << 20):
        for _ in range(10):
            last += 1
            storage.log_put(0, last, 1, update)
        storage.commit()
        if storage.log_bytes(0) > share:
            floor = max(floor, min(storage.log_floor(0, share * 3 // 4), last - 1))
            storage.log_cut(0, floor)
            storage.commit()
            kept.append((last - floor) * len(update))
            assert len(storage.log_read(0, 0, last, EVERYTHING)) == last - floor

    assert kept
    assert min(kept) > share // 2
    assert max(kept) <= share
    storage = engine.reopened(storage)
    in_files = sum(len(data) for _, _, data in storage.log_read(0, 0, last, EVERYTHING))
    assert in_files < share + (300 << 10)


def test_an_update_below_the_cut_can_be_kept_anew_and_brings_no_cut_one_back(
    engine: Engine,
) -> None:
    storage = engine.open()
    for counter in range(1, 11):
        storage.log_put(0, counter, 1, b"u")
    storage.commit()
    storage.log_cut(0, 8)
    storage.commit()
    storage.log_put(0, 5, 2, b"again")

    expected = [(5, 2, b"again"), (9, 1, b"u"), (10, 1, b"u")]
    assert storage.log_read(0, 0, 99, EVERYTHING) == expected
    storage.commit()
    assert storage.log_read(0, 0, 99, EVERYTHING) == expected
    assert engine.reopened(storage).log_read(0, 0, 99, EVERYTHING) == expected


def test_what_is_kept_anew_and_cut_in_one_batch_brings_no_cut_one_back(engine: Engine) -> None:
    storage = engine.open()
    for counter in range(1, 11):
        storage.log_put(0, counter, 1, b"u")
    storage.log_cut(0, 4)
    storage.commit()

    storage.log_put(0, 3, 2, b"again")
    storage.log_cut(0, 8)
    storage.commit()
    storage.log_drop(0, 6, 1)
    storage.commit()

    assert storage.log_read(0, 0, 99, EVERYTHING) == [(9, 1, b"u"), (10, 1, b"u")]


def test_log_bytes_grow_with_what_is_kept_and_shrink_with_what_is_cut(engine: Engine) -> None:
    storage = engine.open()
    assert storage.log_bytes(0) == 0
    for counter in range(1, 2001):
        storage.log_put(0, counter, 1, bytes(1000))
    storage.commit()

    storage = engine.reopened(storage)

    assert 2_000_000 <= storage.log_bytes(0) <= 2_500_000
    storage.log_cut(0, 1000)
    storage.commit()
    assert 1_000_000 <= storage.log_bytes(0) <= 1_400_000
    storage.log_cut(0, 2000)
    storage.commit()
    assert storage.log_bytes(0) == 0


def test_a_log_is_cut_by_bytes_so_few_large_updates_leave_the_small_ones(engine: Engine) -> None:
    storage = engine.open()
    for counter in range(1, 5):
        storage.log_put(0, counter, 1, bytes(1 << 20))
    for counter in range(5, 105):
        storage.log_put(0, counter, 1, bytes(200))
    storage.commit()

    assert storage.log_floor(0, 5 << 20) == 0
    assert storage.log_floor(0, 3 << 20) == 2
    assert storage.log_bytes(0, 3) < 3 << 20
    assert 20_000 <= storage.log_bytes(0, 5) < 40_000
    assert storage.log_bytes(0, 1, 2) < 3 << 20
    assert storage.log_floor(0, 0) == 104
    assert storage.log_floor(7, 0) == 0


@pytest.mark.parametrize("bound", [0, 1 << 40], ids=["without a bound", "with a bound"])
def test_in_memory_bytes_are_exact_whatever_came_went_and_was_undone(bound: int) -> None:
    random = Random(3)
    storage = MemoryStorage(bound)
    for _ in range(300):
        counter, term = random.randrange(1, 30), random.randrange(1, 3)
        kind = random.randrange(8)
        if kind < 6:
            storage.log_put(0, counter, term, bytes(random.randrange(500)))
        elif kind == 6:
            storage.log_drop(0, counter, term)
        else:
            storage.log_cut(0, counter // 4)

        entries = storage.log_read(0, 0, 99, EVERYTHING)
        sizes = [(at, len(update) + LOG_OVERHEAD_BYTES) for at, _, update in entries]
        whole = sum(size for _, size in sizes)
        assert storage.log_bytes(0) == storage.memory_used() == whole
        first, last = sorted((counter, random.randrange(30)))
        within = sum(size for at, size in sizes if first <= at <= last)
        assert storage.log_bytes(0, first, last) == within
        left, upto = whole, 0
        while left > whole * 2 // 3:
            upto, size = sizes.pop(0)
            left -= size
        assert storage.log_floor(0, whole * 2 // 3) == upto
