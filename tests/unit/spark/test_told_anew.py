"""Partitions whose rows a stream tells anew: first, or because log or history was lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from quorate.facts.keyspace import RESERVED, is_reserved, key_partition
from quorate.facts.lineage import Entry, Lineage
from quorate.protocol.messages.tools import AskColumns, AskCopies, AskUpdates
from quorate_spark.comparing.compare_rows import digest
from quorate_spark.data_source import CopyReader, QuorateDataSource
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.sources import update_stream
from quorate_spark.sources.positions import Offset
from quorate_spark.sources.update_stream import HistoryLost, LogLost, UpdateReader
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.mirror import Mirror
from quorate_spark_fixtures.scripted_zone import listening

PARTITIONS = 2
KEYS = [b"key-%d" % number for number in range(24)]
OF_0 = [key for key in KEYS if key_partition(key, PARTITIONS) == 0]
ADDED = next(
    key for number in range(100, 200) if key_partition(key := b"key-%d" % number, PARTITIONS) == 0
)
"""A key of partition 0 that is not there at first."""
COLUMNS = (
    "`key`, `value`, `counter`, `term`, `expires_at`, `replica_index`, `node`, `partition`,"
    " `tombstone`"
)

Row = dict[str, Any]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoggedZone]:
    monkeypatch.setattr(update_stream, "POLL_S", 0.01)
    zone = LoggedZone(partitions=PARTITIONS)
    for key in KEYS:
        zone.put(key, b"old", 1_999_999_999_999)
    with listening(zone):
        yield zone


def options(zone: LoggedZone, **more: str) -> dict[str, str]:
    agents = ",".join(agent.address for agent in zone.agents)
    whole = {"zone": "z", "cluster": "c", "agents": agents, "secret_file": zone.secret_file}
    return {**whole, "wait_s": "0.3", **more}


def from_snapshot(zone: LoggedZone, **more: str) -> UpdateReader:
    return UpdateReader(options(zone, startingoffsets="snapshot", **more))


def going_on(zone: LoggedZone, **more: str) -> UpdateReader:
    return UpdateReader(options(zone, onloglost="snapshot", **more))


def latest(reader: UpdateReader, start: Offset) -> Offset:
    return kept(reader.latestOffset(start, ReadAllAvailable()))


def kept(offset: Offset) -> Offset:
    """As it is read again from the checkpoint."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def read(reader: UpdateReader, start: Offset, end: Offset) -> list[Row]:
    return [
        row
        for span in reader.partitions(start, end)
        for batch in reader.read(span)
        for row in batch.to_pylist()
    ]


def kinds(rows: list[Row], partition: int = 0) -> list[tuple[str, bytes | None]]:
    return [(row["told"], row["key"]) for row in rows if row["partition"] == partition]


def test_the_first_micro_batch_has_all_rows_and_updates_go_on_after_it(zone: LoggedZone) -> None:
    reader, mirror = from_snapshot(zone), Mirror()
    gone = OF_0[0]
    zone.put(gone, None)
    zone.put_all([(RESERVED + b"part", b"internal", 0)], 0)

    start = kept(reader.initialOffset())
    end = latest(reader, start)
    rows = read(reader, start, end)
    mirror.apply(rows)

    assert kinds(rows) == [("anew", None), *(("row", key) for key in sorted(OF_0[1:]))]
    (marker, _) = [row for row in rows if row["told"] == "anew"]
    assert (marker["counter"], marker["term"]) == (end["0"]["counter"], end["0"]["term"])
    assert (marker["value"], marker["tombstone"], marker["expires_at"]) == (None, True, 0)
    assert mirror.values() == {k: row for k, row in zone.rows().items() if not is_reserved(k)}
    assert {row["expires_at"] for row in rows if row["told"] == "row"} == {1_999_999_999_999}

    zone.put(OF_0[1], b"new")
    after = latest(reader, end)

    assert kinds(read(reader, end, after)) == [("update", OF_0[1])]
    assert after == {
        "0": {"counter": end["0"]["counter"] + 1, "term": 3},
        "1": end["1"],
    }, "the partition that has no updates makes no micro-batch"


