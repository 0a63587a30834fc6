"""Rows on their way to a zone: in batches of one partition, in order, within bounds."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quorate.facts.keyspace import key_partition
from quorate.protocol.messages.tools import RestoreRows, RowsRestored
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.writing import batches as module
from quorate_spark.writing.batches import RowBatches
from quorate_spark.writing.primaries import Primaries
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK, listening

PARTITIONS = 4


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=PARTITIONS)
    with listening(zone):
        yield zone


@contextmanager
def writing(zone: LoggedZone) -> Iterator[RowBatches]:
    agents = tuple(agent.address for agent in zone.agents)
    copies = ZoneCopies("z", agents, zone.cluster, PARTITIONS, len(agents))
    with AgentLinks(zone.cluster, QUICK) as links:
        yield RowBatches(Primaries(copies, links, 5), "z", PARTITIONS, replaces=True)


def test_rows_replace_those_that_are_there(zone: LoggedZone) -> None:
    zone.put(b"a", b"old", 1_999_999_999_999)
    zone.put(b"z", b"stays")

    with writing(zone) as batches:
        batches.add(b"a", b"1", 0)
        batches.add(b"b", b"2", 1_999_999_999_998)
        batches.finish()

    assert zone.rows() == {
        b"a": (b"1", 0),
        b"b": (b"2", 1_999_999_999_998),
        b"z": (b"stays", 0),
    }


@pytest.mark.parametrize("rows_max", [1, 2])
def test_of_a_key_that_comes_often_the_last_row_stays(
    zone: LoggedZone, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    monkeypatch.setattr(module, "BATCH_ROWS_MAX", rows_max)
    asked: set[RestoreRows] = set()

    def change_terms(ask: RestoreRows) -> RowsRestored | None:
        """Each batch meets a primary of a new term: earlier ones are written again by it."""
        if ask not in asked and ask.written == (0, 0):
            asked.add(ask)
            for agent in range(len(zone.agents)):
                zone.copy(agent, ask.partition).term += 1
        return None

    zone.refuses = change_terms

    with writing(zone) as batches:
        for number in range(12):
            batches.add(b"a", b"%d" % number, 0)
            batches.add(b"key-%d" % number, b"x", 0)
        batches.finish()

    assert zone.rows()[b"a"] == (b"11", 0)
    assert len(zone.rows()) == 13
    assert asked


def test_rows_that_are_gathered_are_bounded_over_all_partitions(
    zone: LoggedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHERED_BYTES_MAX", 3 * (module.ROW_COST + 10))
    keys = [b"key-%02d" % number for number in range(40)]
    assert {key_partition(key, PARTITIONS) for key in keys} == set(range(PARTITIONS))

    with writing(zone) as batches:
        for number, key in enumerate(keys):
            batches.add(key, b"1234", 0)
            assert number + 1 - written(zone) <= 3
        batches.finish()

    assert written(zone) == 40


def written(zone: LoggedZone) -> int:
    return len(zone.rows())


def test_a_primary_that_cannot_replace_rows_is_told_of(zone: LoggedZone) -> None:
    zone.can_replace = False
    zone.put(b"a", b"old")

    with writing(zone) as batches:
        batches.add(b"a", b"new", 0)
        with pytest.raises(Unreadable, match="upgrade the agents"):
            batches.finish()
