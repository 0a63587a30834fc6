"""Copies with equal rows share a digest, whatever the order in which the updates came."""

from random import Random

import msgspec
import pytest

from quorate.facts.lineage import Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.reports import tell_digest
from quorate.protocol.copies.totals import (
    CHANGED_MAX,
    DIGEST_BYTES,
    buckets_of,
    key_bucket,
    row_digest,
)
from quorate.protocol.messages.replication import Update
from quorate.protocol.storage import Operation, Row
from quorate_agent.storage.memory import MemoryStorage

TERM = 3


def copy() -> Copy:
    made = Copy(0, MemoryStorage(0))
    made.promise(TERM, Holder("a1", "s1", 1))
    made.adopt(Lineage(0, 0, (Entry(TERM, 1),)), 0, {})
    return made


def take(into: Copy, counter: int, operations: tuple[Operation, ...]) -> None:
    update = Update(counter, TERM, operations)
    into.keep(update, msgspec.msgpack.encode(update))


def history(count: int, keys: int) -> list[tuple[Operation, ...]]:
    random = Random(5)
    made: list[tuple[Operation, ...]] = []
    for number in range(count):
        key = b"k%d" % random.randrange(keys)
        value = None if random.random() < 0.2 else b"v%d" % number * random.choice([1, 3000])
        made.append(((key, value, random.choice([0, 0, 10_000 + number])),))
    made[count // 2] = ((None, None, 0),)  # a FLUSHALL in the middle
    return made


def scanned(of: Copy) -> int:
    return sum(row_digest(key, row) for key, row in of.space.scan(None, 10**6, 1 << 40)) % (
        1 << 128
    )


def test_updates_in_any_order_end_in_the_digest_that_a_scan_finds() -> None:
    primary, backup, shuffled = copy(), copy(), list(enumerate(history(400, 40), start=1))
    for counter, operations in shuffled:
        take(primary, counter, operations)
    Random(1).shuffle(shuffled)
    for counter, operations in shuffled:
        take(backup, counter, operations)

    assert backup.lwm == primary.lwm == 400
    assert backup.space.digest() == primary.space.digest() == scanned(primary) == scanned(backup)


@pytest.mark.parametrize("odd", [None, b"", b"x"], ids=["FLUSHALL", "empty key", "key"])
def test_an_update_of_many_rows_leaves_what_they_leave_one_by_one(odd: bytes | None) -> None:
    many: tuple[Operation, ...] = (
        *[(b"k%d" % n, b"v%d" % n, n % 3 and 10_000 + n) for n in range(20)],
        (b"gone", None, 0),
        (odd, None, 0),
        *[(b"l%d" % n, bytes(n), 0) for n in range(10)],
    )
    writing, keeping, late = copy(), copy(), copy()
    for each in (writing, keeping, late):
        take(each, 1, ((b"k1", b"old", 0),))
        take(each, 2, ((b"other", b"old", 0),))
    writing.write(many)
    take(keeping, 3, many)
    take(late, 4, ((b"l1", b"new", 0),))
    take(late, 3, many)
    take(late, 5, ((b"l1", bytes(1), 0),))
    expected: dict[bytes, bytes | None] = {b"k1": b"old", b"other": b"old"}
    for key, value, _ in many:
        if key is None:
            expected.clear()
        else:
            expected[key] = value

    for each in (writing, keeping, late):
        found = each.space.scan(None, 1000, 1 << 30)
        assert {key: row.value for key, row in found} == expected
        assert each.space.row_count() == sum(value is not None for value in expected.values())
        tombstones = [key for key in each.tombstones if expected.get(key, b"") is None]
        assert set(tombstones) == {key for key, value in expected.items() if value is None}
        assert len(tombstones) == len(set(tombstones))
    assert writing.space.digest() == keeping.space.digest()
    assert writing.expiring.due == {key: row.expires_at for key, row in found if row.expires_at}


def test_a_mark_is_the_digest_at_its_counter_on_every_copy() -> None:
    writing, keeping = copy(), copy()
    steps = history(300, 20)
    for asked in (writing, keeping):
        tell_digest(asked, mark=200)
    for operations in steps[:260]:
        writing.write(operations)
    late = list(enumerate(steps[:260], start=1))
    for counter, operations in late[150:] + late[:150]:
        take(keeping, counter, operations)
    alone = copy()
    for operations in steps[:200]:
        alone.write(operations)

    told = [tell_digest(one, mark=0) for one in (writing, keeping)]
    there = tell_digest(alone, mark=0).digest
    assert [(one.mark, one.mark_digest) for one in told] == [(200, there)] * 2
    assert told[0].digest == told[1].digest != there


def test_no_mark_is_told_of_rows_that_were_ahead_of_it() -> None:
    steps = history(260, 20)
    supplier, behind = copy(), copy()
    for operations in steps:
        supplier.write(operations)
    for counter, operations in enumerate(steps[:100], start=1):
        take(behind, counter, operations)
    tell_digest(behind, mark=200)
    for counter, operations in enumerate(steps[150:], start=151):
        take(behind, counter, operations)
    # A full copy in the same term: begun at 150, its last pieces as of 260.
    space = behind.storage.space(0, behind.generation + 1)
    for key, row in supplier.space.scan(None, 10**6, 1 << 40):
        space.put(key, row)
    behind.adopt(behind.lineage, 100, {}, full=(behind.generation + 1, 150))

    assert behind.lwm == 260
    assert behind.space.digest() == supplier.space.digest()
    assert tell_digest(behind, mark=0).mark == 0


@pytest.mark.parametrize("change", ["value", "counter", "expiry", "a row more", "a row less"])
def test_copies_that_differ_in_anything_have_other_digests_and_other_buckets(change: str) -> None:
    right, wrong = copy(), copy()
    for one in (right, wrong):
        for operations in history(200, 50):
            one.write(operations)
    key, row = right.space.scan(None, 1, 1)[0]
    while row.value is None:
        key, row = right.space.scan(key, 1, 1)[0]
    match change:
        case "value":
            wrong.space.put(key, Row(row.counter, row.term, row.expires_at, row.value + b"!"))
        case "counter":
            wrong.space.put(key, Row(row.counter + 1, row.term, row.expires_at, row.value))
        case "expiry":
            wrong.space.put(key, Row(row.counter, row.term, row.expires_at + 1, row.value))
        case "a row more":
            key = b"more"
            wrong.space.put(key, Row(1, TERM, 0, b""))
        case "a row less":
            wrong.space.drop(key)

    assert right.space.digest() != wrong.space.digest()
    found = [buckets_of(one.space.scan(None, 10**6, 1 << 40), 200) for one in (right, wrong)]
    assert {b for b in range(256) if found[0].get(b) != found[1].get(b)} == {key_bucket(key)}


def test_rows_are_counted_piece_by_piece_while_they_change() -> None:
    one, steps = copy(), history(900, 300)
    for operations in steps[:400]:
        one.write(operations)
    one.space.forget_digest()
    counted = 0
    for operations in steps[400:450]:
        counted += one.space.count_digest(2)
        one.write(operations)  # of keys that are counted, that are not, that are new
    assert counted == 100
    while one.space.count_digest(7) == 7:
        pass
    for operations in steps[450:]:
        one.write(operations)

    assert one.space.digest() == scanned(one)


def test_a_digest_that_nobody_asks_for_is_counted_anew() -> None:
    one, steps = copy(), history(300, 50)
    for at in (100, 200, 300):
        for operations in steps[at - 100 : at]:
            one.write(operations)

        assert tell_digest(one, mark=0).digest == scanned(one).to_bytes(DIGEST_BYTES)
        one.space.forget_digest()


def test_many_changed_keys_are_counted_in_between() -> None:
    one = copy()
    one.space.count_digest(1)
    for number in range(3 * CHANGED_MAX):
        one.write(((b"k%d" % (number % (2 * CHANGED_MAX)), b"v%d" % number, 0),))

    assert one.space.digest() == scanned(one)
