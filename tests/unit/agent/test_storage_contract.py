"""One contract for every storage engine: what the core may rely on."""

import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.protocol.copies.totals import CHANGED_MAX, row_digest
from quorate.protocol.storage import GONE, ROW_HEAD, PackedRows, Row, Storage
from quorate_lone_agent.storage_engine import Engine

EVERYTHING = 1 << 30


def row(counter: int, value: bytes | None = b"v", expires_at: int = 0, term: int = 1) -> Row:
    return Row(counter=counter, term=term, expires_at=expires_at, value=value)


def fields(row: Row | None) -> tuple[int, int, int, bytes | None] | None:
    return None if row is None else (row.counter, row.term, row.expires_at, row.value)


# --- rows


def test_a_row_is_read_back_before_and_after_the_commit_and_after_opening_again(
    engine: Engine,
) -> None:
    storage = engine.open()
    space = storage.space(3, 7)
    largest = (1 << 63) - 1
    space.put(b"key", row(largest, b"value", expires_at=largest, term=largest))
    space.put(b"", row(2, b""))
    for _ in range(2):
        assert fields(space.get(b"key")) == (largest, largest, largest, b"value")
        assert fields(space.get(b"")) == (2, 1, 0, b"")
        assert space.get(b"ke") is None
        storage.commit()

    space = engine.reopened(storage).space(3, 7)

    assert fields(space.get(b"key")) == (largest, largest, largest, b"value")
    assert fields(space.get(b"")) == (2, 1, 0, b"")


def test_a_tombstone_is_a_row_that_does_not_count_as_live(engine: Engine) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    space.put(b"a", row(1))
    space.put(b"b", row(2))
    space.put(b"a", row(3, None))
    storage.commit()

    space = engine.reopened(storage).space(0, 0)

    assert fields(space.get(b"a")) == (3, 1, 0, None)
    assert space.row_count() == 1
    assert space.byte_count() == 3
    assert [key for key, _ in space.scan(None, 10, EVERYTHING)] == [b"a", b"b"]


def test_a_dropped_row_is_gone(engine: Engine) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    space.put(b"a", row(1))
    space.put(b"b", row(2))
    storage.commit()
    space.drop(b"a")
    space.drop(b"never there")

    assert space.get(b"a") is None
    assert space.row_count() == 1
    storage.commit()
    space = engine.reopened(storage).space(0, 0)
    assert space.get(b"a") is None
    assert space.row_count() == 1
    assert space.byte_count() == 2


def test_a_space_is_the_same_object_each_time_and_spaces_do_not_mix(engine: Engine) -> None:
    storage = engine.open()
    places = [(0, 0), (0, 1), (0, 255), (0, 256), (1, 0), (255, 0), (256, 0), (16383, 0xFFFFFFFF)]
    for number, place in enumerate(places):
        assert storage.space(*place) is storage.space(*place)
        storage.space(*place).put(b"key", row(number + 1))
    storage.commit()

    storage = engine.reopened(storage)

    for number, place in enumerate(places):
        found = storage.space(*place).scan(None, 10, EVERYTHING)
        assert [(key, fields(row)) for key, row in found] == [(b"key", (number + 1, 1, 0, b"v"))]


def test_a_dropped_space_is_empty_at_once_and_can_be_filled_in_the_same_batch(
    engine: Engine,
) -> None:
    storage = engine.open()
    space, other = storage.space(5, 1), storage.space(5, 2)
    get = space.get
    for number in range(100):
        space.put(b"%d" % number, row(number + 1))
    other.put(b"kept", row(1))
    storage.commit()

    storage.drop_space(5, 1)
    assert get(b"7") is None
    assert space.scan(None, 10, EVERYTHING) == []
    assert (space.row_count(), space.byte_count()) == (0, 0)
    space.put(b"7", row(999))
    assert fields(get(b"7")) == (999, 1, 0, b"v")
    storage.commit()

    storage = engine.reopened(storage)
    space = storage.space(5, 1)
    assert [(key, row.counter) for key, row in space.scan(None, 10, EVERYTHING)] == [(b"7", 999)]
    assert space.row_count() == 1
    assert storage.space(5, 2).row_count() == 1