def test_a_first_micro_batch_that_is_planned_again_tells_all_rows_again(zone: LoggedZone) -> None:
    reader = from_snapshot(zone)
    start = kept(reader.initialOffset())
    end = latest(reader, start)
    rows = read(reader, start, end)
    zone.put(OF_0[0], b"new")

    assert kept(from_snapshot(zone).initialOffset()) == start
    again = read(from_snapshot(zone), start, end)

    assert kinds(again) == kinds(rows)
    newest = max(again, key=lambda row: row["counter"])
    assert (newest["key"], newest["value"]) == (OF_0[0], b"new")
    assert newest["counter"] == end["0"]["counter"] + 1, "it is newer than the offset, and says so"


def test_the_offset_says_that_all_rows_are_told_whatever_the_options_are_then(
    zone: LoggedZone,
) -> None:
    """Spark asks for the beginning again if the first micro-batch is not done."""
    start = from_snapshot(zone).initialOffset()
    end = latest(from_snapshot(zone), start)
    later = UpdateReader(options(zone))
    begin = later.initialOffset()

    rows = read(going_on(zone), begin, end)

    assert kinds(rows)[0] == ("anew", None)
    with pytest.raises(Unreadable, match=r"all rows of partition 0, 1: start the query with the"):
        later.partitions(begin, end)


def test_attempts_of_a_micro_batch_and_the_updates_after_it_make_the_state_of_the_zone(
    zone: LoggedZone,
) -> None:
    """A key is deleted between the attempts, one while rows are read, one is written newly."""
    reader, mirror = from_snapshot(zone, chunk_bytes="1"), Mirror()
    start = kept(reader.initialOffset())
    end = latest(reader, start)
    mirror.apply(read(reader, start, end)[:-2])  # and Spark is lost
    zone.put(OF_0[0], None)
    for agent in range(3):
        zone.purge(agent)

    def change(number: int) -> None:
        if number == before + 3:
            zone.put(OF_0[1], None)  # told already
            zone.put(OF_0[-1], None)  # not yet told
            zone.put(OF_0[2], b"changed")
            zone.put(ADDED, b"added")

    before = zone._chunks
    zone.while_read = change
    mirror.apply(read(reader, start, end))
    assert mirror.values() != zone.rows()

    mirror.apply(read(reader, end, latest(reader, end)))

    assert mirror.values() == zone.rows()
    assert not {OF_0[0], OF_0[1], OF_0[-1]} & set(mirror.rows)


def test_rows_that_no_quorum_has_are_not_told_and_another_copy_goes_on(zone: LoggedZone) -> None:
    """The copy that is read has updates that a new primary may undo."""
    reader = from_snapshot(zone, partitions="0", chunk_bytes="1")
    start = reader.initialOffset()
    end = latest(reader, start)

    def change(number: int) -> None:
        if number == 3:
            zone.copy(2).majority = end["0"]["counter"]
            zone.copy(2).advance(zone._next[0])
            zone.copy(2).rows[OF_0[3]] = (zone._next[0], 3, 0, b"in doubt")

    zone.while_read = change

    rows = read(reader, start, end)

    assert kinds(rows) == [("anew", None), *(("row", key) for key in sorted(OF_0))]
    assert {row["value"] for row in rows} == {None, b"old"}
    assert [row["node"] for row in rows] == ["agent-2"] * 4 + ["agent-1"] * (len(OF_0) - 3)


def test_a_page_is_told_once_a_quorum_has_what_is_in_it(zone: LoggedZone) -> None:
    reader = from_snapshot(zone, partitions="0")
    start = reader.initialOffset()
    end = latest(reader, start)
    asked: list[int] = []

    def reach(message: Any) -> Any:
        """The quorum is known when the copy was asked five times after its rows."""
        if isinstance(message, AskColumns):
            zone.copy(2).majority = end["0"]["counter"]
            zone.put(OF_0[0], b"new")
            asked.append(0)
        elif isinstance(message, AskCopies) and asked:
            asked.append(1)
            if len(asked) == 6:
                zone.copy(2).majority = None
        return zone._on_ask(zone.agents[2], message)

    zone.agents[2].on_ask = reach

    rows = read(reader, start, end)

    assert {row["node"] for row in rows} == {"agent-2"}
    assert len(asked) == 6
    assert max(row["counter"] for row in rows) == end["0"]["counter"] + 1


