"""The stream of a zone's updates: how far it goes, what is read, and what makes it fail."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from quorate.facts.keyspace import RESERVED, key_partition
from quorate.facts.lineage import Entry, Lineage
from quorate.protocol.messages.tools import AskCopies, AskUpdates, Copies
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.sources import update_stream
from quorate_spark.sources.row_writer import _zone_of
from quorate_spark.sources.update_stream import HistoryLost, LogLost, UpdateReader
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening

PARTITIONS = 2
KEYS = [b"key-%d" % number for number in range(9)]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoggedZone]:
    monkeypatch.setattr(update_stream, "POLL_S", 0.01)
    zone = LoggedZone(partitions=PARTITIONS)
    for key in KEYS:
        zone.put(key, b"old")
    with listening(zone):
        yield zone


def stream(zone: LoggedZone, **options: str) -> UpdateReader:
    agents = ",".join(agent.address for agent in zone.agents)
    whole = {"zone": "z", "cluster": "c", "agents": agents, "secret_file": zone.secret_file}
    return UpdateReader({**whole, "wait_s": "0.2", **options})


def latest(reader: UpdateReader, start: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return reader.latestOffset(start, ReadAllAvailable())


def read(reader: UpdateReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        row
        for span in reader.partitions(start, end)
        for batch in reader.read(span)
        for row in batch.to_pylist()
    ]


def of_partition(partition: int) -> list[bytes]:
    return [key for key in KEYS if key_partition(key, PARTITIONS) == partition]


def test_updates_since_the_start_are_read_in_order(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    assert reader.partitions(start, latest(reader, start)) == []
    first, second = of_partition(0)[:2]
    zone.put(first, b"1", 1_999_999_999_999)
    zone.put(second, b"2")
    zone.put(first, None)
    zone.put_all([(RESERVED + b"part", b"internal", 0)], 0)

    end = latest(reader, start)
    rows = read(reader, start, end)

    counter = start["0"]["counter"]
    assert end["0"] == {"counter": counter + 4, "term": 3}
    assert end["1"] == start["1"]
    assert [(row["key"], row["value"], row["counter"], row["tombstone"]) for row in rows] == [
        (first, b"1", counter + 1, False),
        (second, b"2", counter + 2, False),
        (first, None, counter + 3, True),
    ]
    assert [row["expires_at"] for row in rows] == [1_999_999_999_999, 0, 0]
    assert {(row["term"], row["partition"], row["node"]) for row in rows} == {(3, 0, "agent-2")}


def test_it_can_begin_with_the_oldest_update_that_a_log_has(zone: LoggedZone) -> None:
    reader = stream(zone, startingoffsets="earliest")
    start = reader.initialOffset()
    assert [position["counter"] for position in start.values()] == [0, 0]
    assert {row["key"] for row in read(reader, start, latest(reader, start))} == set(KEYS)

    zone.log_from = 2
    start = reader.initialOffset()

    assert [position["counter"] for position in start.values()] == [2, 2]
    assert len(read(reader, start, latest(reader, start))) == len(KEYS) - 4


def test_a_flush_is_a_row_without_a_key(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    zone.flush()

    (row,) = read(reader, start, latest(reader, start))

    assert (row["key"], row["value"], row["tombstone"], row["partition"]) == (None, None, True, 0)


def test_updates_that_no_quorum_has_are_not_read(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    for agent in range(3):
        zone.copy(agent).majority = start["0"]["counter"] + 1
    keys = of_partition(0)
    for key in keys:
        zone.put(key, b"new")

    end = latest(reader, start)

    assert [row["key"] for row in read(reader, start, end)] == keys[:1]


def test_a_copy_that_has_not_adopted_its_term_is_not_asked(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    zone.put(of_partition(0)[0], b"new")
    zone.copy(2).adopted = False
    zone.copy(1).lineage = Lineage(0, 0, (Entry(3, 1), Entry(5, start["0"]["counter"])))

    rows = read(reader, start, latest(reader, start))

    assert [row["node"] for row in rows] == ["agent-0"], "agent-1 has another history"


def test_only_the_partitions_asked_for_are_read(zone: LoggedZone) -> None:
    assert stream(zone, partitions="1").initialOffset().keys() == {"1"}


def test_nothing_begins_without_a_partition_whose_agent_is_away(zone: LoggedZone) -> None:
    for agent in zone.agents:
        agent.partitions = PARTITIONS
    source = stream(zone)._source
    assert _zone_of(source).partitions == PARTITIONS
    for agent in zone.agents:
        del agent.copies[1]

    for begin in (stream(zone).initialOffset, partial(_zone_of, source)):
        with pytest.raises(Unreadable, match=r"no agent asked owns a copy of 1 partitions \(1\)"):
            begin()


@pytest.mark.parametrize(("uids", "told"), [("uuu", "u"), ("uu ", "u"), ("   ", ""), ("uvu", "")])
def test_a_job_writes_only_into_the_zone_that_it_began_with(
    zone: LoggedZone, uids: str, told: str
) -> None:
    """Agents of earlier versions tell no uid; one may not know yet that the zone was replaced."""
    for agent, uid in zip(zone.agents, uids, strict=True):
        agent.uid = uid.strip()
        agent.partitions = PARTITIONS

    assert _zone_of(stream(zone)._source).uid == told


def test_another_copy_goes_on_where_one_fails(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    keys = of_partition(0) * 2
    for key in keys:
        zone.put(key, b"new")
    end = latest(reader, start)
    answers = zone.agents[2].on_ask
    asked = [0]

    def fail(message: Any) -> Any:
        asked[0] += isinstance(message, AskUpdates)
        if asked[0] > 1:
            return None
        assert answers is not None
        return answers(message)

    zone.agents[2].on_ask = fail

    rows = read(reader, start, end)

    assert [row["key"] for row in rows] == keys
    assert [row["node"] for row in rows[:3]] == ["agent-2", "agent-2", "agent-1"]


def test_a_log_that_does_not_reach_back_fails_and_says_what_is_left(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    counter = start["0"]["counter"]
    for key in of_partition(0)[:3]:
        zone.put(key, b"new")
    zone.log_from = counter + 2

    with pytest.raises(LogLost) as lost:
        read(reader, start, latest(reader, start))

    assert f"zone z, partition 0: update {counter + 1} is asked for" in str(lost.value)
    assert f"the oldest that a log still has is {counter + 3}" in str(lost.value)
    assert "new checkpoint" in str(lost.value)


@pytest.mark.parametrize("lacks", ["answer", "term"])
def test_a_log_is_not_lost_while_a_copy_that_may_have_it_cannot_be_read(
    zone: LoggedZone, lacks: str
) -> None:
    """Its agent restarts, or is about to adopt the term; its log is longer than the others'."""
    reader = stream(zone, wait_s="30")
    start = reader.initialOffset()
    keys = of_partition(0)[:3]
    for key in keys:
        zone.put(key, b"new")
    end = latest(reader, start)
    short, long = start["0"]["counter"] + 2, zone.agents[2]
    answers, asked = [agent.on_ask for agent in zone.agents], [0]

    def tell(agent: int, message: Any) -> Any:
        """Only the third agent's log is long; it can be read once the first was asked twice."""
        is_asked = isinstance(message, AskUpdates)
        asked[0] += is_asked and agent == 0
        if agent == 2 and lacks == "answer" and asked[0] < 2:
            return None
        zone.copy(2).adopted = lacks != "term" or asked[0] >= 2
        zone.log_from = short if agent < 2 else 0
        answer = answers[agent]
        assert answer is not None
        return answer(message)

    for agent in range(3):
        zone.agents[agent].on_ask = partial(tell, agent)

    rows = read(reader, start, end)

    assert [row["key"] for row in rows] == keys
    assert {row["node"] for row in rows} == {long.name}