def test_a_scan_sees_committed_and_uncommitted_rows_in_key_order(engine: Engine) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    for key in (b"b", b"d", b"f", b"\xff", b"\xff\xff"):
        space.put(key, row(1))
    storage.commit()
    space.put(b"a", row(2))
    space.put(b"d", row(2))
    space.put(b"e", row(2))
    space.put(b"\xff\xff\xff", row(2))
    space.drop(b"f")

    found = space.scan(None, 100, EVERYTHING)

    assert [(key, row.counter) for key, row in found] == [
        (b"a", 2), (b"b", 1), (b"d", 2), (b"e", 2), (b"\xff", 1), (b"\xff\xff", 1),
        (b"\xff\xff\xff", 2),
    ]  # fmt: skip
    assert space.scan(b"\xff\xff\xff", 100, EVERYTHING) == []
    assert [key for key, _ in space.scan(b"c", 2, EVERYTHING)] == [b"d", b"e"]


def test_a_scan_is_bounded_by_rows_and_bytes_but_gives_one_row_at_least(engine: Engine) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    for number in range(10):
        space.put(b"%d" % number, row(1, bytes(1000)))
    storage.commit()

    assert len(space.scan(None, 3, EVERYTHING)) == 3
    assert len(space.scan(None, 100, 2500)) == 3
    assert len(space.scan(None, 100, 1)) == 1


def unpacked(found: PackedRows) -> list[tuple[bytes, int, int, int, bytes | None]]:
    heads = list(ROW_HEAD.iter_unpack(found.heads))
    return [
        (key, counter, term, expires_at, None if kind else value)
        for key, (counter, term, expires_at, kind), value in zip(
            found.keys, heads, found.values, strict=True
        )
    ]


@pytest.mark.parametrize("is_committed", [True, False])
def test_rows_are_read_as_columns_of_a_range_of_keys(engine: Engine, is_committed: bool) -> None:
    storage = engine.open()
    space = storage.space(0, 1)
    storage.space(0, 0).put(b"b", row(1))
    storage.space(0, 2).put(b"b", row(1))
    space.put(b"", row(1, b""))
    space.put(b"a", row(2, b"first", expires_at=77, term=5))
    space.put(b"b", row(3, None))
    space.put(b"bb", row(4, bytes(600_000)))
    space.put(b"c", row(5, b"last"))
    storage.commit()
    if not is_committed:
        space.put(b"a", row(6, b"again"))
        space.drop(b"c")

    def read(first: bytes, before: bytes | None) -> list[tuple[bytes, int, int, int, bytes | None]]:
        found = space.scan_packed(first, before, 100, EVERYTHING)
        assert found.whole
        return unpacked(found)

    every = [
        (key, found.counter, found.term, found.expires_at, found.value)
        for key, found in space.scan(None, 100, EVERYTHING)
    ]
    assert read(b"", None) == every
    assert read(b"a", b"bb") == every[1:3]
    assert read(b"a\0", b"bb\0") == every[2:4]
    assert read(b"bb\0", b"c") == read(b"c", b"a") == []
    without = space.scan_packed(b"a", b"c", 100, EVERYTHING, values=False)
    assert (without.keys, without.values) == ([b"a", b"b", b"bb"], [])
    assert without.heads == space.scan_packed(b"a", b"c", 100, EVERYTHING).heads


def test_columns_are_bounded_by_rows_and_bytes_and_say_whether_they_are_all(
    engine: Engine,
) -> None:
    if engine.name == "simulated":
        return  # it tells all at once
    storage = engine.open()
    space = storage.space(0, 0)
    for number in range(10):
        space.put(b"%d" % number, row(1, bytes(600_000 if number > 7 else 1000)))
    storage.commit()

    def read(first: bytes, rows_max: int, bytes_max: int) -> tuple[int, bool]:
        found = space.scan_packed(first, None, rows_max, bytes_max)
        return len(found.keys), found.whole

    assert read(b"", 3, EVERYTHING) == (3, False)
    assert read(b"", 100, 2500) == (3, False)
    assert read(b"", 100, 1) == read(b"8", 100, 1) == (1, False)
    assert read(b"8", 100, 600_001) == (1, False)
    assert read(b"8", 100, EVERYTHING) == (2, True)