def test_a_row_above_the_lwm_is_told_once_a_quorum_has_it(zone: LoggedZone) -> None:
    """A copy takes an update in before those below it; a new primary may undo it."""
    reader = from_snapshot(zone, partitions="0")
    start = reader.initialOffset()
    end = latest(reader, start)
    counter = end["0"]["counter"]
    zone.copy(2).rows[OF_0[0]] = (counter + 2, 3, 0, b"in doubt")

    assert {row["node"] for row in read(reader, start, end)} == {"agent-1"}

    for agent in range(3):
        zone.copy(agent).rows[OF_0[0]] = (counter + 2, 3, 0, b"new")
        zone.copy(agent).majority = counter + 1
    with pytest.raises(Unreadable, match=rf"that a quorum has update {counter + 2}"):
        read(reader, start, end)

    zone.copy(2).majority = counter + 2
    (row,) = [row for row in read(reader, start, end) if row["counter"] > counter]
    assert (row["value"], row["node"]) == (b"new", "agent-2")


def test_rows_are_read_of_copies_that_have_all_updates_up_to_the_offset(zone: LoggedZone) -> None:
    reader = from_snapshot(zone, partitions="0")
    start = reader.initialOffset()
    end = latest(reader, start)
    zone.copy(2).majority = end["0"]["counter"] - 1
    zone.copy(1).lineage = Lineage(0, 0, (Entry(3, 1), Entry(5, end["0"]["counter"])))

    assert {row["node"] for row in read(reader, start, end)} == {"agent-0"}

    zone.copy(0).adopted = False
    with pytest.raises(Unreadable, match=r"partition 0: all rows at update \d+ could not be read"):
        read(reader, start, end)


def test_a_partition_without_rows_is_told_as_a_marker(zone: LoggedZone) -> None:
    zone.flush()
    reader = from_snapshot(zone, partitions="0")
    start = reader.initialOffset()

    assert kinds(read(reader, start, latest(reader, start))) == [("anew", None)]


def test_a_partition_without_a_copy_is_told_when_it_has_one(zone: LoggedZone) -> None:
    reader = from_snapshot(zone)
    start = reader.initialOffset()
    for agent in range(3):
        zone.copy(agent, 1).adopted = False
    end = latest(reader, start)
    assert end["1"] == start["1"]
    assert {row["partition"] for row in read(reader, start, end)} == {0}
    for agent in range(3):
        zone.copy(agent, 1).adopted = True

    rows = read(reader, end, latest(reader, end))

    assert kinds(rows, 0) == []
    assert kinds(rows, 1)[0] == ("anew", None)
    assert len(rows) == 1 + len(KEYS) - len(OF_0)


def test_a_partition_whose_log_is_lost_is_told_anew(zone: LoggedZone) -> None:
    """The offset is of a query that began without the option; a key is deleted meanwhile."""
    mirror = Mirror()
    first = UpdateReader(options(zone, startingoffsets="earliest"))
    begin = first.initialOffset()
    start = latest(first, begin)
    mirror.apply({**row, "told": "update"} for row in read(first, begin, start))
    zone.put(OF_0[0], None)
    for agent in range(3):
        zone.purge(agent)
    zone.put(OF_0[1], b"new")
    zone.log_from = zone._next[0] - 1
    reader = going_on(zone)
    end = latest(reader, start)
    with pytest.raises(LogLost, match="start the query with onLogLost = snapshot"):
        read(first, start, end)

    rows = read(reader, start, end)
    mirror.apply(rows)

    assert kinds(rows) == [("anew", None), *(("row", key) for key in sorted(OF_0[1:]))]
    assert kinds(rows, 1) == [], "the other partition's log reaches back"
    assert mirror.values() == zone.rows()
    zone.put(OF_0[2], b"newer")
    mirror.apply(read(reader, end, latest(reader, end)))
    assert mirror.values() == zone.rows()


def test_updates_that_were_told_before_the_log_was_lost_do_not_count(zone: LoggedZone) -> None:
    """It is cut while it is read: the update of a key comes, and its deletion is gone."""
    reader, mirror = going_on(zone, partitions="0"), Mirror()
    start = reader.initialOffset()
    for value in (b"1", b"2", None, b"4"):
        zone.put(OF_0[0] if value != b"4" else OF_0[1], value)
    end = latest(reader, start)
    answers = [agent.on_ask for agent in zone.agents]

    def cut(message: Any) -> Any:
        if isinstance(message, AskUpdates) and message.after > start["0"]["counter"]:
            zone.log_from = end["0"]["counter"]
        answer = answers[2]
        assert answer is not None
        return answer(message)

    zone.agents[2].on_ask = cut

    rows = read(reader, start, end)
    mirror.apply(rows)

    assert kinds(rows)[:3] == [("update", OF_0[0]), ("update", OF_0[0]), ("anew", None)]
    assert mirror.values() == {k: v for k, v in zone.rows().items() if k in OF_0}


