"""A copy whose last updates are not part of the history fetches the rows of their keys anew."""

import pytest

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies import supply
from quorate.protocol.copies.copy import Copy, decode_update
from quorate.protocol.copies.fill import Fill, FullReason
from quorate.protocol.copies.gathering import TouchedKeys
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.supply import (
    KEY_ROWS_BYTES,
    keys_to_ask,
    supply_keys,
    supply_updates,
)
from quorate.protocol.messages.replication import FenceAck
from quorate.protocol.messages.transfer import FetchKeys, FetchUpdates, KeyRows
from quorate.protocol.settings import ProtocolSettings
from quorate.wire.frames import encode_to_send
from quorate_agent.storage.memory import MemoryStorage
from quorate_lone_copies.exchange import Exchange

SETTINGS = ProtocolSettings(retry_ms=500)
FIRST = EMPTY_LINEAGE.appended(Entry(2, 1))
COMMON = 4
"""So many updates both copies have, one for each key."""
SECOND = FIRST.appended(Entry(3, COMMON + 1))


def _key(number: int) -> bytes:
    return b"key-%04d" % number


def _copy() -> Copy:
    copy = Copy(0, MemoryStorage(0))
    copy.promise(2, Holder("a", "store-a", 1))
    copy.adopt(FIRST, 0, {})
    for number in range(COMMON):
        copy.write(((_key(number), b"common", 0),))
    return copy


def _cut_off(keys: int) -> Copy:
    """A former primary, with updates that nobody else has; it has promised the next term."""
    copy = _copy()
    for number in range(keys):
        copy.write(((_key(number), b"lost", 0),))
    copy.promise(3, Holder("p", "store-p", 1))
    return copy


def _present(keys: int, value: bytes) -> Copy:
    """The primary of the next term, which has written every second key since."""
    copy = _copy()
    copy.promise(3, Holder("p", "store-p", 1))
    copy.adopt(SECOND, COMMON, {})
    for number in range(0, keys, 2):
        copy.write(((_key(number), value, 0),))
    copy.majority = copy.lwm
    return copy


def _filling(keys: int, present: Copy) -> Exchange:
    return Exchange(Fill(_cut_off(keys), SECOND, COMMON, ["p"], SETTINGS), {"p": present})


def _supplied(present: Copy, keys: tuple[bytes, ...]) -> KeyRows:
    answer = supply_keys("zone", present, FetchKeys("zone", 0, 3, keys, True))
    assert isinstance(answer, KeyRows)
    return answer


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        pytest.param(10, bytes(KEY_ROWS_BYTES // 2), id="two rows in one answer"),
        pytest.param(6, bytes(KEY_ROWS_BYTES + 1), id="rows larger than an answer"),
        pytest.param(200, b"small", id="all rows in one answer"),
    ],
)
def test_the_rows_come_in_answers_of_limited_size(keys: int, value: bytes) -> None:
    present = _present(keys, value)
    exchange = _filling(keys, present)
    exchange.run()
    exchange.fill.finish()

    asked = [name for _, name in exchange.asked]
    assert asked[0] == "FetchKeys"
    assert exchange.fill.copy.adopted
    assert exchange.fill.copy.space.digest() == present.space.digest()


@pytest.mark.parametrize("is_full", [False, True])
def test_it_forgets_what_a_majority_had_of_the_history_that_is_undone(is_full: bool) -> None:
    """After a reset: readers of the log would take updates as final that can still be undone."""
    present = _present(6, b"present")
    exchange = _filling(10, present)
    cut_off = exchange.fill.copy
    cut_off.majority = cut_off.lwm
    if is_full:
        exchange.fill._go_full(FullReason.DIVERGENT)
    exchange.run()
    exchange.fill.finish()

    assert cut_off.majority <= present.majority < COMMON + 10


def test_a_refill_keeps_what_a_majority_has() -> None:
    copy, present = _copy(), _copy()
    fill = Fill(copy, FIRST, COMMON, ["p"], SETTINGS, refill="token")
    exchange = Exchange(fill, {"p": present})
    exchange.run()
    for number in range(COMMON):  # meanwhile
        raw = present.write(((_key(number), b"late", 0),))
        copy.keep(decode_update(raw), raw)
    copy.majority = copy.lwm
    fill.finish()

    assert copy.majority == copy.lwm == 2 * COMMON


def test_a_full_copy_keeps_what_the_present_primary_told() -> None:
    present = _present(6, b"present")
    copy = Copy(0, MemoryStorage(0))
    copy.promise(3, Holder("p", "store-p", 1))
    copy.majority = present.lwm + 10
    exchange = Exchange(Fill(copy, SECOND, COMMON, ["p"], SETTINGS), {"p": present})
    exchange.fill._go_full(FullReason.NO_HISTORY)
    exchange.run()
    exchange.fill.finish()

    assert copy.majority == present.lwm + 10


def test_of_an_earlier_term_it_keeps_only_what_it_has() -> None:
    """A reset may have undone the rest, and not all that it has."""
    copy = _copy()
    copy.majority = COMMON + 100
    copy.promise(3, Holder("p", "store-p", 1))

    assert copy.majority == COMMON


def test_two_of_the_largest_rows_fit_into_no_frame_together() -> None:
    """The process of their supplier ended, and that of the next one, too."""
    present = _present(3, bytes(45 << 20))

    answer = _supplied(present, (_key(0), _key(1), _key(2)))

    assert [row[0] for row in answer.rows] == [_key(0)]
    assert encode_to_send(answer)