def test_columns_without_values_are_bounded_by_keys_and_heads(engine: Engine) -> None:
    if engine.name == "simulated":
        return  # it tells all at once
    storage = engine.open()
    space = storage.space(0, 0)
    for number in range(30):
        space.put(b"%02d" % number, row(1, bytes(4 << 20)))
    storage.commit()

    found = space.scan_packed(b"", None, 100, 2 << 20, values=False)
    assert (len(found.keys), found.whole) == (30, True)
    one = len(b"00") + ROW_HEAD.size
    few = space.scan_packed(b"", None, 100, 5 * one, values=False)
    assert (1 < len(few.keys) <= 5, few.whole) == (True, False)
    for bytes_max in (0, -1):
        assert len(space.scan_packed(b"", None, 100, bytes_max, values=False).keys) == 1
        assert len(space.scan(None, 100, bytes_max)) == 1


@pytest.mark.parametrize("is_committed", [True, False])
def test_keys_are_scanned_as_rows_are(engine: Engine, is_committed: bool) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    space.put(b"a", row(1, b"first", expires_at=77))
    space.put(b"b", row(2))
    space.put(b"c", row(3, bytes(600_000), expires_at=88))
    space.put(b"d", row(4))
    storage.commit()
    space.put(b"b", row(5, None))
    space.put(b"bb", row(6, b"", expires_at=99))
    space.drop(b"d")
    if is_committed:
        storage.commit()

    found = space.scan_keys(None, 100, EVERYTHING)
    assert found.keys == [key for key, _ in space.scan(None, 100, EVERYTHING)]
    assert (found.keys, found.expiries) == ([b"a", b"b", b"bb", b"c"], [77, GONE, 99, 88])
    assert found.counters == [1, 5, 6, 3]
    assert found.whole
    behind = space.scan_keys(b"b", 1, EVERYTHING)
    assert (behind.keys, behind.expiries, behind.whole) == ([b"bb"], [99], False)
    assert space.scan_keys(b"c", 1, EVERYTHING)[:2] == ([], [])


def test_scanned_keys_are_bounded_by_what_is_read(engine: Engine) -> None:
    if engine.name == "simulated":
        return  # it has no values apart
    storage = engine.open()
    space = storage.space(0, 0)
    for number in range(10):
        space.put(b"long%d" % number, row(1, bytes(4 << 20)))
        space.put(b"short%d" % number, row(1, bytes(1000)))
    storage.commit()

    long = space.scan_keys(None, 10, 1 << 20)
    assert (len(long.keys), long.whole) == (10, False)
    assert long.read_bytes < 10_000
    short = space.scan_keys(b"long9", 10, 2500)
    assert len(short.keys) == (3 if engine.name == "rocks" else 10)
    assert short.read_bytes <= 3300
    assert len(space.scan_keys(None, 10, 1).keys) == 1


def test_ranges_in_chunks_meet_every_row_that_stays_while_others_come_and_go(
    engine: Engine,
) -> None:
    if engine.name == "simulated":
        return  # it tells all at once
    storage = engine.open()
    space = storage.space(0, 0)
    staying = [b"s%04d" % number for number in range(300)]
    for key in staying:
        space.put(key, row(1))
    storage.commit()
    ranges: list[tuple[bytes, bytes | None]] = [
        (b"", None), (b"s01", b"s02"), (b"s0150", b"s0250"), (b"s0199", None),
    ]  # fmt: skip
    met: list[list[bytes]] = [[] for _ in ranges]
    at: list[bytes | None] = [first for first, _ in ranges]
    turn = 0
    while any(first is not None for first in at):
        for index, (first, (_, before)) in enumerate(zip(at, ranges, strict=True)):
            if first is None:
                continue
            turn += 1
            found = space.scan_packed(first, before, 7, EVERYTHING)
            assert all(first <= key and (before is None or key < before) for key in found.keys)
            met[index] += found.keys
            at[index] = None if found.whole else found.keys[-1] + b"\0"
            for number in range(0, 300, 1 + turn % 7):
                space.put(b"s%04dx%d" % (number, turn % 3), row(turn + 1))
                space.drop(b"s%04dx%d" % (number, (turn + 1) % 3))
            space.drop(staying[turn % 300])
            space.put(staying[turn % 300], row(turn + 1))
            storage.commit()

    for keys, (first, before) in zip(met, ranges, strict=True):
        assert keys == sorted(set(keys))
        there = [key for key in staying if first <= key and (before is None or key < before)]
        assert [key for key in keys if key in staying] == there


