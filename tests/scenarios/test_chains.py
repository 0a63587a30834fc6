"""Chains of resets: after all restart, the partition goes on from its last update.

The two examples of IEP-131, phase 2, with its letters: [A..G], then [E, F, G], then [G].
"""

import pytest

from quorate.protocol.recovery import RecoveryAction
from quorate_sim.chain_story import RESET_MS, Chain, the_second_link_is_waited_for
from quorate_sim.scenario import Scenario


@pytest.mark.parametrize("last_first", [True, False])
def test_example_1_a_majority_of_the_first_link_is_waited_for(last_first: bool) -> None:
    chain = Chain()
    story = chain.story
    one, two, last = chain.narrow()
    chain.start_in((last, one, two) if last_first else (two, one, last))
    for name in chain.first[:2]:
        story.start(name)
        story.run(4 * RESET_MS)
        assert not story.primary  # two of A, B, C and D are too few
    away = ", ".join(sorted(chain.first[2:]))
    assert f"start agents that are away ({away})" in story.sentence
    term = story.row.term
    story.run(4 * RESET_MS)
    assert story.row.term == term, "nothing new is tried again and again"
    story.start(chain.first[2])
    story.wait(lambda: bool(story.primary), "a majority of the first link has answered")
    assert story.read(story.primary, b"k") == b"10"
    story.start(chain.first[3])
    story.come_to_rest()
    assert story.read(story.primary, b"k") == b"10"


def test_example_2_a_majority_of_the_second_link_is_waited_for() -> None:
    the_second_link_is_waited_for()


def test_the_use_case_of_the_document() -> None:
    """IEP-131, six steps: B, C and D hold a partition; A is the master."""
    story = Scenario(3, 3, reset_ms=RESET_MS)
    b = story.primary
    c, d = story.backups()
    story.written(b, b"k", b"1")
    for name in (c, d):  # 1
        story.crash(name)
    story.wait(lambda: story.row.voter_nodes == (b,), "B alone is left")
    story.wait(lambda: story.serves(b), "B serves")
    story.written(b, b"k", b"2")  # 2
    for name in (c, d):  # 3
        story.start(name)
    story.come_to_rest()
    assert {*story.row.voter_nodes} == {b, c, d}
    for name in (b, c, d):  # 4
        story.crash(name)
    story.wait(lambda: not any(map(story.is_online, (b, c, d))), "all have left")
    story.start(d)  # 5
    story.run(4 * RESET_MS)
    assert not story.primary
    for name in (b, c):  # 6
        story.start(name)
    story.come_to_rest()
    assert story.read(story.primary, b"k") == b"2"
    assert {*story.row.voter_nodes} == {b, c, d}


def test_a_person_can_go_on_without_the_copies_that_are_waited_for() -> None:
    chain = Chain()
    story = chain.story
    one, two, last = chain.narrow()
    chain.start_in((one, two, last))
    story.run(4 * RESET_MS)
    assert not story.primary

    answer = story.recover(RecoveryAction.RESET)

    assert answer.refusals == ()
    assert "narrows to" in answer.partitions[0].sentence
    story.wait(lambda: bool(story.primary), "it serves")
    assert story.read(story.primary, b"k") == b"5"
    for name in chain.first:
        story.start(name)
    story.come_to_rest()
    assert story.read(story.primary, b"k") == b"5"


def test_a_survivor_that_was_an_owner_waits_for_nobody() -> None:
    story = Scenario(3, 3, reset_ms=RESET_MS)
    survivor = story.primary
    story.written(survivor, b"k", b"1")
    for name in story.backups():
        story.crash(name)
    story.wait(lambda: story.row.reset is not None, "the reset")
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    assert story.row.reset is not None
    assert [link.needed for link in story.row.reset.links] == [0]
    story.crash(survivor)
    story.start(survivor)
    story.wait(lambda: story.serves(survivor), "it serves again, alone")
    assert story.read(survivor, b"k") == b"1"


def test_a_line_that_is_alive_waits_for_nobody() -> None:
    chain = Chain()
    story = chain.story
    chain.lose(*chain.first)
    story.heal()
    primary = story.primary
    other = next(name for name in chain.late if name != primary)
    story.crash(primary)
    story.wait(lambda: bool(story.primary), "another of E, F and G serves")
    assert story.read(story.primary, b"k") == b"5"
    story.crash(other)
    story.start(primary)
    story.start(other)
    story.wait(lambda: bool(story.primary), "they go on")


def test_links_are_gone_when_the_partition_has_all_its_copies() -> None:
    chain = Chain()
    story = chain.story
    chain.lose(*chain.first)
    story.heal()
    story.written(story.primary, b"k", b"7")
    for name in chain.first:
        story.start(name)
    story.come_to_rest()
    assert story.row.reset is not None
    assert (story.row.reset.others, story.row.reset.links) == ((), ())
