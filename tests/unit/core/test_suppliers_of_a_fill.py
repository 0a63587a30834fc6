"""Whom a filling copy asks, and what it makes of those that cannot give everything."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from quorate.facts.lineage import EMPTY_LINEAGE, Entry, Lineage
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.fill import Fill, FullReason
from quorate.protocol.copies.supply import SMALL_BYTES, supply_updates
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.transfer import (
    FetchUpdates,
    Updates,
)
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Storage
from quorate_agent.storage.memory import MemoryStorage
from quorate_lone_agent.storage_engine import Engine
from quorate_lone_copies.exchange import Exchange

SETTINGS = ProtocolSettings(retry_ms=500, transfer_chunk_bytes=1)
HOLDER = Holder("p", "store-p", 1)
LINEAGE = EMPTY_LINEAGE.appended(Entry(2, 1))


@pytest.fixture(params=["memory", "rocks", "simulated"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """What an owner keeps its log in."""
    engine = Engine(request.param, tmp_path)
    yield engine
    engine.close()


def empty() -> Copy:
    copy = Copy(0, MemoryStorage(0))
    copy.promise(2, HOLDER)
    return copy


def owner(updates: int, cut: int = 0, lineage: Lineage = LINEAGE) -> Copy:
    """An owner that has adopted the term and holds `updates` updates, its log those above `cut`."""
    copy = empty()
    copy.adopt(lineage, 0, {})
    for counter in range(1, updates + 1):
        copy.write(((b"k%02d" % (counter % 7), b"v%d" % counter, 0),))
    copy.majority = updates
    copy.cut_log(cut)
    return copy


def same_rows(one: Copy, other: Copy) -> bool:
    return one.space.digest() == other.space.digest()


def test_the_first_supplier_gives_everything_and_nobody_else_is_asked() -> None:
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": owner(20), "p": owner(20)}
    )
    exchange.run()
    exchange.fill.finish()

    assert exchange.asked == [("b", "FetchUpdates")]
    assert exchange.fill.copy.lwm == 20
    assert same_rows(exchange.fill.copy, exchange.owners["p"])


def test_one_that_has_not_adopted_the_term_is_passed_over() -> None:
    late = empty()
    late.promise(3, HOLDER)
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": late, "p": owner(20)}
    )
    exchange.run()

    assert exchange.asked == [("b", "FetchUpdates"), ("p", "FetchUpdates")]
    assert exchange.fill.is_complete()


def test_two_that_lack_the_same_do_not_wait_for_each_other_when_no_log_reaches() -> None:
    """Each had only the other left to ask, and each answered that it has nothing."""
    behind = empty()
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["p", "b"], SETTINGS), {"p": owner(20, cut=10), "b": behind}
    )
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == FullReason.EMPTY_STORE
    assert same_rows(exchange.fill.copy, exchange.owners["p"])


def test_one_that_lacks_the_same_is_passed_over_at_once() -> None:
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": empty(), "p": owner(20)}
    )
    exchange.run()

    assert exchange.asked == [("b", "FetchUpdates"), ("p", "FetchUpdates")]
    assert exchange.now < SETTINGS.retry_ms


def test_a_short_log_beside_one_that_cannot_be_asked_is_a_reason_for_a_full_copy() -> None:
    late = empty()
    late.promise(3, HOLDER)
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": late, "p": owner(20, cut=20)}
    )
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == FullReason.EMPTY_STORE
    assert same_rows(exchange.fill.copy, exchange.owners["p"])


def test_one_that_says_nothing_is_passed_over() -> None:
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": owner(20), "p": owner(20)}
    )
    exchange.run(silent=("b",))

    assert exchange.asked[0][0] == "b"
    assert exchange.asked[-1][0] == "p"
    assert exchange.fill.is_complete()


def test_one_that_was_silent_is_asked_again_while_the_last_one_cannot_supply() -> None:
    late = empty()
    late.promise(3, HOLDER)
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["p", "b"], SETTINGS), {"p": owner(20), "b": late}
    )
    exchange.run(silent=("p",), asks=SETTINGS.retry_ms // 100 + 1)
    assert [node for node, _ in exchange.asked] == ["p", "b"]
    exchange.run()

    assert [node for node, _ in exchange.asked] == ["p", "b", "p"]
    assert exchange.fill.is_complete()


def test_a_log_that_does_not_reach_is_no_reason_for_a_full_copy_while_another_does() -> None:
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": owner(20, cut=12), "p": owner(20)}
    )
    exchange.run()

    assert exchange.fill.is_complete()
    assert not exchange.fill.is_full


def test_when_no_log_reaches_the_whole_partition_is_copied() -> None:
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS),
        {"b": owner(20, cut=12), "p": owner(20, cut=3)},
    )
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == FullReason.EMPTY_STORE
    assert exchange.fill.copy.lwm == 20
    assert same_rows(exchange.fill.copy, exchange.owners["p"])


def test_the_snapshot_of_an_owner_that_lacks_what_no_log_has_is_passed_over() -> None:
    """Both shared a failure domain and asked each other first, for ever."""
    behind = owner(0)
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": behind, "p": owner(20, cut=10)}
    )
    exchange.run()
    exchange.fill.finish()

    asked = [node for node, name in exchange.asked if name == "FetchSnapshot"]
    assert asked == ["b", *["p"] * 8]  # seven rows and the end, one a piece
    assert exchange.fill.copy.lwm == 20
    assert same_rows(exchange.fill.copy, exchange.owners["p"])


def test_the_snapshot_of_an_owner_that_lacks_as_much_is_passed_over() -> None:
    source = long_log(MemoryStorage(0), 20, PIECE)
    exchange = Exchange(
        Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), {"b": owner(0), "p": source}
    )
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == FullReason.TOO_MUCH
    assert [node for node, name in exchange.asked if name == "FetchSnapshot"] == ["b", "p", "p"]
    assert same_rows(exchange.fill.copy, source)


@pytest.mark.parametrize("lost_after", [2, 3, 4])
def test_a_snapshot_cut_off_in_the_middle_goes_on_with_another_owner(lost_after: int) -> None:
    owners = {"b": owner(20, cut=20), "p": owner(23, cut=20)}
    exchange = Exchange(Fill(empty(), LINEAGE, 20, ["b", "p"], SETTINGS), owners)
    while [name for _, name in exchange.asked].count("FetchSnapshot") < lost_after:
        exchange.run(asks=1)
    rows_before = exchange.fill.bytes_done
    exchange.run(silent=("b",))
    exchange.fill.finish()

    after = [node for node, name in exchange.asked if name == "FetchSnapshot"][lost_after:]
    assert after == ["b", *["p"] * (8 - lost_after)]  # seven rows and the end, one a piece
    assert exchange.fill.bytes_done > rows_before
    assert exchange.fill.copy.lwm == 23  # a piece stands at 23: what came since 20 is wanted too
    assert same_rows(exchange.fill.copy, owners["p"])


def long_log(storage: Storage, updates: int, bytes_each: int, beside: int = 0) -> Copy:
    """An owner of one key that is written over and over, so its log is larger than its rows, and of
    a row of `beside` bytes that was written first."""
    copy = Copy(0, storage)
    copy.promise(2, HOLDER)
    copy.adopt(LINEAGE, 0, {})
    if beside:
        copy.write(((b"beside", bytes(beside), 0),))
    for counter in range(1, updates + 1):
        copy.write(((b"k", b"%d" % counter + bytes(bytes_each), 0),))
    storage.commit()
    return copy


def lacks(source: Copy, missing: set[int]) -> Exchange:
    """The fill of a copy that holds everything of `source` but these updates."""
    copy, last = empty(), source.lwm
    for counter, _, raw in source.storage.log_read(0, 1, last, 1 << 30):
        if counter not in missing:
            copy.keep(msgspec.msgpack.decode(raw, type=Update), raw)
    return Exchange(Fill(copy, LINEAGE, last, ["p"], SETTINGS), {"p": source})


PIECE = SMALL_BYTES // 10


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        pytest.param({*range(1, 13)}, FullReason.TOO_MUCH, id="too much in one range"),
        pytest.param({*range(1, 9)}, "", id="little in one range"),
        pytest.param({*range(1, 7), *range(15, 21)}, FullReason.TOO_MUCH, id="too much in two"),
        pytest.param({*range(1, 5), *range(17, 21)}, "", id="little in two ranges"),
        pytest.param({1, 20}, "", id="the first and the last"),
        pytest.param({*range(1, 21, 3)}, "", id="little in many ranges"),
        pytest.param({*range(1, 21)} - {4, 9, 14}, FullReason.TOO_MUCH, id="too much in many"),
    ],
)
def test_missing_updates_larger_than_the_partition_are_refused_for_their_size(
    engine: Engine, missing: set[int], reason: str
) -> None:
    """What is held between them does not count."""
    source = long_log(engine.open(), 20, PIECE)
    exchange = lacks(source, missing)
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == reason
    assert same_rows(exchange.fill.copy, source)


def test_many_small_gaps_in_a_long_log_are_no_reason_for_a_full_copy(engine: Engine) -> None:
    """An engine that knows sizes of large pieces only must not count one for each gap."""
    source = long_log(engine.open(), 3_000, 1_000)
    exchange = lacks(source, {*range(1, 3_000, 100)})
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == ""
    assert same_rows(exchange.fill.copy, source)


def test_a_partition_larger_than_what_is_missing_gives_its_updates(engine: Engine) -> None:
    """However much that is."""
    source = long_log(engine.open(), 20, PIECE, beside=20 * PIECE)
    exchange = lacks(source, {*range(2, 22)})
    exchange.run()
    exchange.fill.finish()

    assert exchange.fill.full_reason == ""
    assert same_rows(exchange.fill.copy, source)


def test_exactly_the_missing_ranges_are_shipped() -> None:
    source = owner(50)
    lacking = empty()
    kept = {*range(1, 11), *range(21, 31)}
    for counter, _, raw in source.storage.log_read(0, 1, 50, 1 << 20):
        if counter in kept:
            lacking.keep(msgspec.msgpack.decode(raw, type=Update), raw)
    exchange = Exchange(Fill(lacking, LINEAGE, 50, ["p"], SETTINGS), {"p": source})
    exchange.run()
    exchange.fill.finish()

    log = source.storage.log_read(0, 1, 50, 1 << 20)
    missing = sum(len(raw) for counter, _, raw in log if counter not in kept)
    assert exchange.bytes_of_updates == missing
    assert same_rows(lacking, source)


def test_an_answer_that_comes_twice_is_asked_on_after_once() -> None:
    source, fill = owner(40), Fill(empty(), LINEAGE, 40, ["p"], SETTINGS)
    ((_, ask),) = fill.ask("zone", 0)
    assert isinstance(ask, FetchUpdates)
    answer = supply_updates("zone", source, ask, 100)
    assert isinstance(answer, Updates)
    assert len(answer.updates) < 40
    asked = []
    for _ in range(2):
        for raw in answer.updates:
            fill.copy.keep(msgspec.msgpack.decode(raw, type=Update), raw)
        fill.take_updates("p", answer)
        asked += fill.ask("zone", 0)

    assert len(asked) == 1