def test_a_scan_in_chunks_meets_every_row_that_stays_while_others_come_and_go(
    engine: Engine,
) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    staying = [b"s%04d" % number for number in range(300)]
    for key in staying:
        space.put(key, row(1))
    storage.commit()
    met: list[bytes] = []
    after: bytes | None = None
    turn = 0
    while chunk := space.scan(after, 7, EVERYTHING):
        met += [key for key, _ in chunk]
        after = chunk[-1][0]
        turn += 1
        space.put(b"s%04d+" % (turn * 11 % 300), row(2))
        space.drop(b"s%04d+" % (turn * 7 % 300))
        storage.commit()

    assert met == sorted(set(met))
    assert set(staying) <= set(met)


def test_rows_written_together_are_counted_and_scanned_as_others_are(engine: Engine) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    space.put_all({b"%02d" % number: row(1, b"long value") for number in range(20)})
    assert space.row_count() == 20
    assert space.byte_count() == 20 * 12
    first = space.scan(None, 5, EVERYTHING)
    storage.commit()

    space.put_all({b"%02d" % number: row(2, b"short") for number in range(20)})
    assert space.byte_count() == 20 * 7
    space.put_all({b"06x": row(3), b"07": row(3, None), b"00x": row(3)})

    rest = space.scan(first[-1][0], 100, EVERYTHING)
    assert [key for key, _ in first] == [b"00", b"01", b"02", b"03", b"04"]
    assert [key for key, _ in rest][:5] == [b"05", b"06", b"06x", b"07", b"08"]
    assert len(rest) == 16
    assert space.row_count() == 21
    assert space.byte_count() == 19 * 7 + 2 * 4 + 2
    whole = space.scan(None, 100, EVERYTHING)
    assert space.digest() == sum(row_digest(key, row) for key, row in whole) % (1 << 128)


def test_the_digest_is_right_when_more_rows_change_together_than_are_noted(engine: Engine) -> None:
    storage = engine.open()
    space = storage.space(0, 0)
    space.digest()  # it is followed from now on
    again = b"%d" % (CHANGED_MAX + 50)
    space.put(again, row(1, b"old"))

    space.put_all({b"%d" % number: row(2) for number in range(CHANGED_MAX + 100)})

    whole = space.scan(None, 2 * CHANGED_MAX, EVERYTHING)
    assert len(whole) == CHANGED_MAX + 100
    assert space.digest() == sum(row_digest(key, row) for key, row in whole) % (1 << 128)


def test_large_values_pass(engine: Engine) -> None:
    storage = engine.open()
    value = os.urandom(1 << 20) * 8
    storage.space(0, 0).put(b"large", row(1, value))
    storage.commit()

    found = engine.reopened(storage).space(0, 0).get(b"large")

    assert found is not None
    assert found.value == value


# --- records


def test_records_are_read_by_name_and_by_prefix(engine: Engine) -> None:
    storage = engine.open()
    storage.record_put(b"copy/2", b"two")
    storage.record_put(b"copy/1", b"one")
    storage.record_put(b"copz", b"other")
    storage.commit()
    storage.record_put(b"copy/3", b"three")
    storage.record_put(b"copy/1", b"one!")
    storage.record_drop(b"copy/2")
    storage.record_drop(b"never there")

    for _ in range(2):
        assert storage.record_get(b"copy/1") == b"one!"
        assert storage.record_get(b"copy/2") is None
        assert list(storage.records(b"copy/")) == [(b"copy/1", b"one!"), (b"copy/3", b"three")]
        assert [name for name, _ in storage.records(b"")] == [b"copy/1", b"copy/3", b"copz"]
        storage.commit()
        storage = engine.reopened(storage)


# --- batches


def test_an_empty_commit_is_allowed_and_sync_runs_beside_the_next_turn(engine: Engine) -> None:
    storage = engine.open()
    storage.commit()
    space = storage.space(0, 0)
    syncing = threading.Event()
    failures: list[BaseException] = []

    def sync_again_and_again() -> None:
        try:
            for _ in range(30):
                storage.sync()
                syncing.set()
        except BaseException as error:  # the main thread reports it
            failures.append(error)

    thread = threading.Thread(target=sync_again_and_again)
    thread.start()
    number = 0
    while thread.is_alive():
        number += 1
        space.put(b"%d" % number, row(number))
        storage.commit()
    thread.join()

    assert syncing.is_set()
    assert failures == []
    assert engine.reopened(storage).space(0, 0).row_count() == number


