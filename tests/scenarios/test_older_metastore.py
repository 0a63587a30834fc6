"""The metastore is put back to an older state: its master is not obeyed and decides nothing."""

import copy
import re

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_sim.master_process import MasterProcess
from quorate_sim.planted_masters import (
    newer_rows_passed_over,
    unrecorded_zones_passed_over,
    words_passed_over,
)
from quorate_sim.scenario import Scenario
from quorate_sim.swarm import zone_record

pytestmark = pytest.mark.simulation


def _take_copy(story: Scenario) -> MemoryMetastore:
    return copy.deepcopy(story.cluster.metastore.store)


def _put_back(story: Scenario, older: MemoryMetastore) -> MasterProcess:
    """The master ends, the metastore is what it was, another master is started."""
    story.cluster.masters[-1].die()
    story.run(50)
    story.cluster.metastore.store = older
    return story.cluster.add_master()


def _another_master(story: Scenario) -> MasterProcess:
    story.cluster.masters[-1].die()
    master = story.cluster.add_master()
    story.wait(
        lambda: all(agent.disk.master_word == master.word for agent in story.cluster.living()),
        "every agent obeys the next master",
    )
    return master


def _lose_primary(story: Scenario) -> str:
    """The rows go on: another serves, and the one that was lost is back; who serves."""
    lost = story.primary
    story.crash(lost)
    new = story.wait_for_primary(lost)
    story.start(lost)
    story.come_to_rest()
    return new


def test_an_older_copy_whose_next_number_agents_know_is_refused_by_its_word() -> None:
    story = Scenario()
    older = _take_copy(story)
    second = _another_master(story)
    serving = _lose_primary(story)
    before = copy.deepcopy(older.stored)

    master = _put_back(story, older)
    story.run(5_000)

    assert master.term == second.term
    assert {agent.core.master_word for agent in story.cluster.living()} == {second.word}
    rows = {key: each for key, each in older.stored.items() if key.kind == "shard"}
    assert rows == {key: each for key, each in before.items() if key.kind == "shard"}
    assert story.primary == serving
    story.written(serving, b"x", b"1")


def test_words_passed_over_are_noticed() -> None:
    with words_passed_over(), pytest.raises(InvariantError, match="I-4"):
        test_an_older_copy_whose_next_number_agents_know_is_refused_by_its_word()


def test_an_older_copy_that_has_counted_past_what_agents_know_is_known_by_newer_rows() -> None:
    story = Scenario()
    older = _take_copy(story)
    second = _another_master(story)
    serving = _lose_primary(story)
    before = {key: each for key, each in older.stored.items() if key.kind == "shard"}

    for _ in range(3):  # a user starts it again and again
        master = _put_back(story, older)
        story.run(3_000)

    assert master.term > second.term
    assert not master.alive
    assert master.master is not None
    assert "has row" in master.master.outdated
    assert {key: each for key, each in older.stored.items() if key.kind == "shard"} == before
    assert story.primary == serving


def test_an_older_copy_of_the_same_mastership_is_known_by_newer_rows() -> None:
    story = Scenario()
    older = _take_copy(story)
    serving = _lose_primary(story)
    version = story.row.version

    master = _put_back(story, older)
    story.run(5_000)

    assert not master.alive
    assert master.master is not None
    told = re.search(r"has row (\d+) of partition 0", master.master.outdated)
    assert told is not None
    assert story.row.version < int(told[1]) <= version, "one agent's word is enough"
    assert story.primary == serving


def test_newer_rows_passed_over_are_noticed() -> None:
    with newer_rows_passed_over(), pytest.raises((AssertionError, InvariantError)):
        test_an_older_copy_of_the_same_mastership_is_known_by_newer_rows()


def _declare_later(story: Scenario) -> None:
    """The user declares another zone; it is placed and served."""
    cluster = story.cluster
    record = cluster.zones["later"] = zone_record("later", 2, 3)
    cluster.masters[-1].run(lambda: cluster.masters[-1].declare(record))
    story.wait(lambda: _is_placed(story), "the other zone is placed")
    story.wait(lambda: not cluster.rest(), "the other zone serves")


