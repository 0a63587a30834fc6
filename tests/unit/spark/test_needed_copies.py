"""A read in a batch fails if a copy that it needs is missing, and reads what it needs without."""

import time
from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import EqualTo, Filter, In

from quorate.facts.keyspace import key_partition
from quorate_spark.data_source import CopyReader, FilteredCopyReader
from quorate_spark.reading.agent_link import Unreadable
from quorate_spark.sources import needed_copies
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

PARTITIONS = 4
PRIMARIES = EqualTo(("replica_index",), 0)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedZone]:
    monkeypatch.setattr(needed_copies, "PAUSE_S", 0)
    zone = ScriptedZone(replicas=2, partitions=PARTITIONS)
    for agent in zone.agents:
        agent.partitions = PARTITIONS
    with listening(zone):
        yield zone


def planned(zone: ScriptedZone, *filters: Filter, **more: str) -> list[tuple[int, str]]:
    """The copies that are read: partition and agent."""
    agents = ",".join(agent.address for agent in zone.agents)
    options = {"zone": "z", "agents": agents, "cluster": "c", "secret_file": zone.secret_file}
    reader = FilteredCopyReader({**options, **more}) if filters else CopyReader({**options, **more})
    if isinstance(reader, FilteredCopyReader):
        reader.pushFilters(list(filters))
    return [each.value for each in reader.partitions()]


def lose(zone: ScriptedZone, *partitions: int) -> None:
    """No agent has a copy of these any more."""
    for agent in zone.agents:
        for partition in partitions:
            del agent.copies[partition]


@pytest.mark.parametrize("problems", ["raise", "rows"])
def test_a_partition_without_an_owner_fails_the_query(zone: ScriptedZone, problems: str) -> None:
    lose(zone, 2, 3)

    with pytest.raises(Unreadable, match=r"no agent asked owns a copy of 2 partitions \(2, 3\)"):
        planned(zone, problems=problems)
    with pytest.raises(Unreadable, match=r"of 1 partitions \(3\)"):
        planned(zone, partitions="1,3")
    with pytest.raises(Unreadable, match=r"of 1 partitions \(3\)"):
        planned(zone, PRIMARIES, In(("partition",), (1, 3)))


def test_a_partition_that_is_not_needed_may_be_missing(zone: ScriptedZone) -> None:
    key = next(key for key in (b"key-%d" % n for n in range(99)) if key_partition(key, 4) == 1)
    lose(zone, 2, 3)

    assert planned(zone, partitions="1") == [(1, "agent-0"), (1, "agent-1")]
    assert planned(zone, PRIMARIES, EqualTo(("key",), key)) == [(1, "agent-0")]
    assert planned(zone, EqualTo(("node",), "agent-1")) == [(0, "agent-1"), (1, "agent-1")]
    nothing = EqualTo(("partition",), 0), EqualTo(("partition",), 2)
    assert planned(zone, *nothing) == []


def test_agents_of_before_tell_no_number_of_partitions(zone: ScriptedZone) -> None:
    for agent in zone.agents:
        agent.partitions = 0
    lose(zone, 3)

    with pytest.raises(Unreadable, match="which is not a number a zone can have"):
        planned(zone)
    with pytest.raises(Unreadable, match=r"of 1 partitions \(3\)"):
        planned(zone, partitions="0,3")
    assert planned(zone, PRIMARIES, partitions="0,2") == [(0, "agent-0"), (2, "agent-0")]


def test_a_reading_during_a_hand_over_fails_the_query(zone: ScriptedZone) -> None:
    """agent-0 was asked after it, agent-1 before: neither seems to be the primary."""
    zone.copy(0, 2).replica_index = 1
    reason = r"partition 2: replica index 0 has no owner \(agent-0: 1, agent-1: 1\): ownership is"

    for filters in ((), (PRIMARIES,)):
        with pytest.raises(Unreadable, match=reason):
            planned(zone, *filters)
    assert planned(zone, PRIMARIES, partitions="1") == [(1, "agent-0")]

    zone.copy(0, 2).replica_index = zone.copy(1, 2).replica_index = 0
    with pytest.raises(Unreadable, match="replica index 0 has 2 owners"):
        planned(zone, PRIMARIES)


def test_an_index_that_is_not_needed_may_have_no_owner(zone: ScriptedZone) -> None:
    zone.copy(1, 2).replica_index = 2

    assert len(planned(zone)) == 2 * PARTITIONS
    assert len(planned(zone, PRIMARIES)) == PARTITIONS
    assert planned(zone, EqualTo(("replica_index",), 2)) == [(2, "agent-1")]
    with pytest.raises(Unreadable, match="partition 2: replica index 1 has no owner"):
        planned(zone, EqualTo(("replica_index",), 1))


def test_an_index_that_is_not_needed_may_have_two_owners() -> None:
    """One was asked before the owner of index 1 went, the other after."""
    zone = ScriptedZone(replicas=3, partitions=1)
    for agent in zone.agents:
        agent.partitions = 1
    zone.copy(2, 0).replica_index = 1

    with listening(zone):
        assert planned(zone, PRIMARIES) == [(0, "agent-0")]
        assert planned(zone) == [(0, "agent-0"), (0, "agent-1"), (0, "agent-2")]
        with pytest.raises(Unreadable, match="replica index 1 has 2 owners"):
            planned(zone, EqualTo(("replica_index",), 1))


def test_agents_are_asked_again_while_ownership_changes(
    zone: ScriptedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.copy(0, 2).replica_index = 1
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == needed_copies.READINGS_MAX - 1:
            zone.copy(1, 2).replica_index = 0

    monkeypatch.setattr(time, "sleep", pause)

    assert (2, "agent-1") in planned(zone, PRIMARIES)
    assert len(pauses) == needed_copies.READINGS_MAX - 1


def test_a_backup_with_two_owners_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = ScriptedZone(replicas=3, partitions=1)
    for agent in zone.agents:
        agent.partitions = 1
    zone.copy(2, 0).replica_index = 1
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        zone.copy(2, 0).replica_index = 2

    monkeypatch.setattr(time, "sleep", pause)

    with listening(zone):
        assert len(planned(zone)) == 3
    assert len(pauses) == 1