class Written:
    """What a storage must hold, kept the simple way."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, bytes], tuple[int, int, int, bytes | None]] = {}
        self.log: dict[tuple[int, int], bytes] = {}
        self.records: dict[bytes, bytes] = {}

    def check(self, storage: Storage) -> None:
        for generation in (0, 1):
            space = storage.space(1, generation)
            mine = {key: row for (place, key), row in self.rows.items() if place == generation}
            found = space.scan(None, 1000, EVERYTHING)
            assert [(key, fields(row)) for key, row in found] == sorted(mine.items())
            assert all(fields(space.get(key)) == mine.get(key) for key in KEYS)
            assert space.row_count() == sum(row[3] is not None for row in mine.values())
            assert space.byte_count() == sum(
                len(key) + len(row[3] or b"") for key, row in mine.items()
            )
            assert space.digest() == sum(row_digest(key, row) for key, row in found) % (1 << 128)
        expected = [(*key, update) for key, update in sorted(self.log.items())]
        assert storage.log_read(1, 0, 1 << 60, EVERYTHING) == expected
        assert list(storage.records(b"")) == sorted(self.records.items())


KEYS = [b"", b"a", b"a\0", b"b", b"\xff"]
values = st.none() | st.binary(max_size=5)
steps = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 1), st.sampled_from(KEYS), values),
    st.tuples(
        st.just("put all"),
        st.integers(0, 1),
        st.dictionaries(st.sampled_from(KEYS), values),
        st.none(),
    ),
    st.tuples(st.just("forget digest"), st.integers(0, 1), st.none(), st.none()),
    st.tuples(st.just("drop"), st.integers(0, 1), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("drop space"), st.integers(0, 1), st.none(), st.none()),
    st.tuples(st.just("log"), st.integers(1, 9), st.integers(1, 2), st.binary(max_size=5)),
    st.tuples(st.just("undo"), st.integers(1, 9), st.integers(1, 2), st.none()),
    st.tuples(st.just("cut"), st.integers(0, 9), st.none(), st.none()),
    st.tuples(st.just("record"), st.sampled_from(KEYS), st.none(), values),
    st.tuples(st.sampled_from(["commit", "commit", "reopen"]), st.none(), st.none(), st.none()),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(steps, max_size=40))
def test_any_sequence_of_calls_leaves_what_a_dict_would_hold(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, script: list[tuple[object, ...]]
) -> None:
    engine = Engine(engine.name, tmp_path_factory.mktemp("model"))
    storage = engine.open()
    model = Written()
    for counter, (verb, first, second, value) in enumerate(script, start=1):
        perform(storage, model, counter, (verb, first, second, value))
        if verb == "reopen":
            storage.commit()
            storage = engine.reopened(storage)
        model.check(storage)
    engine.close()


def perform(storage: Storage, model: Written, counter: int, step: tuple[object, ...]) -> None:
    match step:
        case ("put", int(generation), bytes(key), bytes() | None as value):
            storage.space(1, generation).put(key, row(counter, value))
            model.rows[generation, key] = (counter, 1, 0, value)
        case ("put all", int(generation), dict(some), _):
            rows = {key: row(counter, value) for key, value in some.items()}
            storage.space(1, generation).put_all(rows)
            model.rows.update({(generation, key): fields(rows[key]) for key in rows})
        case ("forget digest", int(generation), _, _):
            storage.space(1, generation).forget_digest()
        case ("drop", int(generation), bytes(key), _):
            storage.space(1, generation).drop(key)
            model.rows.pop((generation, key), None)
        case ("drop space", int(generation), _, _):
            storage.drop_space(1, generation)
            for place in [place for place in model.rows if place[0] == generation]:
                del model.rows[place]
        case ("log", int(at), int(term), bytes(update)):
            storage.log_put(1, at, term, update)
            model.log[at, term] = update
        case ("undo", int(at), int(term), _):
            storage.log_drop(1, at, term)
            model.log.pop((at, term), None)
        case ("cut", int(upto), _, _):
            storage.log_cut(1, upto)
            for place in [place for place in model.log if place[0] <= upto]:
                del model.log[place]
        case ("record", bytes(name), _, bytes(data)):
            storage.record_put(name, data)
            model.records[name] = data
        case ("record", bytes(name), _, None):
            storage.record_drop(name)
            model.records.pop(name, None)
        case ("commit", _, _, _):
            storage.commit()
