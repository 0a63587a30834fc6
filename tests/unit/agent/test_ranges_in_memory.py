"""Ranges of keys of a zone in memory: read without sorting all keys, and nothing is kept."""

import sys
import time
from collections.abc import Callable

import pytest

from quorate.protocol.storage import Row
from quorate_agent.storage.memory import MemorySpace, MemoryStorage

KEYS = 200_000
EVERYTHING = 1 << 30


@pytest.fixture
def space() -> MemorySpace:
    made = MemoryStorage().space(0, 0)
    made.put_all({b"%d" % number: Row(1, 1, 0, b"") for number in range(KEYS)})
    return made


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def held(space: MemorySpace, name: str) -> int:
    """Put and drop a new row, and return how often its key is still referred to."""
    key = name.encode()
    space.put(key, Row(2, 1, 0, b""))
    space.drop(key)
    return sys.getrefcount(key)


def test_a_range_of_one_key_costs_no_sorting_while_keys_are_added(space: MemorySpace) -> None:
    def one_keys() -> None:
        for number in range(300):
            key = b"%d" % number
            assert space.scan_packed(key, key + b"\0", 100, EVERYTHING).keys == [key]
            assert space.scan_packed(key + b"n", key + b"n\0", 100, EVERYTHING).whole
            space.put(key + b"new", Row(2, 1, 0, b""))

    assert seconds(one_keys) < seconds(lambda: sorted({b"%d" % n for n in range(KEYS)}))


def test_a_scan_goes_on_without_sorting_all_while_keys_are_added(space: MemorySpace) -> None:
    assert not space.scan_packed(b"1", b"9", 10, EVERYTHING).whole
    rows = dict.fromkeys([b"%d" % number for number in range(KEYS)])

    def chunks() -> None:
        for number in range(100):
            space.put(b"5-%d" % number, Row(2, 1, 0, b""))
            assert len(space.scan_packed(b"5-%d" % number, b"9", 10, EVERYTHING).keys) == 10

    assert seconds(chunks) < 10 * seconds(lambda: sorted({*rows}))


def test_nothing_of_a_range_is_kept_behind_its_end(space: MemorySpace) -> None:
    before = held(space, "none was read")
    assert space.scan_packed(b"1", b"100", EVERYTHING, EVERYTHING).whole
    assert held(space, "a range was read") == before

    at = b"1"
    while not (found := space.scan_packed(at, b"2", 30_000, EVERYTHING)).whole:
        assert held(space, at.decode() + "in between") > before
        at = found.keys[-1] + b"\0"
    assert at > b"1"
    assert held(space, "a range was read in chunks") == before


@pytest.mark.parametrize("end", [b"2", None])
def test_a_scan_that_never_goes_on_is_forgotten(space: MemorySpace, end: bytes | None) -> None:
    before = held(space, "none was read")
    assert not space.scan_packed(b"", end, 10, EVERYTHING).whole

    for number in range(KEYS // 2):
        held(space, f"added {number}")

    assert held(space, "the last") == before
