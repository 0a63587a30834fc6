"""A person restarts copies, or has them dropped and made anew, while clients write."""

import pytest

from quorate.protocol.copies.copy import Copy
from quorate.protocol.recovery import RecoveryAction
from quorate_sim.scenario import Scenario


def chosen(story: Scenario, index: int) -> str:
    """The owner at that replica index."""
    node = story.row.replicas[index]
    assert node is not None
    return node


@pytest.mark.parametrize("index", [0, 2])
def test_a_restarted_copy_promises_a_new_term_and_nothing_is_lost(index: int) -> None:
    story = Scenario()
    node = chosen(story, index)
    story.written(story.primary, b"k", b"1")
    term = story.row.term
    assert story.recover(RecoveryAction.RESTART, node).refusals == ()
    story.wait(lambda: story.row.term > term, "the new term")
    assert node not in story.row.owners
    story.come_to_rest()
    assert {*story.row.owners} == {"a1", "a2", "a3"}
    assert story.copy(node).promise_term == story.row.term
    assert story.read(story.primary, b"k") == b"1"


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("index", [0, 2])
def test_an_erased_copy_is_dropped_and_made_anew(index: int, in_memory: bool) -> None:
    story = Scenario(in_memory=in_memory)
    node = chosen(story, index)
    story.written(story.primary, b"k", b"1")
    unacknowledged = story.write(story.primary, b"k", b"2")
    assert story.recover(RecoveryAction.RESTART, node, erase=True).refusals == ()
    story.wait(lambda: node not in story.row.voter_nodes, "the copy is dropped")
    story.wait(lambda: not is_there(story.copy(node)), "its agent removes it")
    story.written(story.wait_for_primary(), b"j", b"3")
    story.come_to_rest()
    assert {*story.row.owners} == {"a1", "a2", "a3"}
    assert unacknowledged.outcome == "ok"
    assert story.read(story.primary, b"k") == b"2"
    kept = story.copy(node).get(b"k")
    assert kept is not None
    assert kept.value == b"2"


def is_there(copy: Copy) -> bool:
    return copy.present


def test_the_last_healthy_copy_is_not_touched() -> None:
    story = Scenario()
    node = chosen(story, 1)
    story.crash(chosen(story, 2))
    story.wait(lambda: len(story.row.owners) == 2, "the loss is seen")
    story.run(200)  # until the master knows that its row is written
    for erase in (False, True):
        (refusal,) = story.recover(RecoveryAction.RESTART, node, erase).refusals
        assert "it may be the last healthy copy: the others that are there and own (" in refusal
    story.written(story.primary, b"k", b"1")