def test_many_middling_rows_are_cut_where_the_answer_is_full() -> None:
    present = _present(100, bytes(100_000))

    answer = _supplied(present, tuple(map(_key, range(100))))

    size = sum(len(row[0]) + len(row[4] or b"") for row in answer.rows)
    assert KEY_ROWS_BYTES <= size < KEY_ROWS_BYTES + 100_100
    assert [row[0] for row in answer.rows] == [_key(n) for n in range(len(answer.rows))]


def test_keys_are_asked_for_in_portions() -> None:
    long = [bytes([n]) + bytes(KEY_ROWS_BYTES // 2) for n in range(5)]

    assert keys_to_ask(long) == tuple(long[:2])
    assert keys_to_ask([bytes(2 * KEY_ROWS_BYTES), b"k"]) == (bytes(2 * KEY_ROWS_BYTES),)
    assert keys_to_ask([b"a", b"b"]) == (b"a", b"b")
    assert len(keys_to_ask([b"%d" % n for n in range(20_000)])) == supply.KEYS_PER_ASK


def test_an_answer_that_comes_twice_is_asked_on_after_once() -> None:
    present = _present(10, bytes(KEY_ROWS_BYTES))
    fill = _filling(10, present).fill
    ((_, ask),) = fill.ask("zone", 0)
    assert isinstance(ask, FetchKeys)
    answer = _supplied(present, ask.keys)

    asked = []
    for _ in range(2):
        fill.take_keys(answer)
        asked += fill.ask("zone", 0)

    assert len(asked) == 1


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which updates of a log were read for their keys."""
    ranges: list[tuple[int, int]] = []
    touched_keys = Copy.touched_keys

    def note(copy: Copy, first: int, last: int) -> set[bytes] | None:
        ranges.append((first, last))
        return touched_keys(copy, first, last)

    monkeypatch.setattr(Copy, "touched_keys", note)
    return ranges


def test_a_filling_copy_reads_its_log_once(looked_at: list[tuple[int, int]]) -> None:
    settings = ProtocolSettings(transfer_chunk_bytes=1)
    present = _present(20, b"new")
    fill = Fill(_cut_off(20), SECOND, present.lwm, ["p"], settings)
    exchange = Exchange(fill, {"p": present}, bytes_max=1)
    exchange.run()
    fill.finish()

    assert [name for _, name in exchange.asked].count("FetchUpdates") == 10
    assert looked_at == [(COMMON + 1, COMMON + 20)]
    assert fill.copy.space.digest() == present.space.digest()


def test_of_a_log_that_has_grown_the_new_updates_are_read(
    looked_at: list[tuple[int, int]],
) -> None:
    copy, touched = _copy(), TouchedKeys()
    copy.write(((b"a", b"1", 0),))
    assert touched.look(copy, COMMON + 1) == {b"a"}
    copy.write(((b"b", b"1", 0),))

    assert touched.look(copy, COMMON + 1) == {b"a", b"b"}
    assert touched.look(copy, COMMON + 1) == {b"a", b"b"}
    assert looked_at == [(COMMON + 1, COMMON + 1), (COMMON + 2, COMMON + 2)]


def test_another_history_has_the_log_read_anew(looked_at: list[tuple[int, int]]) -> None:
    copy, touched = _copy(), TouchedKeys()
    assert touched.look(copy, COMMON) == {_key(COMMON - 1)}

    assert touched.look(copy, COMMON - 1) == {_key(COMMON - 2), _key(COMMON - 1)}
    assert touched.look(copy, COMMON) == {_key(COMMON - 1)}


def test_a_log_that_cannot_tell_is_not_asked_again(looked_at: list[tuple[int, int]]) -> None:
    copy, touched = _copy(), TouchedKeys()
    copy.write(((None, None, 0),))  # FLUSHALL

    assert touched.look(copy, 1) is None
    assert touched.look(copy, 1) is None
    assert looked_at == [(1, COMMON + 1)]
    copy.write(((b"a", b"1", 0),))
    assert touched.look(copy, COMMON + 2) == {b"a"}


def test_an_activation_asks_until_it_has_all_rows() -> None:
    """The new primary itself has updates to be undone; rows of the other voter have 1 MiB."""
    record = ZoneRecord("uid-1", "books", 1, 2, StorageKind.PERSISTENT)
    me, now = Holder("a", "s-a", 1), Now(0, 5_000)
    zone = Replicas(record, me, MemoryStorage(0), Leases(SETTINGS, 1, 0), SETTINGS, now)
    zone.set_members([NodeRecord(node, f"s-{node}", 1, "h", 1, "h") for node in "ab"])
    copy, other = zone.copy_of(0), _present(6, bytes(KEY_ROWS_BYTES))
    copy.promise(2, me)
    copy.adopt(FIRST, 0, {})
    for number in range(COMMON):
        copy.write(((_key(number), b"common", 0),))
    for number in range(6):
        copy.write(((_key(number), b"lost", 0),))
    zone.touch(copy)
    zone.synced(zone.flush(now), now)

    voters = tuple(Voter(node, f"s-{node}") for node in "ab")
    zone.set_rows([PartitionRow(0, 4, 4, me, ("a", "b"), voters)], now)
    other.promise(4, me)
    lineage, held = other.lineage, other.held()
    zone.receive("b", FenceAck("uid-1", 0, 4, "s-b", lineage, other.lwm, held, 0, False), now)
    asked: list[int] = []
    for _ in range(10):
        turn = zone.flush(now)
        for _, message in [*turn.sends, *zone.synced(turn, now)]:
            if isinstance(message, FetchKeys):
                asked.append(len(message.keys))
                zone.receive("b", supply_keys("uid-1", other, message), now)
            elif isinstance(message, FetchUpdates):
                zone.receive("b", supply_updates("uid-1", other, message, 1 << 30), now)

    assert asked == [6, 5, 3, 1]
    assert copy.adopted
    assert copy.space.digest() == other.space.digest()
