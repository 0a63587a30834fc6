"""The metastore is put back to an older state: its master is not obeyed and decides nothing."""

import copy

import pytest

from quorate.facts.errors import InvariantError
from quorate.protocol.masterships import contradiction
from quorate.protocol.messages import FORMAT_VERSION, Hello
from quorate_operator.metastore_memory import MemoryMetastore
from quorate_sim.master_process import MasterProcess
from quorate_sim.planted_masters import newer_rows_passed_over, words_passed_over
from quorate_sim.scenario import Scenario

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


def test_an_older_copy_that_has_counted_past_what_agents_know_is_known_by_their_greeting() -> None:
    story = Scenario()
    older = _take_copy(story)
    second = _another_master(story)
    serving = _lose_primary(story)

    for _ in range(3):  # a user starts it again and again
        master = _put_back(story, older)
        story.run(3_000)

    assert master.term > second.term
    assert not master.alive
    assert {agent.disk.master_word for agent in story.cluster.living()} == {second.word}
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
    assert f"has row {version} of partition 0" in master.master.outdated
    assert story.row.version < version
    assert story.primary == serving


def test_newer_rows_passed_over_are_noticed() -> None:
    with newer_rows_passed_over(), pytest.raises((AssertionError, InvariantError)):
        test_an_older_copy_of_the_same_mastership_is_known_by_newer_rows()


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


@pytest.mark.parametrize(
    ("term", "word", "is_known"),
    [(6, "x", True), (6, "y", False), (5, "z", True), (6, "", True), (4, "w", True)],
)
def test_an_agent_contradicts_a_metastore_that_knows_another_word(
    term: int, word: str, is_known: bool
) -> None:
    hello = Hello(FORMAT_VERSION, "agent", "main", "a", master_term=term, master_word=word)

    said = contradiction({5: "z", 6: "x", 7: "own"}, hello)

    assert (said == "") is is_known
