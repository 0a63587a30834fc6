"""Voters in memory that are only silent are dropped; alive behind a cut, they do no harm."""

import pytest

from quorate.facts.errors import InvariantError
from quorate_sim.planted import DEFECTS
from quorate_sim.scenario import Scenario
from quorate_sim.silent_story import (
    five_in_memory,
    silent_voters_are_dropped_when_a_majority_has_what_was_answered,
    silent_voters_are_dropped_when_their_time_is_over,
)


def dropped(story: Scenario, *silent: str) -> None:
    """These are cut off from everything until the row does not name them any more."""
    story.cut(*silent)
    story.wait(lambda: not {*silent} & {*story.row.voter_nodes}, "they are dropped")


def test_they_are_dropped_when_a_majority_has_what_was_answered() -> None:
    silent_voters_are_dropped_when_a_majority_has_what_was_answered()


def test_it_is_noticed_when_a_majority_is_not_waited_for() -> None:
    defect = DEFECTS["silent-dropped-alone"]
    with defect(), pytest.raises(Exception, match=r"I-5|no majority has"):
        silent_voters_are_dropped_when_a_majority_has_what_was_answered()


def test_it_is_noticed_when_their_timer_is_not_waited_for() -> None:
    silent_voters_are_dropped_when_their_time_is_over()
    with DEFECTS["silent-dropped-early"](), pytest.raises(InvariantError, match="is a data node"):
        silent_voters_are_dropped_when_their_time_is_over()


def test_a_third_loss_of_five_leaves_a_majority() -> None:
    """With five voters of which two are silent it would leave none."""
    story = five_in_memory()
    primary, third, *_ = story.primary, *story.backups()
    dropped(story, *story.backups()[2:])
    story.cut(third)
    story.written(story.primary, b"x", b"2")
    assert story.primary == primary
    story.heal()
    story.come_to_rest()
    assert len(story.row.voters) == 5


def test_on_disk_they_keep_their_votes() -> None:
    story = Scenario(agents=5, replicas=5)
    silent = story.backups()[2:]
    story.cut(*silent)
    story.run(20_000)
    assert {*silent} < {*story.row.voter_nodes}
    story.heal()
    story.come_to_rest()


def test_a_former_primary_behind_a_cut_serves_nothing_and_returns_by_a_full_copy() -> None:
    """It has a write that was never answered, and the row that names it."""
    story = five_in_memory()
    old, beside = story.primary, story.backups()[0]
    story.cut(old, beside)
    lost = story.write(old, b"x", b"never answered")
    heir = story.wait_for_primary(old, beside)
    story.wait(lambda: len(story.row.voters) == 3, "they are dropped")
    story.written(heir, b"x", b"2")
    assert not story.serves(old)
    assert lost.outcome != "ok"

    story.heal()
    story.come_to_rest()
    assert len(story.row.voters) == 5
    assert story.read(story.wait_for_primary(), b"x") == b"2"


def test_silence_alone_leaves_two_that_wait_for_each_other() -> None:
    story = five_in_memory()
    while len(story.row.voters) > 2:
        dropped(story, story.backups()[-1])
    primary, other = story.primary, story.backups()[0]
    story.cut(other)
    story.run(20_000)

    assert {*story.row.voter_nodes} == {primary, other}
    assert not story.primary
    assert f"start agents that are away: {other}" in story.sentence
    story.heal()
    story.come_to_rest()


def test_the_next_master_ends_what_the_last_one_began() -> None:
    story = five_in_memory()
    silent = story.backups()[2:]
    story.cut(*silent)
    story.wait(lambda: story.row.active is not None, "the drop begins", step_ms=1)
    story.cluster.masters[-1].die()
    story.cluster.add_master()
    story.cut(*silent)
    story.wait(lambda: len(story.row.voters) == 3, "they are dropped")
    story.heal()
    story.come_to_rest()
