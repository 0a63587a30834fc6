"""SCAN returns every key that is there throughout, whatever is forgotten or changed meanwhile."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from quorate.facts.keyspace import key_partition
from quorate_agent.resp import scan
from quorate_agent.resp.scan import (
    Place,
    ScanChunk,
    ScanPositions,
    ScanRows,
    place_of,
    scan_page,
)

PARTITIONS = 8


NOW_S = 100_000
MARK = 7


def page(
    cursor: int,
    count: int,
    partitions: Sequence[int],
    rows: ScanRows,
    positions: ScanPositions,
    is_here: Callable[[int], bool] = lambda partition: True,
) -> tuple[int, list[bytes]]:
    """scan_page, with cursors as clients know them."""
    place = place_of(cursor, MARK, NOW_S)
    to, keys = scan_page(place, count, partitions, rows, positions, is_here)
    return 0 if to is None else to.cursor, keys


class Rows:
    """Keys by partition, in key order, and rows that are not live among them."""

    def __init__(self, count: int, dead: int = 0) -> None:
        self.keys = {b"key-%d" % number for number in range(count)}
        self.dead = {b"dead-%d" % number for number in range(dead)}
        self.row_bytes = 1
        self.looked_at = 0
        self.owned = list(range(PARTITIONS))
        self.page_max = 1 << 30

    def rows(self, partition: int, after: bytes | None, rows_max: int, bytes_max: int) -> ScanChunk:
        keys = sorted(
            key
            for key in self.keys | self.dead
            if key_partition(key, PARTITIONS) == partition and (after is None or key > after)
        )
        found = keys[: min(rows_max, self.page_max, max(bytes_max // self.row_bytes, 1))]
        self.looked_at += len(found)
        live = [key for key in found if key in self.keys]
        last = found[-1] if len(found) < len(keys) else None
        return ScanChunk(live, found, last, len(found) * self.row_bytes)


def _all(
    rows: Rows,
    count: int,
    between: Callable[[int], None] = lambda pages: None,
    positions: Callable[[], ScanPositions] | None = None,
) -> list[bytes]:
    kept = ScanPositions()
    cursor, found, pages = 0, [], 0
    while True:
        here = kept if positions is None else positions()
        cursor, keys = page(cursor, count, rows.owned, rows.rows, here)
        assert 0 <= cursor < 1 << 64
        found += keys
        pages += 1
        assert pages < 100_000
        if cursor == 0:
            return found
        between(pages)


@pytest.mark.parametrize("count", [1, 3, 10, 1000, 10**18])
def test_every_key_comes_once_when_nothing_changes(count: int) -> None:
    rows = Rows(300)

    found = _all(rows, count)

    assert sorted(found) == sorted(rows.keys)


def test_cursors_survive_a_restart_while_the_data_does_not_change() -> None:
    rows = Rows(300)

    found = _all(rows, 7, positions=ScanPositions)

    assert sorted(found) == sorted(rows.keys)


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_stay_are_returned_though_others_come_and_go_and_cursors_are_forgotten(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(scan, "SEARCH_ROWS_MAX", 20)
    rows = Rows(300, dead=100)
    rows.page_max = 5
    staying = {key for key in rows.keys if random.random() < 0.5}
    positions = [ScanPositions()]

    def change(page: int) -> None:
        for _ in range(5):
            rows.keys.discard(random.choice(sorted(rows.keys - staying) or [b"none"]))
            rows.keys.add(b"new-%d" % random.randrange(1000))
        if page % 40 == 0:
            positions[0] = ScanPositions()

    found = _all(rows, 4, change, lambda: positions[0])

    assert staying <= set(found)


def test_an_empty_agent_and_foreign_cursors_end_at_once() -> None:
    rows = Rows(0)

    assert page(0, 10, rows.owned, rows.rows, ScanPositions()) == (0, [])
    assert page(2**64 - 1, 10, rows.owned, rows.rows, ScanPositions()) == (0, [])
    assert page(0, 10, [], rows.rows, ScanPositions()) == (0, [])


def test_a_partition_that_went_away_is_passed_over() -> None:
    rows = Rows(300)

    def lose(page: int) -> None:
        rows.owned = [5, 6, 7]

    found = _all(rows, 10, lose)

    assert {key for key in rows.keys if key_partition(key, PARTITIONS) >= 5} <= set(found)


def test_one_call_looks_at_a_bounded_number_of_partitions() -> None:
    asked: list[int] = []

    def rows(partition: int, after: bytes | None, rows_max: int, bytes_max: int) -> ScanChunk:
        asked.append(partition)
        return ScanChunk([], [], None, 0)

    cursor, _ = page(0, 10, range(16384), rows, ScanPositions())

    assert cursor >> scan.PLACE_BITS == scan.PARTITIONS_MAX
    assert len(asked) == scan.PARTITIONS_MAX


@pytest.mark.parametrize("count", [1, 10, 200])
def test_one_call_looks_at_as_many_rows_as_were_asked_for_live_or_not(count: int) -> None:
    rows = Rows(20, dead=600)
    cursor, found, pages = 0, list[bytes](), 0
    positions = ScanPositions()
    while cursor or not pages:
        before = rows.looked_at
        cursor, keys = page(cursor, count, rows.owned, rows.rows, positions)
        assert rows.looked_at - before <= count
        found += keys
        pages += 1

    assert sorted(found) == sorted(rows.keys)
    assert pages <= 620 // count + 1


def test_one_call_reads_a_bounded_number_of_bytes_of_all_its_chunks_together() -> None:
    rows = Rows(300)
    rows.row_bytes = scan.BYTES_MAX // 3
    positions = ScanPositions()
    found, cursor = list[bytes](), 0
    while True:
        before = rows.looked_at
        cursor, keys = page(cursor, 1000, rows.owned, rows.rows, positions)
        assert rows.looked_at - before <= 4
        found += keys
        if not cursor:
            break

    assert sorted(found) == sorted(rows.keys)


def test_a_place_behind_a_row_that_is_not_live_is_found_again_when_it_is_forgotten() -> None:
    rows = Rows(30, dead=300)

    found = _all(rows, 5, positions=ScanPositions)

    assert sorted(found) == sorted(rows.keys)


def test_remembered_positions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "POSITIONS_MAX", 10)
    positions = ScanPositions()
    for number in range(100):
        positions.token(1, b"%d" % number)

    assert len(positions._keys) == 10


def test_the_bytes_of_remembered_positions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "POSITIONS_BYTES_MAX", 1_000)
    positions = ScanPositions()
    for key in [b"%0100d" % number for number in range(100)] * 2:
        tokens = {positions.token(1, key) for _ in range(2)}  # the same place

        assert len(tokens) == 1
        assert sum(len(known) for known, _ in positions._keys.values()) <= 1_000
    assert len(positions._keys) == 10


def test_the_newest_position_is_remembered_however_long_its_key_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "POSITIONS_BYTES_MAX", 0)
    monkeypatch.setattr(scan, "SEARCH_ROWS_MAX", 1)
    rows = Rows(90)

    assert sorted(_all(rows, 1)) == sorted(rows.keys)


def test_a_page_ends_at_a_partition_that_is_not_here() -> None:
    rows = Rows(300)

    cursor, found = page(0, 1000, rows.owned, rows.rows, ScanPositions(), lambda p: p != 3)

    assert place_of(cursor, MARK, NOW_S)[::3] == (3, 0)
    assert {key_partition(key, PARTITIONS) for key in found} == {0, 1, 2}
    assert page(cursor, 10, rows.owned, rows.rows, ScanPositions(), lambda p: p != 3) == (
        cursor,
        [],
    )


def test_keys_with_one_token_do_not_send_each_other_s_scans_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_token", lambda key: len(key))
    rows = Rows(90)

    found = _all(rows, 1)

    assert sorted(found) == sorted(rows.keys)


@pytest.mark.parametrize("age_s", [0, 1, 63, 64, 65, 1000, 64 * 254])
@pytest.mark.parametrize("now_s", [20_000, 64 * 255 * 3, 64 * 255 * 3 + 63])
def test_a_cursor_tells_when_its_scan_began(now_s: int, age_s: int) -> None:
    began_s = now_s - age_s
    cursor = place_of(0, MARK, began_s).cursor

    assert cursor != 0
    assert began_s - scan.STAMP_S < place_of(cursor, MARK, now_s).begun_s(now_s) <= began_s
    later = Place(5, MARK, place_of(cursor, MARK, now_s).stamp, 77)
    assert place_of(later.cursor, 0, now_s) == later


def test_scans_of_a_stores_processes_have_different_origins() -> None:
    count = scan.ORIGINS
    origins = [scan.origin_of("agent-1", "store", incarnation) for incarnation in range(count)]

    assert sorted(origins) == [*range(count)]
    # Clients have signed numbers.
    assert Place(16383, max(origins), scan.STAMPS, 1).cursor < 1 << 63


def test_a_slow_scan_ends_although_a_quick_one_goes_on_beside_it() -> None:
    keys = [b"%08d" % n for n in range(60_000)]

    def rows(partition: int, after: bytes | None, rows_max: int, bytes_max: int) -> ScanChunk:
        at = 0 if after is None else int(after) + 1
        found = keys[at : at + rows_max]
        return ScanChunk(found, found, found[-1] if found else None, len(found))

    def look(cursor: int, count: int) -> tuple[int, list[bytes]]:
        to, found = scan_page(place_of(cursor, 1, 0), count, (0, 1), rows, positions)
        return (0 if to is None else to.cursor), found

    positions = ScanPositions()
    slow, quick, seen = 0, 0, set[bytes]()
    for _ in range(40):
        slow, found = look(slow, 5_000)
        seen.update(found)
        if not slow:
            break
        for _ in range(scan.POSITIONS_MAX):  # of one client
            quick, _ = look(quick, 10)
    assert slow == 0
    assert seen == set(keys)