def test_an_agent_that_is_away_is_waited_for_before_a_partition_is_told_anew(
    zone: LoggedZone,
) -> None:
    reader = going_on(zone, partitions="0")
    start = reader.initialOffset()
    zone.put(OF_0[0], b"new")
    end = latest(reader, start)
    zone.log_from = end["0"]["counter"]
    zone.agents[2].on_ask = lambda message: None

    rows = read(reader, start, end)

    assert kinds(rows)[0] == ("anew", None)
    asked = sum(isinstance(message, AskUpdates) for message in zone.agents[0].asked)
    assert asked > 2, "it was asked again and again"


def undo(zone: LoggedZone, key: bytes, counter: int) -> None:
    """A reset: the copies go on at `counter` in another term, without the row of `key`."""
    zone._next[0] = counter + 1
    for agent in range(3):
        copy = zone.copy(agent)
        copy.rows.pop(key)
        copy.term = 5
        copy.lineage = Lineage(0, 0, (Entry(3, 1), Entry(5, counter + 1)))
        copy.advance(counter)
    zone.logs[0] = [update for update in zone.logs[0] if update.counter <= counter]


def test_a_partition_whose_history_is_lost_is_told_anew(zone: LoggedZone) -> None:
    reader, mirror = going_on(zone, startingoffsets="snapshot"), Mirror()
    start = reader.initialOffset()
    end = latest(reader, start)
    mirror.apply(read(reader, start, end))
    undo(zone, OF_0[-1], end["0"]["counter"] - 1)
    zone.agents[2].on_ask = lambda message: None
    assert latest(reader, end) == end, "the copy that is away may have it"
    zone.agents[2].on_ask = lambda message: zone._on_ask(zone.agents[2], message)
    with pytest.raises(HistoryLost, match="start the query with onLogLost = snapshot"):
        latest(UpdateReader(options(zone)), end)

    after = latest(reader, end)
    rows = read(reader, end, after)
    mirror.apply(rows)

    assert after["0"] == {"counter": end["0"]["counter"] - 1, "term": 3, "anew": True}
    assert kinds(rows) == [("anew", None), *(("row", key) for key in sorted(OF_0[:-1]))]
    assert mirror.values() == zone.rows()


def test_history_that_is_lost_after_it_was_planned_is_told_anew_twice(zone: LoggedZone) -> None:
    """The offset is in no history, so the next micro-batch tells all rows, too."""
    reader, mirror = going_on(zone, partitions="0"), Mirror()
    start = reader.initialOffset()
    last = zone.put(ADDED, b"undone")
    end = latest(reader, start)
    undo(zone, ADDED, last - 1)

    rows = read(reader, start, end)
    mirror.apply(rows)
    after = latest(reader, end)
    again = read(reader, end, after)
    mirror.apply(again)

    assert kinds(rows) == kinds(again) == [("anew", None), *(("row", k) for k in sorted(OF_0))]
    assert after["0"] == {"counter": last - 1, "term": 3, "anew": True}
    with pytest.raises(HistoryLost, match="up to which this micro-batch goes"):
        read(UpdateReader(options(zone)), start, end)
    assert mirror.values() == {k: v for k, v in zone.rows().items() if k in OF_0}


@pytest.mark.parametrize("updates", [1, 2, 5])
def test_updates_of_a_new_history_below_the_offset_are_not_passed_over(
    zone: LoggedZone, updates: int
) -> None:
    """The rows have fewer updates than the offset says; others take their counters then.

    The new history stays below the offset, reaches it, or goes beyond.
    """
    reader, mirror = going_on(zone, partitions="0"), Mirror()
    start = reader.initialOffset()
    for value in (b"1", b"2", b"3"):
        last = zone.put(ADDED, value)
    end = latest(reader, start)
    undo(zone, ADDED, last - 2)
    mirror.apply(read(reader, start, end))
    for number in range(updates):
        zone.put(OF_0[number], b"new")

    after = latest(reader, end)
    rows = read(reader, end, after)
    mirror.apply(rows)

    assert end["0"] == {"counter": last, "term": 3}
    assert after["0"] == {"counter": last - 2 + updates, "term": 5, "anew": True}
    assert kinds(rows)[0] == ("anew", None)
    assert mirror.values() == {k: v for k, v in zone.rows().items() if k in OF_0}