def _is_placed(story: Scenario) -> bool:
    return any(getattr(key, "uid", "") == "later" for key in story.cluster.metastore.stored())


@pytest.mark.parametrize("away", [(), ("a1", "a2")])
def test_an_older_copy_that_lacks_a_zone_is_known_by_one_agent_that_has_it(
    away: tuple[str, ...],
) -> None:
    story = Scenario()
    older = _take_copy(story)
    _declare_later(story)
    for name in away:
        story.crash(name)
    del story.cluster.zones["later"]  # with the metastore what was declared goes back

    for _ in range(2):  # a user starts it again
        master = _put_back(story, older)
        story.run(5_000)

        assert not master.alive
        assert master.master is not None
        assert "has data of zone later" in master.master.outdated
    for agent in story.cluster.living():
        assert "later" in agent.core.zones, "it goes on with the zone"


def test_zones_without_a_record_passed_over_are_noticed() -> None:
    with unrecorded_zones_passed_over(), pytest.raises(AssertionError):
        test_an_older_copy_that_lacks_a_zone_is_known_by_one_agent_that_has_it(())


def test_the_newest_put_back_leads_after_a_copy_without_its_zone_was_led_from() -> None:
    story = Scenario()
    older = _take_copy(story)
    _declare_later(story)
    record = story.cluster.zones.pop("later")
    newest = _take_copy(story)
    assert not _has_led(story, older)

    story.cluster.zones["later"] = record
    for _ in range(3):  # agents know the number of the one before by another word
        if _has_led(story, newest):
            break
    assert story.cluster.masters[-1].alive
    story.come_to_rest()


def _has_led(story: Scenario, store: MemoryMetastore) -> bool:
    """Whether a master over this metastore is there after a while."""
    master = _put_back(story, store)
    story.run(5_000)
    return master.alive


def test_an_agent_that_was_away_while_a_zone_was_deleted_ends_no_master() -> None:
    story = Scenario()
    _declare_later(story)
    away = story.primary
    story.crash(away)
    story.wait_for_primary(away)
    record = story.cluster.zones["later"]
    gone = story.cluster.zones["later"] = msgspec.structs.replace(record, deleting=True)
    story.cluster.masters[-1].run(lambda: story.cluster.masters[-1].declare(gone))
    story.run(3_000)

    story.start(away)
    master = _another_master(story)
    story.run(5_000)

    assert master.alive
    assert "later" not in story.agent(away).core.zones
    assert "later" not in story.cluster.disks[away].kept
    assert _another_master(story).alive


def test_rows_that_the_master_before_stored_late_are_read_and_no_reason_to_end() -> None:
    story = Scenario()
    first = story.cluster.masters[-1]
    second = story.cluster.add_master()
    story.run(1)  # it reads the rows; the one before goes on writing
    assert first.alive
    lost = story.primary
    story.crash(lost)
    story.wait_for_primary(lost)
    first.die()
    story.start(lost)
    story.come_to_rest()

    assert second.alive


@pytest.mark.parametrize("starts", [1, 3])
def test_the_newest_put_back_leads_after_an_older_copy_was_led_from(starts: int) -> None:
    story = Scenario()
    story.written(story.primary, b"x", b"1")
    older = _take_copy(story)
    _lose_primary(story)
    newest = _take_copy(story)
    rows = story.row
    for _ in range(starts):
        outdated = _put_back(story, older)
        story.run(5_000)
        assert not outdated.alive
    assert any(agent.disk.master_word == outdated.word for agent in story.cluster.living())

    refused = _put_back(story, newest)
    story.run(5_000)
    assert not refused.alive  # agents know its number by another word, or higher ones

    master = _another_master(story)
    story.run(5_000)

    assert master.alive
    assert story.row == rows
    assert story.read(story.primary, b"x") == b"1"
    story.written(story.primary, b"y", b"2")
    _lose_primary(story)
    assert story.read(story.primary, b"y") == b"2"
