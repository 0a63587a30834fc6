"""Zones with PRIMARY_SYNC: what the primary alone has acknowledged, and who may lose it."""

import pytest

from quorate_sim import alone_stories
from quorate_sim.alone_stories import announced, primary_sync, written_alone


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_write_is_acknowledged_before_any_other_copy_has_it(in_memory: bool) -> None:
    story = primary_sync(in_memory=in_memory)
    primary = written_alone(story, b"k", b"1")
    assert story.read(primary, b"k") == b"1"
    story.heal()
    story.come_to_rest()
    assert story.read(story.primary, b"k") == b"1"
    assert not announced(story)
    assert story.cluster.checks.resets.lost == {}


def test_without_a_lease_nothing_is_acknowledged() -> None:
    story = primary_sync()
    primary = story.primary
    story.cut(primary)
    story.wait(lambda: not story.serves(primary), "the lease is over")
    assert story.write(primary, b"k", b"1").outcome == "elsewhere"


def test_what_only_the_primary_had_is_lost_with_it_and_that_is_announced() -> None:
    alone_stories.what_only_the_primary_had_is_lost_with_it_and_that_is_announced()


def test_a_primary_that_is_back_at_once_has_lost_nothing() -> None:
    story = primary_sync()
    primary = written_alone(story, b"k", b"1")
    story.crash(primary)
    story.heal()
    story.start(primary)
    story.wait(lambda: bool(story.primary), "somebody serves")
    assert story.read(story.primary, b"k") == b"1"
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {}


def test_who_takes_over_asks_the_former_primary_for_what_only_it_has() -> None:
    story = primary_sync()
    others = story.backups()
    first = written_alone(story, b"k", b"1")
    story.wait(lambda: any(map(story.role, others)), "another takes over", step_ms=1)
    story.run(100)
    story.heal()
    second = story.wait_for_primary(first)
    assert story.read(second, b"k") == b"1"
    assert announced(story)
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {}


def test_a_hand_over_waits_until_others_have_what_was_acknowledged() -> None:
    alone_stories.a_hand_over_waits_until_others_have_what_was_acknowledged()


def test_a_lost_majority_narrows_to_the_primary_if_it_is_left() -> None:
    story = primary_sync()
    primary = story.primary
    lost = story.backups()
    story.cut(*lost, off=(primary,))
    story.written(primary, b"k", b"1")
    for name in lost:
        story.crash(name)
    story.wait(lambda: story.row.reset is not None, "the reset")
    story.wait(lambda: story.serves(primary), "the survivor serves")
    assert story.read(primary, b"k") == b"1"
    (told,) = announced(story)
    assert "it was the primary, so it has every acknowledged write" in told
    story.heal()
    for name in lost:
        story.start(name)
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {("zone", 0): 0}


def test_a_lost_majority_with_the_primary_loses_what_only_it_had() -> None:
    story = primary_sync()
    survivor, other = story.backups()
    first = written_alone(story, b"k", b"1")
    story.crash(first)
    story.crash(other)
    story.wait(lambda: story.serves(survivor), "the survivor serves")
    assert story.read(survivor, b"k") is None
    assert "it was not the primary, so acknowledged writes may be lost" in announced(story)[-1]
    story.heal()
    story.start(first)
    story.start(other)
    story.come_to_rest()
    assert story.cluster.checks.resets.lost == {("zone", 0): 1}