def test_at_the_end_an_agent_that_is_away_is_named_and_no_new_checkpoint_is_advised(
    zone: LoggedZone,
) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    zone.put(of_partition(0)[0], b"new")
    end = latest(reader, start)
    zone.log_from = start["0"]["counter"] + 1
    zone.agents[2].on_ask = lambda message: None

    with pytest.raises(Unreadable, match=r"could not be read within 0\.2 s: ") as late:
        read(reader, start, end)

    assert not isinstance(late.value, LogLost)
    assert "the log of agent-0 has" in str(late.value)
    assert zone.agents[2].address in str(late.value)


def test_history_that_was_read_and_is_lost_fails(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    for agent in range(3):
        zone.copy(agent).lwm -= 1
    zone.agents[2].on_ask = lambda message: None
    assert latest(reader, start) == start, "the copy that is away may have it"
    zone.agents[2].on_ask = lambda message: ...

    with pytest.raises(HistoryLost, match=r"zone z, partition 0: update \d of term 3, which"):
        latest(reader, start)


def test_an_end_that_was_undone_fails_after_a_while_and_one_that_lags_behind_is_late(
    zone: LoggedZone,
) -> None:
    """The reset comes between the plan of a micro-batch and its task."""
    reader = stream(zone)
    start = reader.initialOffset()
    last = zone.put(of_partition(0)[0], b"new")
    end = latest(reader, start)
    for agent in range(3):
        zone.copy(agent).advance(last - 1)
    with pytest.raises(Unreadable, match=r"could not be read within 0\.2 s") as late:
        read(reader, start, end)
    assert not isinstance(late.value, HistoryLost)
    for agent in range(3):
        zone.copy(agent).lineage = Lineage(0, 0, (Entry(3, 1), Entry(5, last)))
    asked = len(zone.agents[0].asked)

    with pytest.raises(HistoryLost, match="up to which this micro-batch goes, is in the history"):
        read(reader, start, end)

    copies = [m for m in zone.agents[0].asked[asked:] if isinstance(m, AskCopies)]
    assert len(copies) > 2, "it was asked again and again"


def test_a_copy_that_is_cut_off_does_not_make_history_lost(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    zone.copy(0).lwm -= 1
    zone.put(of_partition(1)[0], b"new")

    end = latest(reader, start)

    assert end["0"] == start["0"]
    assert end["1"]["counter"] == start["1"]["counter"] + 1


def test_copies_that_adopt_a_new_term_do_not_make_history_lost(zone: LoggedZone) -> None:
    """The one that has adopted it first may be behind the two that have the update."""
    reader = stream(zone)
    start = reader.initialOffset()
    zone.copy(0).lwm -= 1
    for agent in (1, 2):
        zone.copy(agent).adopted = False

    assert latest(reader, start) == start

    for agent in (1, 2):
        zone.copy(agent).lwm -= 1
    with pytest.raises(HistoryLost):
        latest(reader, start)


def test_agents_of_earlier_versions_are_refused(zone: LoggedZone) -> None:
    for agent in range(3):
        zone.copy(agent).majority = -1

    with pytest.raises(Unreadable, match="is of an earlier version, which does not say"):
        stream(zone).initialOffset()


def test_a_partition_without_a_copy_is_waited_for_and_a_task_gives_up(zone: LoggedZone) -> None:
    reader = stream(zone)
    start = reader.initialOffset()
    zone.put(of_partition(0)[0], b"new")
    end = latest(reader, start)
    for agent in zone.agents:
        agent.on_ask = lambda message: (
            Copies("z", "gone", ()) if isinstance(message, AskCopies) else ...
        )

    assert latest(reader, start) == start
    with pytest.raises(Unreadable, match=r"partition 0: updates \d to \d could not be read within"):
        read(reader, start, end)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"startingoffsets": "now"},
            "option startingOffsets is 'now': write latest or earliest or snapshot",
        ),
        ({"onloglost": "skip"}, "option onLogLost is 'skip': write fail or snapshot"),
        ({"problems": "rows"}, "option problems is 'rows': a stream has no rows for problems"),
    ],
)
def test_options_that_cannot_be_are_refused(
    zone: LoggedZone, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(Unreadable, match=reason):
        stream(zone, **options)