def test_a_copy_that_lags_behind_is_waited_for(zone: LoggedZone) -> None:
    """Its lineage agrees with the offset: its rows are not all that there are."""
    reader = going_on(zone, partitions="0")
    start = reader.initialOffset()
    last = zone.put(ADDED, b"new")
    end = latest(reader, start)
    for agent in range(3):
        zone.copy(agent).rows.pop(ADDED)
        zone.copy(agent).advance(last - 1)

    for planned in (end, {"0": {**end["0"], "anew": True}}):
        with pytest.raises(Unreadable, match=r"could not be read within 0\.3 s") as late:
            read(reader, start, planned)
        assert not isinstance(late.value, HistoryLost)

    asked = [0]

    def catch_up(message: Any) -> Any:
        asked[0] += isinstance(message, AskCopies)
        if asked[0] == 3:
            zone.copy(2).rows[ADDED] = (last, 3, 0, b"new")
            zone.copy(2).advance(last)
        return zone._on_ask(zone.agents[2], message)

    zone.agents[2].on_ask = catch_up

    assert kinds(read(reader, start, end)) == [("update", ADDED)]


def test_one_copy_that_agrees_is_enough_to_wait(zone: LoggedZone) -> None:
    """The others have another term there; it has not adopted its own, and lags behind."""
    reader = going_on(zone, partitions="0")
    start = reader.initialOffset()
    last = zone.put(ADDED, b"undone")
    end = latest(reader, start)
    undo(zone, ADDED, last - 1)
    zone.copy(0).lineage = Lineage(0, 0, (Entry(3, 1),))
    zone.copy(0).adopted = False

    with pytest.raises(Unreadable, match="could not be read within"):
        read(reader, start, end)

    zone.copy(0).lineage = zone.copy(1).lineage
    assert kinds(read(reader, start, end))[0] == ("anew", None)


def test_digests_are_told_of_rows_too(zone: LoggedZone) -> None:
    reader = from_snapshot(zone, values="sha256")
    start = reader.initialOffset()

    rows = read(reader, start, latest(reader, start))

    assert {row["value"] for row in rows} == {None, digest(b"old")}


def test_a_flush_counts_for_rows_that_are_older(zone: LoggedZone) -> None:
    """It is between the end of the micro-batch and what was read, or after both."""
    reader, mirror = from_snapshot(zone, partitions="0", chunk_bytes="1"), Mirror()
    start = reader.initialOffset()
    end = latest(reader, start)

    def change(number: int) -> None:
        if number == 2:
            zone.flush()
            zone.put(OF_0[-1], b"after the flush")

    zone.while_read = change
    mirror.apply(read(reader, start, end))
    assert set(mirror.rows) == {min(OF_0), sorted(OF_0)[1], OF_0[-1]}

    after = latest(reader, end)
    mirror.apply(read(reader, end, after))
    assert mirror.values() == {OF_0[-1]: (b"after the flush", 0)}

    zone.flush()
    mirror.apply(read(reader, after, latest(reader, after)))
    assert mirror.values() == {}


def test_the_columns_are_as_before_unless_all_rows_may_be_told(zone: LoggedZone) -> None:
    def columns(**more: str) -> str:
        schema = QuorateDataSource(options(zone, **more)).schema()
        return ", ".join(column.split()[0] for column in schema.split(", "))

    assert columns() == columns(startingoffsets="earliest", onloglost="fail") == COLUMNS
    assert columns(startingoffsets="snapshot") == COLUMNS + ", `told`"
    assert columns(onloglost="snapshot") == COLUMNS + ", `told`"
    plain = UpdateReader(options(zone))
    start = plain.initialOffset()
    zone.put(OF_0[0], b"new")
    (row,) = read(plain, start, latest(plain, start))
    assert ", ".join(f"`{name}`" for name in row) == COLUMNS

    batch = CopyReader(options(zone, onloglost="snapshot"))
    rows = [row for part in batch.partitions() for b in batch.read(part) for row in b.to_pylist()]

    assert {row["told"] for row in rows} == {"row"}
